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

// addresses assigns one address of each range to Pods. The preferred address is a hash of
// the Pod's name; if it is in use, the Pod gets the next free one.
type addresses struct {
	ranges  []netip.Prefix
	holders map[netip.Addr]cluster.Key
	held    map[cluster.Key][]netip.Addr
	// declared are the addresses that Pods declare, declaredPerRange their number in each
	// range, and unassigned the number of declared Pods without address.
	declared         map[netip.Addr]bool
	declaredPerRange []int
	unassigned       int
}

func newAddresses(ranges []netip.Prefix) *addresses {
	return &addresses{ranges: ranges, holders: make(map[netip.Addr]cluster.Key), held: make(map[cluster.Key][]netip.Addr)}
}

// setDeclared records the addresses of all declared Pods.
func (a *addresses) setDeclared(pods iter.Seq[*cluster.Pod]) {
	a.declared, a.declaredPerRange, a.unassigned = make(map[netip.Addr]bool), make([]int, len(a.ranges)), 0
	for p := range pods {
		switch {
		case p.Finished || p.Spec != nil && p.Spec.HostNetwork:
		case len(p.IPs) == 0:
			a.unassigned++
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
				a.declaredPerRange[i]++
			}
		}
	}
}

// available returns how many Pods may be simulated besides the declared ones.
func (a *addresses) available() int {
	available := maxPods
	for i, r := range a.ranges {
		available = min(available, capacity(r)-a.declaredPerRange[i]-a.unassigned)
	}
	return max(0, available)
}

// size returns how many addresses of a range are used: at most the first 2^31.
func size(r netip.Prefix) uint64 { return 1 << min(31, r.Addr().BitLen()-r.Bits()) }

// capacity returns how many addresses of a range Pods can have: all that are used except
// for the first, the network address, and the last of an IPv4 range, the broadcast
// address.
func capacity(r netip.Prefix) int {
	if r.Addr().Is4() {
		return max(0, int(size(r))-2)
	}
	return int(size(r)) - 1
}

// assign returns the addresses of a key, the same at each call, or none if a range is
// full.
func (a *addresses) assign(key cluster.Key) []netip.Addr {
	if held := a.held[key]; len(held) > 0 && !a.anyDeclared(held) {
		return held
	}
	a.release(key)
	assigned := make([]netip.Addr, 0, len(a.ranges))
	for i := range a.ranges {
		addr, ok := a.firstFree(i, key)
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

// firstFree returns the first free address of the i-th range, starting at the hash of the
// key. It does not search a full range.
func (a *addresses) firstFree(i int, key cluster.Key) (netip.Addr, bool) {
	r := a.ranges[i]
	if len(a.held)+a.declaredPerRange[i] >= capacity(r) {
		return netip.Addr{}, false
	}
	n := size(r)
	for step, first := uint64(0), hash(key)%n; step < n; step++ {
		offset := (first + step) % n
		addr := addrAt(r, offset)
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

// addrAt returns the address of a range at an offset below 1<<31.
func addrAt(r netip.Prefix, offset uint64) netip.Addr {
	bytes := r.Masked().Addr().As16()
	low := bytes[12:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+uint32(offset))
	addr := netip.AddrFrom16(bytes)
	if r.Addr().Is4() {
		return addr.Unmap()
	}
	return addr
}

// reserve holds the previous addresses of a Pod for it, if they are free and in the
// ranges.
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
