package nft

import (
	"net/netip"
	"slices"
)

// maxExact is the largest number of endpoints that has a chain of its own. Above it, sizes
// grow by a quarter at most: a chain draws numbers below its size and draws again when it
// meets an empty slot, so every endpoint is as likely as any other, and a Service that
// grows or shrinks by one endpoint mostly keeps its chain.
const maxExact = 16

// sizes are the sizes of chains, in ascending order.
var sizes = func() (all []int) {
	for n := 1; n <= maxExact; n++ {
		all = append(all, n)
	}
	for base := maxExact; base < 1<<16; base *= 2 {
		for quarter := 5; quarter <= 8; quarter++ {
			all = append(all, base*quarter/4)
		}
	}
	return all
}()

// sizeFor returns the size of the chain for n endpoints, 1 to 65536.
func sizeFor(n int) int {
	i, _ := slices.BinarySearch(sizes, n)
	return sizes[min(i, len(sizes)-1)]
}

// filled returns how many slots are never empty in a chain of the given size.
func filled(size int) int {
	if i, _ := slices.BinarySearch(sizes, size); i > 0 {
		return sizes[i-1] + 1
	}
	return 1
}

// draws returns from how many slots, the first ones, a chain of the given size draws until it
// finds an endpoint. It draws again because a slot is empty in a large chain; because an
// element was just replaced, see package comment; and because the number of endpoints has
// just changed, when only the first slot is sure to have one.
func draws(size int) []int {
	switch {
	case size == 1:
		return []int{1, 1}
	case size <= maxExact:
		return []int{size, size, 1, 1}
	}
	return []int{size, size, size, filled(size), 1, 1}
}

// place returns the slots for endpoints, some of which have several, given the slots before. Slots
// are always the first ones; an endpoint changes its slot only if that would leave a gap.
func place(before, endpoints []netip.AddrPort) (slots []netip.AddrPort) {
	if len(before) == 0 || slices.Equal(before, endpoints) {
		return endpoints // and one list less in memory
	}
	missing := make(map[netip.AddrPort]int, len(endpoints))
	for _, e := range endpoints {
		missing[e]++
	}
	slots = make([]netip.AddrPort, len(endpoints))
	for i, e := range before[:min(len(before), len(slots))] {
		if missing[e] > 0 {
			slots[i] = e
			missing[e]--
		}
	}
	rest := endpoints
	for i := range slots {
		for !slots[i].IsValid() {
			if e := rest[0]; missing[e] > 0 {
				slots[i] = e
				missing[e]--
			}
			rest = rest[1:]
		}
	}
	return slots
}
