package simulate

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
)

// maxPods is the greatest number of Pods that are simulated, whatever the ranges.
const maxPods = 250_000

// addresses assigns to Pods one address of each range. The address depends on the
// Pod's name alone; if it is in use, it is the next free one.
type addresses struct {
	ranges  []netip.Prefix
	holders map[netip.Addr]cluster.Key
	held    map[cluster.Key][]netip.Addr
	// declared are the addresses that Pods declare, within how many of them are in
	// each range, and waiting how many declared Pods need an address.
	declared map[netip.Addr]bool
	within   []int
	waiting  int
}

func newAddresses(ranges []netip.Prefix) *addresses {
	return &addresses{ranges: ranges, holders: make(map[netip.Addr]cluster.Key), held: make(map[cluster.Key][]netip.Addr)}
}

// setDeclared records the addresses of all declared Pods.
func (a *addresses) setDeclared(pods iter.Seq[*cluster.Pod]) {
	a.declared, a.within, a.waiting = make(map[netip.Addr]bool), make([]int, len(a.ranges)), 0
	for p := range pods {
		switch {
		case p.Finished || p.Spec != nil && p.Spec.HostNetwork:
		case len(p.IPs) == 0:
			a.waiting++
		}
		if !p.Finished {
			for _, addr := range p.IPs {
				a.declared[addr] = true
			}
		}
	}
	for addr := range a.declared {
		for i, r := range a.ranges {
			if r.Contains(addr) {
				a.within[i]++
			}
		}
	}
}

// room returns how many Pods may be simulated besides the declared ones.
func (a *addresses) room() int {
	room := maxPods
	for i, r := range a.ranges {
		room = min(room, capacity(r)-a.within[i]-a.waiting)
	}
	return max(0, room)
}

// size returns the number of addresses of a range that are used: at most the first
// 2^31.
func size(r netip.Prefix) uint64 { return 1 << min(31, r.Addr().BitLen()-r.Bits()) }

// capacity returns how many of them Pods can have: not the first, which is the
// network's, and not the last of IPv4, which is the broadcast address.
func capacity(r netip.Prefix) int {
	if r.Addr().Is4() {
		return max(0, int(size(r))-2)
	}
	return int(size(r)) - 1
}

// assign returns the addresses for a key, the same each time; none if a range is full.
func (a *addresses) assign(key cluster.Key) []netip.Addr {
	if held := a.held[key]; len(held) > 0 && !a.anyDeclared(held) {
		return held
	}
	a.release(key)
	assigned := make([]netip.Addr, 0, len(a.ranges))
	for i := range a.ranges {
		addr, ok := a.free(i, key)
		if !ok {
			return nil
		}
		assigned = append(assigned, addr)
	}
	a.hold(key, assigned)
	return assigned
}

func (a *addresses) anyDeclared(addrs []netip.Addr) bool {
	for _, addr := range addrs {
		if a.declared[addr] {
			return true
		}
	}
	return false
}

// free returns the first free address of the i-th range, starting at the hash of the
// key. It does not search a full range.
func (a *addresses) free(i int, key cluster.Key) (netip.Addr, bool) {
	r := a.ranges[i]
	if len(a.held)+a.within[i] >= capacity(r) {
		return netip.Addr{}, false
	}
	n := size(r)
	for step, first := uint64(0), hash(key)%n; step < n; step++ {
		offset := (first + step) % n
		addr := at(r, offset)
		_, used := a.holders[addr]
		if last := addr.Is4() && offset == n-1; offset != 0 && !last && !used && !a.declared[addr] {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

func hash(key cluster.Key) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key.String())) // never fails
	return h.Sum64()
}

// at returns the address of a range at an offset below 1<<31.
func at(r netip.Prefix, offset uint64) netip.Addr {
	bytes := r.Masked().Addr().As16()
	low := bytes[12:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+uint32(offset))
	addr := netip.AddrFrom16(bytes)
	if r.Addr().Is4() {
		return addr.Unmap()
	}
	return addr
}

// reserve holds for a Pod the addresses that it had, if the ranges allow them.
func (a *addresses) reserve(key cluster.Key, addrs []netip.Addr) {
	if len(addrs) != len(a.ranges) {
		return
	}
	for i, addr := range addrs {
		if _, used := a.holders[addr]; used || !a.ranges[i].Contains(addr) {
			return
		}
	}
	a.hold(key, addrs)
}

func (a *addresses) hold(key cluster.Key, addrs []netip.Addr) {
	a.held[key] = addrs
	for _, addr := range addrs {
		a.holders[addr] = key
	}
}

func (a *addresses) release(key cluster.Key) {
	for _, addr := range a.held[key] {
		delete(a.holders, addr)
	}
	delete(a.held, key)
}
