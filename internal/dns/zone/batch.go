package zone

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// batch is the work of one call of Apply.
type batch struct {
	db       *DB
	subtrees []subtreeChange  // deepest first
	parents  []*node          // parents of hosts that change
	pointers []delta[pointer] // changes of PTR records
}

// subtreeChange replaces the subtree of one node.
type subtreeChange struct {
	node    *node
	depth   int
	subtree *Subtree
}

// plan compares changes with the present data and collects what differs.
func (b *batch) plan(changes Changes) {
	octets := 0
	for _, c := range changes.Subtrees {
		octets += len(c.Subtree.packedPointers())
	}
	b.pointers = make([]delta[pointer], 0, octets/minPointer+len(changes.Hosts))
	b.subtrees = make([]subtreeChange, 0, len(changes.Subtrees))
	b.db.table.Store(b.db.table.Load().grow(len(changes.Subtrees)))
	for _, c := range changes.Subtrees {
		b.planSubtree(c.Base, c.Subtree)
	}
	slices.SortFunc(b.subtrees, func(a, c subtreeChange) int { return c.depth - a.depth })
	for i := range changes.Hosts {
		b.planHosts(&changes.Hosts[i])
	}
}

func (b *batch) planSubtree(base dnsname.Name, t *Subtree) {
	n := b.db.findNode(base)
	if n == nil && t != nil {
		n = b.db.ensureNode(base)
	}
	if n == nil || n.changed || n.subtree.Load().equal(t) {
		return
	}
	n.changed = true
	b.pointers = comparePointers(b.pointers, n.name, n.subtree.Load(), t)
	b.subtrees = append(b.subtrees, subtreeChange{n, n.name.Labels(), t})
}

func (b *batch) planHosts(given *Hosts) {
	packed := given.pack()
	n := b.db.findNode(given.Parent)
	if n == nil && packed != "" {
		n = b.db.ensureNode(given.Parent)
	}
	if n == nil {
		return
	}
	h := n.hosts.Load()
	if h == nil && packed != "" {
		h = &hosts{sources: make(map[string]string)}
		n.hosts.Store(h)
	}
	if h == nil || h.sources[given.Source] == packed {
		return
	}
	if !h.changed {
		h.changed = true
		b.parents = append(b.parents, n)
	}
	b.addHostDeltas(n, packed, false)
	b.addHostDeltas(n, h.sources[given.Source], true)
	if packed == "" {
		delete(h.sources, given.Source)
	} else {
		h.sources[given.Source] = packed
	}
}

func (b *batch) addHostDeltas(n *node, packed string, gone bool) {
	h := n.hosts.Load()
	unpack(packed, n.name, func(addr netip.Addr, t ttl, target *pointer) {
		h.deltas = append(h.deltas, delta[ttl]{addr, t, gone})
		if target != nil {
			b.pointers = append(b.pointers, delta[pointer]{addr, *target, gone})
		}
	})
}

// publishAdditions publishes PTR records and hosts, then the subtrees that
// exist after the change, deepest first.
func (b *batch) publishAdditions() {
	b.db.batches.Add(1)
	applyDeltas(&b.db.pointers, b.pointers, func(addr netip.Addr, old, all []pointer) {
		arrangePointers(all, addr)
		if z := b.db.zoneOf(addr); z != nil && !sameAnswer(old, all, addr) {
			b.db.recordChange(z, changeKey{addr: addr}, state{pointers: old})
		}
	})
	for _, n := range b.parents {
		if len(n.hosts.Load().sources) > 0 {
			b.db.publishHosts(n)
		}
	}
	b.db.generation.Add(1)
	for _, s := range b.subtrees {
		if s.subtree.hasData() || s.node.zone.apex == s.node {
			b.db.publish(s.node, s.subtree)
		}
	}
}

// publishRemovals publishes the removal of subtrees and hosts, and prunes nodes
// that are no longer needed.
func (b *batch) publishRemovals() {
	for _, s := range b.subtrees {
		if s.node.changed { // not published yet: it has no data any more
			b.db.publish(s.node, s.subtree)
		}
	}
	for _, n := range b.parents {
		if len(n.hosts.Load().sources) == 0 {
			b.db.publishHosts(n)
			n.hosts.Store(nil)
		}
		b.db.prune(n)
	}
	for _, s := range b.subtrees {
		b.db.prune(s.node)
	}
}
