package alloc

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// Band is how a range of cluster IPs is split: addresses that are asked for by
// name are best taken from the lower part, which is the last that any are given
// out from (Services, load balancing and networking: "Service ClusterIP
// allocation").
type Band struct {
	Range netip.Prefix
	// Size is how many addresses can be given out: all but the network's own and,
	// in IPv4, the one for broadcasts. It is at most 2⁶⁴-1.
	Size uint64
	// Offset is how many of them are in the lower, static part; 0 when a range is
	// too small to be split.
	Offset uint64
	// StaticStart and StaticEnd are the first and the last address of the lower
	// part; the zero Addr when there is none.
	StaticStart, StaticEnd netip.Addr
	// Start and End are the first and the last address that can be given out.
	Start, End netip.Addr
}

// The formula of the page is min(max(16, size/16), 256), of the size that the
// prefix says. Ranges of no more than 16 addresses are not split (kube-apiserver,
// ipallocator).
const (
	leastOffset   = 16
	mostOffset    = 256
	offsetDivisor = 16
)

// BandOf splits a range. Bits of the address behind the prefix don't count.
func BandOf(r netip.Prefix) Band {
	r = r.Masked()
	b := Band{Range: r, Start: r.Addr().Next(), End: lastOf(r)}
	hostBits := r.Addr().BitLen() - r.Bits()
	all := uint64(math.MaxUint64)
	if hostBits < 64 {
		all = 1<<hostBits - 1
		b.Offset = splitAt(1<<hostBits, leastOffset, mostOffset, offsetDivisor)
	} else {
		b.Offset = mostOffset
	}
	b.Size = all
	if r.Addr().Is4() {
		b.Size = max(all, 1) - 1
		b.End = b.End.Prev()
	}
	if b.Offset > 0 {
		b.StaticStart, b.StaticEnd = b.Start, add(b.Start, b.Offset-1)
	}
	return b
}

// splitAt is how large the static part is of what has a size.
func splitAt(size, least, most, divisor uint64) uint64 {
	if size <= least {
		return 0
	}
	return min(max(least, size/divisor), most)
}

// lastOf is the last address of a masked prefix.
func lastOf(r netip.Prefix) netip.Addr {
	octets := r.Addr().AsSlice()
	for bit := r.Bits(); bit < len(octets)*8; bit++ {
		octets[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(octets)
	return last
}

// add is the address n behind a; only the lower 64 bits count up.
func add(a netip.Addr, n uint64) netip.Addr {
	octets := a.As16()
	binary.BigEndian.PutUint64(octets[8:], lower(a)+n)
	sum := netip.AddrFrom16(octets)
	if a.Is4() {
		return sum.Unmap()
	}
	return sum
}

// lower are the lower 64 bits of an address.
func lower(a netip.Addr) uint64 {
	octets := a.As16()
	return binary.BigEndian.Uint64(octets[8:])
}

// contains reports whether the address can be given out from the range.
func (b Band) contains(a netip.Addr) bool {
	return b.Range.Contains(a) && !a.Less(b.Start) && !b.End.Less(a)
}

// Ports is a range of node ports.
type Ports struct{ First, Last uint16 }

// The range of node ports when none is configured (Service: "type: NodePort").
const (
	firstNodePort = 30000
	lastNodePort  = 32767
)

// The formula for node ports is min(max(16, size/32), 128), see "Avoid Collisions
// Assigning Ports to NodePort Services", which the page on Services names.
const (
	leastPortOffset   = 16
	mostPortOffset    = 128
	portOffsetDivisor = 32
)

// Offset is how many ports at the beginning of the range are the static part.
func (p Ports) Offset() int {
	return int(splitAt(p.size(), leastPortOffset, mostPortOffset, portOffsetDivisor))
}

// String is "First-Last".
func (p Ports) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

func (p Ports) size() uint64 { return uint64(p.Last) - uint64(p.First) + 1 }

func (p Ports) contains(port uint16) bool { return p.First <= port && port <= p.Last }
