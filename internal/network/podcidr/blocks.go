package podcidr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
)

// Range is a cluster's range of Pod addresses of one family, and the length of the prefixes that Nodes get of it.
type Range struct {
	Cluster netip.Prefix
	Bits    int
}

// Limits of the number of a range's blocks, as a power of two. That of IPv6 is kube-controller-manager's
// (k8s.io/kubernetes, pkg/controller/nodeipam/ipam/cidrset, clusterSubnetMaxDiff); for IPv4 it has none. 20 bits are
// 10.0.0.0/8 in blocks of 16 addresses, and 4 MiB.
const (
	maxBits4 = 20
	maxBits6 = 16
)

// Check reports why the range cannot be divided.
func (r Range) Check() error {
	if !r.Cluster.IsValid() || r.Cluster.Addr().Is4In6() || r.Cluster != r.Cluster.Masked() {
		return fmt.Errorf("%s is not a range of addresses, such as 10.244.0.0/16 or fd00:10:244::/48", r.Cluster)
	}
	most := maxBits6
	if r.Cluster.Addr().Is4() {
		most = maxBits4
	}
	switch {
	case r.Bits > r.Cluster.Addr().BitLen():
		return fmt.Errorf("no range of a Node in %s can have the mask /%d", r.Cluster, r.Bits)
	case r.Bits < r.Cluster.Bits():
		return fmt.Errorf("%s is smaller than the range of one Node, which has the mask /%d", r.Cluster, r.Bits)
	case r.Bits-r.Cluster.Bits() > most:
		return fmt.Errorf("%s has more ranges of the mask /%d than 2^%d", r.Cluster, r.Bits, most)
	}
	return nil
}

// CheckRanges reports why an Allocator cannot have the ranges: one or two that are valid, of different families.
func CheckRanges(ranges []Range) error {
	for _, r := range ranges {
		if err := r.Check(); err != nil {
			return err
		}
	}
	switch {
	case len(ranges) < 1 || len(ranges) > 2:
		return fmt.Errorf("%d ranges; one or two are wanted, of different families", len(ranges))
	case len(ranges) == 2 && ranges[0].Cluster.Addr().Is4() == ranges[1].Cluster.Addr().Is4():
		return errors.New("both ranges are of one family")
	}
	return nil
}

// blocks are the blocks of a Range, each of the size of a Node's range. A block is taken while a range that somebody
// has overlaps it.
type blocks struct {
	Range
	taken []uint32 // how many ranges overlap each block
	first int      // all blocks before it are taken
	used  int      // blocks that are taken
}

func newBlocks(r Range) *blocks {
	return &blocks{Range: r, taken: make([]uint32, 1<<(r.Bits-r.Cluster.Bits()))}
}

func (b *blocks) family() cluster.AddressType { return cluster.FamilyOf(b.Cluster.Addr()) }

// span returns the blocks that a range overlaps, from the first up to and without end.
func (b *blocks) span(p netip.Prefix) (first, end int) {
	switch {
	case !p.Overlaps(b.Cluster):
		return 0, 0
	case p.Bits() <= b.Cluster.Bits():
		return 0, len(b.taken)
	}
	first = b.index(p.Addr())
	return first, first + 1<<max(0, b.Bits-p.Bits())
}

// take marks the blocks that a range overlaps.
func (b *blocks) take(p netip.Prefix) {
	first, end := b.span(p)
	for i := first; i < end; i++ {
		if b.taken[i]++; b.taken[i] == 1 {
			b.used++
		}
	}
}

// free undoes take. It reports whether a block is free now.
func (b *blocks) free(p netip.Prefix) (freed bool) {
	first, end := b.span(p)
	for i := first; i < end; i++ {
		if b.taken[i]--; b.taken[i] == 0 {
			b.used--
			b.first = min(b.first, i)
			freed = true
		}
	}
	return freed
}

// lowest returns the first free block; ok is false if there is none.
func (b *blocks) lowest() (p netip.Prefix, ok bool) {
	for b.first < len(b.taken) && b.taken[b.first] > 0 {
		b.first++
	}
	if b.first == len(b.taken) {
		return netip.Prefix{}, false
	}
	return b.at(b.first), true
}

// uint128 is an address as a number; one of IPv4 is in its low half.
type uint128 struct{ high, low uint64 }

func numberOf(a netip.Addr) uint128 {
	if a.Is4() {
		of := a.As4()
		return uint128{low: uint64(binary.BigEndian.Uint32(of[:]))}
	}
	of := a.As16()
	return uint128{binary.BigEndian.Uint64(of[:8]), binary.BigEndian.Uint64(of[8:])}
}

// index returns the block of an address in the range.
func (b *blocks) index(a netip.Addr) int {
	n, base := numberOf(a), numberOf(b.Cluster.Addr())
	low, borrow := bits.Sub64(n.low, base.low, 0)
	high, _ := bits.Sub64(n.high, base.high, borrow)
	shift := b.hostBits()
	if shift >= 64 {
		return int(high >> (shift - 64))
	}
	return int(low>>shift | high<<(64-shift)) // high is 0 unless the blocks cross the middle of the address
}

// at returns a block.
func (b *blocks) at(index int) netip.Prefix {
	base, shift := numberOf(b.Cluster.Addr()), b.hostBits()
	var offset uint128
	if shift >= 64 {
		offset.high = uint64(index) << (shift - 64)
	} else {
		offset = uint128{uint64(index) >> (64 - shift), uint64(index) << shift}
	}
	low, carry := bits.Add64(base.low, offset.low, 0)
	high, _ := bits.Add64(base.high, offset.high, carry)
	if b.Cluster.Addr().Is4() {
		var of [4]byte
		binary.BigEndian.PutUint32(of[:], uint32(low))
		return netip.PrefixFrom(netip.AddrFrom4(of), b.Bits)
	}
	var of [16]byte
	binary.BigEndian.PutUint64(of[:8], high)
	binary.BigEndian.PutUint64(of[8:], low)
	return netip.PrefixFrom(netip.AddrFrom16(of), b.Bits)
}

// hostBits is the number of bits of an address in a block.
func (b *blocks) hostBits() int { return b.Cluster.Addr().BitLen() - b.Bits }
