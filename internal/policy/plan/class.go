package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// class is the Pods of the node that the same policies select in a direction. For ingress, the ports
// that these policies name have the same numbers in all its Pods.
type class struct {
	applying
	key   string
	refs  int
	dns   dnsVerdicts
	chain *chain // nil accepts all
}

// applying is what applies to a Pod in a direction: the policies of each tier in their order.
type applying struct {
	direction ruleset.Direction
	// unknown: the Pod is not known yet, and nothing passes.
	unknown                   bool
	admin, policies, baseline []*policy
	// ports are those of the Pod that policies name.
	ports []cluster.Port
}

// appliesTo returns what applies to a Pod of the node.
func (c *Compiler) appliesTo(p *pod, d ruleset.Direction) applying {
	a := applying{direction: d, unknown: p.source == nil}
	if a.unknown {
		return a
	}
	selecting := func(of []*policy) (selected []*policy) {
		for _, policy := range of {
			if policy.isolates[d] && policy.subject.members.has(p.slot) {
				selected = append(selected, policy)
			}
		}
		return selected
	}
	a.admin = selecting(c.admin)
	a.policies = selecting(c.policies[p.key.Namespace])
	if !a.isolated() {
		a.baseline = selecting(c.baseline)
	}
	if d == ruleset.Ingress {
		a.ports = a.namedPorts(p.ports())
	}
	return a
}

// isolated reports whether NetworkPolicies deny what none of them allows.
func (a *applying) isolated() bool {
	return slices.ContainsFunc(a.policies, func(p *policy) bool { return !p.audit })
}

// namedPorts returns those of a Pod's ports that policies name, sorted and unique.
func (a *applying) namedPorts(of []cluster.Port) (ports []cluster.Port) {
	for _, p := range of {
		named := func(policy *policy) bool { return slices.Contains(policy.names, p.Name) }
		if p.Name != "" && slices.ContainsFunc(a.all(), named) {
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b cluster.Port) int {
		byProtocol := strings.Compare(string(a.Protocol), string(b.Protocol))
		return cmp.Or(strings.Compare(a.Name, b.Name), byProtocol, cmp.Compare(a.Number, b.Number))
	})
	return slices.Compact(ports)
}

// all returns the policies of all tiers.
func (a *applying) all() []*policy { return slices.Concat(a.admin, a.policies, a.baseline) }

// key is the same for what applies equally.
func (a *applying) key() string {
	if a.unknown {
		return string('0'+rune(a.direction)) + "?"
	}
	key := []byte{'0' + byte(a.direction)}
	for _, of := range [][]*policy{a.admin, a.policies, a.baseline} {
		key = binary.BigEndian.AppendUint32(key, uint32(len(of)))
		for _, p := range of {
			key = binary.BigEndian.AppendUint32(key, p.id)
		}
	}
	for _, p := range a.ports {
		key = fmt.Appendf(key, "%q%s%d", p.Name, p.Protocol, p.Number)
	}
	return string(key)
}

// reserveClass returns the class of a Pod of the node, with one more reference; nil if nothing applies.
func (c *Compiler) reserveClass(v *cluster.View, p *pod, d ruleset.Direction) *class {
	a := c.appliesTo(p, d)
	if !a.unknown && len(a.admin)+len(a.policies)+len(a.baseline) == 0 {
		return nil
	}
	key := a.key()
	k := c.classes[key]
	if k == nil {
		k = &class{applying: a, key: key}
		if d == ruleset.Egress {
			k.dns = c.dns.judge(v, p, &k.applying)
		}
		k.chain = c.build(k)
		c.classes[key] = k
	}
	k.refs++
	return k
}

// releaseClass removes a reference to a class, which may be nil; collect deletes it after the last one.
func (c *Compiler) releaseClass(k *class) {
	if k == nil {
		return
	}
	if k.refs--; k.refs == 0 {
		c.idleClasses = append(c.idleClasses, k)
	}
}

// classify determines the classes of a Pod of the node again.
func (c *Compiler) classify(v *cluster.View, p *pod) {
	p.local.dirty = false
	c.touchPod(p)
	for d := range p.local.classes {
		now := c.reserveClass(v, p, ruleset.Direction(d))
		c.releaseClass(p.local.classes[d])
		p.local.classes[d] = now
	}
}

// build returns the chain of a class, with one more reference; nil accepts all. The sections are made
// from the last to the first, which begins with the rules for DNS.
func (c *Compiler) build(k *class) *chain {
	if k.unknown {
		return c.reserveChain(&chainSpec{direction: k.direction, rules: []ruleSpec{deny(reasonUnknownPod)}})
	}
	first := func(isFirst bool) []ruleSpec {
		if !isFirst {
			return nil
		}
		return c.dns.rules(&k.dns)
	}
	next := c.tierSection(k, k.baseline, nil, first(len(k.admin)+len(k.policies) == 0))
	next = c.policySection(k, next, first(len(k.admin) == 0))
	return c.tierSection(k, k.admin, next, first(true))
}

// deny is the rule that denies the rest.
func deny(reason string) ruleSpec {
	return ruleSpec{Rule: ruleset.Rule{Action: ruleset.Deny, Reason: reason}}
}

// tierSection returns the chain that begins with the given rules and goes on with those of
// ClusterNetworkPolicies. What passes goes on with next, to which the caller leaves its reference.
func (c *Compiler) tierSection(k *class, policies []*policy, next *chain, rules []ruleSpec) *chain {
	if len(policies) == 0 {
		return next
	}
	spec := &chainSpec{direction: k.direction, rules: rules}
	for _, p := range policies {
		spec.sources = append(spec.sources, p.ref)
		for i := range p.rules[k.direction] {
			r := &p.rules[k.direction][i]
			action := goOn(next)
			switch {
			case r.action == cluster.Accept:
				action = ruleSpec{}
			case r.action == cluster.Pass:
			case p.audit:
				action = ruleSpec{Rule: ruleset.Rule{Action: ruleset.Report, Reason: r.reason}}
			default:
				action = deny(r.reason)
			}
			spec.rules = append(spec.rules, k.rules(r.peers, r.ports, action)...)
		}
	}
	if next != nil {
		spec.rules = append(spec.rules, goOn(next))
	}
	return c.reserveSection(spec, next)
}

// goOn is a rule that goes on with a chain; nil accepts.
func goOn(next *chain) ruleSpec {
	if next == nil {
		return ruleSpec{}
	}
	return ruleSpec{Rule: ruleset.Rule{Action: ruleset.Goto}, next: next}
}

// reserveSection returns the chain of a spec, or nil if it accepts all. It takes over the reference to
// next.
func (c *Compiler) reserveSection(spec *chainSpec, next *chain) *chain {
	var out *chain
	if slices.ContainsFunc(spec.rules, func(r ruleSpec) bool { return r.Action != ruleset.Accept }) {
		out = c.reserveChain(spec)
	}
	if next != nil {
		c.releaseChain(next)
	}
	return out
}

// policySection returns the chain that begins with the given rules and goes on with those of
// NetworkPolicies. What is denied by policies in audit mode only goes on with base, to which the caller
// leaves its reference.
func (c *Compiler) policySection(k *class, base *chain, rules []ruleSpec) *chain {
	if len(k.policies) == 0 {
		return base
	}
	sources := make([]cluster.Ref, 0, len(k.policies))
	for _, p := range k.policies {
		sources = append(sources, p.ref)
	}
	var withPorts []ruleSpec
	ranges := 0 // each is a rule in the kernel
	for _, r := range k.merged() {
		if len(r.Ports) > 0 {
			withPorts, ranges = append(withPorts, r), ranges+len(r.Ports)
			continue
		}
		if rules = append(rules, r); r.acceptsAll() {
			return c.reserveSection(&chainSpec{direction: k.direction, rules: rules, sources: sources}, base)
		}
	}
	spec := &chainSpec{direction: k.direction, sources: sources}
	if ranges < c.dispatchFrom {
		spec.rules = slices.Concat(rules, withPorts, k.rest(base))
		return c.reserveSection(spec, base)
	}
	rest := c.reserveChain(&chainSpec{direction: k.direction, rules: k.rest(base), sources: sources})
	byPort, made := c.dispatch(k.direction, withPorts, rest)
	spec.rules = slices.Concat(rules, byPort, []ruleSpec{goOn(rest)})
	section := c.reserveSection(spec, base)
	for _, ch := range append(made, rest) {
		c.releaseChain(ch)
	}
	return section
}

// rest returns the rules for what no NetworkPolicy of a class accepts.
func (k *class) rest(base *chain) (rules []ruleSpec) {
	if k.direction == ruleset.Egress {
		rules = append(rules, ruleSpec{Rule: ruleset.Rule{Where: ruleset.ToNode}})
	}
	rules = append(rules, ruleSpec{Rule: ruleset.Rule{Where: ruleset.ToSelf}})
	if k.isolated() {
		return append(rules, deny(isolationReason(k.policies)))
	}
	report := ruleSpec{Rule: ruleset.Rule{Action: ruleset.Report, Reason: isolationReason(k.policies)}}
	if rules = append(rules, report); base != nil {
		rules = append(rules, goOn(base))
	}
	return rules
}

// merged returns what the NetworkPolicies of a class accept: a rule for all peers of equal ports.
func (k *class) merged() (rules []ruleSpec) {
	byNumbers, byName := make(map[string]*rule), make(map[namedPort]*rule)
	for _, p := range k.policies {
		for i := range p.rules[k.direction] {
			r := &p.rules[k.direction][i]
			numbers := k.numbers(&r.ports)
			if r.ports.any || len(numbers) > 0 {
				merge(byNumbers, fmt.Sprint(r.ports.any, numbers), r, ports{any: r.ports.any, numbers: numbers})
			}
			if k.direction == ruleset.Egress {
				for _, name := range r.ports.names {
					merge(byName, name, r, ports{names: []namedPort{name}})
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byNumbers)) {
		rules = append(rules, k.rules(byNumbers[key].peers.sorted(), byNumbers[key].ports, ruleSpec{})...)
	}
	for _, name := range slices.SortedFunc(maps.Keys(byName), func(a, b namedPort) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol))
	}) {
		rules = append(rules, k.rules(byName[name].peers.sorted(), byName[name].ports, ruleSpec{})...)
	}
	return rules
}

// merge adds the peers of a rule to those of the merged rule for the same ports.
func merge[K comparable](rules map[K]*rule, key K, r *rule, ports ports) {
	m := rules[key]
	if m == nil {
		m = &rule{ports: ports}
		rules[key] = m
	}
	m.peers = m.peers.with(&r.peers)
}

// numbers returns the ports of a rule by number; for ingress those of the Pod that the rule names, too.
func (k *class) numbers(of *ports) []ruleset.Ports {
	if k.direction == ruleset.Egress || len(of.names) == 0 {
		return of.numbers
	}
	numbers := slices.Clone(of.numbers)
	for _, n := range of.names {
		for i := range k.ports {
			if p := &k.ports[i]; n.matches(p) {
				numbers = append(numbers, ruleset.Ports{Protocol: protocolOf(p.Protocol), First: p.Number, Last: p.Number})
			}
		}
	}
	return merged(numbers)
}

// rules returns the rules that match any of the peers on any of the ports, and act as a rule that matches
// all.
func (k *class) rules(of peers, on ports, action ruleSpec) (rules []ruleSpec) {
	one := func(numbers []ruleset.Ports, peers *setSpec) {
		r := action
		r.Ports, r.peers = numbers, peers
		rules = append(rules, r)
	}
	if numbers := k.numbers(&on); on.any || len(numbers) > 0 {
		if of.any {
			one(numbers, nil)
		} else {
			for _, s := range of.sets() {
				one(numbers, s)
			}
		}
	}
	if k.direction == ruleset.Ingress {
		return rules
	}
	for _, name := range on.names {
		if of.any || len(of.groups)+len(of.blocks) > 0 {
			s := &setSpec{kind: ruleset.HostPorts, port: name, all: of.any}
			if !of.any {
				s.groups, s.blocks = of.groups, of.blocks
			}
			one(nil, s)
		}
	}
	return rules
}

// sets returns the sets that have the peers, which are not any.
func (ps *peers) sets() (sets []*setSpec) {
	if len(ps.groups) > 0 {
		sets = append(sets, &setSpec{kind: ruleset.Hosts, groups: ps.groups})
	}
	if len(ps.nodes) > 0 {
		sets = append(sets, &setSpec{kind: ruleset.Hosts, nodes: ps.nodes})
	}
	if len(ps.blocks) > 0 {
		sets = append(sets, &setSpec{kind: ruleset.Blocks, blocks: ps.blocks})
	}
	if len(ps.domains) > 0 {
		sets = append(sets, &setSpec{kind: ruleset.Resolved, domains: ps.domains})
	}
	return sets
}
