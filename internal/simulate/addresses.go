package simulate

import (
	"encoding/binary"
	"hash/fnv"
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
	// declared are those that Pods have by themselves.
	declared map[netip.Addr]bool
}

func newAddresses(ranges []netip.Prefix) *addresses {
	return &addresses{ranges: ranges, users: make(map[netip.Addr]cluster.Key), held: make(map[cluster.Key][]netip.Addr)}
}

// room is for how many Pods there are addresses, all in all.
func (a *addresses) room() int {
	room := maxPods
	for _, r := range a.ranges {
		room = min(room, int(size(r))-2) // the network's, and IPv4's for all in it
	}
	return max(0, room)
}

// size is how many addresses are looked at of a range: of a large one the first
// that 31 bits count.
func size(r netip.Prefix) uint64 {
	return 1 << min(31, r.Addr().BitLen()-r.Bits())
}

// of are the addresses of a Pod, the same each time; fewer than there are ranges
// when one is full.
func (a *addresses) of(key cluster.Key) []netip.Addr {
	if held, ok := a.held[key]; ok && !a.anyDeclared(held) {
		return held
	}
	a.giveBack(key)
	var given []netip.Addr
	for _, r := range a.ranges {
		if addr, ok := a.free(r, key); ok {
			given = append(given, addr)
		}
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

// free looks for an address from where the Pod's name points.
func (a *addresses) free(r netip.Prefix, key cluster.Key) (netip.Addr, bool) {
	n := size(r)
	for i, first := uint64(0), hash(key)%n; i < n; i++ {
		offset := (first + i) % n
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

// take has a Pod hold addresses.
func (a *addresses) take(key cluster.Key, addrs []netip.Addr) {
	a.held[key] = addrs
	for _, addr := range addrs {
		a.users[addr] = key
	}
}

// giveBack has the Pod hold none.
func (a *addresses) giveBack(key cluster.Key) {
	for _, addr := range a.held[key] {
		delete(a.users, addr)
	}
	delete(a.held, key)
}

// observe takes note of the addresses that Pods have by themselves, and of those
// that are free again because no Pod is there that may have them.
func (a *addresses) observe(tx *cluster.Tx, made map[cluster.Key]*cluster.Pod) {
	a.declared = make(map[netip.Addr]bool)
	for p := range tx.Pods() {
		if p.Simulated || p.Finished || p.Spec != nil && p.Spec.HostNetwork {
			continue
		}
		for _, addr := range p.IPs {
			a.declared[addr] = true
		}
	}
	for key := range a.held {
		switch {
		case key.Namespace == "" && tx.Node(key.Name) != nil: // a Node's
		case made[key] != nil || tx.Pod(key) != nil:
		default:
			a.giveBack(key)
		}
	}
}
