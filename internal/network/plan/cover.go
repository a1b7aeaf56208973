package plan

import (
	"net/netip"
	"slices"
)

// cover is a union of ranges, each of which may be there several times, in as few ranges as its members are:
// those that no other one contains.
type cover struct {
	members *prefixes[int] // how often each is there
	// delta has what became one of the union since the last call of changes: true, or is not any more: false.
	delta map[netip.Prefix]bool
}

func newCover() *cover { return &cover{newPrefixes[int](), make(map[netip.Prefix]bool)} }

// insert adds a range.
func (c *cover) insert(p netip.Prefix) {
	n := c.members.values[p]
	c.members.put(p, n+1)
	if n > 0 || c.isCovered(p) {
		return
	}
	for _, q := range c.below(p) {
		c.note(q, false)
	}
	c.note(p, true)
}

// remove removes a range that was inserted.
func (c *cover) remove(p netip.Prefix) {
	if n := c.members.values[p]; n > 1 {
		c.members.put(p, n-1)
		return
	}
	c.members.remove(p)
	if c.isCovered(p) {
		return
	}
	c.note(p, false)
	for _, q := range c.below(p) {
		c.note(q, true)
	}
}

func (c *cover) isCovered(p netip.Prefix) bool {
	for range c.members.containing(p) {
		return true
	}
	return false
}

// below returns the widest ranges that p contains, without p.
func (c *cover) below(p netip.Prefix) (all []netip.Prefix) {
	for q := range c.members.within(p) {
		if q != p && (len(all) == 0 || !all[len(all)-1].Contains(q.Addr())) {
			all = append(all, q)
		}
	}
	return all
}

func (c *cover) note(p netip.Prefix, is bool) {
	if was, ok := c.delta[p]; ok && was != is {
		delete(c.delta, p)
		return
	}
	c.delta[p] = is
}

// changes returns what changed since the last call.
func (c *cover) changes() (added, removed []netip.Prefix) {
	for p, is := range c.delta {
		if is {
			added = append(added, p)
		} else {
			removed = append(removed, p)
		}
	}
	clear(c.delta)
	slices.SortFunc(added, netip.Prefix.Compare)
	slices.SortFunc(removed, netip.Prefix.Compare)
	return added, removed
}

// all returns the union.
func (c *cover) all() (all []netip.Prefix) {
	for p := range c.members.sorted.all() {
		if len(all) == 0 || !contains(all[len(all)-1], p) {
			all = append(all, p)
		}
	}
	return all
}

func contains(wide, p netip.Prefix) bool { return wide.Bits() <= p.Bits() && wide.Contains(p.Addr()) }
