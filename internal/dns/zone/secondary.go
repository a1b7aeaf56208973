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

// Item is one record of a zone, or one of TypeMarks, as a transfer tells it.
type TransferRecord struct {
	Name  dnsname.Name
	Type  dnswire.Type
	TTL   uint32
	RData []byte // names in it are not compressed
}

// Copy keeps one zone of a DB as another server has it. Nothing else may change
// the zone; one goroutine at a time uses the Copy.
type Secondary struct {
	db    *DB
	zone  *authority
	aged  *Stale
	build Builder
	marks map[string]Metadata // by their RDATA, so that equal notes are one
}

// Step is a record that goes, or one that comes.
type RecordChange struct {
	TransferRecord
	Deleted bool
}

// Errors that a Copy's methods wrap.
var (
	ErrTransferRecord = errors.New("a record that no zone of this version has")
	ErrDiffers        = errors.New("the copy is not what the change takes it for")
)

// Copy begins to keep the zone of that apex. The DB has it, and nothing is in it
// yet.
func (db *DB) Secondary(apex dnsname.Name) (*Secondary, error) {
	for _, z := range db.zones {
		if z.apex.name == apex {
			return &Secondary{db: db, zone: z, marks: make(map[string]Metadata)}, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", apex, ErrNoZone)
}

// SOA is the zone's start of authority, as it was given last.
func (c *Secondary) SOA() dnswire.SOA { return *c.zone.soa.Load() }

// Moment is the zone as it is now, however old.
func (c *Secondary) Version() *Version {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	return c.db.moment(c.zone)
}

// items are what stands at one name; none when it is not in the zone.
func (c *Secondary) items(name dnsname.Name) (items []TransferRecord) {
	wire := []byte(name.WireLabels())
	n, at, _ := c.db.closest(wire)
	if n == nil || n.zone != c.zone {
		return nil
	}
	if addr, ok := c.pointerAddr(name); ok {
		if all := c.db.pointers.find(addr); len(all) > 0 {
			pointerRecords(addr, all, WithMetadata, func(o OwnedRRset) bool {
				items = append(items, itemsOf(name, o.Set)...)
				return true
			})
		}
		return items
	}
	t := n.seen.Load()
	if at == 0 {
		if b := (base{name: name, subtree: t}); t != nil || n.hosts.Load() != nil {
			items = itemsOf(name, b.marks().Set)
		}
		return append(items, itemsOf(name, t.sets(t.base())...)...)
	}
	if sets, exists := t.find(wire[:at]); exists {
		return itemsOf(name, t.sets(sets)...)
	}
	if addr, ok := hostSpelled(wire[:at]); ok {
		if ttl, ok := n.givenHost(t, addr); ok {
			return itemsOf(name, new(dnswire.RRsetBuilder).Addr(addr, ttl))
		}
	}
	return nil
}

func itemsOf(name dnsname.Name, sets ...dnswire.RRset) (items []TransferRecord) {
	for _, set := range sets {
		for _, rdata := range set.RData() {
			items = append(items, TransferRecord{Name: name, Type: set.Type, TTL: set.TTL(), RData: rdata})
		}
	}
	return items
}

// pointerAddr is the address whose reverse name that is, if the name is in a
// zone that has such.
func (c *Secondary) pointerAddr(name dnsname.Name) (addr netip.Addr, ok bool) {
	if !c.zone.reverse {
		return netip.Addr{}, false
	}
	prefix, ok := dnsname.ParseReverse([]byte(name.WireLabels()))
	return prefix.Addr(), ok && prefix.IsSingleIP()
}

// hostSpelled is the address that labels spell as the only label of a host does.
func hostSpelled(labels []byte) (addr netip.Addr, ok bool) {
	if len(labels) == 0 || len(labels) != 1+int(labels[0]) {
		return netip.Addr{}, false
	}
	addr, ok = dnsname.ParseDashedAddr(labels[1:])
	var buf [1 + dnsname.MaxDashedAddr]byte
	return addr, ok && string(appendHostLabel(buf[:0], addr)) == string(labels)
}

// Replace makes items, in any order, all that is in the zone, and soa its start
// of authority. It changes nothing when it fails, which wraps ErrItem. As by Apply,
// nothing that exists before and after is denied meanwhile.
func (c *Secondary) Replace(soa dnswire.SOA, items []TransferRecord) error {
	u := updating{Secondary: c, whole: true, nodes: make(map[dnsname.Name]bool), kept: make(map[dnsname.Name]bool)}
	slices.SortFunc(items, func(a, b TransferRecord) int { return cmp.Compare(a.Name.WireLabels(), b.Name.WireLabels()) })
	runs := []run{{name: soa.Zone}} // nothing, if nothing is said of the apex
	for rest := items; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Name == rest[0].Name {
			n++
		}
		r := run{name: rest[0].Name, items: rest[:n:n]}
		if r.name == soa.Zone {
			runs[0] = r
		} else {
			runs = append(runs, r)
		}
		rest = rest[n:]
	}
	return u.update(soa, runs)
}

// Change makes steps. Those of one name are made in their order, from what items
// gives for it. It fails with ErrDiffers where what goes is not there, or what
// comes is; see Replace.
func (c *Secondary) Change(soa dnswire.SOA, steps []RecordChange) error {
	at := make(map[dnsname.Name][]TransferRecord)
	for i := range steps {
		s := &steps[i]
		items, known := at[s.Name]
		if !known {
			items = c.items(s.Name)
		}
		found := slices.IndexFunc(items, s.TransferRecord.equal)
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
	u := updating{Secondary: c, nodes: make(map[dnsname.Name]bool)}
	runs := make([]run, 0, len(at))
	for name, items := range at {
		runs = append(runs, run{name: name, items: items})
	}
	return u.update(soa, runs)
}

func (it TransferRecord) equal(o TransferRecord) bool {
	return it.Type == o.Type && it.TTL == o.TTL && bytes.Equal(it.RData, o.RData)
}

// Age says that all of the zone is from an earlier time; nil that it is not.
func (c *Secondary) SetStale(aged *Stale) {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	c.aged = aged
	apex := c.zone.apex
	made := nothing
	if t := apex.seen.Load(); t != nil {
		made = *t
	}
	marks := *made.marks
	marks.Stale = aged
	made.marks = &marks
	c.db.publish(apex, &made)
	c.zone.touched = false
}

// maxMarks is how many different Marks a Copy remembers: there are few.
const maxMarks = 1024

// marksOf reads marks, with the notes that other equal ones have.
func (c *Secondary) marksOf(rdata []byte) (Metadata, error) {
	if m, ok := c.marks[string(rdata)]; ok {
		return m, nil
	}
	m, err := ParseMetadata(rdata)
	if err != nil {
		return Metadata{}, fmt.Errorf("%w: %w", ErrTransferRecord, err)
	}
	if len(c.marks) >= maxMarks {
		clear(c.marks)
	}
	c.marks[string(rdata)] = m
	return m, nil
}
