package zone

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// batch is the changes of one Apply.
type batch struct {
	db       *DB
	steps    []step           // from the deepest up
	parents  []*node          // whose hosts change
	pointers []delta[pointer] // of reverse names
}

// step replaces one node's subtree.
type step struct {
	node    *node
	depth   int
	subtree *Subtree
}

// add works out what changes mean.
func (b *batch) add(changes Changes) {
	octets := 0
	for _, c := range changes.Subtrees {
		octets += len(c.Subtree.packedPointers())
	}
	b.pointers = make([]delta[pointer], 0, octets/minPointer+len(changes.Hosts))
	b.steps = make([]step, 0, len(changes.Subtrees))
	b.db.table.Store(b.db.table.Load().withRoom(len(changes.Subtrees)))
	for _, c := range changes.Subtrees {
		b.addSubtree(c.Base, c.Subtree)
	}
	slices.SortFunc(b.steps, func(a, c step) int { return c.depth - a.depth })
	for i := range changes.Hosts {
		b.addHosts(&changes.Hosts[i])
	}
}

func (b *batch) addSubtree(base dnsname.Name, t *Subtree) {
	n := b.db.find(base)
	if n == nil && t != nil {
		n = b.db.ensure(base)
	}
	if n == nil || n.touched || n.seen.Load().equal(t) {
		return
	}
	n.touched = true
	b.pointers = comparePointers(b.pointers, n.name, n.seen.Load(), t)
	b.steps = append(b.steps, step{n, n.name.Labels(), t})
}

func (b *batch) addHosts(given *Hosts) {
	packed := given.pack()
	n := b.db.find(given.Parent)
	if n == nil && packed != "" {
		n = b.db.ensure(given.Parent)
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
	if !h.touched {
		h.touched = true
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

// show shows readers the reverse names and the hosts, then what else comes or
// changes without going.
func (b *batch) show() {
	apply(&b.db.pointers, b.pointers, func(addr netip.Addr, old, all []pointer) {
		arrange(all, addr)
		if z := b.db.zoneOf(addr); z != nil && !sameAnswer(old, all, addr) {
			b.db.touch(z, spot{addr: addr}, state{pointers: old})
		}
	})
	for _, n := range b.parents {
		if len(n.hosts.Load().sources) > 0 {
			b.db.changeHosts(n)
		}
	}
	b.db.published.Add(1)
	for _, s := range b.steps {
		if s.subtree.holds() || s.node.zone.apex == s.node {
			b.db.publish(s.node, s.subtree)
		}
	}
}

// drop takes from readers what goes, and gives up nodes that nobody needs.
func (b *batch) drop() {
	for _, s := range b.steps {
		if s.node.touched { // still: it holds nothing any more
			b.db.publish(s.node, s.subtree)
		}
	}
	for _, n := range b.parents {
		if len(n.hosts.Load().sources) == 0 {
			b.db.changeHosts(n)
			n.hosts.Store(nil)
		}
		b.db.prune(n)
	}
	for _, s := range b.steps {
		b.db.prune(s.node)
	}
}
