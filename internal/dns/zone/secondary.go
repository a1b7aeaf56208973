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
type Item struct {
	Name  dnsname.Name
	Type  dnswire.Type
	TTL   uint32
	RData []byte // names in it are not compressed
}

// Copy keeps one zone of a DB as another server has it. Nothing else may change
// the zone; one goroutine at a time uses the Copy.
type Copy struct {
	db    *DB
	zone  *authority
	aged  *Aged
	build Builder
	marks map[string]Marks // by their RDATA, so that equal notes are one
}

// Step is a record that goes, or one that comes.
type Step struct {
	Item
	Gone bool
}

// Errors that a Copy's methods wrap.
var (
	ErrItem    = errors.New("a record that no zone of this version has")
	ErrDiffers = errors.New("the copy is not what the change takes it for")
)

// Copy begins to keep the zone of that apex. The DB has it, and nothing is in it
// yet.
func (db *DB) Copy(apex dnsname.Name) (*Copy, error) {
	for _, z := range db.zones {
		if z.apex.name == apex {
			return &Copy{db: db, zone: z, marks: make(map[string]Marks)}, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", apex, ErrNoZone)
}

// SOA is the zone's start of authority, as it was given last.
func (c *Copy) SOA() dnswire.SOA { return *c.zone.soa.Load() }

// Moment is the zone as it is now, however old.
func (c *Copy) Moment() *Moment {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	return c.db.moment(c.zone)
}

// items are what stands at one name; none when it is not in the zone.
func (c *Copy) items(name dnsname.Name) (items []Item) {
	wire := []byte(name.WireLabels())
	n, at, _ := c.db.closest(wire)
	if n == nil || n.zone != c.zone {
		return nil
	}
	if addr, ok := c.pointerAddr(name); ok {
		if all := c.db.pointers.find(addr); len(all) > 0 {
			pointerRecords(addr, all, Marked, func(o Owned) bool {
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
			return itemsOf(name, new(dnswire.Assembly).Addr(addr, ttl))
		}
	}
	return nil
}

func itemsOf(name dnsname.Name, sets ...dnswire.RRset) (items []Item) {
	for _, set := range sets {
		for _, rdata := range set.RData() {
			items = append(items, Item{Name: name, Type: set.Type, TTL: set.TTL(), RData: rdata})
		}
	}
	return items
}

// pointerAddr is the address whose reverse name that is, if the name is in a
// zone that has such.
func (c *Copy) pointerAddr(name dnsname.Name) (addr netip.Addr, ok bool) {
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
func (c *Copy) Replace(soa dnswire.SOA, items []Item) error {
	u := updating{Copy: c, whole: true, nodes: make(map[dnsname.Name]bool), kept: make(map[dnsname.Name]bool)}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Name.WireLabels(), b.Name.WireLabels()) })
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
func (c *Copy) Change(soa dnswire.SOA, steps []Step) error {
	at := make(map[dnsname.Name][]Item)
	for i := range steps {
		s := &steps[i]
		items, known := at[s.Name]
		if !known {
			items = c.items(s.Name)
		}
		found := slices.IndexFunc(items, s.Item.equal)
		switch {
		case s.Gone && found >= 0:
			items = slices.Delete(items, found, found+1)
		case !s.Gone && found < 0:
			items = append(items, s.Item)
		default:
			return fmt.Errorf("record of type %s at %s: %w", s.Type, s.Name, ErrDiffers)
		}
		at[s.Name] = items
	}
	u := updating{Copy: c, nodes: make(map[dnsname.Name]bool)}
	runs := make([]run, 0, len(at))
	for name, items := range at {
		runs = append(runs, run{name: name, items: items})
	}
	return u.update(soa, runs)
}

func (it Item) equal(o Item) bool {
	return it.Type == o.Type && it.TTL == o.TTL && bytes.Equal(it.RData, o.RData)
}

// Age says that all of the zone is from an earlier time; nil that it is not.
func (c *Copy) Age(aged *Aged) {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	c.aged = aged
	apex := c.zone.apex
	made := nothing
	if t := apex.seen.Load(); t != nil {
		made = *t
	}
	marks := *made.marks
	marks.Aged = aged
	made.marks = &marks
	c.db.publish(apex, &made)
	c.zone.touched = false
}

// maxMarks is how many different Marks a Copy remembers: there are few.
const maxMarks = 1024

// marksOf reads marks, with the notes that other equal ones have.
func (c *Copy) marksOf(rdata []byte) (Marks, error) {
	if m, ok := c.marks[string(rdata)]; ok {
		return m, nil
	}
	m, err := ParseMarks(rdata)
	if err != nil {
		return Marks{}, fmt.Errorf("%w: %w", ErrItem, err)
	}
	if len(c.marks) >= maxMarks {
		clear(c.marks)
	}
	c.marks[string(rdata)] = m
	return m, nil
}
