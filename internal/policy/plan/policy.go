package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// policy is a NetworkPolicy or a ClusterNetworkPolicy, compiled as far as it depends on itself only.
type policy struct {
	ref cluster.Ref
	// id is another one whenever the policy changed.
	id       uint32
	tier     *cluster.ClusterNetworkPolicy // nil for a NetworkPolicy
	source   cluster.Object
	audit    bool
	selector podSelector
	subject  *group
	// isolates are the directions that it applies to, and rules those of each.
	isolates [2]bool
	rules    [2][]rule
	// names are the ports that its rules for ingress have by name.
	names []string
}

// rule is a rule of a policy. It matches any of the peers on any of the ports.
type rule struct {
	action cluster.Action
	reason string // of a ClusterNetworkPolicy's
	peers  peers
	ports  ports
}

// peers are the peers of a rule.
type peers struct {
	any     bool
	groups  []podSelector
	nodes   []nodeSelector
	blocks  []netip.Prefix
	domains []string
}

// ports are the ports of a rule.
type ports struct {
	any     bool
	numbers []ruleset.Ports // sorted, not adjacent
	names   []namedPort     // sorted and unique
}

// networkPolicy compiles a NetworkPolicy.
func networkPolicy(p *cluster.NetworkPolicy) *policy {
	out := &policy{ref: p.Ref(), source: p, audit: p.Audit, selector: inNamespace(p.Namespace, &p.Pods)}
	out.isolates = [2]bool{ruleset.Ingress: p.Ingress, ruleset.Egress: p.Egress}
	for d, rules := range [2][]cluster.PolicyRule{ruleset.Ingress: p.IngressRules, ruleset.Egress: p.EgressRules} {
		if !out.isolates[d] {
			continue
		}
		for i := range rules {
			of := peers{any: len(rules[i].Peers) == 0}
			for j := range rules[i].Peers {
				of.insertPolicyPeer(p.Namespace, &rules[i].Peers[j])
			}
			compiled := rule{action: cluster.Accept, peers: of.sorted(), ports: newPorts(rules[i].Ports)}
			out.rules[d] = append(out.rules[d], compiled)
		}
	}
	out.collectNames()
	return out
}

func (ps *peers) insertPolicyPeer(namespace string, peer *cluster.PolicyPeer) {
	switch {
	case peer.Block.IsValid():
		ps.blocks = append(ps.blocks, without(peer.Block.Masked(), peer.Except)...)
	case len(peer.Domains) > 0:
		ps.domains = append(ps.domains, peer.Domains...)
	case peer.Namespaces == nil:
		ps.groups = append(ps.groups, inNamespace(namespace, peer.Pods))
	default:
		ps.groups = append(ps.groups, inNamespaces(peer.Namespaces, peer.Pods))
	}
}

// clusterPolicy compiles a ClusterNetworkPolicy.
func clusterPolicy(p *cluster.ClusterNetworkPolicy) *policy {
	out := &policy{
		ref: p.Ref(), source: p, tier: p, audit: p.Audit,
		selector: inNamespaces(&p.Subject.Namespaces, &p.Subject.Pods),
	}
	for d, rules := range [2][]cluster.TierRule{ruleset.Ingress: p.IngressRules, ruleset.Egress: p.EgressRules} {
		out.isolates[d] = len(rules) > 0
		for i := range rules {
			compiled, ok := tierRule(&rules[i])
			if !ok {
				continue
			}
			compiled.reason = tierReason(p, ruleset.Direction(d), i)
			out.rules[d] = append(out.rules[d], compiled)
		}
	}
	out.collectNames()
	return out
}

// tierRule compiles a rule; ok is false if it matches nothing. A rule that is not known whole denies
// everything, or matches nothing if it accepts (ClusterNetworkPolicyEgressPeer).
func tierRule(r *cluster.TierRule) (out rule, ok bool) {
	if r.Unknown {
		return rule{action: cluster.Deny, peers: peers{any: true}, ports: ports{any: true}}, r.Action != cluster.Accept
	}
	out = rule{action: r.Action, ports: newPorts(r.Ports)}
	for i := range r.Peers {
		switch peer := &r.Peers[i]; {
		case peer.Pods != nil:
			out.peers.groups = append(out.peers.groups, inNamespaces(&peer.Pods.Namespaces, &peer.Pods.Pods))
		case peer.Nodes != nil:
			out.peers.nodes = append(out.peers.nodes, nodeSelector{canonical(peer.Nodes), peer.Nodes})
		case len(peer.Networks) > 0:
			out.peers.blocks = append(out.peers.blocks, peer.Networks...)
		default:
			out.peers.domains = append(out.peers.domains, peer.Domains...)
		}
	}
	out.peers = out.peers.sorted()
	return out, true
}

// sorted returns the same peers, sorted and unique.
func (ps peers) sorted() peers {
	slices.SortFunc(ps.groups, func(a, b podSelector) int { return strings.Compare(a.key, b.key) })
	ps.groups = slices.CompactFunc(ps.groups, func(a, b podSelector) bool { return a.key == b.key })
	slices.SortFunc(ps.nodes, func(a, b nodeSelector) int { return strings.Compare(a.key, b.key) })
	ps.nodes = slices.CompactFunc(ps.nodes, func(a, b nodeSelector) bool { return a.key == b.key })
	ps.blocks = union(ps.blocks)
	slices.Sort(ps.domains)
	ps.domains = slices.Compact(ps.domains)
	return ps
}

// with returns the peers of both.
func (ps peers) with(o *peers) peers {
	return peers{
		any: ps.any || o.any, groups: append(ps.groups, o.groups...), nodes: append(ps.nodes, o.nodes...),
		blocks: append(ps.blocks, o.blocks...), domains: append(ps.domains, o.domains...),
	}
}

// newPorts compiles the ports of a rule; none are all.
func newPorts(of []cluster.PolicyPort) ports {
	out := ports{any: len(of) == 0}
	for _, p := range of {
		protocols := []ruleset.Protocol{protocolOf(p.Protocol)}
		switch {
		case p.Protocol != "" && protocols[0] == 0:
			continue
		case p.Name != "":
			out.names = append(out.names, namedPort{p.Name, protocols[0]})
			continue
		case p.Protocol == "":
			protocols = []ruleset.Protocol{ruleset.TCP, ruleset.UDP, ruleset.SCTP}
		}
		first, last := p.Number, p.End
		if first == 0 {
			last = lastPort
		}
		for _, protocol := range protocols {
			if first <= last {
				out.numbers = append(out.numbers, ruleset.Ports{Protocol: protocol, First: first, Last: last})
			}
		}
	}
	out.numbers = merged(out.numbers)
	slices.SortFunc(out.names, func(a, b namedPort) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol))
	})
	out.names = slices.Compact(out.names)
	return out
}

const lastPort = 65535

// merged returns the fewest ranges with the same ports, sorted.
func merged(ranges []ruleset.Ports) []ruleset.Ports {
	slices.SortFunc(ranges, func(a, b ruleset.Ports) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	var out []ruleset.Ports
	for _, r := range ranges {
		if n := len(out); n > 0 && out[n-1].Protocol == r.Protocol && int(r.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// collectNames sets names.
func (p *policy) collectNames() {
	for i := range p.rules[ruleset.Ingress] {
		for _, n := range p.rules[ruleset.Ingress][i].ports.names {
			p.names = append(p.names, n.name)
		}
	}
	slices.Sort(p.names)
	p.names = slices.Compact(p.names)
}

// protocolOf returns the number of a protocol; 0 if it is not known.
func protocolOf(p cluster.Protocol) ruleset.Protocol {
	switch p {
	case cluster.TCP:
		return ruleset.TCP
	case cluster.UDP:
		return ruleset.UDP
	case cluster.SCTP:
		return ruleset.SCTP
	}
	return 0
}

func protocolName(p ruleset.Protocol) string {
	switch p {
	case ruleset.TCP:
		return "TCP"
	case ruleset.UDP:
		return "UDP"
	case ruleset.SCTP:
		return "SCTP"
	}
	return "any"
}

// compare orders the policies of a tier, or of a namespace, as they are evaluated: by priority, then by
// name.
func (p *policy) compare(o *policy) int {
	if p.tier != nil && o.tier != nil {
		return cmp.Or(cmp.Compare(p.tier.Priority, o.tier.Priority), cmp.Compare(p.tier.Name, o.tier.Name))
	}
	return p.ref.Key.Compare(o.ref.Key)
}
