package zone

import (
	"hash/maphash"
	"sync/atomic"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// node is a name with a subtree or hosts, or an ancestor of one. It stays valid
// as long as it is in the table.
type node struct {
	name   dnsname.Name
	parent *node // nil at the apex of an outermost zone
	zone   *zoneState

	// Published to readers. A name that does not exist may have a subtree, for
	// its metadata.
	subtree     atomic.Pointer[Subtree]
	hosts       atomic.Pointer[hosts] // nil if there are none
	nonTerminal atomic.Bool           // a node directly below it exists

	// Used by the writer only.
	data             bool // its own data makes it exist
	exists           bool
	changed          bool  // by the change in progress
	pruned           bool  // removed from the table
	children         int32 // number of nodes directly below
	existingChildren int32 // how many of them exist
}

// table is a hash table of nodes by name, with open addressing and linear
// probing. One writer inserts and removes; readers search concurrently without
// a lock. A slot's pointer is stored before its tag, so a reader that sees the
// tag sees the node.
type table struct {
	seed  maphash.Seed
	slots []slot
	used  int // slots that are not free: with nodes, and tombstones
	nodes int
}

type slot struct {
	tag  atomic.Uint64
	node atomic.Pointer[node]
}

// Tags that are no hash of a name.
const (
	freeTag = iota // ends a search
	tombstoneTag
	firstTag
)

func newTable(seed maphash.Seed, size int) *table {
	return &table{seed: seed, slots: make([]slot, size)}
}

const minTable = 64

// hash returns the tag of a name in wire form without its closing zero octet.
func (t *table) hash(labels []byte) uint64 {
	return max(maphash.Bytes(t.seed, labels), firstTag)
}

func (t *table) hashName(n dnsname.Name) uint64 {
	return max(maphash.String(t.seed, n.WireLabels()), firstTag)
}

// find returns the node of the name with the given wire form, or nil.
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

// insert adds n, which must not be in the table, and returns the table that
// then holds it: t, or a larger one.
func (t *table) insert(n *node) *table {
	if 4*(t.used+1) > 3*len(t.slots) {
		t = t.rebuilt(1)
	}
	t.place(n, t.hashName(n.name))
	return t
}

// place stores n in the first slot that is free for its tag.
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

// grow returns a table with t's nodes and room for more others: t if it is
// large enough, otherwise a table of the final size at once. If t already has
// more nodes than are added, most of the additions are assumed to be present,
// and grow returns t.
func (t *table) grow(more int) *table {
	if 4*(t.used+more) <= 3*len(t.slots) || more < t.nodes {
		return t
	}
	return t.rebuilt(more)
}

// rebuilt returns a table with t's nodes, without tombstones, at most half full
// after more additions.
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

// remove removes n and returns the table that is left: t, or a smaller one.
func (t *table) remove(n *node) *table {
	mask := uint64(len(t.slots) - 1)
	for i := t.hashName(n.name) & mask; t.slots[i].tag.Load() != freeTag; i = (i + 1) & mask {
		if t.slots[i].node.Load() == n {
			t.slots[i].tag.Store(tombstoneTag)
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

// all yields every node, in no particular order.
func (t *table) all(yield func(*node) bool) {
	for i := range t.slots {
		if n := t.slots[i].node.Load(); n != nil && !yield(n) {
			return
		}
	}
}
