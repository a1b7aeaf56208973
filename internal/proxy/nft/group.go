package nft

import (
	"net/netip"
)

// groupMask is the part of a number that is the group.
const groupMask = 1<<16 - 1

// group is the endpoints of a port of a Service with affinity, which several frontends share.
type group struct {
	id      uint32
	numbers map[netip.AddrPort]uint32 // the lower half is id
	uses    map[netip.AddrPort]int    // by entries
	users   int                       // entries
	last    uint32                    // the upper half of the newest number
}

// groups are those of a family.
type groups struct {
	byName map[string]*group
	taken  map[uint32]struct{}
	last   uint32
}

func newGroups() groups {
	return groups{byName: make(map[string]*group), taken: make(map[uint32]struct{})}
}

// recalled are the group and the numbers that the kernel has for a frontend.
type recalled struct {
	id      uint32 // 0 is none
	numbers map[netip.AddrPort]uint32
}

// join gives e its group, and its endpoints numbers, if it has affinity. It prefers what the
// kernel has. It returns the elements for endpoints that have no number yet. If there are no
// numbers left, e has no affinity.
func (g *groups) join(e *entry, had recalled) (added []element) {
	if e.Affinity == nil {
		return nil
	}
	of := g.byName[e.Affinity.Group]
	if of == nil {
		id := g.newID(had.id)
		if id == 0 {
			return nil
		}
		of = &group{id: id, numbers: make(map[netip.AddrPort]uint32), uses: make(map[netip.AddrPort]int)}
		g.byName[e.Affinity.Group] = of
	}
	e.group = of
	of.users++
	for to := range e.targets {
		if of.uses[to]++; of.uses[to] > 1 {
			continue
		}
		n := of.newNumber(had.numbers[to])
		of.numbers[to] = n
		added = append(added, element{set: setAffinityEndpoints, key: number(n), data: target(to)})
	}
	return added
}

// leave undoes join, and returns the elements for endpoints that nobody uses.
func (g *groups) leave(e *entry) (removed []element) {
	of := e.group
	if of == nil {
		return nil
	}
	for to := range e.targets {
		if of.uses[to]--; of.uses[to] > 0 {
			continue
		}
		removed = append(removed, element{set: setAffinityEndpoints, key: number(of.numbers[to]), data: target(to)})
		delete(of.uses, to)
		delete(of.numbers, to)
	}
	if of.users--; of.users == 0 {
		delete(g.byName, e.Affinity.Group)
		delete(g.taken, of.id)
	}
	return removed
}

// newID returns a free ID, wanted if that is free; 0 if there is none.
func (g *groups) newID(wanted uint32) uint32 {
	const most = groupMask
	if len(g.taken) >= most {
		return 0
	}
	id := wanted
	for {
		if _, taken := g.taken[id]; !taken && id != 0 {
			g.taken[id] = struct{}{}
			return id
		}
		g.last = g.last%most + 1
		id = g.last
	}
}

// newNumber returns a number that is not in use, wanted if it is such a one.
func (g *group) newNumber(wanted uint32) uint32 {
	used := make(map[uint32]struct{}, len(g.numbers))
	for _, n := range g.numbers {
		used[n] = struct{}{}
	}
	n := wanted
	for {
		if _, taken := used[n]; !taken && n&groupMask == g.id && n>>16 != 0 {
			g.last = max(g.last, n>>16)
			return n
		}
		g.last = g.last%groupMask + 1
		n = g.last<<16 | g.id
	}
}

// targets yields the endpoints of e, each once.
func (e *entry) targets(yield func(netip.AddrPort) bool) {
	seen := make(map[netip.AddrPort]struct{}, len(e.slots))
	for _, list := range [][]netip.AddrPort{e.slots, e.local} {
		for _, to := range list {
			if _, ok := seen[to]; ok {
				continue
			}
			seen[to] = struct{}{}
			if !yield(to) {
				return
			}
		}
	}
}
