package zone

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// TransferRecord is one record of a zone transfer, of TypeMetadata or any other
// type.
type TransferRecord struct {
	Name  dnsname.Name
	Type  dnswire.Type
	TTL   uint32
	RData []byte // without compressed names
}

// Secondary maintains one zone of a DB as a copy of a primary's. Nothing else
// may change the zone, and only one goroutine at a time may use the Secondary.
type Secondary struct {
	db       *DB
	zone     *zoneState
	stale    *Stale
	build    Builder
	metadata map[string]Metadata // by RDATA, so that equal EDEs share memory
}

// RecordChange deletes or adds a record.
type RecordChange struct {
	TransferRecord
	Deleted bool
}

// Errors that the methods of Secondary wrap.
var (
	ErrTransferRecord = errors.New("invalid record for a zone of this version")
	ErrDiffers        = errors.New("the copy does not match the difference")
)

// Secondary returns a Secondary for the zone with the given apex. The DB must
// contain the zone, and it must be empty.
func (db *DB) Secondary(apex dnsname.Name) (*Secondary, error) {
	for _, z := range db.zones {
		if z.apex.name == apex {
			return &Secondary{db: db, zone: z, metadata: make(map[string]Metadata)}, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", apex, ErrNoZone)
}

// SOA returns the zone's SOA.
func (c *Secondary) SOA() dnswire.SOA { return *c.zone.soa.Load() }

// Version returns the present version of the zone, even if it is stale.
func (c *Secondary) Version() *Version {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	return c.db.version(c.zone)
}

// recordsAt returns the records at one name; none if it is not in the zone.
func (c *Secondary) recordsAt(name dnsname.Name) (items []TransferRecord) {
	wire := []byte(name.WireLabels())
	n, at, _ := c.db.closestNode(wire)
	if n == nil || n.zone != c.zone {
		return nil
	}
	if addr, ok := c.pointerAddr(name); ok {
		if all := c.db.pointers.find(addr); len(all) > 0 {
			pointerRecords(addr, all, WithMetadata, func(o OwnedRRset) bool {
				items = append(items, transferRecords(name, o.Set)...)
				return true
			})
		}
		return items
	}
	t := n.subtree.Load()
	if at == 0 {
		if b := (base{name: name, subtree: t}); t != nil || n.hosts.Load() != nil {
			items = transferRecords(name, b.metadata().Set)
		}
		return append(items, transferRecords(name, t.sets(t.base())...)...)
	}
	if sets, exists := t.find(wire[:at]); exists {
		return transferRecords(name, t.sets(sets)...)
	}
	if addr, ok := parseHostLabel(wire[:at]); ok {
		if ttl, ok := n.storedHost(t, addr); ok {
			return transferRecords(name, new(dnswire.RRsetBuilder).Addr(addr, ttl))
		}
	}
	return nil
}

func transferRecords(name dnsname.Name, sets ...dnswire.RRset) (items []TransferRecord) {
	for _, set := range sets {
		for _, rdata := range set.RData() {
			items = append(items, TransferRecord{Name: name, Type: set.Type, TTL: set.TTL(), RData: rdata})
		}
	}
	return items
}

// pointerAddr returns the address whose reverse name is name, if the zone keeps
// PTR records by address.
func (c *Secondary) pointerAddr(name dnsname.Name) (addr netip.Addr, ok bool) {
	if !c.zone.reverse || c.zone.wildcards {
		return netip.Addr{}, false
	}
	prefix, ok := dnsname.ParseReverse([]byte(name.WireLabels()))
	return prefix.Addr(), ok && prefix.IsSingleIP()
}

// parseHostLabel returns the address that labels spell, if they are the one
// label of a host.
func parseHostLabel(labels []byte) (addr netip.Addr, ok bool) {
	if len(labels) == 0 || len(labels) != 1+int(labels[0]) {
		return netip.Addr{}, false
	}
	addr, ok = dnsname.ParseDashedAddr(labels[1:])
	var buf [1 + dnsname.MaxDashedAddr]byte
	return addr, ok && string(appendHostLabel(buf[:0], addr)) == string(labels)
}

// Replace replaces the zone by records, in any order, with the given SOA
// (AXFR). Errors wrap ErrTransferRecord; the zone is then unchanged. As with
// Apply, a name that exists before and after is not denied in between.
func (c *Secondary) Replace(soa dnswire.SOA, items []TransferRecord) error {
	u := secondaryUpdate{
		Secondary: c,
		replace:   true,
		nodes:     make(map[dnsname.Name]bool),
		keep:      make(map[dnsname.Name]bool),
	}
	slices.SortFunc(items, func(a, b TransferRecord) int { return cmp.Compare(a.Name.WireLabels(), b.Name.WireLabels()) })
	runs := []nameRecords{{name: soa.Zone}} // the apex, in case it has no records
	for rest := items; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Name == rest[0].Name {
			n++
		}
		r := nameRecords{name: rest[0].Name, records: rest[:n:n]}
		if r.name == soa.Zone {
			runs[0] = r
		} else {
			runs = append(runs, r)
		}
		rest = rest[n:]
	}
	return u.run(soa, runs)
}

// Update applies changes to the zone (IXFR), in their order for each name. It
// fails with ErrDiffers if a record to delete does not exist or a record to add
// does; the zone is then unchanged, as with Replace.
func (c *Secondary) Update(soa dnswire.SOA, steps []RecordChange) error {
	at := make(map[dnsname.Name][]TransferRecord)
	for i := range steps {
		s := &steps[i]
		items, known := at[s.Name]
		if !known {
			items = c.recordsAt(s.Name)
		}
		found := slices.IndexFunc(items, s.equal)
		switch {
		case s.Deleted && found >= 0:
			items = slices.Delete(items, found, found+1)
		case !s.Deleted && found < 0:
			items = append(items, s.TransferRecord)
		default:
			return fmt.Errorf("record of type %s at %s: %w", s.Type, s.Name, ErrDiffers)
		}
		at[s.Name] = items
	}
	u := secondaryUpdate{Secondary: c, nodes: make(map[dnsname.Name]bool)}
	runs := make([]nameRecords, 0, len(at))
	for name, items := range at {
		runs = append(runs, nameRecords{name: name, records: items})
	}
	return u.run(soa, runs)
}

func (it TransferRecord) equal(o TransferRecord) bool {
	return it.Type == o.Type && it.TTL == o.TTL && bytes.Equal(it.RData, o.RData)
}

// SetStale marks the whole zone as stale; nil marks it as current.
func (c *Secondary) SetStale(aged *Stale) {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	c.stale = aged
	apex := c.zone.apex
	made := emptySubtree
	if t := apex.subtree.Load(); t != nil {
		made = *t
	}
	marks := *made.metadata
	marks.Stale = aged
	made.metadata = &marks
	c.db.batches.Add(1)
	c.db.publish(apex, &made)
	c.zone.changed = false
}

// maxMetadata bounds the metadata that a Secondary remembers. Few values
// differ.
const maxMetadata = 1024

// metadataOf parses RDATA of TypeMetadata. Equal RDATA shares the EDEs.
func (c *Secondary) metadataOf(rdata []byte) (Metadata, error) {
	if m, ok := c.metadata[string(rdata)]; ok {
		return m, nil
	}
	m, err := ParseMetadata(rdata)
	if err != nil {
		return Metadata{}, fmt.Errorf("%w: %w", ErrTransferRecord, err)
	}
	if len(c.metadata) >= maxMetadata {
		clear(c.metadata)
	}
	c.metadata[string(rdata)] = m
	return m, nil
}
