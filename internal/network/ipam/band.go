package ipam

import (
	"container/list"
	"encoding/binary"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
)

// maxFree is how many released addresses are remembered before the oldest are given again, although the range
// has some that no Pod had yet: it bounds the memory for ranges that are never gone through, as of IPv6.
const maxFree = 4096

// band is the addresses of a range. It goes through them once, from start; from then on those that were
// released are given again, the one released longest ago first. So the work for an address does not depend on
// how many there are, nor on how many are used.
type band struct {
	prefix netip.Prefix
	first  netip.Addr // that is given
	size   uint64     // how many are given
	start  uint64     // the number of the address with which it began
	passed uint64     // how many it went through
	used   int

	free *list.List // of released, in the order of their times
	at   map[netip.Addr]*list.Element
}

// released is an address that was released.
type released struct {
	addr netip.Addr
	by   attach.ID
	at   time.Time
}

func newBand(prefix netip.Prefix) *band {
	b := &band{
		prefix: prefix, first: prefix.Addr(),
		free: list.New(), at: make(map[netip.Addr]*list.Element),
	}
	bits := prefix.Addr().BitLen() - prefix.Bits()
	if bits < 64 {
		b.size = 1 << bits
	} // else 0, which is 1<<64, less the first
	if bits <= 1 {
		return b
	}
	b.first = b.first.Next()
	b.size--
	if b.first.Is4() {
		b.size--
	}
	return b
}

// address returns the address with a number.
func (b *band) address(number uint64) netip.Addr {
	if b.first.Is4() {
		octets := b.first.As4()
		binary.BigEndian.PutUint32(octets[:], binary.BigEndian.Uint32(octets[:])+uint32(number))
		return netip.AddrFrom4(octets)
	}
	octets := b.first.As16()
	binary.BigEndian.PutUint64(octets[8:], binary.BigEndian.Uint64(octets[8:])+number)
	return netip.AddrFrom16(octets)
}

// contains reports whether the address is one that the band gives.
func (b *band) contains(addr netip.Addr) bool {
	return b.prefix.Contains(addr) && low(addr)-low(b.first) < b.size
}

// startAfter begins a band that gave no address yet with the one after addr.
func (b *band) startAfter(addr netip.Addr) {
	number := low(addr) - low(b.first) + 1
	if number >= b.size {
		number = 0
	}
	b.start = number
}

// low returns the last 64 bits of an address.
func low(addr netip.Addr) uint64 {
	octets := addr.As16()
	return binary.BigEndian.Uint64(octets[8:])
}

// next returns an address that is free, and that take may take: one that no Pod had yet, else the one that was
// released longest ago, of which those released after until are the last choice.
func (b *band) next(until time.Time, used func(netip.Addr) bool) (addr netip.Addr, ok bool) {
	var oldest released
	if front := b.free.Front(); front != nil {
		oldest, ok = front.Value.(released)
	}
	if ok && b.free.Len() >= maxFree && !oldest.at.After(until) {
		return oldest.addr, true
	}
	for ; b.passed < b.size; b.passed++ {
		number := b.start + b.passed
		if number < b.start || number >= b.size {
			number -= b.size
		}
		addr = b.address(number)
		if !used(addr) && !b.isFree(addr) {
			return addr, true
		}
	}
	return oldest.addr, ok
}

// isFree reports whether the address was released.
func (b *band) isFree(addr netip.Addr) bool { return b.at[addr] != nil }

// releasedBy returns which attachment released a free address.
func (b *band) releasedBy(addr netip.Addr) (id attach.ID) {
	if r, ok := b.at[addr].Value.(released); ok {
		id = r.by
	}
	return id
}

// take marks an address as used.
func (b *band) take(addr netip.Addr) {
	b.used++
	if e := b.at[addr]; e != nil {
		b.free.Remove(e)
		delete(b.at, addr)
	}
}

// release inserts an address that was released after all others in the band.
func (b *band) release(r released) {
	if e := b.at[r.addr]; e != nil {
		b.free.Remove(e)
	}
	b.at[r.addr] = b.free.PushBack(r)
}

// heldBack returns how many addresses were released after a time.
func (b *band) heldBack(until time.Time) (n int) {
	for e := b.free.Back(); e != nil; e = e.Prev() {
		if r, ok := e.Value.(released); !ok || !r.at.After(until) {
			break
		}
		n++
	}
	return n
}
