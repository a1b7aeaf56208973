package simulate

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
)

// maxPods is how many Pods are made up at most, however large the ranges are.
const maxPods = 250_000

// addresses gives Pods one address of each range. Which it is depends on the
// Pod's name alone, unless that one is taken: then it is the next that is free.
type addresses struct {
	ranges []netip.Prefix
	users  map[netip.Addr]cluster.Key
	held   map[cluster.Key][]netip.Addr
	// declared are those that Pods say they have, and waiting how many declared
	// Pods need some.
	declared map[netip.Addr]bool
	within   []int // how many of these are in each range
	waiting  int
}

func newAddresses(ranges []netip.Prefix) *addresses {
	return &addresses{ranges: ranges, users: make(map[netip.Addr]cluster.Key), held: make(map[cluster.Key][]netip.Addr)}
}

// declare takes note of what Pods say they have.
func (a *addresses) declare(pods iter.Seq[*cluster.Pod]) {
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

// room is how many Pods may be made up beside those that are declared.
func (a *addresses) room() int {
	room := maxPods
	for i, r := range a.ranges {
		room = min(room, capacity(r)-a.within[i]-a.waiting)
	}
	return max(0, room)
}

// size is how many addresses are looked at of a range: of a large one the first
// that 31 bits count.
func size(r netip.Prefix) uint64 { return 1 << min(31, r.Addr().BitLen()-r.Bits()) }

// capacity is how many of them Pods may have: the first is the network's, and the
// last of IPv4 for all in it.
func capacity(r netip.Prefix) int {
	if r.Addr().Is4() {
		return max(0, int(size(r))-2)
	}
	return int(size(r)) - 1
}

// keep gives back the addresses that none of these Pods needs any more.
func (a *addresses) keep(pods []*cluster.Pod) {
	if len(a.held) == 0 {
		return
	}
	still := make(map[cluster.Key]bool, len(pods))
	for _, p := range pods {
		still[networkOf(p)] = true
	}
	for key := range a.held {
		if !still[key] {
			a.giveBack(key)
		}
	}
}

// of are the addresses for a key, the same each time; none when a range is full.
func (a *addresses) of(key cluster.Key) []netip.Addr {
	if held := a.held[key]; len(held) > 0 && !a.anyDeclared(held) {
		return held
	}
	a.giveBack(key)
	given := make([]netip.Addr, 0, len(a.ranges))
	for i := range a.ranges {
		addr, ok := a.free(i, key)
		if !ok {
			return nil
		}
		given = append(given, addr)
	}
	a.take(key, given)
	return given
}

func (a *addresses) anyDeclared(addrs []netip.Addr) bool {
	for _, addr := range addrs {
		if a.declared[addr] {
			return true
		}
	}
	return false
}

// free looks for an address of a range from where the key points. It does not look
// in one that is full.
func (a *addresses) free(i int, key cluster.Key) (netip.Addr, bool) {
	r := a.ranges[i]
	if len(a.held)+a.within[i] >= capacity(r) {
		return netip.Addr{}, false
	}
	n := size(r)
	for step, first := uint64(0), hash(key)%n; step < n; step++ {
		offset := (first + step) % n
		addr := at(r, offset)
		_, used := a.users[addr]
		if last := addr.Is4() && offset == n-1; offset != 0 && !last && !used && !a.declared[addr] {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

func hash(key cluster.Key) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key.String())) // does not fail
	return h.Sum64()
}

// at is the address of a range with that offset, which is below 1<<31.
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

// recall has a Pod hold the addresses that it had, if they are such as would be
// given today.
func (a *addresses) recall(key cluster.Key, addrs []netip.Addr) {
	if len(addrs) != len(a.ranges) {
		return
	}
	for i, addr := range addrs {
		if _, used := a.users[addr]; used || !a.ranges[i].Contains(addr) {
			return
		}
	}
	a.take(key, addrs)
}

func (a *addresses) take(key cluster.Key, addrs []netip.Addr) {
	a.held[key] = addrs
	for _, addr := range addrs {
		a.users[addr] = key
	}
}

func (a *addresses) giveBack(key cluster.Key) {
	for _, addr := range a.held[key] {
		delete(a.users, addr)
	}
	delete(a.held, key)
}
