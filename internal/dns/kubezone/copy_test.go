package kubezone_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// TestCopy: whatever changes, a Copy of each zone that is given all items, and
// one that is given what changed, answer as the zone does.
func TestCopy(t *testing.T) {
	for seed := range uint64(sequences / 50) {
		r := &randomCluster{Rand: rand.New(rand.NewPCG(seed, 2))}
		cfg := r.config()
		cfg.ReverseRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/16")}
		compiler := newCompiler(t, cfg)
		store := cluster.NewStore()
		store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
		feed := store.Subscribe()
		db := newDB(t, compiler)
		compiler.Apply(store, feed, db)
		db.SetHistoryLimits(zone.HistoryLimits{Changes: 1 << 20, Octets: 1 << 30})
		whole, parts := newCopies(t, db), newCopies(t, db)
		parts.replace(t, db)
		for range 12 {
			store.Update(func(tx *cluster.Tx) {
				for range 1 + r.IntN(3) {
					r.change(tx)
				}
			})
			compiler.Apply(store, feed, db)
			whole.replace(t, db)
			parts.update(t, db)
			for _, c := range []*copies{whole, parts} {
				if err := sameAnswers(db, c.db, c.soas); err != nil {
					t.Fatalf("seed %d, %s: %v", seed, c.how, err)
				}
			}
		}
		feed.Close()
	}
}

// copies are Copies of the zones of a DB.
type copies struct {
	how   string
	db    *zone.DB
	soas  []dnswire.SOA
	zones []*zone.Secondary
}

// newCopies begins copies of db's zones, but for the whole trees of reverse names.
func newCopies(t *testing.T, db *zone.DB) *copies {
	t.Helper()
	c := new(copies)
	for _, soa := range db.SOAs() {
		if soa.Zone != dnsname.ReverseIPv4 && soa.Zone != dnsname.ReverseIPv6 {
			c.soas = append(c.soas, soa)
		}
	}
	var err error
	if c.db, err = zone.New(c.soas...); err != nil {
		t.Fatal(err)
	}
	for _, soa := range c.soas {
		z, err := c.db.Secondary(soa.Zone)
		if err != nil {
			t.Fatal(err)
		}
		c.zones = append(c.zones, z)
	}
	return c
}

// itemsOf are what a transfer holds of records.
func itemsOf(records func(func(zone.OwnedRRset) bool)) (all []zone.TransferRecord) {
	for o := range records {
		name, _, _ := dnsname.FromWire(append(slices.Clone(o.Owner), 0))
		for _, rdata := range o.Set.RData() {
			all = append(all, zone.TransferRecord{Name: name, Type: o.Set.Type, TTL: o.Set.TTL(), RData: bytes.Clone(rdata)})
		}
	}
	return all
}

func (c *copies) replace(t *testing.T, db *zone.DB) {
	t.Helper()
	c.how = "all of it"
	for _, z := range c.zones {
		m, err := db.Version(z.SOA().Zone)
		if err != nil {
			t.Fatal(err)
		}
		if err := z.Replace(m.SOA, itemsOf(m.Records(zone.WithMetadata))); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *copies) update(t *testing.T, db *zone.DB) {
	t.Helper()
	c.how = "what changed"
	for _, z := range c.zones {
		d, err := db.Since(z.SOA().Zone, z.SOA().Serial)
		if err != nil {
			t.Fatal(err)
		}
		var steps []zone.RecordChange
		gone, come := d.Records(zone.WithMetadata)
		for _, it := range itemsOf(slices.Values(gone)) {
			steps = append(steps, zone.RecordChange{TransferRecord: it, Deleted: true})
		}
		for _, it := range itemsOf(slices.Values(come)) {
			steps = append(steps, zone.RecordChange{TransferRecord: it})
		}
		if err := z.Update(d.To, steps); err != nil {
			t.Fatal(err)
		}
	}
}

// sameAnswers compares what both answer at every name that either lists, and at
// names around them.
func sameAnswers(want, got *zone.DB, soas []dnswire.SOA) error {
	names := make(map[dnsname.Name]bool)
	for _, db := range []*zone.DB{want, got} {
		for _, e := range db.Entries() {
			for _, name := range around(e.Name) {
				names[name] = slices.ContainsFunc(soas, func(s dnswire.SOA) bool { return name.IsSubdomainOf(s.Zone) })
			}
		}
	}
	for name, in := range names {
		for _, typ := range []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA, dnswire.TypeSRV, dnswire.TypePTR, dnswire.TypeTXT, dnswire.TypeSOA, dnswire.TypeNS, dnswire.TypeANY} {
			wire := []byte(name.WireLabels())
			w, g := want.Lookup(new(zone.Scratch), wire, typ), got.Lookup(new(zone.Scratch), wire, typ)
			if in && !sameAnswer(w, g) {
				return fmt.Errorf("%s %s is %+v, want %+v", name, typ, g, w)
			}
		}
		wa, waaaa := want.Addresses(new(zone.Scratch), []byte(name.WireLabels()))
		ga, gaaaa := got.Addresses(new(zone.Scratch), []byte(name.WireLabels()))
		if in && (!wa.Equal(ga) || !waaaa.Equal(gaaaa)) {
			return fmt.Errorf("the addresses of %s are %+v %+v, want %+v %+v", name, ga, gaaaa, wa, waaaa)
		}
	}
	return nil
}

func sameAnswer(w, g zone.Answer) bool {
	sameNote := w.EDE == g.EDE || w.EDE != nil && g.EDE != nil && *w.EDE == *g.EDE
	return w.Outcome == g.Outcome && w.RRset.Equal(g.RRset) && sameNote && reflect.DeepEqual(w.SOA, g.SOA) && w.StaleEDE == g.StaleEDE
}

// around are a name and others near it: below, above, and in other spellings.
func around(name dnsname.Name) []dnsname.Name {
	names := []dnsname.Name{name, name.Parent()}
	labels := []string{"x", "_y", "10-0-0-1", "fd00-0--1", "fd00--1", "192-0-2-99", "1"}
	if name.Label() == "10-0-0-1" || bytes.Contains([]byte(name.Label()), []byte("--")) {
		labels = labels[:2]
	}
	for _, l := range labels {
		if n, err := name.Child(l); err == nil {
			names = append(names, n)
		}
	}
	return names
}
