// Package semantics evaluates NetworkPolicies and ClusterNetworkPolicies.
//
// It implements networking.k8s.io/v1 as described on the page Network Policies of the
// Kubernetes documentation: policies are additive, what no policy restricts is allowed,
// and a connection needs the egress of its source and the ingress of its destination. Traffic
// between a Pod and its own node is allowed.
// Where that page leaves it to the network plugin, this package does as most of them do:
// policies do not apply to Pods with hostNetwork, selectors do not match those Pods as
// peers, and addresses and ports of a policy are those of the Pod, not those of a Service,
// because the destination is translated before policies apply. A Pod may connect to itself
// through a Service.
//
// Of policy.networking.k8s.io/v1alpha2 the Admin tier is evaluated before, and the Baseline tier for
// Pods that no NetworkPolicy selects in the direction. These apply to a Pod's connections to its
// node and with itself, too (sigs.k8s.io/network-policy-api, issue 390). What comes from a Pod's own node
// passes in all tiers: their ingress peers are Pods only, and the kubelet's probes must arrive.
//
// Policies in audit mode (cluster.AnnotationAudit) deny nothing. A Verdict has what they would have
// denied, and is otherwise that of the same cluster without these denials: what a NetworkPolicy in
// audit mode allows is allowed, and a Pod is isolated only by NetworkPolicies that are not in audit mode.
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

// nameLabel is the label of every namespace with its name as value (Network Policies,
// "Targeting a Namespace by its name").
const nameLabel = "kubernetes.io/metadata.name"

// End is one end of a connection: a Pod, a Pod template, or an address outside the
// cluster.
type End struct {
	// Namespace is empty for an address that is not a Pod's.
	Namespace string
	// Name is the Pod's name; empty for templates.
	Name   string
	Labels map[string]string
	// Addrs are its addresses, if they are known.
	Addrs []netip.Addr
	// Within are networks that have its addresses, where these are not known; none are all.
	Within []netip.Prefix
	// Doubted: addresses that are not known count against a connection, instead of in favor of it.
	Doubted bool
	// Names are the domain names of its addresses, in lower case without a dot at the end, as the client
	// looked them up.
	Names []string
	// Ports are the ports of its containers, for policies with named ports.
	Ports       []cluster.Port
	HostNetwork bool
	// Node is the node of a Pod, or whose address it is; empty if there is none, or it is not known.
	Node string
}

// IsNode reports whether e is a node for policies: its address, or a Pod at it.
func (e *End) IsNode() bool { return e.Node != "" && (e.Namespace == "" || e.HostNetwork) }

// Set has the policies of a cluster.
type Set struct {
	policies map[string][]*cluster.NetworkPolicy // by namespace, then sorted by name
	tiers    tiers
	labels   map[string]map[string]string // of Namespaces
	nodes    map[netip.Addr]*cluster.Node
}

// NewSet collects the policies of a view.
func NewSet(v *cluster.View) *Set {
	s := &Set{
		policies: make(map[string][]*cluster.NetworkPolicy), tiers: newTiers(v),
		labels: make(map[string]map[string]string), nodes: make(map[netip.Addr]*cluster.Node),
	}
	for n := range v.Nodes() {
		for _, a := range n.Addresses {
			s.nodes[a] = n
		}
	}
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

// withName returns the labels of a namespace, including nameLabel.
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

// labelsOf returns the labels of a namespace, which need not be in the model.
func (s *Set) labelsOf(namespace string) map[string]string {
	if labels, ok := s.labels[namespace]; ok {
		return labels
	}
	return withName(namespace, nil)
}

// Verdict is the result for one direction of a connection.
type Verdict struct {
	Allowed bool
	// Exception is why a connection is allowed that no rule allows.
	Exception Exception
	// Decider is the rule of a ClusterNetworkPolicy that decided, if one did; Policies and Nearest are
	// empty then.
	Decider TierRule
	// Policies are the NetworkPolicies that apply, ordered by name; none if nothing restricts.
	Policies []*cluster.NetworkPolicy
	// Rule is the first rule of Policies that allows it.
	Rule PolicyRule
	// Nearest is the rule that matches best, if it is not allowed.
	Nearest NearestRule
	// Audit is what policies in audit mode would have denied, in the order of evaluation.
	Audit []Denial
}

// PolicyRule is a rule of a NetworkPolicy.
type PolicyRule struct {
	Policy *cluster.NetworkPolicy // nil if there is none
	Rule   int                    // its place among the policy's rules of that direction
}

// Denial is what policies in audit mode would have denied.
type Denial struct {
	// Decider is the rule of a ClusterNetworkPolicy; the other fields are empty then.
	Decider TierRule
	// Policies are the NetworkPolicies that apply, ordered by name, of which none allows it.
	Policies []*cluster.NetworkPolicy
	// Nearest is the rule that matches best.
	Nearest NearestRule
}

// Exception is why policies do not apply to a connection.
type Exception uint8

// The exceptions.
const (
	NoException Exception = iota
	HostNetwork           // the Pod is in the network of its node
	OwnNode               // the peer is the Pod's own node
	Itself                // the peer is the Pod
)

// NearestRule is a rule that matches the peer or the port of a connection, but not both.
type NearestRule struct {
	Policy   *cluster.NetworkPolicy // nil if there is none
	Rule     int                    // its place among the policy's rules of that direction
	Mismatch Mismatch
}

// Mismatch is the part of a connection that a rule does not match.
type Mismatch int

// The mismatches.
const (
	Both       Mismatch = iota // the peer and the port
	Ports                      // the port only
	Peers                      // the peer only
	VirtualIPs                 // the peer, whose virtual IP the rule allows
	Excepted                   // the peer, whose address a block of the rule excepts
)

// Egress evaluates whether from may open a connection to a port of to. An ipBlock with the
// virtual IPs through which to is reached does not allow it: they are translated before
// policies apply. They only tell which rule is nearest.
func (s *Set) Egress(from, to *End, port cluster.Port, virtualIPs ...netip.Addr) Verdict {
	return s.inTiers(egress, from, to, to, port, func() Verdict { return s.policyEgress(from, to, port, virtualIPs) })
}

// inTiers evaluates the tiers around NetworkPolicies for the Pod e, which connects to or from other.
func (s *Set) inTiers(d direction, e, other, to *End, port cluster.Port, policies func() Verdict) Verdict {
	switch {
	case e.HostNetwork:
		return Verdict{Allowed: true, Exception: HostNetwork}
	case d == ingress && isOwnNode(e, other):
		return Verdict{Allowed: true, Exception: OwnNode}
	}
	c := connection{d, e, other, to, port}
	v, audit, final := s.decide(cluster.AdminTier, &c)
	if final {
		v.Audit = audit
		return v
	}
	v = policies()
	switch {
	case v.Allowed:
	case isOwnNode(e, other):
		v = Verdict{Allowed: true, Exception: OwnNode, Policies: v.Policies}
	case isSelf(e, other):
		v = Verdict{Allowed: true, Exception: Itself, Policies: v.Policies}
	case len(v.Isolating()) == 0:
		audit = append(audit, Denial{Policies: v.Policies, Nearest: v.Nearest})
		v = Verdict{Allowed: true}
	}
	if len(v.Policies) == 0 {
		if base, more, final := s.decide(cluster.BaselineTier, &c); final {
			v, audit = base, append(audit, more...)
		} else {
			audit = append(audit, more...)
		}
	}
	v.Audit = audit
	return v
}

// isOwnNode reports whether other is the node of the Pod e.
func isOwnNode(e, other *End) bool { return other.IsNode() && other.Node == e.Node }

// isSelf reports whether both ends are one Pod.
func isSelf(a, b *End) bool { return a.Name != "" && a.Namespace == b.Namespace && a.Name == b.Name }

func (s *Set) policyEgress(from, to *End, port cluster.Port, virtualIPs []netip.Addr) Verdict {
	return s.evaluate(from, func(p *cluster.NetworkPolicy) (applies bool, rules []cluster.PolicyRule) {
		return p.Egress, p.EgressRules
	},
		func(p *cluster.NetworkPolicy, r *cluster.PolicyRule) (match, bool) {
			ports := portsAllow(r.Ports, to, port)
			switch {
			case len(to.Addrs) == 0 && onlyVirtual(r.Peers, virtualIPs):
				return virtualPeer, ports
			case s.peers(p, r.Peers, to):
				return matchedPeer, ports
			case excepts(r.Peers, to):
				return exceptedPeer, ports
			case slices.ContainsFunc(r.Peers, func(peer cluster.PolicyPeer) bool {
				virtual := End{Addrs: virtualIPs}
				return peer.Block.IsValid() && len(virtualIPs) > 0 && virtual.isIn(peer.Block, peer.Except)
			}):
				return virtualPeer, ports
			}
			return otherPeer, ports
		})
}

// match is how well the peers of a rule match.
type match uint8

const (
	otherPeer    match = iota
	virtualPeer        // a virtual IP of the peer matches
	exceptedPeer       // a block that has the peer excepts it
	matchedPeer
)

// onlyVirtual reports whether all peers are blocks with no other address than one of the
// virtual IPs, so that none can be the unknown address of a Pod.
func onlyVirtual(peers []cluster.PolicyPeer, virtualIPs []netip.Addr) bool {
	return len(peers) > 0 && !slices.ContainsFunc(peers, func(peer cluster.PolicyPeer) bool {
		return !peer.Block.IsValid() || !peer.Block.IsSingleIP() || !slices.Contains(virtualIPs, peer.Block.Addr())
	})
}

// Ingress evaluates whether to accepts a connection from from to a port of it.
func (s *Set) Ingress(to, from *End, port cluster.Port) Verdict {
	return s.inTiers(ingress, to, from, to, port, func() Verdict { return s.policyIngress(to, from, port) })
}

func (s *Set) policyIngress(to, from *End, port cluster.Port) Verdict {
	return s.evaluate(to, func(p *cluster.NetworkPolicy) (applies bool, rules []cluster.PolicyRule) {
		return p.Ingress, p.IngressRules
	},
		func(p *cluster.NetworkPolicy, r *cluster.PolicyRule) (match, bool) {
			ports := portsAllow(r.Ports, to, port)
			switch {
			case s.peers(p, r.Peers, from):
				return matchedPeer, ports
			case excepts(r.Peers, from):
				return exceptedPeer, ports
			}
			return otherPeer, ports
		})
}

// evaluate applies the NetworkPolicies for an end in one direction. The function direction
// returns the rules of a policy, and whether it restricts that direction; allows reports
// which parts of the connection a rule matches.
func (s *Set) evaluate(
	e *End,
	direction func(*cluster.NetworkPolicy) (bool, []cluster.PolicyRule),
	allows func(*cluster.NetworkPolicy, *cluster.PolicyRule) (peer match, ports bool),
) (v Verdict) {
	for _, p := range s.policies[e.Namespace] {
		applies, rules := direction(p)
		if !applies || !p.Pods.Selects(e.Labels) {
			continue
		}
		v.Policies = append(v.Policies, p)
		for i := range rules {
			peer, ports := allows(p, &rules[i])
			switch {
			case peer == matchedPeer && ports:
				if !v.Allowed {
					v.Allowed, v.Rule = true, PolicyRule{p, i}
				}
			case v.Nearest.Mismatch == VirtualIPs || v.Nearest.Mismatch == Excepted: // none is nearer
			case peer == virtualPeer && ports:
				v.Nearest = NearestRule{p, i, VirtualIPs}
			case peer == exceptedPeer && ports:
				v.Nearest = NearestRule{p, i, Excepted}
			case peer == matchedPeer && v.Nearest.Mismatch != Ports: // a matching peer is nearer than a matching port
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

// peers reports whether one of a rule's peers matches the end. An empty list matches all.
// Selectors match Pods without hostNetwork only: other addresses match blocks only.
func (s *Set) peers(p *cluster.NetworkPolicy, peers []cluster.PolicyPeer, e *End) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer cluster.PolicyPeer) bool {
		switch {
		case peer.Block.IsValid():
			return e.isIn(peer.Block, peer.Except)
		case len(peer.Domains) > 0:
			return inDomains(e.Names, peer.Domains)
		case e.HostNetwork || e.Namespace == "":
			return false
		case peer.Namespaces == nil:
			return e.Namespace == p.Namespace && (peer.Pods == nil || peer.Pods.Selects(e.Labels))
		}
		return peer.Namespaces.Selects(s.labelsOf(e.Namespace)) && (peer.Pods == nil || peer.Pods.Selects(e.Labels))
	})
}

// excepts reports whether a block contains an address of the end, and excepts it.
func excepts(peers []cluster.PolicyPeer, e *End) bool {
	return slices.ContainsFunc(peers, func(peer cluster.PolicyPeer) bool {
		return peer.Block.IsValid() && slices.ContainsFunc(e.Addrs, func(addr netip.Addr) bool {
			return peer.Block.Contains(addr) && contains(peer.Except, addr)
		})
	})
}

// portsAllow reports whether one of a rule's ports matches the port of the end. An empty
// list matches all. A named port is that of a container, and not of a Pod with hostNetwork, which is its
// node; without a protocol it is any.
func portsAllow(ports []cluster.PolicyPort, to *End, port cluster.Port) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p cluster.PolicyPort) bool {
		switch {
		case p.Protocol != port.Protocol && p.Protocol != "":
			return false
		case p.Name != "":
			return !to.HostNetwork && slices.ContainsFunc(to.Ports, func(own cluster.Port) bool {
				return own.Name == p.Name && own.Protocol == port.Protocol && own.Number == port.Number
			})
		}
		return p.Number == 0 || p.Number <= port.Number && port.Number <= p.End
	})
}

// SelectsByLabels reports whether a NetworkPolicy of a namespace, or a ClusterNetworkPolicy, selects namespaces by
// other labels than that with their name.
func (s *Set) SelectsByLabels(namespace string) bool {
	byLabels := func(n *cluster.Selector) bool {
		_, byName := n.Labels[nameLabel]
		return len(n.Requirements) > 0 || len(n.Labels) > 1 || len(n.Labels) == 1 && !byName
	}
	return slices.ContainsFunc(s.policies[namespace], func(p *cluster.NetworkPolicy) bool {
		return slices.ContainsFunc(slices.Concat(p.IngressRules, p.EgressRules), func(r cluster.PolicyRule) bool {
			return slices.ContainsFunc(r.Peers, func(peer cluster.PolicyPeer) bool {
				return peer.Namespaces != nil && byLabels(peer.Namespaces)
			})
		})
	}) || s.tiers.contains(func(p *cluster.ClusterNetworkPolicy) bool {
		return byLabels(&p.Subject.Namespaces) ||
			slices.ContainsFunc(slices.Concat(p.IngressRules, p.EgressRules), func(r cluster.TierRule) bool {
				return slices.ContainsFunc(r.Peers, func(peer cluster.TierPeer) bool {
					return peer.Pods != nil && byLabels(&peer.Pods.Namespaces)
				})
			})
	})
}

// NamespaceLabels returns the labels of a namespace, including that with its name. It need not be in the model.
func (s *Set) NamespaceLabels(namespace string) map[string]string { return s.labelsOf(namespace) }

// Applying are the policies that apply to the connections of a Pod in one direction.
type Applying struct {
	Policies []*cluster.NetworkPolicy
	Tiers    []*cluster.ClusterNetworkPolicy
}

// Domains returns the domain names in the rules for egress, each once, in the order of the policies.
func (a *Applying) Domains() (names []string) {
	add := func(domains []string) {
		for _, d := range domains {
			if !slices.Contains(names, d) {
				names = append(names, d)
			}
		}
	}
	for _, p := range a.Tiers {
		for i := range p.EgressRules {
			for j := range p.EgressRules[i].Peers {
				add(p.EgressRules[i].Peers[j].Domains)
			}
		}
	}
	for _, p := range a.Policies {
		for i := range p.EgressRules {
			for j := range p.EgressRules[i].Peers {
				add(p.EgressRules[i].Peers[j].Domains)
			}
		}
	}
	return names
}

// EgressOf returns the policies that apply to the egress of a Pod.
func (s *Set) EgressOf(e *End) Applying { return s.applying(egress, e) }

// IngressOf returns the policies that apply to the ingress of a Pod.
func (s *Set) IngressOf(e *End) Applying { return s.applying(ingress, e) }

func (s *Set) applying(d direction, e *End) (a Applying) {
	if e.HostNetwork {
		return a
	}
	for _, p := range s.policies[e.Namespace] {
		if (d == egress && p.Egress || d == ingress && p.Ingress) && p.Pods.Selects(e.Labels) {
			a.Policies = append(a.Policies, p)
		}
	}
	for _, tier := range []cluster.Tier{cluster.AdminTier, cluster.BaselineTier} {
		for _, p := range s.tiers[tier] {
			if len(d.tierRules(p)) > 0 && s.selects(&p.Subject, e) {
				a.Tiers = append(a.Tiers, p)
			}
		}
	}
	return a
}
