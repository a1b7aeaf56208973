package zone

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// delta is one value added to an address or deleted from it.
type delta[V any] struct {
	addr    netip.Addr
	value   V
	deleted bool
}

// batchSize is how many addresses are updated together. Batches reuse memory,
// because loading a cluster changes all addresses.
const batchSize = 1024

// applyDeltas applies deltas to the values of x. For each address it calls
// arrange with the old and the new values; arrange puts the new ones in order.
// Readers see all changes at once.
func applyDeltas[V interface{ Equal(V) bool }](
	x *index[V],
	deltas []delta[V],
	arrange func(addr netip.Addr, old, all []V),
) {
	order := sortDeltas(deltas)
	next, room := x.snapshot(), min(len(deltas), batchSize)
	made, changes := make([]V, 0, 2*room), make([]update[V], 0, room)
	for len(order) > 0 {
		if len(changes) == batchSize {
			next.update(changes)
			made, changes = made[:0], changes[:0]
		}
		addr, start := deltas[order[0]].addr, len(made)
		old := x.find(addr)
		made = append(made, old...)
		for ; len(order) > 0 && deltas[order[0]].addr == addr; order = order[1:] {
			d := &deltas[order[0]]
			if !d.deleted {
				made = append(made, d.value)
			} else if i := slices.IndexFunc(made[start:], d.value.Equal); i >= 0 {
				made = slices.Delete(made, start+i, start+i+1)
			}
		}
		all := made[start:len(made):len(made)]
		if len(old)+len(all) == 0 {
			continue // added and deleted by the same change
		}
		arrange(addr, old, all)
		if !slices.EqualFunc(old, all, V.Equal) {
			changes = append(changes, update[V]{addr, all})
		}
	}
	next.update(changes)
	for i := range x.roots {
		x.roots[i].Store(next.roots[i].Load())
	}
}

// sortDeltas returns the indexes of deltas in order of address; for one
// address, additions come before deletions, because the same value may be added
// and deleted. Loading a cluster makes tens of thousands of deltas, nearly all
// of IPv4: these are sorted as integers made of address, deletion flag and
// index.
func sortDeltas[V any](deltas []delta[V]) []uint32 {
	const going = 1 << 31
	keys := make([]uint64, 0, len(deltas))
	var v6 []uint32
	for i := range deltas {
		d := &deltas[i]
		if !d.addr.Is4() {
			v6 = append(v6, uint32(i))
			continue
		}
		v4 := d.addr.As4()
		key := uint64(binary.BigEndian.Uint32(v4[:]))<<32 | uint64(i)
		if d.deleted {
			key |= going
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	order := make([]uint32, len(keys), len(deltas))
	for i, key := range keys {
		order[i] = uint32(key) &^ going
	}
	slices.SortFunc(v6, func(a, b uint32) int {
		if c := deltas[a].addr.Compare(deltas[b].addr); c != 0 || deltas[a].deleted == deltas[b].deleted {
			return c
		}
		if deltas[a].deleted {
			return 1
		}
		return -1
	})
	return append(order, v6...)
}
