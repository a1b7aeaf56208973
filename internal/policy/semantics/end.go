package semantics

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// EndOf returns the end that a Pod is.
func EndOf(p *cluster.Pod) *End {
	e := &End{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Addrs: p.IPs, Node: p.Node}
	if p.Spec != nil {
		e.Ports, e.HostNetwork = p.Spec.Ports, p.Spec.HostNetwork
	}
	return e
}

// EndOfWorkload returns the end that the Pods of a workload are, of which no address is known.
func EndOfWorkload(w *cluster.Workload) *End {
	return &End{Namespace: w.Namespace, Labels: w.Labels, Ports: w.Spec.Ports, HostNetwork: w.Spec.HostNetwork}
}

// EndAt returns the end at an address: a Pod that has it and has not finished, otherwise a node, otherwise
// an address outside the cluster. Pods in the network of their node are the node.
func EndAt(v *cluster.View, addr netip.Addr) *End {
	for p := range v.Pods() {
		if !p.Finished && p.Spec != nil && !p.Spec.HostNetwork && slices.Contains(p.IPs, addr) {
			return EndOf(p)
		}
	}
	e := &End{Addrs: []netip.Addr{addr}}
	for n := range v.Nodes() {
		if slices.Contains(n.Addresses, addr) {
			e.Node = n.Name
		}
	}
	return e
}
