package connection

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// subject returns the end that a Pod or workload is. If it has no address, it has one of those of Pods.
func (x *explainer) subject(s *dnsconfig.Subject) *semantics.End {
	e := lint.EndOf(s)
	if len(e.Addrs) == 0 && !e.HostNetwork {
		e.Within = x.podRanges()
	}
	return e
}

// podRanges returns what all Pods have addresses of; none if that is not known.
func (w *World) podRanges() (all []netip.Prefix) {
	for n := range w.View.Nodes() {
		if len(n.PodCIDRs) == 0 {
			return nil
		}
		all = append(all, n.PodCIDRs...)
	}
	return all
}

// endAt returns the end at an address, as semantics.Ends finds it.
func (w *World) endAt(addr netip.Addr) *semantics.End {
	if w.ends == nil {
		w.ends = semantics.NewEnds(w.View)
	}
	return w.ends.At(addr)
}

// doubt says whether a connection that is allowed would be denied with another address of the peer, which is not known.
func (r *Ruling) doubt(peer *semantics.End, d ruleset.Direction, again func(*semantics.End) semantics.Verdict) {
	if !r.Allowed || len(peer.Addrs) > 0 || len(peer.Names) > 0 {
		return
	}
	doubted := *peer
	doubted.Doubted = true
	v := again(&doubted)
	switch p := v.Decider.Policy; {
	case v.Allowed:
	case r.Policy != "":
		r.unsure = fmt.Sprintf("%s of %s allows some addresses", r.Rule, r.Policy)
	case p != nil:
		r.unsure = fmt.Sprintf("%s of ClusterNetworkPolicy %s denies some addresses",
			cluster.RulePath(d.String(), v.Decider.Rule), p.Name)
	}
}

// dependsOnAddress reports whether the verdict on an endpoint depends on an address that is not known, and adds that.
// There are no rulings then.
func (x *explainer) dependsOnAddress(u *Use) (depends bool) {
	if u.verdict() == Denied { // whatever the address is
		return false
	}
	const ofPod = "simulate the control plane (--simulate), which gives Pods addresses, or name a Pod that runs"
	cure := "give the client's address instead of outside"
	switch x.Client.Place {
	case InPod, AtPodAddress:
		cure = ofPod
	case OnNode:
		cure = "name a node whose addresses are known: --node NAME"
	case Outside:
	}
	if u.Ingress != nil && u.Ingress.unsure != "" {
		x.add("client-address", cure, "%s, and the client's is not known", u.Ingress.unsure)
		depends = true
	}
	if u.Egress != nil && u.Egress.unsure != "" {
		x.add("target-address", ofPod, "%s, and that of %s is not known", u.Egress.unsure, x.To)
		depends = true
	}
	if depends {
		u.Egress, u.Ingress = nil, nil
	}
	return depends
}

// isUnread reports whether what policies decide between two ends is not known because the account may not read objects,
// and adds that. The end from is nil if it is a Pod that is not read.
func (x *explainer) isUnread(from, to *semantics.End) bool {
	if from != nil && from.Namespace == "" && to.Namespace == "" {
		return false // no policy judges it
	}
	var what []string
	add := func(missing bool, text string) {
		if missing && !slices.Contains(what, text) {
			what = append(what, text)
		}
	}
	add(!x.View.Loaded(cluster.KindNetworkPolicy), "networkpolicies")
	add(!x.View.Loaded(cluster.KindClusterNetworkPolicy), "clusternetworkpolicies")
	add(from == nil, "pods")
	for _, e := range []*semantics.End{from, to} {
		switch {
		case e == nil:
		case e.Namespace != "":
			add(x.unread(cluster.KindNetworkPolicy, e.Namespace), "networkpolicies of namespace "+e.Namespace)
			add(!x.View.Loaded(cluster.KindNamespace) && x.set().SelectsByLabels(e.Namespace), "namespaces")
		case e.Node == "" && slices.ContainsFunc(e.Addrs, mayBePods):
			add(!x.View.Loaded(cluster.KindPod) || x.unread(cluster.KindPod, ""), "pods of all namespaces")
		}
	}
	if len(what) > 0 {
		x.add(policiesUnread, "allow the account to list "+strings.Join(what, ", "),
			"what policies decide is not known, since these could not be read: %s", strings.Join(what, ", "))
	}
	return len(what) > 0
}

// policiesUnread is the rule of the diagnosis of isUnread.
const policiesUnread = "policies-unread"

// unread reports whether objects of a kind in a namespace, "" is any other, may exist that are not in the model.
func (x *explainer) unread(k cluster.Kind, namespace string) bool {
	return x.Linter.Unread != nil && x.Linter.Unread(k, namespace)
}

// shared has the addresses that carriers use between themselves and customers, and clusters for Pods (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// mayBePods reports whether clusters use an address for Pods: it is a private one.
func mayBePods(a netip.Addr) bool { return a.IsPrivate() || shared.Contains(a) }

// Unread reports whether policies could not be read, so that nothing can be said of the connection.
func (e *Explanation) Unread() (why string, ok bool) {
	for i := range e.Diagnoses {
		if d := &e.Diagnoses[i]; d.Rule == policiesUnread {
			return d.Why, true
		}
	}
	return "", false
}
