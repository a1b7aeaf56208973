package semantics

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// TierRule is a rule of a ClusterNetworkPolicy that decided on a connection.
type TierRule struct {
	Policy *cluster.ClusterNetworkPolicy // nil if none decided
	Rule   int                           // its place among the policy's rules of that direction
}

// direction is the direction of a connection, seen from the Pod to which policies apply.
type direction bool

const (
	ingress direction = false
	egress  direction = true
)

func (d direction) tierRules(p *cluster.ClusterNetworkPolicy) []cluster.TierRule {
	if d == egress {
		return p.EgressRules
	}
	return p.IngressRules
}

// tiers are the ClusterNetworkPolicies of each tier, in the order of their evaluation: by priority and,
// since the API leaves open which one of two with the same comes first, by name.
type tiers map[cluster.Tier][]*cluster.ClusterNetworkPolicy

func newTiers(v *cluster.View) tiers {
	t := make(tiers)
	for p := range cluster.ClusterNetworkPolicies.All(v) {
		t[p.Tier] = append(t[p.Tier], p)
	}
	for _, of := range t {
		slices.SortFunc(of, func(a, b *cluster.ClusterNetworkPolicy) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
		})
	}
	return t
}

// contains reports whether a function is true of one of the policies.
func (t tiers) contains(of func(*cluster.ClusterNetworkPolicy) bool) bool {
	for _, all := range t {
		if slices.ContainsFunc(all, of) {
			return true
		}
	}
	return false
}

// connection is a connection seen from one of its ends, the Pod e; other is the other end. The port is
// that of to, which is one of them.
type connection struct {
	direction
	e, other, to *End
	port         cluster.Port
}

// decide returns the verdict of a tier, whether it is final, and what rules in audit mode would have
// denied before it.
func (s *Set) decide(tier cluster.Tier, c *connection) (v Verdict, audit []Denial, final bool) {
	for _, p := range s.tiers[tier] {
		if len(c.tierRules(p)) == 0 || !s.selects(&p.Subject, c.e) {
			continue
		}
		for i := range c.tierRules(p) {
			action, matches := s.tierAction(&c.tierRules(p)[i], c)
			switch {
			case !matches:
			case action == cluster.Pass:
				return Verdict{}, audit, false
			case action == cluster.Deny && p.Audit:
				audit = append(audit, Denial{Decider: TierRule{p, i}})
			default:
				return Verdict{Allowed: action == cluster.Accept, Decider: TierRule{p, i}}, audit, true
			}
		}
	}
	return Verdict{}, audit, false
}

// tierAction returns what a rule does with a connection, and whether it matches. A rule that is not
// understood must not let through what it may deny (ClusterNetworkPolicyEgressPeer).
func (s *Set) tierAction(r *cluster.TierRule, c *connection) (action cluster.Action, matches bool) {
	if r.Unknown {
		return cluster.Deny, r.Action != cluster.Accept
	}
	return r.Action, s.tierPeers(r, c.other) && portsAllow(r.Ports, c.to, c.port)
}

// selects reports whether an end is one of Pods.
func (s *Set) selects(pods *cluster.PodPeer, e *End) bool {
	return !e.HostNetwork && e.Namespace != "" &&
		pods.Namespaces.Selects(s.labelsOf(e.Namespace)) && pods.Pods.Selects(e.Labels)
}

// tierPeers reports whether one of a rule's peers is the end.
func (s *Set) tierPeers(r *cluster.TierRule, e *End) bool {
	return slices.ContainsFunc(r.Peers, func(peer cluster.TierPeer) bool {
		switch {
		case peer.Pods != nil:
			return s.selects(peer.Pods, e)
		case peer.Nodes != nil:
			return slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool {
				n := s.nodes[a]
				return n != nil && peer.Nodes.Selects(n.Labels)
			})
		case len(peer.Networks) > 0:
			other := *e
			// What counts in favor of a denial counts against the connection.
			other.Doubted = e.Doubted == (r.Action == cluster.Accept)
			return slices.ContainsFunc(peer.Networks, func(p netip.Prefix) bool { return other.isIn(p, nil) })
		}
		return inDomains(e.Names, peer.Domains)
	})
}

// inDomains reports whether one of the names is in one of the domains.
func inDomains(names, domains []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(domains, func(d string) bool { return inDomain(name, d) })
	})
}

// inDomain reports whether a name is a domain name of a policy, or below its wildcard. Names are in
// lower case and have no dot at the end.
func inDomain(name, domain string) bool {
	if parent, wildcard := strings.CutPrefix(domain, "*"); wildcard {
		return len(name) > len(parent) && strings.HasSuffix(name, parent)
	}
	return name == domain
}
