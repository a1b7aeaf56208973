package zone

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// delta is one value that comes to an address or goes from it.
type delta[V any] struct {
	addr  netip.Addr
	value V
	gone  bool
}

// atOnce is how many addresses are changed together, in memory that the next ones
// use again: when a cluster is loaded, it changes all of them.
const atOnce = 1024

// apply makes what deltas make of the values of x. For each address, arrange is
// given the old values and the new ones, to put in order. Readers see all of it at
// once.
func apply[V interface{ Equal(V) bool }](x *index[V], deltas []delta[V], arrange func(addr netip.Addr, old, all []V)) {
	order := inOrder(deltas)
	next, room := x.frozen(), min(len(deltas), atOnce)
	made, changes := make([]V, 0, 2*room), make([]update[V], 0, room)
	for len(order) > 0 {
		if len(changes) == atOnce {
			next.update(changes)
			made, changes = made[:0], changes[:0]
		}
		addr, start := deltas[order[0]].addr, len(made)
		old := x.find(addr)
		made = append(made, old...)
		for ; len(order) > 0 && deltas[order[0]].addr == addr; order = order[1:] {
			d := &deltas[order[0]]
			if !d.gone {
				made = append(made, d.value)
			} else if i := slices.IndexFunc(made[start:], d.value.Equal); i >= 0 {
				made = slices.Delete(made, start+i, start+i+1)
			}
		}
		all := made[start:len(made):len(made)]
		if len(old)+len(all) == 0 {
			continue // it came and went
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

// inOrder are the places of deltas in order of address. Of one address what comes is
// first, for it may go again. There are tens of thousands of deltas when a cluster is
// loaded, nearly all of IPv4: those are sorted as numbers, of address, going and place.
func inOrder[V any](deltas []delta[V]) []uint32 {
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
		if d.gone {
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
		if c := deltas[a].addr.Compare(deltas[b].addr); c != 0 || deltas[a].gone == deltas[b].gone {
			return c
		}
		if deltas[a].gone {
			return 1
		}
		return -1
	})
	return append(order, v6...)
}
