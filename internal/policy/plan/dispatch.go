package plan

import (
	"cmp"
	"fmt"
	"slices"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// A packet passes the rules of a chain one after the other, each range of ports being a rule of the
// kernel, so that a Pod with hundreds of policies for ports of their own would pay for all of them. From
// dispatchFrom ranges on, a tree of chains leads a packet to the few rules for its port. Each chain of the
// tree has up to dispatchFan parts. A chain that does not change when a policy does stays in the kernel.
const (
	dispatchFrom = 24
	dispatchFan  = 8
)

// span is a range of ports of a rule.
type span struct {
	ruleset.Ports
	rule int // its place among the rules
}

// part is what packets to a range of ports pass: rules, or a chain with them.
type part struct {
	ruleset.Ports
	rules []ruleSpec
}

// dispatch returns rules with the same effect as the given ones, which all accept on ports, if rest
// follows them. The caller releases the chains that were made.
func (c *Compiler) dispatch(d ruleset.Direction, rules []ruleSpec, rest *chain) (out []ruleSpec, made []*chain) {
	byProtocol := make(map[ruleset.Protocol][]span)
	for i := range rules {
		for _, p := range rules[i].Ports {
			byProtocol[p.Protocol] = append(byProtocol[p.Protocol], span{p, i})
		}
	}
	for _, protocol := range []ruleset.Protocol{ruleset.TCP, ruleset.UDP, ruleset.SCTP} {
		parts, wide := leaves(byProtocol[protocol], rules)
		for len(parts) > dispatchFan {
			var above []part
			for group := range slices.Chunk(parts, dispatchFan) {
				p := part{Ports: group[0].Ports}
				p.Last = group[len(group)-1].Last
				for i := range group {
					ch := c.reserveChain(group[i].spec(d, rest))
					made = append(made, ch)
					next := goOn(ch)
					next.Ports = []ruleset.Ports{group[i].Ports}
					p.rules = append(p.rules, next)
				}
				above = append(above, p)
			}
			parts = above
		}
		out = append(out, wide...)
		for i := range parts {
			if len(parts) == 1 {
				out = append(out, parts[i].rules...)
				continue
			}
			ch := c.reserveChain(parts[i].spec(d, rest))
			made = append(made, ch)
			next := goOn(ch)
			next.Ports = []ruleset.Ports{parts[i].Ports}
			out = append(out, next)
		}
	}
	return out, made
}

// spec describes the chain of a part, behind which rest follows.
func (p *part) spec(d ruleset.Direction, rest *chain) *chainSpec {
	return &chainSpec{
		direction: d, rules: append(slices.Clone(p.rules), goOn(rest)),
		comment: fmt.Sprintf("%s %d-%d", protocolName(p.Protocol), p.First, p.Last),
	}
}

// leaves divides spans of a protocol into ranges of ports without gaps, each with about dispatchFan
// spans. Rules with spans in more than two of the ranges are in wide instead.
func leaves(spans []span, rules []ruleSpec) (parts []part, wide []ruleSpec) {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last), cmp.Compare(a.rule, b.rule))
	})
	var starts []uint16
	for i := 0; i < len(spans); i += dispatchFan {
		starts = append(starts, spans[i].First)
	}
	starts = slices.Compact(starts)
	for i, first := range starts {
		p := part{Ports: ruleset.Ports{Protocol: spans[0].Protocol, First: first, Last: lastPort}}
		if i+1 < len(starts) {
			p.Last = starts[i+1] - 1
		}
		parts = append(parts, p)
	}
	for _, s := range spans {
		from, to := partOf(starts, s.First), partOf(starts, s.Last)
		if to-from >= 2 {
			wide = appendSpan(wide, rules, s)
			continue
		}
		for i := from; i <= to; i++ {
			parts[i].rules = appendSpan(parts[i].rules, rules, s)
		}
	}
	return parts, wide
}

// partOf returns the place of the part with a port: the last one that does not start after it.
func partOf(starts []uint16, port uint16) int {
	i, found := slices.BinarySearch(starts, port)
	if !found {
		i--
	}
	return i
}

// appendSpan appends the rule of a span for the span only, or adds the span to the same rule if that is
// the last one.
func appendSpan(to, rules []ruleSpec, s span) []ruleSpec {
	r := rules[s.rule]
	if n := len(to); n > 0 && to[n-1].peers == r.peers {
		to[n-1].Ports = append(slices.Clone(to[n-1].Ports), s.Ports)
		return to
	}
	r.Ports = []ruleset.Ports{s.Ports}
	return append(to, r)
}
