package connection

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// vacancy is a range of a node's Pods with an address that no Pod has. The agent of the node drops packets
// from and to it (ruleset.Ruleset, Ranges).
type vacancy struct {
	addr netip.Addr
	pods netip.Prefix
	node string
}

// vacancyOf returns the vacancy that an end of a connection is; ok is false if it is none, and for packets of
// other, the other end, that its node does not judge.
func (x *explainer) vacancyOf(e, other *semantics.End) (v vacancy, ok bool) {
	if e.Namespace != "" || e.Node != "" || len(e.Addrs) != 1 || !x.View.Loaded(cluster.KindPod) {
		return v, false
	}
	v.addr = e.Addrs[0]
	if v.pods, v.node, ok = x.rangeOf(v.addr); !ok || x.isPods(v.addr) || x.isShared(v.pods, v.node) {
		return v, false
	}
	if other.IsNode() && other.Node == v.node {
		return v, false
	}
	own := x.Judge != nil && x.Judge.IsOwn != nil && v.node == x.Judge.Node && x.Judge.IsOwn(v.addr)
	return v, !own
}

// rangeOf returns the range of Pods with an address, and the node whose it is.
func (x *explainer) rangeOf(addr netip.Addr) (pods netip.Prefix, node string, ok bool) {
	find := func(ranges []netip.Prefix) bool {
		i := slices.IndexFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
		if i >= 0 {
			pods = ranges[i]
		}
		return i >= 0
	}
	if len(x.Settings.PodRanges) > 0 { // instead of those of the Node
		node = x.Client.Node
		if x.Judge != nil {
			node = cmp.Or(x.Judge.Node, node)
		}
		return pods, node, find(x.Settings.PodRanges)
	}
	for n := range x.View.Nodes() {
		if find(n.PodCIDRs) {
			return pods, n.Name, true
		}
	}
	return pods, "", false
}

// isShared reports whether a Pod of another node than a range's, or such a node, has an address in it: its node
// does not enforce it then (plan.Compiler, SharedRanges).
func (x *explainer) isShared(r netip.Prefix, node string) bool {
	for n := range x.View.Nodes() {
		if n.Name != node && slices.ContainsFunc(n.Addresses, r.Contains) {
			return true
		}
	}
	for p := range x.View.Pods() {
		hasOwn := !p.Finished && (p.Spec == nil || !p.Spec.HostNetwork)
		if hasOwn && p.Node != node && slices.ContainsFunc(p.IPs, r.Contains) {
			return true
		}
	}
	return false
}

// isPods reports whether a Pod that has not finished has an address, or an EndpointSlice of manifests, which
// need not have the Pods.
func (x *explainer) isPods(addr netip.Addr) bool {
	for p := range x.View.Pods() {
		if !p.Finished && slices.Contains(p.IPs, addr) {
			return true
		}
	}
	if x.Linter.Observed {
		return false
	}
	for s := range x.View.EndpointSlices() {
		if slices.ContainsFunc(s.Endpoints, func(e cluster.Endpoint) bool { return e.Addr == addr }) {
			return true
		}
	}
	return false
}

// vacancyRuling returns what the node of a vacancy decides on a direction of a connection.
func (x *explainer) vacancyRuling(f *flow, d ruleset.Direction, v *vacancy) *Ruling {
	r := &Ruling{
		Why:  fmt.Sprintf("no Pod has %s, which is in the Pod range %s of node %s", v.addr, v.pods, v.node),
		Cure: "name a Pod that runs: kubectl get pods -A -o wide",
		node: v.node,
	}
	r.Kernel = x.compare(x.askKernel(f, d, &semantics.End{Node: v.node}), false)
	return r
}
