package kubezone_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// TestSecondariesAnswerAlike checks that after any changes, secondaries that receive full
// or incremental transfers answer as the primary does.
func TestSecondariesAnswerAlike(t *testing.T) {
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
		full, incremental := newSecondaries(t, db), newSecondaries(t, db)
		incremental.replace(t, db)
		for range 12 {
			store.Update(func(tx *cluster.Tx) {
				for range 1 + r.IntN(3) {
					r.randomChange(tx)
				}
			})
			compiler.Apply(store, feed, db)
			full.replace(t, db)
			incremental.update(t, db)
			for _, c := range []*secondaries{full, incremental} {
				if err := sameAnswers(db, c.db, c.soas); err != nil {
					t.Fatalf("seed %d, %s: %v", seed, c.method, err)
				}
			}
		}
		feed.Close()
	}
}

// secondaries are secondaries of the zones of a DB.
type secondaries struct {
	method string
	db     *zone.DB
	soas   []dnswire.SOA
	zones  []*zone.Secondary
}

// newSecondaries returns empty secondaries of db's zones, except for in-addr.arpa and
// ip6.arpa.
func newSecondaries(t *testing.T, db *zone.DB) *secondaries {
	t.Helper()
	c := new(secondaries)
	var exact, wildcards []dnswire.SOA
	for _, soa := range db.SOAs() {
		switch {
		case db.AllowsWildcards(soa.Zone):
			wildcards = append(wildcards, soa)
		case soa.Zone != dnsname.ReverseIPv4 && soa.Zone != dnsname.ReverseIPv6:
			exact = append(exact, soa)
		}
	}
	c.soas = slices.Concat(exact, wildcards)
	var err error
	if c.db, err = zone.NewWithWildcards(exact, wildcards); err != nil {
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

// transferRecords returns the records of RRsets as in a transfer.
func transferRecords(records func(func(zone.OwnedRRset) bool)) (all []zone.TransferRecord) {
	for o := range records {
		name, _, _ := dnsname.FromWire(append(slices.Clone(o.Owner), 0))
		for _, rdata := range o.Set.RData() {
			all = append(all, zone.TransferRecord{Name: name, Type: o.Set.Type, TTL: o.Set.TTL(), RData: bytes.Clone(rdata)})
		}
	}
	return all
}

func (c *secondaries) replace(t *testing.T, db *zone.DB) {
	t.Helper()
	c.method = "full transfer"
	for _, z := range c.zones {
		m, err := db.Version(z.SOA().Zone)
		if err != nil {
			t.Fatal(err)
		}
		if err := z.Replace(m.SOA, transferRecords(m.Records(zone.WithMetadata))); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *secondaries) update(t *testing.T, db *zone.DB) {
	t.Helper()
	c.method = "incremental transfer"
	for _, z := range c.zones {
		d, err := db.Since(z.SOA().Zone, z.SOA().Serial)
		if err != nil {
			t.Fatal(err)
		}
		var steps []zone.RecordChange
		removed, added := d.Records(zone.WithMetadata)
		for _, it := range transferRecords(slices.Values(removed)) {
			steps = append(steps, zone.RecordChange{TransferRecord: it, Deleted: true})
		}
		for _, it := range transferRecords(slices.Values(added)) {
			steps = append(steps, zone.RecordChange{TransferRecord: it})
		}
		if err := z.Update(d.To, steps); err != nil {
			t.Fatal(err)
		}
	}
}

// sameAnswers compares the answers of both for every name that either has, and for names
// near it.
func sameAnswers(want, got *zone.DB, soas []dnswire.SOA) error {
	names := make(map[dnsname.Name]bool)
	for _, db := range []*zone.DB{want, got} {
		for _, e := range db.Entries() {
			for _, name := range namesNear(e.Name) {
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
	sameEDE := w.EDE == g.EDE || w.EDE != nil && g.EDE != nil && *w.EDE == *g.EDE
	return w.Outcome == g.Outcome && w.RRset.Equal(g.RRset) && sameEDE && reflect.DeepEqual(w.SOA, g.SOA) && w.StaleEDE == g.StaleEDE
}

// namesNear returns a name and names below, above and in other spellings of it.
func namesNear(name dnsname.Name) []dnsname.Name {
	names := []dnsname.Name{name, name.Parent()}
	labels := []string{"x", "_y", "10-0-0-1", "fd00-0--1", "fd00--1", "192-0-2-99", "1"}
	if name.Label() == "10-0-0-1" || strings.Contains(name.Label(), "--") {
		labels = labels[:2]
	}
	for _, l := range labels {
		if n, err := name.Child(l); err == nil {
			names = append(names, n)
		}
	}
	return names
}
