package zone_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// recordLines returns the records of a transfer, one per line.
func recordLines(sets func(func(zone.OwnedRRset) bool)) map[string]bool {
	all := make(map[string]bool)
	for o := range sets {
		for _, rdata := range o.Set.RData() {
			line := fmt.Sprintf("%s %d %s %q", ownerName(o), o.Set.TTL(), o.Set.Type, rdata)
			if all[line] {
				all["twice: "+line] = true
			}
			all[line] = true
		}
	}
	return all
}

func ownerName(o zone.OwnedRRset) dnsname.Name {
	name, _, err := dnsname.FromWire(append(slices.Clone(o.Owner), 0))
	if err != nil {
		panic(err)
	}
	return name
}

var details = map[string]zone.Detail{"plain": zone.RecordsOnly, "marked": zone.WithMetadata}

// history is the content of each zone at each serial.
type history map[string]map[uint32]map[string]bool // by zone and detail

// FuzzSince checks, for random changes, that the content of a zone at a
// remembered serial, minus the deleted and plus the added records, is its
// present content.
func FuzzSince(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Add(uint64(429)) // a base that only has PTR records, in another zone
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := random{rand.New(rand.NewPCG(seed, 4))}
		n := &naive{subtrees: make(map[dnsname.Name]subtree), hosts: make(map[[2]string]zone.Hosts)}
		apexes := []string{"a", "b.a", "10.in-addr.arpa", [...]string{"arpa", "in-addr.arpa", "ip6.arpa"}[seed%3]}
		db := newDB(t, apexes...)
		db.SetHistoryLimits(zone.HistoryLimits{Changes: 1 << 20, Octets: 1 << 30})
		held := make(history)
		for range 12 {
			db.Apply(r.change(n))
			for _, apex := range apexes {
				held.check(t, db, apex)
			}
		}
	})
}

// check compares the content of a zone with its patched previous content.
func (h history) check(t *testing.T, db *zone.DB, apex string) {
	t.Helper()
	moment, err := db.Version(dnsname.MustParse(apex))
	if errors.Is(err, zone.ErrNotCurrent) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, detail := range details {
		key := apex + " " + name
		now := recordLines(moment.Records(detail))
		if h[key] == nil {
			h[key] = make(map[uint32]map[string]bool)
		}
		if before, ok := h[key][moment.SOA.Serial]; ok && !maps.Equal(before, now) {
			t.Errorf("%s changed and its serial did not:\n%s", key, cmp.Diff(before, now))
		}
		h[key][moment.SOA.Serial] = now
		for serial, before := range h[key] {
			d, err := db.Since(moment.SOA.Zone, serial)
			if err != nil {
				t.Fatal(err)
			}
			if d.From.Serial != serial || d.To.Serial != moment.SOA.Serial {
				t.Errorf("difference from %d to %d, want from %d to %d", d.From.Serial, d.To.Serial, serial, moment.SOA.Serial)
			}
			gone, come := d.Records(detail)
			if diff := cmp.Diff(now, patched(t, before, gone, come)); diff != "" {
				t.Errorf("%s from %d to %d (-want +got):\n%s", key, serial, moment.SOA.Serial, diff)
			}
		}
	}
}

// patched returns before without the deleted and with the added records.
func patched(t *testing.T, before map[string]bool, gone, come []zone.OwnedRRset) map[string]bool {
	t.Helper()
	made := maps.Clone(before)
	for line := range recordLines(slices.Values(gone)) {
		if !made[line] {
			t.Errorf("gone and was not there: %s", line)
		}
		delete(made, line)
	}
	for line := range recordLines(slices.Values(come)) {
		if made[line] {
			t.Errorf("came and was there: %s", line)
		}
		made[line] = true
	}
	return made
}

// TestHistoryBounds checks that the oldest changes are dropped first, by number
// and by octets, and that dropped changes give an error.
func TestHistoryBounds(t *testing.T) {
	grow := func(db *zone.DB, n int) {
		for i := range n {
			set(db, "h.one", addrs(fmt.Sprintf("192.0.2.%d", i+1)))
		}
	}
	for name, c := range map[string]struct {
		limit zone.HistoryLimits
		kept  uint32
	}{
		"nothing":         {zone.HistoryLimits{}, 0},
		"changes":         {zone.HistoryLimits{Changes: 4, Octets: 1 << 20}, 4},
		"octets":          {zone.HistoryLimits{Changes: 100, Octets: 1000}, 5},
		"no octets":       {zone.HistoryLimits{Changes: 100}, 0},
		"more than there": {zone.HistoryLimits{Changes: 100, Octets: 1 << 20}, 10},
	} {
		db := newDB(t, "one", "two")
		db.SetHistoryLimits(c.limit)
		grow(db, 10)
		for serial := uint32(1); serial <= 11; serial++ {
			_, err := db.Since(dnsname.MustParse("one"), serial)
			want := error(nil)
			if serial < 11-c.kept {
				want = zone.ErrHistory
			}
			if !errors.Is(err, want) {
				t.Errorf("%s: Since(%d) = %v, want %v", name, serial, err, want)
			}
		}
		if _, err := db.Since(dnsname.MustParse("one"), 12); !errors.Is(err, zone.ErrHistory) {
			t.Errorf("%s: Since a serial to come = %v", name, err)
		}
		if _, err := db.Since(dnsname.MustParse("two"), 1); err != nil {
			t.Errorf("%s: Since, of a zone that did not change = %v", name, err)
		}
		if changes, octets := db.HistorySize(); changes != int(c.kept) || octets > c.limit.Octets {
			t.Errorf("%s: %d changes of %d octets are remembered, want %d", name, changes, octets, c.kept)
		}
	}
}

// TestSerialsWrap checks serial arithmetic across the wrap.
func TestSerialsWrap(t *testing.T) {
	db, err := zone.New(soa("one", 1<<32-2))
	if err != nil {
		t.Fatal(err)
	}
	db.SetHistoryLimits(zone.HistoryLimits{Changes: 10, Octets: 1 << 20})
	for i := range 4 {
		set(db, "h.one", addrs(fmt.Sprintf("192.0.2.%d", i+1)))
	}
	d, err := db.Since(dnsname.MustParse("one"), 1<<32-1)
	if err != nil || d.To.Serial != 2 {
		t.Fatalf("Since = %+v, %v", d, err)
	}
	gone, come := d.Records(zone.RecordsOnly)
	if got := fmt.Sprint(recordLines(slices.Values(gone)), recordLines(slices.Values(come))); !strings.Contains(got, `"\xc0\x00\x02\x01"`) || !strings.Contains(got, `"\xc0\x00\x02\x04"`) {
		t.Errorf("gone and came %s", got)
	}
}

// TestNotTransferred checks the errors for unknown, pending and stale zones.
func TestNotTransferred(t *testing.T) {
	db := newDB(t, "one", "two")
	for name, c := range map[string]struct {
		marks zone.Metadata
		zone  string
		want  error
	}{
		"nothing said": {zone.Metadata{}, "one", nil},
		"settled":      {zone.Metadata{EDE: &zone.EDE{Text: "no"}}, "one", nil},
		"pending":      {zone.Metadata{Below: &zone.EDE{Pending: true}}, "one", zone.ErrNotCurrent},
		"aged":         {zone.Metadata{Stale: &zone.Stale{Found: &zone.EDE{}, Denied: &zone.EDE{}}}, "one", zone.ErrNotCurrent},
		"another's":    {zone.Metadata{Below: &zone.EDE{Pending: true}}, "two", nil},
		"no zone":      {zone.Metadata{}, "h.one", zone.ErrNoZone},
	} {
		set(db, "h.one", marks(c.marks))
		if _, err := db.Version(dnsname.MustParse(c.zone)); !errors.Is(err, c.want) {
			t.Errorf("%s: Moment = %v, want %v", name, err, c.want)
		}
		if _, err := db.Since(dnsname.MustParse(c.zone), 1); !errors.Is(err, c.want) && (c.want != nil || !errors.Is(err, zone.ErrHistory)) {
			t.Errorf("%s: Since = %v, want %v", name, err, c.want)
		}
	}
}

// TestMetadataData checks that metadata is parsed as written.
func TestMetadataData(t *testing.T) {
	note := &zone.EDE{Code: dnswire.EDEOther, Text: "no such Service"}
	for name, m := range map[string]zone.Metadata{
		"nothing":     {},
		"exists":      {Exists: true},
		"synthesized": {Exists: true, Children: zone.Synthesized, ChildTTL: 3600, Below: note},
		"all":         {Children: zone.AnySpelling, EDE: note, Below: &zone.EDE{Code: 14, Pending: true}, Underscored: &zone.EDE{}},
	} {
		got, err := zone.ParseMetadata(zone.AppendMetadata(nil, &m))
		if diff := cmp.Diff(m, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	long := zone.Metadata{EDE: &zone.EDE{Text: strings.Repeat("x", 1<<16)}}
	if got, err := zone.ParseMetadata(zone.AppendMetadata(nil, &long)); err != nil || len(got.EDE.Text) != 4096 {
		t.Errorf("a long text: %v", err)
	}
}

// FuzzMetadata checks that parsed metadata is written identically and that no
// input makes parsing panic.
func FuzzMetadata(f *testing.F) {
	f.Add(zone.AppendMetadata(nil, &zone.Metadata{Exists: true, Below: &zone.EDE{Code: 14, Text: "wait", Pending: true}}))
	f.Add([]byte("\x02\x01a\x01b\x00"))
	f.Fuzz(func(t *testing.T, rdata []byte) {
		if m, err := zone.ParseMetadata(rdata); err == nil {
			if again := zone.AppendMetadata(nil, &m); string(again) != string(rdata) {
				t.Errorf("%x is read, and written as %x", rdata, again)
			}
		}
		for _, apex := range []string{"one", "10.in-addr.arpa"} {
			db := newDB(t, apex)
			c, err := db.Secondary(dnsname.MustParse(apex))
			if err != nil {
				t.Fatal(err)
			}
			name := dnsname.MustParse("1.2.3." + apex)
			_ = c.Replace(c.SOA(), []zone.TransferRecord{{Name: name, Type: zone.TypeMetadata, RData: rdata}})
			db.Entries()
		}
	})
}

// FuzzUpdate checks that a copy that receives differences answers and lists
// what the zone does, for random changes of any size.
func FuzzUpdate(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := random{rand.New(rand.NewPCG(seed, 6))}
		n := &naive{subtrees: make(map[dnsname.Name]subtree), hosts: make(map[[2]string]zone.Hosts)}
		apexes := []string{"a", "b.a", "10.in-addr.arpa", [...]string{"arpa", "in-addr.arpa", "ip6.arpa"}[seed%3]}
		db := newDB(t, apexes...)
		db.SetHistoryLimits(zone.HistoryLimits{Changes: 1 << 20, Octets: 1 << 30})
		made := restored(t, db)
		var copies []*zone.Secondary
		for _, soa := range db.SOAs() {
			c, err := made.Secondary(soa.Zone)
			if err != nil {
				t.Fatal(err)
			}
			copies = append(copies, c)
		}
		for range 8 {
			for range 1 + r.IntN(2) {
				db.Apply(settledChanges(r.change(n)))
			}
			for _, c := range copies {
				d, err := db.Since(c.SOA().Zone, c.SOA().Serial)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Update(d.To, stepsOf(d)); err != nil {
					t.Fatal(err)
				}
			}
			checkRestored(t, db, made)
		}
	})
}

// stepsOf returns the changes of a difference.
func stepsOf(d *zone.Difference) (steps []zone.RecordChange) {
	gone, come := d.Records(zone.WithMetadata)
	for i, owned := range [][]zone.OwnedRRset{gone, come} {
		for _, o := range owned {
			for _, rdata := range o.Set.RData() {
				it := zone.TransferRecord{Name: ownerName(o), Type: o.Set.Type, TTL: o.Set.TTL(), RData: slices.Clone(rdata)}
				steps = append(steps, zone.RecordChange{TransferRecord: it, Deleted: i == 0})
			}
		}
	}
	return steps
}

// restored returns a DB built from transfers of all zones of db, as a secondary
// builds it.
func restored(t *testing.T, db *zone.DB) *zone.DB {
	t.Helper()
	var exact, wildcards []dnswire.SOA
	for _, soa := range db.SOAs() {
		if db.AllowsWildcards(soa.Zone) {
			wildcards = append(wildcards, soa)
		} else {
			exact = append(exact, soa)
		}
	}
	made, err := zone.NewWithWildcards(exact, wildcards)
	if err != nil {
		t.Fatal(err)
	}
	for _, soa := range db.SOAs() {
		moment, err := db.Version(soa.Zone)
		if err != nil {
			t.Fatal(err)
		}
		c, err := made.Secondary(soa.Zone)
		if err != nil {
			t.Fatal(err)
		}
		var items []zone.TransferRecord
		for o := range moment.Records(zone.WithMetadata) {
			for _, rdata := range o.Set.RData() {
				items = append(items, zone.TransferRecord{Name: ownerName(o), Type: o.Set.Type, TTL: o.Set.TTL(), RData: slices.Clone(rdata)})
			}
		}
		if err := c.Replace(moment.SOA, items); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

// FuzzRestore checks that a DB built from records and metadata answers and
// lists what the original does.
func FuzzRestore(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := random{rand.New(rand.NewPCG(seed, 5))}
		n := &naive{subtrees: make(map[dnsname.Name]subtree), hosts: make(map[[2]string]zone.Hosts)}
		apexes := []string{"a", "b.a", "10.in-addr.arpa", [...]string{"arpa", "in-addr.arpa", "ip6.arpa"}[seed%3]}
		db := newDB(t, apexes...)
		for range 4 {
			db.Apply(settledChanges(r.change(n)))
		}
		checkRestored(t, db, restored(t, db))
	})
}

// TestManyTargets checks an address with many targets, their order, and both in
// a copy.
func TestManyTargets(t *testing.T) {
	db := newDB(t, "a", "10.in-addr.arpa")
	addr := netip.MustParseAddr("10.0.0.1")
	const targets = 1000
	set(db, "z.a", func(b *zone.Builder) {
		for i := range targets {
			b.AddPTR(addr, zone.Tier(0, zone.First), fmt.Sprintf("%063d", i))
		}
	})
	set(db, "b.a", func(b *zone.Builder) { b.AddPTR(addr, zone.Tier(0, zone.Last)) })
	set(db, "c.a", func(b *zone.Builder) { b.AddPTR(addr, zone.Tier(0, zone.Last)) })
	checkRestored(t, db, restored(t, db))
}

// settledChanges returns the changes that are not pending.
func settledChanges(c zone.Changes) zone.Changes {
	db, err := zone.New(soa("a", 1), soa("b.a", 1))
	if err != nil {
		panic(err)
	}
	c.Subtrees = slices.DeleteFunc(c.Subtrees, func(s zone.Change) bool {
		db.Apply(zone.Changes{Subtrees: []zone.Change{s}})
		_, errA := db.Version(dnsname.MustParse("a"))
		_, errB := db.Version(dnsname.MustParse("b.a"))
		db.Apply(zone.Changes{Subtrees: []zone.Change{{Base: s.Base}}})
		return errA != nil || errB != nil
	})
	return c
}

func checkRestored(t *testing.T, db, got *zone.DB) {
	t.Helper()
	if diff := cmp.Diff(visible(db), visible(got)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	for _, e := range db.Entries() {
		for _, label := range []string{"", "h", "_x", "x.y", "10-0-0-1", "fd00-0--1", "fd00--1", "0--ffff-a00-1"} {
			name := e.Name
			if label != "" {
				name = under(e.Name, label)
			}
			for _, typ := range []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA, dnswire.TypeTXT, dnswire.TypePTR, dnswire.TypeSOA, dnswire.TypeANY} {
				if want, got := fullAnswer(db, name, typ), fullAnswer(got, name, typ); got != want {
					t.Errorf("Lookup(%s, %s) = %s, want %s", name, typ, got, want)
				}
			}
		}
	}
	// What answers for addresses and is not spelled out.
	if want, got := fullAnswer(db, dnsname.Reverse(netip.MustParseAddr("10.0.0.9")), dnswire.TypePTR), fullAnswer(got, dnsname.Reverse(netip.MustParseAddr("10.0.0.9")), dnswire.TypePTR); got != want {
		t.Errorf("a reverse name: %s, want %s", got, want)
	}
}

// visible formats the entries that a client can distinguish from none.
func visible(db *zone.DB) (lines []string) {
	for _, e := range db.Entries() {
		m := e.Metadata
		e.Metadata, m.EDE, m.Below, m.Underscored = zone.Metadata{}, nil, nil, nil
		if !e.Exists && m == (zone.Metadata{}) {
			continue
		}
		var line strings.Builder
		fmt.Fprintf(&line, "%s in %s, %v, %s %+v", e.Name, e.Zone, e.Exists, zone.AppendMetadata(nil, &m), e.SOA != nil)
		for _, s := range e.Sets {
			fmt.Fprintf(&line, " %s %d %q", s.Type, s.TTL(), s.RData())
		}
		lines = append(lines, line.String())
	}
	return lines
}

func fullAnswer(db *zone.DB, name dnsname.Name, t dnswire.Type) string {
	a := lookup(db, name.String(), t)
	if a.SOA == nil {
		return fmt.Sprint(a.Outcome)
	}
	text := fmt.Sprintf("outcome %d, zone %s, TTL %d, records %q", a.Outcome, a.SOA.Zone, a.RRset.TTL(), a.RRset.RData())
	if a.EDE != nil {
		text += fmt.Sprintf(", note %+v", *a.EDE)
	}
	return text
}
