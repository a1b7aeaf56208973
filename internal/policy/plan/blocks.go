package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// without returns what is left of a block without the given ones, as prefixes that do not overlap.
func without(block netip.Prefix, excepts []netip.Prefix) []netip.Prefix {
	inside := slices.DeleteFunc(union(excepts), func(e netip.Prefix) bool { return !e.Overlaps(block) })
	return appendRest(nil, block, inside)
}

// appendRest appends what is left of a block without others, which overlap it and are as union returns
// them.
func appendRest(to []netip.Prefix, block netip.Prefix, excepts []netip.Prefix) []netip.Prefix {
	switch {
	case len(excepts) == 0:
		return append(to, block)
	case excepts[0].Bits() <= block.Bits():
		return to
	}
	low, high := halves(block)
	first, _ := slices.BinarySearchFunc(excepts, high.Addr(), func(e netip.Prefix, a netip.Addr) int {
		return e.Addr().Compare(a)
	})
	return appendRest(appendRest(to, low, excepts[:first]), high, excepts[first:])
}

// halves returns the two halves of a block of more than one address.
func halves(block netip.Prefix) (low, high netip.Prefix) {
	at := block.Bits()
	octets := block.Masked().Addr().AsSlice()
	octets[at/8] |= 0x80 >> (at % 8)
	upper, _ := netip.AddrFromSlice(octets)
	return netip.PrefixFrom(block.Masked().Addr(), at+1), netip.PrefixFrom(upper, at+1)
}

// union returns the fewest prefixes that have the same addresses, sorted. They do not overlap.
func union(blocks []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, 0, len(blocks))
	for _, b := range blocks {
		if b.IsValid() {
			sorted = append(sorted, b.Masked())
		}
	}
	slices.SortFunc(sorted, comparePrefixes)
	var out []netip.Prefix
	for _, b := range sorted {
		if n := len(out); n > 0 && out[n-1].Overlaps(b) { // it is contained, since it is not larger
			continue
		}
		out = append(out, b)
		for len(out) > 1 {
			n := len(out)
			parent, ok := parentOf(out[n-2], out[n-1])
			if !ok {
				break
			}
			out = append(out[:n-2], parent)
		}
	}
	return out
}

// comparePrefixes orders by the first address, then the larger one first.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// parentOf returns the prefix of which a and b are the halves.
func parentOf(a, b netip.Prefix) (parent netip.Prefix, ok bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 {
		return parent, false
	}
	parent = netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return parent, a != b && a.Addr().Is4() == b.Addr().Is4() && parent.Contains(b.Addr())
}

// contain reports whether one of the blocks, which are as union returns them, contains an address.
func contain(blocks []netip.Prefix, addr netip.Addr) bool {
	i, _ := slices.BinarySearchFunc(blocks, addr, func(b netip.Prefix, a netip.Addr) int {
		if b.Addr().Compare(a) <= 0 {
			return -1
		}
		return 1
	})
	return i > 0 && blocks[i-1].Contains(addr)
}
