package scenario

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// secondaries has secondary zones of the zones of a DB, filled from zone transfers.
type secondaries struct {
	primary, db *zone.DB
	zones       []*zone.Secondary
	complete    bool // all zones are transferred
}

func newSecondaries(tb testing.TB, primary *zone.DB) *secondaries {
	tb.Helper()
	c := &secondaries{primary: primary}
	var soas, wildcards []dnswire.SOA
	for _, soa := range primary.SOAs() {
		switch {
		case primary.AllowsWildcards(soa.Zone):
			wildcards = append(wildcards, soa)
		case soa.Zone != dnsname.ReverseIPv4 && soa.Zone != dnsname.ReverseIPv6: // reverse zones are not transferred
			soas = append(soas, soa)
		}
	}
	var err error
	if c.db, err = zone.NewWithWildcards(soas, wildcards); err != nil {
		tb.Fatal(err)
	}
	for _, soa := range slices.Concat(soas, wildcards) {
		z, err := c.db.Secondary(soa.Zone)
		if err != nil {
			tb.Fatal(err)
		}
		c.zones = append(c.zones, z)
	}
	return c
}

// follow updates the secondary zones from the primary ones, if these can be transferred.
func (c *secondaries) follow(tb testing.TB) {
	tb.Helper()
	c.complete = true
	for _, z := range c.zones {
		m, err := c.primary.Version(z.SOA().Zone)
		if errors.Is(err, zone.ErrNotCurrent) {
			c.complete = false
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		if err := z.Replace(m.SOA, itemsOf(tb, m)); err != nil {
			tb.Fatal(err)
		}
	}
}

func itemsOf(tb testing.TB, m *zone.Version) (items []zone.TransferRecord) {
	tb.Helper()
	for o := range m.Records(zone.WithMetadata) {
		name, _, err := dnsname.FromWire(append(bytes.Clone(o.Owner), 0))
		if err != nil {
			tb.Fatal(err)
		}
		for _, rdata := range o.Set.RData() {
			items = append(items, zone.TransferRecord{Name: name, Type: o.Set.Type, TTL: o.Set.TTL(), RData: bytes.Clone(rdata)})
		}
	}
	return items
}

// Lookup answers from the secondary zones, and from the primary ones for other names.
func (c *secondaries) Lookup(s *zone.Scratch, qname []byte, qtype dnswire.Type) zone.Answer {
	if c.complete {
		if a := c.db.Lookup(s, qname, qtype); a.Outcome != zone.OutOfZone {
			return a
		}
	}
	return c.primary.Lookup(s, qname, qtype)
}

// Addresses returns the addresses of a name from the same zones as Lookup.
func (c *secondaries) Addresses(s *zone.Scratch, name []byte) (a, aaaa dnswire.RRset) {
	if c.complete {
		if l := c.db.Lookup(new(zone.Scratch), name, dnswire.TypeANY); l.Outcome != zone.OutOfZone {
			return c.db.Addresses(s, name)
		}
	}
	return c.primary.Addresses(s, name)
}
