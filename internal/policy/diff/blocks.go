package diff

import (
	"net/netip"
	"slices"
)

// blocks are the blocks of addresses that policies name, and all addresses of each family. Addresses of
// which the smallest block is the same are alike for policies.
type blocks struct {
	all  map[netip.Prefix]bool
	bits []int // that blocks have, in descending order
}

func newBlocks() *blocks {
	b := &blocks{all: make(map[netip.Prefix]bool)}
	b.add(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	b.add(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	return b
}

func (b *blocks) add(p netip.Prefix) {
	p = p.Masked()
	if !p.IsValid() || b.all[p] {
		return
	}
	b.all[p] = true
	if at, found := slices.BinarySearchFunc(b.bits, p.Bits(), func(have, want int) int { return want - have }); !found {
		b.bits = slices.Insert(b.bits, at, p.Bits())
	}
}

// of returns the smallest block with an address.
func (b *blocks) of(addr netip.Addr) netip.Prefix {
	for _, bits := range b.bits {
		if p, err := addr.Prefix(bits); err == nil && b.all[p] {
			return p
		}
	}
	return netip.Prefix{}
}

// sorted returns the blocks: one that contains another comes before it.
func (b *blocks) sorted() []netip.Prefix {
	all := make([]netip.Prefix, 0, len(b.all))
	for p := range b.all {
		all = append(all, p)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

// free returns an address of which the block is the smallest one, and whether there is one. within
// are the sorted blocks from this one on.
func free(block netip.Prefix, within []netip.Prefix) (addr netip.Addr, ok bool) {
	addr = block.Addr()
	for _, p := range within[1:] {
		if !block.Contains(p.Addr()) || addr.Less(p.Addr()) {
			break
		}
		if p.Contains(addr) {
			if addr = last(p).Next(); !addr.IsValid() {
				return addr, false
			}
		}
	}
	return addr, block.Contains(addr)
}

// last returns the last address of a block.
func last(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for i := p.Bits(); i < len(raw)*8; i++ {
		raw[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}
