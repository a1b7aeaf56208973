package zone

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Detail says what a transfer holds of a zone.
type Detail uint8

// The details.
const (
	RecordsOnly  Detail = iota // its records
	WithMetadata               // and records of TypeMarks, for a replica
)

// Owned is an RRset and its owner, in lower-case wire form without the root's
// closing zero octet.
type OwnedRRset struct {
	Owner []byte
	Set   dnswire.RRset
}

// Errors that Moment and Since wrap.
var (
	ErrNoZone     = errors.New("not a zone that is held")
	ErrNotCurrent = errors.New("the zone is not loaded, or from an earlier time")
	ErrHistory    = errors.New("the changes since that serial are not remembered")
)

// Moment is a zone at one moment. It does not change.
type Version struct {
	SOA dnswire.SOA

	bases    []base
	pointers *index[pointer] // of all zones; nil when the zone has no reverse names
	zoneOf   func(netip.Addr) *authority
	zone     *authority
}

// base is a node as it was.
type base struct {
	name    dnsname.Name
	subtree *Subtree
	hosts   *index[ttl] // nil when there are none
}

// Moment gives the zone as it is now. Writers wait while what is there is
// collected, which copies no records.
func (db *DB) Version(apex dnsname.Name) (*Version, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	z, err := db.settled(apex)
	if err != nil {
		return nil, err
	}
	return db.moment(z), nil
}

// moment gives z as it is. Its caller holds mu.
func (db *DB) moment(z *authority) *Version {
	m := &Version{SOA: *z.soa.Load(), zone: z, zoneOf: db.zoneOf}
	if z.reverse {
		m.pointers = db.pointers.frozen()
	}
	for n := range db.table.Load().all {
		if n.zone != z {
			continue
		}
		b := base{name: n.name, subtree: n.seen.Load()}
		if h := n.hosts.Load(); h.holds() {
			b.hosts = h.ttls.frozen()
		}
		if !b.subtree.sameData(nil) || b.hosts != nil {
			m.bases = append(m.bases, b)
		}
	}
	return m
}

// Octets is about how many octets the zone's records take in a transfer.
func (m *Version) Octets() (n int64) {
	for i := range m.bases {
		n += m.bases[i].octets()
	}
	if m.pointers != nil {
		n += ownedOctets * int64(m.pointers.count())
	}
	return n
}

// ownedOctets is about what a record that has an owner alone takes in a transfer.
const ownedOctets = 64

// octets is about what the base's records, and those below it, take in a transfer.
func (b *base) octets() (n int64) {
	n = ownedOctets // its marks
	if t := b.subtree; t != nil {
		n += int64(len(t.data)) + ownedOctets*int64(t.hosts4+t.hosts6)
	}
	if b.hosts != nil {
		n += ownedOctets * int64(b.hosts.count())
	}
	return n
}

// settled is the zone of that apex, if it can be transferred.
func (db *DB) settled(apex dnsname.Name) (*authority, error) {
	i := slices.IndexFunc(db.zones, func(z *authority) bool { return z.apex.name == apex })
	switch {
	case i < 0:
		return nil, fmt.Errorf("zone %s: %w", apex, ErrNoZone)
	case db.zones[i].unsettled > 0:
		return nil, fmt.Errorf("zone %s: %w", apex, ErrNotCurrent)
	}
	return db.zones[i], nil
}

// Records yields all that the zone holds but its SOA, in the same order each
// time. What it yields is good until the next.
func (m *Version) Records(d Detail) func(yield func(OwnedRRset) bool) {
	return func(yield func(OwnedRRset) bool) {
		sorted := slices.SortedFunc(slices.Values(m.bases), func(a, b base) int {
			return strings.Compare(a.name.WireLabels(), b.name.WireLabels())
		})
		for i := range sorted {
			if !sorted[i].records(d, yield) {
				return
			}
		}
		if m.pointers == nil {
			return
		}
		for addr, all := range m.pointers.all {
			if m.zoneOf(addr) == m.zone && !pointerRecords(addr, all, d, yield) {
				return
			}
		}
	}
}

// records yields what stands at the base and below it.
func (b *base) records(d Detail, yield func(OwnedRRset) bool) (more bool) {
	if d == WithMetadata && !yield(b.marks()) {
		return false
	}
	if b.subtree != nil && !b.subtree.records(b.name, yield) {
		return false
	}
	if b.hosts != nil {
		for addr, ttls := range b.hosts.all {
			if !yield(hostRecord(b.name, addr, uint32(ttls[0]))) {
				return false
			}
		}
	}
	return true
}

// marks is the base's record of TypeMarks.
func (b *base) marks() OwnedRRset {
	m := nothing.marks
	if b.subtree != nil {
		m = b.subtree.marks
	}
	return OwnedRRset{[]byte(b.name.WireLabels()), dnswire.NewRRset(TypeMetadata, 0, AppendMetadata(nil, m))}
}

// records yields t's RRsets, and those of its hosts.
func (t *Subtree) records(name dnsname.Name, yield func(OwnedRRset) bool) (more bool) {
	var buf [dnsname.MaxWire]byte
	for i := range int(t.names) {
		labels, places := t.name(i)
		owner := append(append(buf[:0], labels...), name.WireLabels()...)
		for _, set := range t.sets(places) {
			if !yield(OwnedRRset{owner, set}) {
				return false
			}
		}
	}
	for addr := range t.hosts {
		if !yield(hostRecord(name, addr, t.ttl)) {
			return false
		}
	}
	return true
}

func hostRecord(parent dnsname.Name, addr netip.Addr, ttl uint32) OwnedRRset {
	k := keyOf(addr)
	return OwnedRRset{append(appendHostLabel(nil, addr), parent.WireLabels()...), dnswire.NewRRset(addrType(addr), ttl, k.octets())}
}

// pointerRecords yields the PTR records that all make at the reverse name of
// addr, and their order where that is not the canonical one.
func pointerRecords(addr netip.Addr, all []pointer, d Detail, yield func(OwnedRRset) bool) (more bool) {
	if len(all) == 0 {
		return true
	}
	owner := dnsname.AppendReverse(nil, netip.PrefixFrom(addr, addr.BitLen()))
	tier := distinct(lowestTier(all))
	last := 1 // the first that comes behind one that is greater
	for last < len(tier) && tier[last-1].compareTarget(tier[last], addr) < 0 {
		last++
	}
	if d == WithMetadata && last < len(tier) {
		var first [][]byte
		for _, p := range tier[:last] {
			first = append(first, pointerMarks(p, addr))
		}
		if !yield(OwnedRRset{owner, dnswire.NewRRset(TypeMetadata, 0, first...)}) {
			return false
		}
	}
	return yield(OwnedRRset{owner, new(Scratch).pointerSet(all, addr)})
}

// ownedRecord is one record of a difference.
type ownedRecord struct {
	owner string
	typ   dnswire.Type
	ttl   uint32
	rdata string
}

func (r ownedRecord) compare(o ownedRecord) int {
	return cmp.Or(strings.Compare(r.owner, o.owner), cmp.Compare(r.typ, o.typ), cmp.Compare(r.ttl, o.ttl), strings.Compare(r.rdata, o.rdata))
}

// flatten is what records yields, one by one and in order.
func flatten(records func(yield func(OwnedRRset) bool) bool) (all []ownedRecord) {
	records(func(o OwnedRRset) bool {
		owner := string(o.Owner)
		for _, rdata := range o.Set.RData() {
			all = append(all, ownedRecord{owner, o.Set.Type, o.Set.TTL(), string(rdata)})
		}
		return true
	})
	slices.SortFunc(all, ownedRecord.compare)
	return all
}

// compareRecords gives those of before that are not in after, and the other way
// round; both are in order.
func compareRecords(before, after []ownedRecord) (gone, come []ownedRecord) {
	for len(before) > 0 || len(after) > 0 {
		order := 0
		switch {
		case len(after) == 0:
			order = -1
		case len(before) == 0:
			order = 1
		default:
			order = before[0].compare(after[0])
		}
		if order < 0 {
			gone = append(gone, before[0])
		}
		if order > 0 {
			come = append(come, after[0])
		}
		if order <= 0 {
			before = before[1:]
		}
		if order >= 0 {
			after = after[1:]
		}
	}
	return gone, come
}

// join makes RRsets of records that are in order.
func join(records []ownedRecord) (all []OwnedRRset) {
	for len(records) > 0 {
		first, n := records[0], 0
		var rdata [][]byte
		for ; n < len(records) && records[n].owner == first.owner && records[n].typ == first.typ && records[n].ttl == first.ttl; n++ {
			rdata = append(rdata, bytes.Clone([]byte(records[n].rdata)))
		}
		all = append(all, OwnedRRset{[]byte(first.owner), dnswire.NewRRset(first.typ, first.ttl, rdata...)})
		records = records[n:]
	}
	return all
}

// Transferable are the start of authority of the zones that Moment gives.
func (db *DB) Transferable() (all []dnswire.SOA) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, z := range db.zones {
		if z.unsettled == 0 {
			all = append(all, *z.soa.Load())
		}
	}
	return all
}
