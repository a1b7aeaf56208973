package plan

import (
	"cmp"
	"fmt"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// chainSpec describes a chain.
type chainSpec struct {
	direction ruleset.Direction
	rules     []ruleSpec
	// comment is for people; empty lists the sources.
	comment string
	// sources are the policies that it comes from, in their order.
	sources []cluster.Ref
}

// ruleSpec is a rule without names of sets and chains.
type ruleSpec struct {
	ruleset.Rule
	peers *setSpec // nil matches all
	next  *chain   // for Goto
}

// acceptsAll reports whether the rules behind it are never reached.
func (r ruleSpec) acceptsAll() bool {
	return r.Action == ruleset.Accept && r.peers == nil && len(r.Ports) == 0 && r.Where == ruleset.Anywhere
}

// chain is a chain that classes or other chains use.
type chain struct {
	ruleset.Chain
	name    string
	sources []cluster.Ref
	refs    int
	isNew   bool
	sets    []*set
	next    []*chain
}

// nameOf returns the name of a chain, which may be nil.
func nameOf(c *chain) string {
	if c == nil {
		return ""
	}
	return c.name
}

// reserveChain returns the chain that a spec describes, with one more reference.
func (c *Compiler) reserveChain(spec *chainSpec) *chain {
	ch := &chain{sources: spec.sources, isNew: true}
	ch.Direction = spec.direction
	ch.Comment = printable(cmp.Or(spec.comment, sourcesText(spec.sources)), maxComment)
	for i := range spec.rules {
		r := spec.rules[i].Rule
		if peers := spec.rules[i].peers; peers != nil {
			s := c.reserveSet(peers)
			r.Peers = s.name
			ch.sets = append(ch.sets, s)
		}
		r.Chain = nameOf(spec.rules[i].next)
		ch.Rules = append(ch.Rules, r)
	}
	ch.name = ch.hash()
	if known := c.chains[ch.name]; known != nil {
		for _, s := range ch.sets { // which known has reserved, too
			c.releaseSet(s)
		}
		known.refs++
		return known
	}
	ch.refs = 1
	c.chains[ch.name] = ch
	c.newChains = append(c.newChains, ch)
	for i := range spec.rules {
		if next := spec.rules[i].next; next != nil {
			next.refs++
			ch.next = append(ch.next, next)
		}
	}
	return ch
}

// hash returns the name of a chain with this content.
func (c *chain) hash() string {
	var b strings.Builder
	for i := range c.Rules {
		r := &c.Rules[i]
		fmt.Fprintf(&b, "%s %v %d %d %s %q\n", r.Peers, r.Ports, r.Where, r.Action, r.Chain, r.Reason)
	}
	for _, s := range c.sources {
		fmt.Fprintf(&b, "%q %q %q\n", s.Kind, s.Key.Namespace, s.Key.Name)
	}
	prefix := "in-"
	if c.Direction == ruleset.Egress {
		prefix = "out-"
	}
	return hashed(prefix, b.String())
}

func sourcesText(sources []cluster.Ref) string {
	names := make([]string, 0, len(sources))
	for _, s := range sources {
		names = append(names, s.Key.String())
	}
	return strings.Join(names, " ")
}

// releaseChain removes a reference to a chain, which may be nil; collect deletes it after the last one.
func (c *Compiler) releaseChain(ch *chain) {
	if ch == nil {
		return
	}
	if ch.refs--; ch.refs == 0 {
		c.idleChains = append(c.idleChains, ch)
	}
}
