package zone

import (
	"hash/maphash"
	"sync/atomic"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// node is a name that a subtree or hosts are given for, or an ancestor of one.
// It stays the same as long as it is in the table.
type node struct {
	name   dnsname.Name
	parent *node // nil at the apex of an outermost zone
	zone   *authority

	// What readers see. A name that does not exist may be seen for its notes.
	seen        atomic.Pointer[Subtree]
	hosts       atomic.Pointer[hosts] // nil when there are none
	nonTerminal atomic.Bool           // a name directly below it exists that is a node

	// The writer's own.
	exists   bool
	touched  bool  // by the change in hand
	pruned   bool  // out of the table
	children int32 // nodes directly below
	existing int32 // those of them that exist
}

// table finds nodes by name: open addressing, linear probing. One writer puts
// and removes; any number of readers find meanwhile, without a lock. A slot's
// pointer is set before its tag, so whoever sees the tag sees the node.
type table struct {
	seed  maphash.Seed
	slots []slot
	used  int // slots whose tag is not free: of nodes, and graves
	nodes int
}

type slot struct {
	tag  atomic.Uint64
	node atomic.Pointer[node]
}

// Tags that are no name's hash.
const (
	freeTag = iota // nothing from here on
	graveTag
	firstTag
)

func newTable(seed maphash.Seed, size int) *table {
	return &table{seed: seed, slots: make([]slot, size)}
}

const minTable = 64

// hash is the tag of a name in wire form without its closing zero octet.
func (t *table) hash(labels []byte) uint64 {
	return max(maphash.Bytes(t.seed, labels), firstTag)
}

func (t *table) hashName(n dnsname.Name) uint64 {
	return max(maphash.String(t.seed, n.WireLabels()), firstTag)
}

// find gives the node of the name with the given wire form, or nil.
func (t *table) find(labels []byte) *node {
	tag := t.hash(labels)
	mask := uint64(len(t.slots) - 1)
	for i := tag & mask; ; i = (i + 1) & mask {
		switch t.slots[i].tag.Load() {
		case freeTag:
			return nil
		case tag:
			if n := t.slots[i].node.Load(); n != nil && n.name.WireLabels() == string(labels) {
				return n
			}
		}
	}
}

// put adds n, which must not be there, and gives the table that then holds
// it: t, or a larger one.
func (t *table) put(n *node) *table {
	if 4*(t.used+1) > 3*len(t.slots) {
		t = t.rebuilt(1)
	}
	t.place(n, t.hashName(n.name))
	return t
}

// place puts n into the first slot that is free for its tag.
func (t *table) place(n *node, tag uint64) {
	mask := uint64(len(t.slots) - 1)
	i := tag & mask
	for t.slots[i].tag.Load() >= firstTag {
		i = (i + 1) & mask
	}
	if t.slots[i].tag.Load() == freeTag {
		t.used++
	}
	t.nodes++
	t.slots[i].node.Store(n)
	t.slots[i].tag.Store(tag)
}

// withRoom gives a table of t's nodes that has room for so many more: t, or one that
// is made at once as large as it would grow to. Where there are more nodes than are
// to come, most of those are thought to be there already, and t does.
func (t *table) withRoom(more int) *table {
	if 4*(t.used+more) <= 3*len(t.slots) || more < t.nodes {
		return t
	}
	return t.rebuilt(more)
}

// rebuilt is a table of t's nodes without graves, at most half full with so many
// more.
func (t *table) rebuilt(more int) *table {
	size := minTable
	for size < 2*(t.nodes+more) {
		size *= 2
	}
	fresh := newTable(t.seed, size)
	for i := range t.slots {
		if n := t.slots[i].node.Load(); n != nil {
			fresh.place(n, t.slots[i].tag.Load())
		}
	}
	return fresh
}

// remove takes n out and gives the table that is left: t, or a smaller one.
func (t *table) remove(n *node) *table {
	mask := uint64(len(t.slots) - 1)
	for i := t.hashName(n.name) & mask; t.slots[i].tag.Load() != freeTag; i = (i + 1) & mask {
		if t.slots[i].node.Load() == n {
			t.slots[i].tag.Store(graveTag)
			t.slots[i].node.Store(nil)
			t.nodes--
			break
		}
	}
	if len(t.slots) > minTable && 16*t.nodes < len(t.slots) {
		return t.rebuilt(0)
	}
	return t
}

// all yields every node, in no order.
func (t *table) all(yield func(*node) bool) {
	for i := range t.slots {
		if n := t.slots[i].node.Load(); n != nil && !yield(n) {
			return
		}
	}
}
