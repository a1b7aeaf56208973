package alloc

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// Bands describes how a range of cluster IPs is divided: the lower band is meant for
// addresses that manifests request, and addresses are chosen from it only when the upper
// band is full (page "Service ClusterIP allocation").
type Bands struct {
	Range netip.Prefix
	// Size is the number of addresses that can be allocated: all but the network address
	// and, in IPv4, the broadcast address. It is at most 2⁶⁴-1.
	Size uint64
	// Offset is the number of addresses in the lower, static band; 0 if the range is too
	// small to be divided.
	Offset uint64
	// StaticStart and StaticEnd are the first and the last address of the static band;
	// zero if there is none.
	StaticStart, StaticEnd netip.Addr
	// Start and End are the first and the last address that can be allocated.
	Start, End netip.Addr
}

// The page's formula for the static band is min(max(16, size/16), 256), where size is that
// of the prefix. Ranges of at most 16 addresses are not divided (kube-apiserver,
// ipallocator).
const (
	minOffset     = 16
	maxOffset     = 256
	offsetDivisor = 16
)

// SplitRange returns the bands of a range. It ignores address bits after the prefix.
func SplitRange(r netip.Prefix) Bands {
	r = r.Masked()
	b := Bands{Range: r, Start: r.Addr().Next(), End: lastAddr(r)}
	hostBits := r.Addr().BitLen() - r.Bits()
	all := uint64(math.MaxUint64)
	if hostBits < 64 {
		all = 1<<hostBits - 1
		b.Offset = bandOffset(1<<hostBits, minOffset, maxOffset, offsetDivisor)
	} else {
		b.Offset = maxOffset
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

// bandOffset returns the size of the static band of a range.
func bandOffset(size, least, most, divisor uint64) uint64 {
	if size <= least {
		return 0
	}
	return min(max(least, size/divisor), most)
}

// lastAddr returns the last address of a masked prefix.
func lastAddr(r netip.Prefix) netip.Addr {
	octets := r.Addr().AsSlice()
	for bit := r.Bits(); bit < len(octets)*8; bit++ {
		octets[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(octets)
	return last
}

// add returns the address n after a. Only the lower 64 bits are incremented.
func add(a netip.Addr, n uint64) netip.Addr {
	octets := a.As16()
	binary.BigEndian.PutUint64(octets[8:], low64(a)+n)
	sum := netip.AddrFrom16(octets)
	if a.Is4() {
		return sum.Unmap()
	}
	return sum
}

// low64 returns the lower 64 bits of an address.
func low64(a netip.Addr) uint64 {
	octets := a.As16()
	return binary.BigEndian.Uint64(octets[8:])
}

// contains reports whether the address can be allocated from the range.
func (b Bands) contains(a netip.Addr) bool {
	return b.Range.Contains(a) && !a.Less(b.Start) && !b.End.Less(a)
}

// Ports is a range of node ports.
type Ports struct{ First, Last uint16 }

// The default range of node ports (page Service, "type: NodePort").
const (
	firstNodePort = 30000
	lastNodePort  = 32767
)

// The formula for the static band of node ports is min(max(16, size/32), 128), see the
// Kubernetes blog, "Avoid Collisions Assigning Ports to NodePort Services".
const (
	minPortOffset     = 16
	maxPortOffset     = 128
	portOffsetDivisor = 32
)

// Offset returns the number of ports in the static band, at the beginning of the range.
func (p Ports) Offset() int {
	return int(bandOffset(p.size(), minPortOffset, maxPortOffset, portOffsetDivisor))
}

// String returns "First-Last".
func (p Ports) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

func (p Ports) size() uint64 { return uint64(p.Last) - uint64(p.First) + 1 }

func (p Ports) contains(port uint16) bool { return p.First <= port && port <= p.Last }
