package nft

import (
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// record is what the kernel has of one family.
type record struct {
	Family
	counters  bool // destinations have one
	entries   map[frontend.Address]*entry
	groups    groups
	addresses map[netip.Addr]uses
	hairpins  map[netip.Addr]struct{}
	cidrs     []netip.Prefix
}

func newRecord(of Family, counters bool) *record {
	return &record{
		Family: of, counters: counters, entries: make(map[frontend.Address]*entry), groups: newGroups(),
		addresses: make(map[netip.Addr]uses), hairpins: make(map[netip.Addr]struct{}),
	}
}

// uses counts the entries at an address, and those that make it a cluster IP.
type uses struct{ all, clusterIPs int32 }

// put records f, given its entry and numbers in the kernel, and returns its elements; of what it
// shares with other entries, those that no other has. Endpoints that it has where the entry recorded
// for it before has them are left out.
func (r *record) put(f *frontend.Frontend, before *entry, had recalled) (*entry, []element) {
	e := newEntry(f, before)
	r.groups.join(e, had)
	all := r.elements(e, r.entries[e.Address])
	r.entries[e.Address] = e
	return e, append(all, r.use(e, 1)...)
}

// forget undoes put for an entry, and returns the elements that no other entry shares. Endpoints that
// the entry put in its place has where it has them are left out.
func (r *record) forget(e *entry) []element {
	now := r.entries[e.Address]
	if now == e {
		now = nil
		delete(r.entries, e.Address)
	}
	all := r.elements(e, now)
	r.groups.leave(e)
	return append(all, r.use(e, -1)...)
}

// elements returns the elements that the kernel needs for e alone, but for endpoints that other,
// which may be nil, has in the same slots.
func (r *record) elements(e, other *entry) (all []element) {
	if r.counters {
		all = append(all, element{set: setConnections, key: destination(e.Address)})
	}
	return e.appendTo(all, other)
}

// use counts e, once more or once less, at its address, and returns the elements of the sets
// that the address comes into or leaves.
func (r *record) use(e *entry, change int32) (all []element) {
	before := r.addresses[e.Addr]
	now := before
	now.all += change
	if e.Policy == frontend.Plain {
		now.clusterIPs += change
	}
	if r.addresses[e.Addr] = now; now.all == 0 {
		delete(r.addresses, e.Addr)
	}
	if (before.all == 0) != (now.all == 0) {
		all = append(all, element{set: setAddresses, key: padded(e.Addr)})
	}
	if (before.clusterIPs == 0) != (now.clusterIPs == 0) {
		all = append(all, element{set: setClusterIPs, key: padded(e.Addr)})
	}
	return all
}

// edits are what makes the kernel have what was recorded.
type edits struct {
	removed, added []element
	entries        []*entry // that are new
	// newCIDRs: all ranges of cluster IPs are replaced, of which there were oldCIDRs elements.
	newCIDRs bool
	oldCIDRs int
}

// change records changes, and returns what they change in the kernel.
func (r *record) change(c *frontend.Changes) (d edits) {
	var old []*entry
	for _, f := range c.Put {
		if FamilyOf(f.Addr) != r.Family {
			continue
		}
		before := r.entries[f.Address]
		if before != nil {
			old = append(old, before)
		}
		e, elements := r.put(f, before, recalled{})
		d.added, d.entries = append(d.added, elements...), append(d.entries, e)
	}
	for _, a := range c.Delete {
		if e := r.entries[a]; e != nil {
			old = append(old, e)
		}
	}
	for _, e := range old { // after put, so that nothing is given up that goes on being used
		d.removed = append(d.removed, r.forget(e)...)
	}
	if len(c.Hairpins) > 0 {
		before, now := r.hairpinElements(), maps.Clone(r.hairpins)
		for a, there := range c.Hairpins {
			if there {
				now[a] = struct{}{}
			} else {
				delete(now, a)
			}
		}
		d.removed, d.added = append(d.removed, before...), append(d.added, r.setHairpins(slices.Collect(maps.Keys(now)))...)
	}
	if c.ServiceCIDRs != nil {
		before := r.cidrElements()
		d.newCIDRs, d.oldCIDRs = !slices.Equal(before, r.setCIDRs(c.ServiceCIDRs)), len(before)
	}
	d.removed, d.added = difference(d.removed, d.added)
	return d
}

// difference drops the elements that are removed and added again.
func difference(removed, added []element) (_, _ []element) {
	was := make(map[element]struct{}, len(removed))
	for _, e := range removed {
		was[e] = struct{}{}
	}
	stays := make(map[element]struct{})
	added = slices.DeleteFunc(added, func(e element) bool {
		_, ok := was[e]
		if ok {
			stays[e] = struct{}{}
		}
		return ok
	})
	removed = slices.DeleteFunc(removed, func(e element) bool {
		_, ok := stays[e]
		return ok
	})
	return removed, added
}

func (r *record) setHairpins(all []netip.Addr) []element {
	clear(r.hairpins)
	for _, a := range all {
		if FamilyOf(a) == r.Family {
			r.hairpins[a] = struct{}{}
		}
	}
	return r.hairpinElements()
}

func (r *record) hairpinElements() (all []element) {
	for a := range r.hairpins {
		all = append(all, element{set: setHairpin, key: padded(a) + padded(a)})
	}
	return all
}

func (r *record) setCIDRs(all []netip.Prefix) []element {
	r.cidrs = slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return FamilyOf(p.Addr()) != r.Family })
	return r.cidrElements()
}

// cidrElements returns the first address of each range, and the first behind it. Ranges that
// overlap or touch are joined. An element may belong to ranges before and after a change, so all
// of them are replaced together.
func (r *record) cidrElements() (all []element) {
	for _, i := range joined(r.cidrs) {
		all = append(all, element{set: setServiceCIDRs, key: padded(i.first)})
		if behind := i.last.Next(); behind.IsValid() {
			all = append(all, element{set: setServiceCIDRs, key: padded(behind), isEnd: true})
		}
	}
	return all
}

// interval is a range of addresses, both ends inclusive.
type interval struct{ first, last netip.Addr }

// joined returns prefixes as intervals that neither overlap nor touch, in order.
func joined(prefixes []netip.Prefix) (all []interval) {
	for _, p := range slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare) {
		first, last := bounds(p)
		if n := len(all); n > 0 && (!all[n-1].last.Less(first) || all[n-1].last.Next() == first) {
			if all[n-1].last.Less(last) {
				all[n-1].last = last
			}
			continue
		}
		all = append(all, interval{first, last})
	}
	return all
}
