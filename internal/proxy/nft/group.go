package nft

import (
	"net/netip"
)

// groupMask is the part of a number that is the group.
const groupMask = 1<<16 - 1

// group is the numbers of the endpoints of a port of a Service with affinity, which several
// frontends share.
type group struct {
	id      uint32
	numbers map[candidate]uint32 // the lower half is id
	uses    map[candidate]int    // by entries
	users   int                  // entries
	used    map[uint32]struct{}  // the numbers
	last    uint32               // the upper half of the newest number
}

// candidate is an endpoint in one of the lists of a frontend. A client that may use only one of
// them is not to be kept at an endpoint of the other.
type candidate struct {
	to    netip.AddrPort
	local bool
}

// groups are those of a family.
type groups struct {
	byName map[string]*group
	taken  map[uint32]struct{}
	last   uint32 // the newest ID
	// lastNumbers are the newest numbers that clients are remembered with, by ID.
	lastNumbers map[uint32]uint32
}

func newGroups() groups {
	return groups{
		byName: make(map[string]*group), taken: make(map[uint32]struct{}), lastNumbers: make(map[uint32]uint32),
	}
}

// remember has IDs and numbers not be used soon that a client is remembered with.
func (g *groups) remember(number uint32) {
	id := number & groupMask
	g.last = max(g.last, id)
	g.lastNumbers[id] = max(g.lastNumbers[id], number>>16)
}

// recalled are the group and the numbers that the kernel has for a frontend.
type recalled struct {
	id      uint32 // 0 is none
	numbers map[candidate]uint32
}

// join gives e its group, and its endpoints numbers, if it has affinity. It prefers what the
// kernel has. If there are no groups left, e has no affinity.
func (g *groups) join(e *entry, had recalled) {
	if e.Affinity == nil {
		return
	}
	of := g.byName[e.Affinity.Group]
	if of == nil {
		id := g.newID(had.id)
		if id == 0 {
			return
		}
		of = &group{
			id: id, last: g.lastNumbers[id], numbers: make(map[candidate]uint32), uses: make(map[candidate]int),
			used: make(map[uint32]struct{}),
		}
		g.byName[e.Affinity.Group] = of
	}
	e.group = of
	of.users++
	for c := range e.candidates {
		if of.uses[c]++; of.uses[c] == 1 {
			of.numbers[c] = of.newNumber(had.numbers[c])
		}
	}
}

// leave undoes join. Its elements must have been made before.
func (g *groups) leave(e *entry) {
	of := e.group
	if of == nil {
		return
	}
	for c := range e.candidates {
		if of.uses[c]--; of.uses[c] == 0 {
			delete(of.used, of.numbers[c])
			delete(of.uses, c)
			delete(of.numbers, c)
		}
	}
	if of.users--; of.users == 0 {
		delete(g.byName, e.Affinity.Group)
		delete(g.taken, of.id)
	}
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
	n := wanted
	for {
		if _, taken := g.used[n]; !taken && n&groupMask == g.id && n>>16 != 0 {
			g.last = max(g.last, n>>16)
			g.used[n] = struct{}{}
			return n
		}
		g.last = g.last%groupMask + 1
		n = g.last<<16 | g.id
	}
}

// candidates yields the endpoints of e, each once in each list.
func (e *entry) candidates(yield func(candidate) bool) {
	for _, to := range e.slots {
		if !yield(candidate{to, false}) {
			return
		}
	}
	for _, to := range e.local {
		if !yield(candidate{to, true}) {
			return
		}
	}
}
