// Package diff finds out which connections open or close if policies of a cluster change.
//
//	cluster.View before ─┐
//	                     ├─► ends: classes of Pods, Nodes and addresses ─► profiles: ports by group of peers ─► Changes
//	Apply ──► after ─────┘
//
// It does not compare Pods with Pods, but classes: Pods of a namespace with the same labels, ports and
// blocks of addresses as far as any policy looks at them; addresses outside the cluster by the smallest
// block that policies name; and ports by the intervals between those that policies name. Package
// semantics evaluates one of each.
package diff

import (
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// Change is a group of connections that open or close.
type Change struct {
	// Change is Opens or Closes.
	Change string  `json:"change"`
	From   []Party `json:"from"`
	To     []Party `json:"to"`
	Ports  []Ports `json:"ports"`
	// Why is what allows or denies the connections after the change, in a clause each.
	Why   []string `json:"why"`
	ports string   // the text of Ports
}

// The values of Change.Change.
const (
	Opens  = "opens"
	Closes = "closes"
)

// Compare returns the connections that are allowed in one of two states of a cluster only, as if all
// Pods of the second had been there before. Connections of a Pod with itself are left out, and so are
// Pods that only the first has.
func Compare(was, is *cluster.View) []Change {
	m := newMentioned(was, is)
	x := &evaluator{
		mentioned: m, sets: [sides]*semantics.Set{semantics.NewSet(was), semantics.NewSet(is)},
		profiles: make(map[string]*profile), portIDs: make(map[string]int32), both: make(map[[2]int32]int32),
	}
	x.matches[before], x.matches[after] = make(map[string][]bool), make(map[string][]bool)
	x.ends, x.pods = collect(m, was, is)
	x.same = x.isSame(was, is)
	all := every()
	x.every = x.intern(&all)
	c := &comparison{evaluator: x, differing: make(map[[2]*profile][]int), decisions: make(map[decision]string)}
	c.compare()
	return c.changes()
}

// isSame reports whether nothing but policies differs.
func (x *evaluator) isSame(was, is *cluster.View) bool {
	for _, e := range x.ends {
		if e.before != e.after && x.key(e.before) != x.key(e.after) || e.known[before] != e.known[after] ||
			!maps.Equal(e.nodeLabels[before], e.nodeLabels[after]) {
			return false
		}
	}
	for n := range is.Namespaces() {
		if old := was.Namespace(n.Name); old != n {
			return false
		}
	}
	return true
}

// comparison finds the pairs of ends whose connections differ.
type comparison struct {
	*evaluator
	// differing has by profiles before and after the peers for which they differ.
	differing map[[2]*profile][]int
	own       []profiles // of each class of Pods
	cells     []cell
	decisions map[decision]string
}

// profiles are those of a class of Pods, by side.
type profiles struct{ egress, ingress [sides]*profile }

// cell is connections between two ends that open or close.
type cell struct {
	opens    bool
	from, to int
	ports    int32
}

func (c *comparison) compare() {
	c.own = make([]profiles, c.pods)
	byDifference := make([][]int, len(c.ends)) // by peer the Pods whose ingress differs for it
	for i := range c.pods {
		own := &c.own[i]
		for s := range sides {
			own.egress[s] = c.profileOf(c.ends[i], s, ruleset.Egress)
			own.ingress[s] = c.profileOf(c.ends[i], s, ruleset.Ingress)
		}
		for _, peer := range c.differ(own.ingress) {
			byDifference[peer] = append(byDifference[peer], i)
		}
	}
	for from := range c.ends {
		if from >= c.pods {
			for _, to := range byDifference[from] {
				c.connection(from, to)
			}
			continue
		}
		to := slices.Concat(c.differ(c.own[from].egress), byDifference[from])
		slices.Sort(to)
		for _, to := range slices.Compact(to) {
			c.connection(from, to)
		}
	}
}

// differ returns the peers for which profiles before and after differ.
func (c *comparison) differ(of [sides]*profile) []int {
	if of[before] == of[after] {
		return nil
	}
	peers, known := c.differing[of]
	if known {
		return peers
	}
	c.compute(of[before])
	c.compute(of[after])
	for peer := range c.ends {
		if of[before].at(peer) != of[after].at(peer) {
			peers = append(peers, peer)
		}
	}
	c.differing[of] = peers
	return peers
}

// connection adds the cells of connections between two ends, of which one is a Pod.
func (c *comparison) connection(from, to int) {
	if !c.exists(from, to) {
		return
	}
	var ports [sides]int32
	for s := range sides {
		ports[s] = c.every
		if from < c.pods {
			p := c.own[from].egress[s]
			c.compute(p)
			ports[s] = p.at(to)
		}
		if to < c.pods {
			p := c.own[to].ingress[s]
			c.compute(p)
			ports[s] = c.and(ports[s], p.at(from))
		}
	}
	if ports[before] == ports[after] {
		return
	}
	for s := range sides {
		rest := c.ports[ports[1-s]].not()
		only := c.ports[ports[s]].and(&rest)
		if !only.empty() {
			c.cells = append(c.cells, cell{opens: s == after, from: from, to: to, ports: c.intern(&only)})
		}
	}
}

// exists reports whether there are such connections: between different Pods, with Nodes that are the
// Pod's own or not, and not from domain names.
func (c *comparison) exists(from, to int) bool {
	a, b := c.ends[from], c.ends[to]
	switch {
	case from == to:
		return a.several
	case a.place == domain:
		return false
	}
	if b.place == nodes || b.place == ownNode {
		a, b = b, a
	}
	switch a.place { // a is the Node
	case ownNode:
		for node := range b.on {
			if a.on[node] {
				return true
			}
		}
		return false
	case nodes:
		for node := range b.on {
			if len(a.on) > 1 || !a.on[node] {
				return true
			}
		}
		return false
	}
	return true
}

// decision is one direction of connections at some ports: what decides on one of them decides on all.
type decision struct {
	of     [sides]*profile
	groups [sides]int32
	ports  int32
}

// why returns what decides on a cell after the change, for each direction: empty if nothing changed in it.
func (c *comparison) why(of cell) (egress, ingress string) {
	if of.from < c.pods {
		egress = c.decides(of.from, of.to, c.own[of.from].egress, of.ports)
	}
	if of.to < c.pods {
		ingress = c.decides(of.to, of.from, c.own[of.to].ingress, of.ports)
	}
	return egress, ingress
}

// decides returns what decides on the connections of a Pod with a peer in one direction after the
// change; empty if it decides the same before.
func (c *comparison) decides(own, peer int, of [sides]*profile, ports int32) string {
	key := decision{of: of, ports: ports}
	for s := range sides {
		key.groups[s] = of[s].group[peer]
	}
	text, known := c.decisions[key]
	if known {
		return text
	}
	var v [sides]semantics.Verdict
	for s := range sides {
		v[s] = c.verdict(s, of[s].direction, c.ends[own].side(s), c.ends[peer].side(s), c.ports[ports].first())
	}
	if v[before].Allowed != v[after].Allowed {
		text = reason(&v[after], of[after].direction)
	}
	c.decisions[key] = text
	return text
}
