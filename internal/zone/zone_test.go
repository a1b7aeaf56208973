package zone_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/zone"
)

const ttl = 5

func soa(apex string, serial uint32) dnswire.SOA {
	z := dnsname.MustParse(apex)
	return dnswire.SOA{Zone: z, MName: z, RName: z, TTL: ttl, Serial: serial, Minimum: ttl}
}

func newDB(t testing.TB, apexes ...string) *zone.DB {
	t.Helper()
	var soas []dnswire.SOA
	for _, a := range apexes {
		soas = append(soas, soa(a, 1))
	}
	db, err := zone.New(soas...)
	if err != nil {
		t.Fatalf("New(%v): %v", apexes, err)
	}
	return db
}

// build makes a contribution.
func build(fill func(*zone.Builder)) zone.Contribution {
	var b zone.Builder
	fill(&b)
	return b.Contribution()
}

func addA(b *zone.Builder, name, addr string) {
	b.Add(dnsname.MustParse(name), dnswire.TypeA, ttl, netip.MustParseAddr(addr).AsSlice())
}

func addPTR(b *zone.Builder, name string, rank zone.Rank, target string) {
	b.AddRanked(dnsname.MustParse(name), dnswire.TypePTR, ttl, rank, dnsname.MustParse(target).AppendWire(nil))
}

func set(db *zone.DB, owner zone.Owner, fill func(*zone.Builder)) {
	db.Apply(zone.Change{Owner: owner, Contribution: build(fill)})
}

func lookup(db *zone.DB, name string, t dnswire.Type) zone.Answer {
	return db.Lookup(new(zone.Scratch), []byte(dnsname.MustParse(name).WireLabels()), t)
}

// data is the records of an answer, in order, as text.
func data(t *testing.T, a zone.Answer) []string {
	t.Helper()
	records, err := a.RRset.Records(dnsname.Root)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range records {
		all = append(all, r.Data)
	}
	return all
}

func TestNewRefusesAZoneTwice(t *testing.T) {
	if _, err := zone.New(soa("example", 1), soa("EXAMPLE.", 2)); !errors.Is(err, zone.ErrDuplicateZone) {
		t.Errorf("New(example, EXAMPLE.) = %v, want %v", err, zone.ErrDuplicateZone)
	}
}

func TestOutcomes(t *testing.T) {
	db := newDB(t, "example", "inner.example")
	why, pending := &zone.Note{Text: "why"}, &zone.Note{Text: "wait", Pending: true}
	set(db, "o", func(b *zone.Builder) {
		addA(b, "a.b.c.example", "192.0.2.1")
		addA(b, "x.inner.example", "192.0.2.2")
		b.Add(dnsname.MustParse("alias.example"), dnswire.TypeCNAME, ttl, dnsname.MustParse("a.b.c.example").AppendWire(nil))
		b.Mark(dnsname.MustParse("held.example")).Exists = true
		b.Mark(dnsname.MustParse("noted.example")).Below = why
		b.Mark(dnsname.MustParse("noted.example")).Underscored = pending
		b.Mark(dnsname.MustParse("soon.example")).Note = pending
		addA(b, "elsewhere.test", "192.0.2.9")
	})
	type want struct {
		outcome zone.Outcome
		zone    string // whose SOA it carries
		note    *zone.Note
	}
	for claim, c := range map[string]struct {
		name string
		typ  dnswire.Type
		want want
	}{
		"a record is found":                         {"a.b.c.example", dnswire.TypeA, want{zone.Found, "example", nil}},
		"another type is not":                       {"a.b.c.example", dnswire.TypeAAAA, want{zone.NoData, "example", nil}},
		"any type is one that is there":             {"a.b.c.example", dnswire.TypeANY, want{zone.Found, "example", nil}},
		"an empty non-terminal exists":              {"b.c.example", dnswire.TypeA, want{zone.NoData, "example", nil}},
		"so does the one above it":                  {"c.example", dnswire.TypeA, want{zone.NoData, "example", nil}},
		"a sibling does not":                        {"z.b.c.example", dnswire.TypeA, want{zone.NXDomain, "example", nil}},
		"nor does what is below a record":           {"z.a.b.c.example", dnswire.TypeA, want{zone.NXDomain, "example", nil}},
		"an alias stands for other types":           {"alias.example", dnswire.TypeA, want{zone.Alias, "example", nil}},
		"an alias itself can be asked for":          {"alias.example", dnswire.TypeCNAME, want{zone.Found, "example", nil}},
		"a name may exist without records":          {"held.example", dnswire.TypeA, want{zone.NoData, "example", nil}},
		"a note alone makes no name":                {"noted.example", dnswire.TypeA, want{zone.NXDomain, "example", nil}},
		"a note goes with names below":              {"a.noted.example", dnswire.TypeA, want{zone.NXDomain, "example", why}},
		"however deep":                              {"a.b.c.noted.example", dnswire.TypeA, want{zone.NXDomain, "example", why}},
		"underscored names have their own":          {"_a._b.noted.example", dnswire.TypeA, want{zone.Unanswered, "example", pending}},
		"the label next to the note counts":         {"_a.b.noted.example", dnswire.TypeA, want{zone.NXDomain, "example", why}},
		"a pending name is not denied":              {"soon.example", dnswire.TypeA, want{zone.Unanswered, "example", pending}},
		"the apex has an SOA":                       {"example", dnswire.TypeSOA, want{zone.Authority, "example", nil}},
		"the apex exists":                           {"example", dnswire.TypeA, want{zone.NoData, "example", nil}},
		"an inner zone has its names":               {"x.inner.example", dnswire.TypeA, want{zone.Found, "inner.example", nil}},
		"an inner zone denies its names":            {"y.inner.example", dnswire.TypeA, want{zone.NXDomain, "inner.example", nil}},
		"another zone is not here":                  {"elsewhere.test", dnswire.TypeA, want{zone.NotHere, "", nil}},
		"nor is the root":                           {".", dnswire.TypeNS, want{zone.NotHere, "", nil}},
		"nor a name longer than all that were seen": {"a.b.c.d.e.f.g.h.i.j.test", dnswire.TypeA, want{zone.NotHere, "", nil}},
		"a longer name than any is denied":          {"a.b.c.d.e.f.g.h.i.j.example", dnswire.TypeA, want{zone.NXDomain, "example", nil}},
	} {
		a := lookup(db, c.name, c.typ)
		got := want{outcome: a.Outcome, note: a.Note}
		if a.SOA != nil {
			got.zone = a.SOA.Zone.String()
			c.want.zone += "."
		}
		if got != c.want {
			t.Errorf("%s: Lookup(%s, %s) = %+v, want %+v", claim, c.name, c.typ, got, c.want)
		}
	}
}

// TestTiers: of the records that several owners give one name, the lowest tier
// is seen; within it the first come first, each part sorted, without
// duplicates.
func TestTiers(t *testing.T) {
	db := newDB(t, "example")
	const name = "ptr.example"
	give := func(owner zone.Owner, rank zone.Rank, targets ...string) {
		set(db, owner, func(b *zone.Builder) {
			for _, target := range targets {
				addPTR(b, name, rank, target)
			}
		})
	}
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, data(t, lookup(db, name, dnswire.TypePTR))); diff != "" {
			t.Errorf("records of %s (-want +got):\n%s", name, diff)
		}
	}
	give("low", zone.Tier(2, zone.Last), "low.example")
	expect("low.example.")
	give("b", zone.Tier(1, zone.Last), "n.example", "m.example")
	expect("m.example.", "n.example.")
	give("a", zone.Tier(1, zone.First), "z.example", "n.example")
	expect("n.example.", "z.example.", "m.example.")
	give("high", zone.Tier(0, zone.First), "high.example")
	expect("high.example.")
	give("high", 0)
	expect("n.example.", "z.example.", "m.example.")
	give("a", 0)
	give("b", 0)
	expect("low.example.")
	give("low", 0)
	if a := lookup(db, name, dnswire.TypePTR); a.Outcome != zone.NXDomain {
		t.Errorf("Lookup(%s) when nobody gives it = %v, want NXDomain", name, a.Outcome)
	}
}

// TestSerial: it grows by one with each change that is seen, in the zone where
// it is seen, and with nothing else.
func TestSerial(t *testing.T) {
	db := newDB(t, "one", "two")
	serials := func() [2]uint32 {
		return [2]uint32{lookup(db, "one", dnswire.TypeSOA).SOA.Serial, lookup(db, "two", dnswire.TypeSOA).SOA.Serial}
	}
	a := func(addr string) func(*zone.Builder) {
		return func(b *zone.Builder) { addA(b, "a.one", addr) }
	}
	steps := []struct {
		claim  string
		change func()
		want   [2]uint32
	}{
		{"a new record", func() { set(db, "o", a("192.0.2.1")) }, [2]uint32{2, 1}},
		{"the same again", func() { set(db, "o", a("192.0.2.1")) }, [2]uint32{2, 1}},
		{"the same from another owner", func() { set(db, "p", a("192.0.2.1")) }, [2]uint32{2, 1}},
		{"one of two owners leaves", func() { set(db, "p", func(*zone.Builder) {}) }, [2]uint32{2, 1}},
		{"another address", func() { set(db, "o", a("192.0.2.2")) }, [2]uint32{3, 1}},
		{"a note", func() {
			set(db, "n", func(b *zone.Builder) { b.Mark(dnsname.MustParse("n.one")).Note = &zone.Note{Text: "why"} })
		}, [2]uint32{3, 1}},
		{"several names in both zones at once", func() {
			set(db, "q", func(b *zone.Builder) {
				addA(b, "b.one", "192.0.2.3")
				addA(b, "c.one", "192.0.2.3")
				addA(b, "d.two", "192.0.2.3")
			})
		}, [2]uint32{4, 2}},
		{"a name outside", func() { set(db, "r", func(b *zone.Builder) { addA(b, "e.three", "192.0.2.3") }) }, [2]uint32{4, 2}},
	}
	for _, s := range steps {
		s.change()
		if got := serials(); got != s.want {
			t.Errorf("serials after %s = %v, want %v", s.claim, got, s.want)
		}
	}
}

// TestDuplicatesTakeTheLowerTTL: RFC 2181, section 5.2.
func TestDuplicatesTakeTheLowerTTL(t *testing.T) {
	db := newDB(t, "example")
	name := dnsname.MustParse("a.example")
	set(db, "o", func(b *zone.Builder) {
		b.Add(name, dnswire.TypeTXT, 30, []byte("\x01x"))
		b.Add(name, dnswire.TypeTXT, 10, []byte("\x01x"))
		b.Add(name, dnswire.TypeTXT, 20, []byte("\x01y"))
	})
	a := lookup(db, "a.example", dnswire.TypeTXT)
	if a.RRset.Count != 2 || a.RRset.TTL() != 10 {
		t.Errorf("two records of TTL 30, 10, 20 = %d records of TTL %d, want 2 of TTL 10", a.RRset.Count, a.RRset.TTL())
	}
}

// TestGrowAndShrink: names come and go by the thousand, and nothing of them
// stays.
func TestGrowAndShrink(t *testing.T) {
	db := newDB(t, "example")
	const names = 20000
	name := func(i int) string { return fmt.Sprintf("h.n%d.example", i) }
	owner := func(i int) zone.Owner { return zone.Owner(fmt.Sprint(i)) }
	for i := range names {
		set(db, owner(i), func(b *zone.Builder) { addA(b, name(i), "192.0.2.1") })
	}
	for i := range names {
		if a := lookup(db, name(i), dnswire.TypeA); a.Outcome != zone.Found {
			t.Fatalf("Lookup(%s) = %v, want Found", name(i), a.Outcome)
		}
	}
	for i := range names {
		set(db, owner(i), func(*zone.Builder) {})
		if a := lookup(db, name(i), dnswire.TypeA); a.Outcome != zone.NXDomain {
			t.Fatalf("Lookup(%s) after it went = %v, want NXDomain", name(i), a.Outcome)
		}
	}
	if left := db.Entries(); len(left) != 1 {
		t.Errorf("%d entries are left, want the apex", len(left))
	}
}

// TestReadersSeeWholeRRsets: readers that run beside a writer see one of the
// states that the writer made, at each name, and never miss a name that was
// always there.
func TestReadersSeeWholeRRsets(t *testing.T) {
	db := newDB(t, "example")
	set(db, "always", func(b *zone.Builder) { addA(b, "always.example", "192.0.2.1") })
	states := [][]string{{"192.0.2.1"}, {"192.0.2.1", "192.0.2.2", "192.0.2.3"}, {"192.0.2.4", "192.0.2.5"}}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if a := lookup(db, "always.example", dnswire.TypeA); a.Outcome != zone.Found {
					t.Errorf("Lookup(always.example) = %v, want Found", a.Outcome)
				}
				a := lookup(db, "often.example", dnswire.TypeA)
				if a.Outcome == zone.NXDomain {
					continue
				}
				got := data(t, a)
				if !slices.ContainsFunc(states, func(s []string) bool { return slices.Equal(s, got) }) {
					t.Errorf("Lookup(often.example) = %v, want one of %v", got, states)
				}
			}
		})
	}
	for i := range 3000 {
		set(db, "often", func(b *zone.Builder) {
			if i%4 < len(states) {
				for _, addr := range states[i%4] {
					addA(b, "often.example", addr)
				}
			}
		})
		// Growth and shrinking move everything meanwhile.
		set(db, zone.Owner(fmt.Sprint(i%500)), func(b *zone.Builder) {
			if i%1000 < 500 {
				addA(b, fmt.Sprintf("n%d.example", i%500), "192.0.2.9")
			}
		})
	}
	close(stop)
	readers.Wait()
}

// TestLookupAllocatesNothing: also for a made-up answer and a denial.
func TestLookupAllocatesNothing(t *testing.T) {
	db := newDB(t, "example")
	set(db, "o", func(b *zone.Builder) {
		addA(b, "a.example", "192.0.2.1")
		b.Mark(dnsname.MustParse("pods.example")).Children = zone.Synthesized
		b.Mark(dnsname.MustParse("spelled.example")).Children = zone.AnySpelling
		b.Add(dnsname.MustParse("fd00--1.spelled.example"), dnswire.TypeAAAA, ttl, netip.MustParseAddr("fd00::1").AsSlice())
	})
	scratch := new(zone.Scratch)
	for name, want := range map[string]zone.Outcome{
		"a.example": zone.Found, "b.example": zone.NXDomain, "10-0-0-1.pods.example": zone.Found,
		"fd00-0--0001.spelled.example": zone.NoData, "x.test": zone.NotHere,
	} {
		qname := []byte(dnsname.MustParse(name).WireLabels())
		if got := db.Lookup(scratch, qname, dnswire.TypeA).Outcome; got != want {
			t.Errorf("Lookup(%s, A) = %v, want %v", name, got, want)
		}
		if n := testing.AllocsPerRun(100, func() { db.Lookup(scratch, qname, dnswire.TypeA) }); n != 0 {
			t.Errorf("Lookup(%s): %v allocations, want 0", name, n)
		}
	}
}

// TestInnerZones: what is above an inner zone exists in the outer one, in
// whatever order they were given.
func TestInnerZones(t *testing.T) {
	db := newDB(t, "a.b.c.example", "example")
	for name, want := range map[string]zone.Outcome{
		"b.c.example": zone.NoData, "c.example": zone.NoData, "x.c.example": zone.NXDomain, "x.a.b.c.example": zone.NXDomain,
	} {
		if got := lookup(db, name, dnswire.TypeA).Outcome; got != want {
			t.Errorf("Lookup(%s, A) = %v, want %v", name, got, want)
		}
	}
}

// watch calls look again and again, beside change.
func watch(look, change func()) {
	stop := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				look()
			}
		}
	})
	change()
	close(stop)
	watcher.Wait()
}

// TestNothingIsDeniedMeanwhile: a name that exists before and after a change
// is not denied during it, though all that it exists by is another.
func TestNothingIsDeniedMeanwhile(t *testing.T) {
	db := newDB(t, "example")
	port := func(name string) func(*zone.Builder) {
		return func(b *zone.Builder) { addA(b, name+"._tcp.svc.example", "192.0.2.1") }
	}
	set(db, "o", port("_a"))
	watch(func() {
		if a := lookup(db, "_tcp.svc.example", dnswire.TypeA); a.Outcome != zone.NoData {
			t.Errorf("Lookup(_tcp.svc.example) = %v, want NoData", a.Outcome)
		}
	}, func() {
		for i := range 3000 {
			set(db, "o", port([]string{"_b", "_a"}[i%2]))
		}
	})
}

// TestLoadingIsNeverADenial: while everything comes in one change, in any
// order, a name that comes is pending, then there; a name of several owners
// has all its records at once.
func TestLoadingIsNeverADenial(t *testing.T) {
	for range 20 {
		db := newDB(t, "example")
		parent := dnsname.MustParse("svc.example")
		set(db, "cluster", func(b *zone.Builder) { b.Mark(parent).Below = &zone.Note{Pending: true} })
		changes := []zone.Change{{Owner: "cluster", Contribution: build(func(b *zone.Builder) {
			*b.Mark(parent) = zone.Marks{Exists: true, Below: &zone.Note{Text: "no such"}}
		})}}
		const services = 300
		for i := range services {
			changes = append(changes, zone.Change{Owner: zone.Owner(fmt.Sprint(i)), Contribution: build(func(b *zone.Builder) {
				addA(b, fmt.Sprintf("s%d.svc.example", i), "192.0.2.1")
				addA(b, "shared.svc.example", fmt.Sprintf("10.0.%d.%d", i/256, i%256))
			})})
		}
		watch(func() {
			if a := lookup(db, fmt.Sprintf("s%d.svc.example", services-1), dnswire.TypeA); a.Outcome != zone.Found && a.Outcome != zone.Unanswered {
				t.Errorf("Lookup of a name that is being loaded = %v, want Unanswered or Found", a.Outcome)
			}
			if a := lookup(db, "shared.svc.example", dnswire.TypeA); a.Outcome == zone.Found && a.RRset.Count != services {
				t.Errorf("Lookup of a shared name has %d records, want %d", a.RRset.Count, services)
			}
		}, func() { db.Apply(changes...) })
	}
}
