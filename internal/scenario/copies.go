package scenario

import (
	"bytes"
	"errors"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// copies are those of the zones of a DB, made of what transfers hold.
type copies struct {
	of, db *zone.DB
	zones  []*zone.Secondary
	whole  bool // there is one of each zone
}

func newCopies(t testing.TB, of *zone.DB) *copies {
	t.Helper()
	c := &copies{of: of}
	var soas []dnswire.SOA
	for _, soa := range of.SOAs() {
		if soa.Zone != dnsname.ReverseIPv4 && soa.Zone != dnsname.ReverseIPv6 { // which are never transferred
			soas = append(soas, soa)
		}
	}
	var err error
	if c.db, err = zone.New(soas...); err != nil {
		t.Fatal(err)
	}
	for _, soa := range soas {
		z, err := c.db.Secondary(soa.Zone)
		if err != nil {
			t.Fatal(err)
		}
		c.zones = append(c.zones, z)
	}
	return c
}

// follow has the copies be what the zones are, where these can be transferred.
func (c *copies) follow(t testing.TB) {
	t.Helper()
	c.whole = true
	for _, z := range c.zones {
		m, err := c.of.Version(z.SOA().Zone)
		if errors.Is(err, zone.ErrNotCurrent) {
			c.whole = false
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := z.Replace(m.SOA, itemsOf(t, m)); err != nil {
			t.Fatal(err)
		}
	}
}

func itemsOf(t testing.TB, m *zone.Version) (items []zone.TransferRecord) {
	t.Helper()
	for o := range m.Records(zone.WithMetadata) {
		name, _, err := dnsname.FromWire(append(bytes.Clone(o.Owner), 0))
		if err != nil {
			t.Fatal(err)
		}
		for _, rdata := range o.Set.RData() {
			items = append(items, zone.TransferRecord{Name: name, Type: o.Set.Type, TTL: o.Set.TTL(), RData: bytes.Clone(rdata)})
		}
	}
	return items
}

// Lookup looks in the copies and, for names of no copy, in the zones.
func (c *copies) Lookup(s *zone.Scratch, qname []byte, qtype dnswire.Type) zone.Answer {
	if c.whole {
		if a := c.db.Lookup(s, qname, qtype); a.Outcome != zone.OutOfZone {
			return a
		}
	}
	return c.of.Lookup(s, qname, qtype)
}

// Addresses are Lookup's.
func (c *copies) Addresses(s *zone.Scratch, name []byte) (a, aaaa dnswire.RRset) {
	if c.whole {
		if l := c.db.Lookup(new(zone.Scratch), name, dnswire.TypeANY); l.Outcome != zone.OutOfZone {
			return c.db.Addresses(s, name)
		}
	}
	return c.of.Addresses(s, name)
}
