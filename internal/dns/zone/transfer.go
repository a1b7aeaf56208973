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

// Detail selects the records of a transfer.
type Detail uint8

// Details.
const (
	RecordsOnly  Detail = iota // the zone's records
	WithMetadata               // also records of TypeMetadata, for a Portolan secondary
)

// OwnedRRset is an RRset and its owner name, in lower-case wire form without
// the root's closing zero octet.
type OwnedRRset struct {
	Owner []byte
	Set   dnswire.RRset
}

// Errors that Version and Since wrap.
var (
	ErrNoZone     = errors.New("no such zone")
	ErrNotCurrent = errors.New("the zone is not loaded or is stale")
	ErrHistory    = errors.New("the changes since that serial are not available")
)

// Version is one version of a zone. It is immutable.
type Version struct {
	SOA dnswire.SOA

	bases    []base
	pointers *index[pointer] // of all zones; nil if the zone has no reverse names
	zoneOf   func(netip.Addr) *zoneState
	zone     *zoneState
}

// base is the state of a node in a Version.
type base struct {
	name    dnsname.Name
	subtree *Subtree
	hosts   *index[ttl] // nil if there are none
}

// Version returns the present version of a zone. It blocks writers while it
// collects the nodes, which copies no records. Errors wrap ErrNoZone or
// ErrNotCurrent.
func (db *DB) Version(apex dnsname.Name) (*Version, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	z, err := db.currentZone(apex)
	if err != nil {
		return nil, err
	}
	return db.version(z), nil
}

// version returns the present version of z. The caller must hold mu.
func (db *DB) version(z *zoneState) *Version {
	m := &Version{SOA: *z.soa.Load(), zone: z, zoneOf: db.zoneOf}
	if z.reverse {
		m.pointers = db.pointers.snapshot()
	}
	for n := range db.table.Load().all {
		if n.zone != z {
			continue
		}
		b := base{name: n.name, subtree: n.subtree.Load()}
		if h := n.hosts.Load(); h.hasData() {
			b.hosts = h.ttls.snapshot()
		}
		if !b.subtree.sameData(nil) || b.hosts != nil {
			m.bases = append(m.bases, b)
		}
	}
	return m
}

// Octets estimates how many octets the zone's records take in a transfer.
func (m *Version) Octets() (n int64) {
	for i := range m.bases {
		n += m.bases[i].octets()
	}
	if m.pointers != nil {
		n += recordOctets * int64(m.pointers.count())
	}
	return n
}

// recordOctets estimates what a record with an owner name of its own takes in a
// transfer.
const recordOctets = 64

// octets estimates what the records at the base and below it take in a
// transfer.
func (b *base) octets() (n int64) {
	n = recordOctets // its metadata
	if t := b.subtree; t != nil {
		n += int64(len(t.data)) + recordOctets*int64(t.hosts4+t.hosts6)
	}
	if b.hosts != nil {
		n += recordOctets * int64(b.hosts.count())
	}
	return n
}

// currentZone returns the zone with the given apex, if it is loaded and not
// stale.
func (db *DB) currentZone(apex dnsname.Name) (*zoneState, error) {
	i := slices.IndexFunc(db.zones, func(z *zoneState) bool { return z.apex.name == apex })
	switch {
	case i < 0:
		return nil, fmt.Errorf("zone %s: %w", apex, ErrNoZone)
	case db.zones[i].notCurrent > 0:
		return nil, fmt.Errorf("zone %s: %w", apex, ErrNotCurrent)
	}
	return db.zones[i], nil
}

// Records yields the zone's records without its SOA, in the same order each
// time. Each RRset is valid until the next is yielded.
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

// records yields the RRsets at the base and below it.
func (b *base) records(d Detail, yield func(OwnedRRset) bool) (more bool) {
	if d == WithMetadata && !yield(b.metadata()) {
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

// metadata returns the base's record of TypeMetadata.
func (b *base) metadata() OwnedRRset {
	m := emptySubtree.metadata
	if b.subtree != nil {
		m = b.subtree.metadata
	}
	return OwnedRRset{[]byte(b.name.WireLabels()), dnswire.NewRRset(TypeMetadata, 0, AppendMetadata(nil, m))}
}

// records yields t's RRsets and those of its hosts.
func (t *Subtree) records(name dnsname.Name, yield func(OwnedRRset) bool) (more bool) {
	var buf [dnsname.MaxWire]byte
	for i := range int(t.names) {
		labels, offsets := t.name(i)
		owner := append(append(buf[:0], labels...), name.WireLabels()...)
		for _, set := range t.sets(offsets) {
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
	owner := append(appendHostLabel(nil, addr), parent.WireLabels()...)
	return OwnedRRset{owner, dnswire.NewRRset(addrType(addr), ttl, k.octets())}
}

// pointerRecords yields the PTR RRset of addr and, if it is not in canonical
// order, the records of TypeMetadata that give its order.
func pointerRecords(addr netip.Addr, all []pointer, d Detail, yield func(OwnedRRset) bool) (more bool) {
	if len(all) == 0 {
		return true
	}
	owner := dnsname.AppendReverse(nil, netip.PrefixFrom(addr, addr.BitLen()))
	tier := distinct(lowestTier(all))
	last := 1 // the first target that is less than its predecessor
	for last < len(tier) && tier[last-1].compareTarget(tier[last], addr) < 0 {
		last++
	}
	if d == WithMetadata && last < len(tier) {
		var first [][]byte
		for _, p := range tier[:last] {
			first = append(first, pointerMetadata(p, addr))
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
	return cmp.Or(strings.Compare(r.owner, o.owner), cmp.Compare(r.typ, o.typ), cmp.Compare(r.ttl, o.ttl),
		strings.Compare(r.rdata, o.rdata))
}

// flatten returns the records that records yields, sorted.
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

// compareRecords returns the records of before that are not in after, and those
// of after that are not in before. Both are sorted.
func compareRecords(before, after []ownedRecord) (deleted, added []ownedRecord) {
	for len(before) > 0 || len(after) > 0 {
		var order int
		switch {
		case len(after) == 0:
			order = -1
		case len(before) == 0:
			order = 1
		default:
			order = before[0].compare(after[0])
		}
		if order < 0 {
			deleted = append(deleted, before[0])
		}
		if order > 0 {
			added = append(added, after[0])
		}
		if order <= 0 {
			before = before[1:]
		}
		if order >= 0 {
			after = after[1:]
		}
	}
	return deleted, added
}

// joinRRsets combines sorted records into RRsets.
func joinRRsets(records []ownedRecord) (all []OwnedRRset) {
	for len(records) > 0 {
		first := records[0]
		var rdata [][]byte
		for _, r := range records {
			if r.owner != first.owner || r.typ != first.typ || r.ttl != first.ttl {
				break
			}
			rdata = append(rdata, bytes.Clone([]byte(r.rdata)))
		}
		all = append(all, OwnedRRset{[]byte(first.owner), dnswire.NewRRset(first.typ, first.ttl, rdata...)})
		records = records[len(rdata):]
	}
	return all
}

// Transferable returns the SOAs of the zones that Version returns without
// error.
func (db *DB) Transferable() (all []dnswire.SOA) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, z := range db.zones {
		if z.notCurrent == 0 {
			all = append(all, *z.soa.Load())
		}
	}
	return all
}
