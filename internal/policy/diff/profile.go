package diff

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// profile is what the policies of a side that apply to some classes of Pods in one direction allow, by
// class of peers.
type profile struct {
	direction ruleset.Direction
	side      side
	policies  semantics.Applying
	of        *end // one of the classes
	// group is the group of each class of peers, and allowed what the policies allow each group; nil
	// before they are needed.
	group   []int32
	allowed []int32 // see evaluator.sets
}

// at returns what the profile allows for a class of peers.
func (p *profile) at(peer int) int32 { return p.allowed[p.group[peer]] }

// evaluator has the profiles of both sides.
type evaluator struct {
	*mentioned
	ends []*end
	pods int // how many of ends are Pods
	sets [sides]*semantics.Set
	// same: both sides have the same Pods, Namespaces and Nodes, so that equal policies allow the same.
	same     bool
	profiles map[string]*profile
	// matches has by text of a peer which ends it matches.
	matches [sides]map[string][]bool
	ports   []portSet
	portIDs map[string]int32
	both    map[[2]int32]int32
	every   int32 // the number of the set of all ports
}

// intern returns the number of a set of ports; equal sets have the same.
func (x *evaluator) intern(s *portSet) int32 {
	key := s.key()
	id, ok := x.portIDs[key]
	if !ok {
		id = int32(len(x.ports))
		x.ports, x.portIDs[key] = append(x.ports, *s), id
	}
	return id
}

// and returns the number of the ports that are in both sets.
func (x *evaluator) and(a, b int32) int32 {
	if a == b {
		return a
	}
	key := [2]int32{min(a, b), max(a, b)}
	id, ok := x.both[key]
	if !ok {
		s := x.ports[a].and(&x.ports[b])
		id = x.intern(&s)
		x.both[key] = id
	}
	return id
}

// profileOf returns the profile of a class of Pods.
func (x *evaluator) profileOf(e *end, s side, d ruleset.Direction) *profile {
	of := e.side(s)
	applying, ports := x.sets[s].EgressOf(of), ""
	if d == ruleset.Ingress {
		applying, ports = x.sets[s].IngressOf(of), x.portsKey(of)
	}
	keySide := s
	if x.same { // equal policies are the same profile on both sides
		keySide = before
	}
	var key strings.Builder
	fmt.Fprintf(&key, "%d %d %t", d, keySide, of.HostNetwork)
	for _, p := range applying.Policies {
		fmt.Fprintf(&key, " %p", p)
	}
	for _, p := range applying.Tiers {
		fmt.Fprintf(&key, " %p", p)
	}
	key.WriteString(ports)
	p := x.profiles[key.String()]
	if p == nil {
		p = &profile{direction: d, side: s, policies: applying, of: e}
		x.profiles[key.String()] = p
	}
	return p
}

// compute finds out what a profile allows: it divides the peers into groups of those that the same of
// its rules match, and evaluates the policies for one peer of each.
func (x *evaluator) compute(p *profile) {
	if p.group != nil {
		return
	}
	var at cuts
	p.group = make([]int32, len(x.ends))
	groups := newGroups(p.group)
	groups.divide(func(i int) int32 { return int32(x.ends[i].place) })
	groups.split(func(i int) bool { return x.ends[i].side(p.side).HostNetwork })
	groups.split(func(i int) bool { return len(x.ends[i].side(p.side).Addrs) == 0 })
	for _, policy := range p.policies.Policies {
		rules := policy.IngressRules
		if p.direction == ruleset.Egress {
			rules = policy.EgressRules
		}
		for _, r := range rules {
			at.addRule(r.Ports, x.mentioned.ports)
			for i := range r.Peers {
				groups.splitBy(x.matching(p.side, policy.Namespace, &r.Peers[i]))
			}
		}
	}
	for _, policy := range p.policies.Tiers {
		rules := policy.IngressRules
		if p.direction == ruleset.Egress {
			rules = policy.EgressRules
		}
		for _, r := range rules {
			at.addRule(r.Ports, x.mentioned.ports)
			for i := range r.Peers {
				groups.splitBy(x.matchingTier(p.side, &r.Peers[i]))
			}
		}
	}
	if p.direction == ruleset.Egress && p.namesPorts() {
		ids := make(map[string]int32)
		groups.divide(func(i int) int32 {
			key := x.portsKey(x.ends[i].side(p.side))
			if _, ok := ids[key]; !ok {
				ids[key] = int32(len(ids))
			}
			return ids[key]
		})
	}
	p.allowed = make([]int32, groups.count)
	for g, i := range groups.first() {
		s := x.evaluate(p, x.ends[i], &at)
		p.allowed[g] = x.intern(&s)
	}
}

// namesPorts reports whether a rule of the profile has a named port.
func (p *profile) namesPorts() bool {
	named := func(ports []cluster.PolicyPort) bool {
		return slices.ContainsFunc(ports, func(port cluster.PolicyPort) bool { return port.Name != "" })
	}
	for _, policy := range p.policies.Policies {
		if slices.ContainsFunc(policy.EgressRules, func(r cluster.PolicyRule) bool { return named(r.Ports) }) {
			return true
		}
	}
	return slices.ContainsFunc(p.policies.Tiers, func(policy *cluster.ClusterNetworkPolicy) bool {
		return slices.ContainsFunc(policy.EgressRules, func(r cluster.TierRule) bool { return named(r.Ports) })
	})
}

// evaluate returns the ports at which the profile allows connections with a peer.
func (x *evaluator) evaluate(p *profile, peer *end, at *cuts) (s portSet) {
	if len(p.policies.Policies)+len(p.policies.Tiers) == 0 {
		return every()
	}
	own, other := p.of.side(p.side), peer.side(p.side)
	for protocol := range protocols {
		for _, of := range at.intervals(protocol) {
			port := cluster.Port{Protocol: protocols[protocol], Number: of.first}
			if x.verdict(p.side, p.direction, own, other, port).Allowed {
				s.add(protocol, of)
			}
		}
	}
	return s
}

// verdict evaluates one direction of a connection between a Pod and a peer of it.
func (x *evaluator) verdict(
	s side,
	d ruleset.Direction,
	own, peer *semantics.End,
	port cluster.Port,
) semantics.Verdict {
	if d == ruleset.Egress {
		return x.sets[s].Egress(own, peer, port)
	}
	return x.sets[s].Ingress(own, peer, port)
}

// matching returns which ends a peer of a NetworkPolicy in a namespace matches, at least.
func (x *evaluator) matching(s side, namespace string, peer *cluster.PolicyPeer) []bool {
	var key string
	switch {
	case peer.Block.IsValid():
		key = fmt.Sprintf("block %s %v", peer.Block, peer.Except)
	case len(peer.Domains) > 0:
		key = fmt.Sprintf("domains %q", peer.Domains)
	case peer.Namespaces == nil:
		key = "pods " + namespace + selectorKey(peer.Pods)
	default:
		key = "pods" + selectorKey(peer.Namespaces) + selectorKey(peer.Pods)
	}
	return x.match(s, key, func(e *end) bool {
		of := e.side(s)
		switch {
		case peer.Block.IsValid():
			return slices.ContainsFunc(of.Addrs, func(a netip.Addr) bool {
				return peer.Block.Contains(a) && !inBlock([]netip.Addr{a}, peer.Except...)
			})
		case len(peer.Domains) > 0:
			return e.place == domain && inDomains(of.Names, peer.Domains)
		case of.Namespace == "":
			return false
		case peer.Namespaces == nil && of.Namespace != namespace:
			return false
		case peer.Namespaces != nil && !peer.Namespaces.Selects(x.sets[s].NamespaceLabels(of.Namespace)):
			return false
		}
		return peer.Pods == nil || peer.Pods.Selects(of.Labels)
	})
}

// matchingTier returns which ends a peer of a ClusterNetworkPolicy matches, at least.
func (x *evaluator) matchingTier(s side, peer *cluster.TierPeer) []bool {
	var key string
	switch {
	case peer.Pods != nil:
		key = "pods" + selectorKey(&peer.Pods.Namespaces) + selectorKey(&peer.Pods.Pods)
	case peer.Nodes != nil:
		key = "nodes" + selectorKey(peer.Nodes)
	case len(peer.Networks) > 0:
		key = fmt.Sprintf("networks %v", peer.Networks)
	default:
		key = fmt.Sprintf("domains %q", peer.Domains)
	}
	return x.match(s, key, func(e *end) bool {
		of := e.side(s)
		switch {
		case peer.Pods != nil:
			return of.Namespace != "" && peer.Pods.Namespaces.Selects(x.sets[s].NamespaceLabels(of.Namespace)) &&
				peer.Pods.Pods.Selects(of.Labels)
		case peer.Nodes != nil:
			return (e.place == nodes || e.place == ownNode) && e.known[s] &&
				peer.Nodes.Selects(e.nodeLabels[s])
		case len(peer.Networks) > 0:
			return inBlock(of.Addrs, peer.Networks...)
		}
		return e.place == domain && inDomains(of.Names, peer.Domains)
	})
}

func inBlock(addrs []netip.Addr, blocks ...netip.Prefix) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool {
		return slices.ContainsFunc(blocks, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// inDomains reports whether one of the names is in one of the domains.
func inDomains(names, domains []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(domains, func(d string) bool {
			under, wildcard := strings.CutPrefix(d, "*")
			return name == d || wildcard && strings.HasSuffix(name, under)
		})
	})
}

// match returns which ends a function matches. Those with the same key match the same.
func (x *evaluator) match(s side, key string, matches func(*end) bool) []bool {
	found := x.matches[s][key]
	if found == nil {
		found = make([]bool, len(x.ends))
		for i, e := range x.ends {
			found[i] = matches(e)
		}
		x.matches[s][key] = found
	}
	return found
}

// selectorKey returns a text that only equal selectors have.
func selectorKey(s *cluster.Selector) string {
	if s == nil {
		return " nil"
	}
	var b strings.Builder
	b.WriteString(" {")
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		fmt.Fprintf(&b, "%s=%s,", name, s.Labels[name])
	}
	for _, r := range s.Requirements {
		fmt.Fprintf(&b, "%s %s %q,", r.Label, r.Operator, r.Values)
	}
	b.WriteString("}")
	return b.String()
}

// groups divides ends into groups.
type groups struct {
	of    []int32 // the group of each end
	count int
}

func newGroups(of []int32) *groups { return &groups{of: of, count: 1} }

// divide puts ends for which a number differs into different groups.
func (g *groups) divide(number func(int) int32) {
	ids := make(map[[2]int32]int32)
	for i, old := range g.of {
		key := [2]int32{old, number(i)}
		id, ok := ids[key]
		if !ok {
			id = int32(len(ids))
			ids[key] = id
		}
		g.of[i] = id
	}
	g.count = len(ids)
}

// split puts the ends that match into other groups than those that do not.
func (g *groups) split(matches func(int) bool) {
	with := make([]int32, g.count)    // the group of the ends that match, plus 1
	without := make([]int32, g.count) // and of those that do not
	next := int32(0)
	for i, old := range g.of {
		to := &without[old]
		if matches(i) {
			to = &with[old]
		}
		if *to == 0 {
			next++
			*to = next
		}
		g.of[i] = *to - 1
	}
	g.count = int(next)
}

func (g *groups) splitBy(matches []bool) { g.split(func(i int) bool { return matches[i] }) }

// first returns an end of each group.
func (g *groups) first() map[int32]int {
	first := make(map[int32]int, g.count)
	for i, of := range g.of {
		if _, ok := first[of]; !ok {
			first[of] = i
		}
	}
	return first
}
