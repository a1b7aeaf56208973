// Package semantics says what NetworkPolicies allow.
//
// It implements networking.k8s.io/v1 as Kubernetes' page Network Policies has
// it: policies are additive; what no policy restricts is allowed; a connection
// needs the egress of its one end and the ingress of the other. Where that page
// leaves it to the network plugin, this package does as most of them: policies
// do not bind Pods in the node's network, and a policy's ports are the Pod's
// own, not those of a Service in front of it.
//
// Everything here is a pure function of the model.
package semantics

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// nameLabel is on every Namespace, with its name for a value (Network Policies,
// "Targeting a Namespace by its name").
const nameLabel = "kubernetes.io/metadata.name"

// End is one end of a connection: a Pod, or the Pods of a template.
type End struct {
	Namespace string
	Labels    map[string]string
	// Addrs are its addresses, as far as they are known.
	Addrs []netip.Addr
	// Ports are those of its containers, for policies that name them.
	Ports       []cluster.Port
	HostNetwork bool
}

// Set is the NetworkPolicies of a cluster.
type Set struct {
	policies map[string][]*cluster.NetworkPolicy // by namespace, then sorted by name
	labels   map[string]map[string]string        // of Namespaces
}

// NewSet collects the NetworkPolicies of a view.
func NewSet(v *cluster.View) *Set {
	s := &Set{policies: make(map[string][]*cluster.NetworkPolicy), labels: make(map[string]map[string]string)}
	for p := range v.NetworkPolicies() {
		s.policies[p.Namespace] = append(s.policies[p.Namespace], p)
	}
	for _, of := range s.policies {
		slices.SortFunc(of, func(a, b *cluster.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	}
	for n := range v.Namespaces() {
		s.labels[n.Name] = withName(n.Name, n.Labels)
	}
	return s
}

// withName are a Namespace's labels, with the one that has its name.
func withName(namespace string, labels map[string]string) map[string]string {
	if labels[nameLabel] == namespace {
		return labels
	}
	all := maps.Clone(labels)
	if all == nil {
		all = make(map[string]string, 1)
	}
	all[nameLabel] = namespace
	return all
}

// labelsOf are a Namespace's labels, be it in the model or not.
func (s *Set) labelsOf(namespace string) map[string]string {
	if labels, ok := s.labels[namespace]; ok {
		return labels
	}
	return withName(namespace, nil)
}

// Verdict says whether one direction is allowed.
type Verdict struct {
	Allowed bool
	// Policies are those that apply, by name; none where nothing restricts.
	Policies []*cluster.NetworkPolicy
	// Near, where it is not allowed, is the rule that comes nearest.
	Nearest NearestRule
}

// Near is a rule that allows a part of what is asked.
type NearestRule struct {
	Policy   *cluster.NetworkPolicy // nil when there is none
	Rule     int                    // its place among the policy's rules of that direction
	Mismatch Mismatch
}

// Lack is what a rule does not allow.
type Mismatch int

// What a rule may lack.
const (
	Both  Mismatch = iota // neither the peer nor the port
	Ports                 // the peer is allowed, the port is not
	Peers                 // the port is allowed, the peer is not
)

// Egress says whether from may open a connection to a port of to. Addresses
// beside those of to, under which it is reached, are others: an ipBlock that
// covers one of them allows, for whether policies see the address before or
// after it is rewritten differs between network plugins.
func (s *Set) Egress(from, to *End, port cluster.Port, others ...netip.Addr) Verdict {
	addrs := slices.Concat(to.Addrs, others)
	return s.evaluate(from, func(p *cluster.NetworkPolicy) (applies bool, rules []cluster.PolicyRule) {
		return p.Egress, p.EgressRules
	},
		func(p *cluster.NetworkPolicy, r *cluster.PolicyRule) (peer, ports bool) {
			return s.peers(p, r.Peers, to, addrs), portsAllow(r.Ports, to, port)
		})
}

// Ingress says whether to accepts a connection to a port of it by from.
func (s *Set) Ingress(to, from *End, port cluster.Port) Verdict {
	return s.evaluate(to, func(p *cluster.NetworkPolicy) (applies bool, rules []cluster.PolicyRule) {
		return p.Ingress, p.IngressRules
	},
		func(p *cluster.NetworkPolicy, r *cluster.PolicyRule) (peer, ports bool) {
			return s.peers(p, r.Peers, from, from.Addrs), portsAllow(r.Ports, to, port)
		})
}

// judge asks the policies that apply to an end in one direction.
func (s *Set) evaluate(e *End, direction func(*cluster.NetworkPolicy) (bool, []cluster.PolicyRule), allows func(*cluster.NetworkPolicy, *cluster.PolicyRule) (peer, ports bool)) (v Verdict) {
	if e.HostNetwork {
		return Verdict{Allowed: true}
	}
	for _, p := range s.policies[e.Namespace] {
		applies, rules := direction(p)
		if !applies || !p.Pods.Selects(e.Labels) {
			continue
		}
		v.Policies = append(v.Policies, p)
		for i := range rules {
			peer, ports := allows(p, &rules[i])
			switch {
			case peer && ports:
				v.Allowed = true
			case peer && v.Nearest.Mismatch != Ports: // the peer is the better part
				v.Nearest = NearestRule{p, i, Ports}
			case ports && v.Nearest.Mismatch == Both:
				v.Nearest = NearestRule{p, i, Peers}
			}
		}
	}
	if v.Allowed || len(v.Policies) == 0 {
		v.Allowed, v.Nearest = true, NearestRule{}
	}
	return v
}

// peers tells whether one of a rule's peers is the end; no peers are all.
func (s *Set) peers(p *cluster.NetworkPolicy, peers []cluster.PolicyPeer, e *End, addrs []netip.Addr) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer cluster.PolicyPeer) bool {
		if peer.Block.IsValid() {
			return covers(&peer, addrs)
		}
		if peer.Namespaces == nil {
			return e.Namespace == p.Namespace && (peer.Pods == nil || peer.Pods.Selects(e.Labels))
		}
		return peer.Namespaces.Selects(s.labelsOf(e.Namespace)) && (peer.Pods == nil || peer.Pods.Selects(e.Labels))
	})
}

// covers tells whether a block has one of the addresses; where none is known it
// may have.
func covers(peer *cluster.PolicyPeer, addrs []netip.Addr) bool {
	return len(addrs) == 0 || slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		return peer.Block.Contains(addr) && !slices.ContainsFunc(peer.Except, func(except netip.Prefix) bool { return except.Contains(addr) })
	})
}

// portsAllow tells whether one of a rule's ports is the port of the end; no
// ports are all. A name is that of a container's port.
func portsAllow(ports []cluster.PolicyPort, to *End, port cluster.Port) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p cluster.PolicyPort) bool {
		switch {
		case p.Protocol != port.Protocol:
			return false
		case p.Name != "":
			return slices.ContainsFunc(to.Ports, func(own cluster.Port) bool {
				return own.Name == p.Name && own.Protocol == port.Protocol && own.Number == port.Number
			})
		}
		return p.Number == 0 || p.Number <= port.Number && port.Number <= p.End
	})
}
