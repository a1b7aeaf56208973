package zone_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

const ttl = 5

func soa(apex string, serial uint32) dnswire.SOA {
	z := dnsname.MustParse(apex)
	return dnswire.SOA{Zone: z, MName: z, RName: z, TTL: ttl, Serial: serial, Minimum: ttl}
}

func newDB(tb testing.TB, apexes ...string) *zone.DB {
	tb.Helper()
	var soas []dnswire.SOA
	for _, a := range apexes {
		soas = append(soas, soa(a, 1))
	}
	db, err := zone.New(soas...)
	if err != nil {
		tb.Fatalf("New(%v): %v", apexes, err)
	}
	return db
}

// change builds the subtree at base.
func change(base string, fill func(*zone.Builder)) zone.Change {
	name := dnsname.MustParse(base)
	var b zone.Builder
	b.Begin(name, ttl)
	fill(&b)
	return zone.Change{Base: name, Subtree: b.Subtree()}
}

func set(db *zone.DB, base string, fill func(*zone.Builder)) {
	db.Apply(zone.Changes{Subtrees: []zone.Change{change(base, fill)}})
}

func emptySubtree(*zone.Builder) {}

func addrs(texts ...string) func(*zone.Builder) {
	return func(b *zone.Builder) {
		for _, t := range texts {
			b.AddAddr(netip.MustParseAddr(t))
		}
	}
}

func marks(m zone.Metadata) func(*zone.Builder) {
	return func(b *zone.Builder) { b.Metadata = m }
}

// setHosts sets the hosts of a source below parent, with PTR records.
func setHosts(db *zone.DB, parent, source string, texts ...string) {
	h := zone.Hosts{Parent: dnsname.MustParse(parent), Source: source, TTL: ttl, Reverse: true, Rank: zone.Tier(3, zone.Last)}
	for _, t := range texts {
		h.Addrs = append(h.Addrs, netip.MustParseAddr(t))
	}
	db.Apply(zone.Changes{Hosts: []zone.Hosts{h}})
}

func lookup(db *zone.DB, name string, t dnswire.Type) zone.Answer {
	return db.Lookup(new(zone.Scratch), []byte(dnsname.MustParse(name).WireLabels()), t)
}

// data returns the records of an answer, in order, as text.
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
	db := newDB(t, "example", "inner.example", "in-addr.arpa", "2.0.192.in-addr.arpa")
	why, pending := &zone.EDE{Text: "why"}, &zone.EDE{Text: "wait", Pending: true}
	set(db, "a.b.c.example", addrs("192.0.2.1"))
	set(db, "x.inner.example", addrs("192.0.2.2"))
	set(db, "alias.example", func(b *zone.Builder) {
		b.Add(dnswire.TypeCNAME, dnsname.MustParse("a.b.c.example").AppendWire(nil))
	})
	set(db, "held.example", marks(zone.Metadata{Exists: true}))
	set(db, "noted.example", marks(zone.Metadata{Below: why, Underscored: pending}))
	set(db, "soon.example", marks(zone.Metadata{EDE: pending}))
	set(db, "elsewhere.test", addrs("192.0.2.9"))
	set(db, "web.example", func(b *zone.Builder) {
		b.Metadata = zone.Metadata{Children: zone.AnySpelling, Below: why, Underscored: pending}
		b.Add(dnswire.TypeTXT, []byte("\x01x"))
		b.Add(dnswire.TypeTXT, []byte("\x01x"), "_Http", "_TCP")
		b.AddAddr(netip.MustParseAddr("192.0.2.3"), "host")
		b.AddHost(netip.MustParseAddr("fd00::1"))
		b.AddHost(netip.MustParseAddr("192.0.2.4"))
		b.AddAddr(netip.MustParseAddr("192.0.2.4"), "192-0-2-5") // at a name that spells another address
		b.AddHost(netip.MustParseAddr("192.0.2.5"))
		b.AddHostPTR(netip.MustParseAddr("192.0.2.4"), 0)
		b.AddPTR(netip.MustParseAddr("10.0.0.1"), 0)
	})
	set(db, "exact.example", func(b *zone.Builder) { b.AddHost(netip.MustParseAddr("fd00::1")) })
	setHosts(db, "pods.example", "pod", "192.0.2.6")
	set(db, "any.example", marks(zone.Metadata{Exists: true, Children: zone.Synthesized}))
	type want struct {
		outcome zone.Outcome
		zone    string // of the SOA in the answer
		note    *zone.EDE
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
		"another zone is not here":                  {"elsewhere.test", dnswire.TypeA, want{zone.OutOfZone, "", nil}},
		"nor is the root":                           {".", dnswire.TypeNS, want{zone.OutOfZone, "", nil}},
		"nor a name longer than all that were seen": {"a.b.c.d.e.f.g.h.i.j.test", dnswire.TypeA, want{zone.OutOfZone, "", nil}},
		"a longer name than any is denied":          {"a.b.c.d.e.f.g.h.i.j.example", dnswire.TypeA, want{zone.NXDomain, "example", nil}},

		"a subtree has names below its base":  {"_http._tcp.web.example", dnswire.TypeTXT, want{zone.Found, "example", nil}},
		"and what is between exists":          {"_tcp.web.example", dnswire.TypeTXT, want{zone.NoData, "example", nil}},
		"another name below is denied":        {"_x._tcp.web.example", dnswire.TypeTXT, want{zone.Unanswered, "example", pending}},
		"by the base's note":                  {"x.host.web.example", dnswire.TypeA, want{zone.NXDomain, "example", why}},
		"a host is found":                     {"192-0-2-4.web.example", dnswire.TypeA, want{zone.Found, "example", nil}},
		"a host has one type":                 {"192-0-2-4.web.example", dnswire.TypeAAAA, want{zone.NoData, "example", nil}},
		"a host may be spelled otherwise":     {"fd00-0--0001.web.example", dnswire.TypeAAAA, want{zone.Found, "example", nil}},
		"but not where the spelling is exact": {"fd00-0--0001.exact.example", dnswire.TypeAAAA, want{zone.NXDomain, "example", nil}},
		"there is one spelling then":          {"fd00--1.exact.example", dnswire.TypeAAAA, want{zone.Found, "example", nil}},
		"a host makes its parent exist":       {"exact.example", dnswire.TypeAAAA, want{zone.NoData, "example", nil}},
		"another address is denied":           {"192-0-2-9.web.example", dnswire.TypeA, want{zone.NXDomain, "example", why}},
		"nothing is below a host":             {"x.192-0-2-4.web.example", dnswire.TypeA, want{zone.NXDomain, "example", why}},
		"hosts come one by one too":           {"192-0-2-6.pods.example", dnswire.TypeA, want{zone.Found, "example", nil}},
		"and make their parent exist":         {"pods.example", dnswire.TypeA, want{zone.NoData, "example", nil}},
		"a host may be made up":               {"192-0-2-7.any.example", dnswire.TypeANY, want{zone.Found, "example", nil}},
		"a reverse name is found":             {"1.0.0.10.in-addr.arpa", dnswire.TypePTR, want{zone.Found, "in-addr.arpa", nil}},
		"in the inner zone":                   {"4.2.0.192.in-addr.arpa", dnswire.TypeANY, want{zone.Found, "2.0.192.in-addr.arpa", nil}},
		"with no other type":                  {"1.0.0.10.in-addr.arpa", dnswire.TypeA, want{zone.NoData, "in-addr.arpa", nil}},
		"what is above it exists":             {"0.10.in-addr.arpa", dnswire.TypePTR, want{zone.NoData, "in-addr.arpa", nil}},
		"what is above a reverse zone exists": {"192.in-addr.arpa", dnswire.TypePTR, want{zone.NoData, "in-addr.arpa", nil}},
		"what is beside it does not":          {"1.10.in-addr.arpa", dnswire.TypePTR, want{zone.NXDomain, "in-addr.arpa", nil}},
		"nor does another address":            {"2.0.0.10.in-addr.arpa", dnswire.TypePTR, want{zone.NXDomain, "in-addr.arpa", nil}},
		"nor what is below one":               {"x.1.0.0.10.in-addr.arpa", dnswire.TypePTR, want{zone.NXDomain, "in-addr.arpa", nil}},
		"a reverse name has one spelling":     {"01.0.0.10.in-addr.arpa", dnswire.TypePTR, want{zone.NXDomain, "in-addr.arpa", nil}},
		"a reverse name may be in no zone":    {"1.ip6.arpa", dnswire.TypePTR, want{zone.OutOfZone, "", nil}},
	} {
		a := lookup(db, c.name, c.typ)
		got := want{outcome: a.Outcome, note: a.EDE}
		if a.SOA != nil {
			got.zone = a.SOA.Zone.String()
			c.want.zone += "."
		}
		if got != c.want {
			t.Errorf("%s: Lookup(%s, %s) = %+v, want %+v", claim, c.name, c.typ, got, c.want)
		}
	}
}

// TestHostWithOtherRecords checks that a name of a host with other records too
// has all of them, in any spelling.
func TestHostWithOtherRecords(t *testing.T) {
	db := newDB(t, "example")
	set(db, "web.example", func(b *zone.Builder) {
		b.Metadata.Children = zone.AnySpelling
		b.AddHost(netip.MustParseAddr("fd00::1"))
		b.AddHost(netip.MustParseAddr("fd00::2"))
		b.AddAddr(netip.MustParseAddr("fd00::3"), "fd00--1")
	})
	for name, want := range map[string][]string{
		"fd00--1.web.example": {"fd00::1", "fd00::3"}, "fd00-0--1.web.example": {"fd00::1", "fd00::3"}, "fd00--2.web.example": {"fd00::2"},
	} {
		if diff := cmp.Diff(want, data(t, lookup(db, name, dnswire.TypeAAAA))); diff != "" {
			t.Errorf("records of %s (-want +got):\n%s", name, diff)
		}
	}
}

// TestInvalidNamesAreOmitted checks that names that are invalid in DNS are omitted with
// their records.
func TestInvalidNamesAreOmitted(t *testing.T) {
	db := newDB(t, "example", "in-addr.arpa")
	label := strings.Repeat("x", 63)
	base := strings.Join([]string{label, label, label, strings.Repeat("y", 48), "example"}, ".")
	addr := netip.MustParseAddr("192.0.2.1")
	set(db, base, func(b *zone.Builder) {
		b.AddAddr(addr)
		b.AddAddr(addr, "0123")
		b.AddAddr(addr, "01234")
		b.AddAddr(addr, "")
		b.AddHost(addr)
		b.AddHostPTR(addr, 0)
		b.AddPTR(addr, 0, "01234")
		if _, ok := b.AppendHostName(nil, addr); ok {
			t.Error("a host's name of 260 octets was appended")
		}
		if _, ok := b.AppendName(nil, strings.Repeat("x", 64)); ok {
			t.Error("a label of 64 octets was appended")
		}
	})
	setHosts(db, base, "s", "192.0.2.2")
	var got []string
	for _, e := range db.Entries() {
		if len(e.Sets) > 0 {
			got = append(got, e.Name.String())
		}
	}
	if diff := cmp.Diff([]string{base + ".", "0123." + base + "."}, got); diff != "" {
		t.Errorf("names with records (-want +got):\n%s", diff)
	}
}

// TestTiers checks that only the lowest tier of an address's PTR records is
// served, those with First before the others, each part sorted and without
// duplicates.
func TestTiers(t *testing.T) {
	db := newDB(t, "example", "in-addr.arpa")
	addr := netip.MustParseAddr("192.0.2.1")
	const name = "1.2.0.192.in-addr.arpa"
	point := func(base string, rank zone.Rank, labels ...string) {
		set(db, base, func(b *zone.Builder) {
			for _, l := range labels {
				b.AddPTR(addr, rank, l)
			}
		})
	}
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, data(t, lookup(db, name, dnswire.TypePTR))); diff != "" {
			t.Errorf("records of %s (-want +got):\n%s", name, diff)
		}
	}
	setHosts(db, "pods.example", "a", "192.0.2.1")
	setHosts(db, "pods.example", "b", "192.0.2.1")
	expect("192-0-2-1.pods.example.")
	point("b.example", zone.Tier(1, zone.Last), "n", "m")
	expect("m.b.example.", "n.b.example.")
	point("a.example", zone.Tier(1, zone.First), "z", "n")
	expect("n.a.example.", "z.a.example.", "m.b.example.", "n.b.example.")
	set(db, "example", func(b *zone.Builder) {
		b.AddPTR(addr, zone.Tier(1, zone.First), "m", "b")
		b.AddPTR(addr, zone.Tier(1, zone.First), "n", "a")
	})
	expect("n.a.example.", "z.a.example.", "m.b.example.", "n.b.example.")
	point("high.example", zone.Tier(0, zone.First), "h")
	expect("h.high.example.")
	point("high.example", 0)
	point("a.example", 0)
	expect("n.a.example.", "m.b.example.", "n.b.example.")
	set(db, "example", emptySubtree)
	point("b.example", 0)
	setHosts(db, "pods.example", "a")
	expect("192-0-2-1.pods.example.")
	setHosts(db, "pods.example", "b")
	if a := lookup(db, name, dnswire.TypePTR); a.Outcome != zone.NXDomain {
		t.Errorf("Lookup(%s) when nobody gives it = %v, want NXDomain", name, a.Outcome)
	}
}

// TestLowestTTL checks that an RRset has the lowest TTL of its records (RFC 2181,
// section 5.2).
func TestLowestTTL(t *testing.T) {
	db := newDB(t, "example", "in-addr.arpa")
	addr := netip.MustParseAddr("192.0.2.1")
	for i, ttl := range []uint32{30, 10, 20} {
		var b zone.Builder
		base := dnsname.MustParse(fmt.Sprintf("n%d.example", i))
		b.Begin(base, ttl)
		b.AddPTR(addr, 0)
		hosts := zone.Hosts{Parent: dnsname.MustParse("example"), Source: strconv.Itoa(i), Addrs: []netip.Addr{addr}, TTL: ttl}
		db.Apply(zone.Changes{Subtrees: []zone.Change{{Base: base, Subtree: b.Subtree()}}, Hosts: []zone.Hosts{hosts}})
	}
	for name, typ := range map[string]dnswire.Type{"1.2.0.192.in-addr.arpa": dnswire.TypePTR, "192-0-2-1.example": dnswire.TypeA} {
		if a := lookup(db, name, typ); a.RRset.TTL() != 10 {
			t.Errorf("records of TTL 30, 10, 20 at %s have TTL %d, want 10", name, a.RRset.TTL())
		}
	}
}

// TestSerial checks that the serial increases by one with each visible change,
// in the zones that it affects only.
func TestSerial(t *testing.T) {
	db := newDB(t, "one", "two", "in-addr.arpa")
	serials := func() (all [3]uint32) {
		for i, z := range []string{"one", "two", "in-addr.arpa"} {
			all[i] = lookup(db, z, dnswire.TypeSOA).SOA.Serial
		}
		return all
	}
	addr := netip.MustParseAddr("192.0.2.1")
	ptr := func(rank zone.Rank) func(*zone.Builder) {
		return func(b *zone.Builder) { b.AddPTR(addr, rank) }
	}
	host := func(b *zone.Builder) { b.AddHost(addr) }
	at := func(base string, fill func(*zone.Builder)) func() { return func() { set(db, base, fill) } }
	pod := func(source string, addrs ...string) func() {
		return func() { setHosts(db, "pods.two", source, addrs...) }
	}
	steps := []struct {
		claim  string
		change func()
		want   [3]uint32
	}{
		{"a new record", at("a.one", addrs("192.0.2.1")), [3]uint32{2, 1, 1}},
		{"the same again", at("a.one", addrs("192.0.2.1", "192.0.2.1")), [3]uint32{2, 1, 1}},
		{"another address", at("a.one", addrs("192.0.2.2")), [3]uint32{3, 1, 1}},
		{"a note", at("n.one", marks(zone.Metadata{EDE: &zone.EDE{Text: "why"}})), [3]uint32{4, 1, 1}},
		{"another note", at("n.one", marks(zone.Metadata{EDE: &zone.EDE{Text: "no"}})), [3]uint32{5, 1, 1}},
		{"several names in both zones at once", func() {
			db.Apply(zone.Changes{Subtrees: []zone.Change{
				change("b.one", addrs("192.0.2.3")), change("c.one", addrs("192.0.2.3")), change("d.two", addrs("192.0.2.3")),
			}})
		}, [3]uint32{6, 2, 1}},
		{"a name outside", at("e.three", addrs("192.0.2.3")), [3]uint32{6, 2, 1}},
		{"a reverse name", at("p.one", ptr(2)), [3]uint32{6, 2, 2}},
		{"a second target", at("q.one", ptr(2)), [3]uint32{6, 2, 3}},
		{"a third that is not seen", at("r.one", ptr(4)), [3]uint32{6, 2, 3}},
		{"it goes", at("r.one", emptySubtree), [3]uint32{6, 2, 3}},
		{"the same two with another rank", func() {
			db.Apply(zone.Changes{Subtrees: []zone.Change{change("p.one", ptr(0)), change("q.one", ptr(0))}})
		}, [3]uint32{6, 2, 3}},
		{"an address outside", at("s.one", func(b *zone.Builder) { b.AddPTR(netip.MustParseAddr("::1"), 0) }), [3]uint32{6, 2, 3}},
		{"a host", at("h.one", host), [3]uint32{7, 2, 3}},
		{"no host", at("h.one", emptySubtree), [3]uint32{8, 2, 3}},
		{"a host from one source", pod("a", "192.0.2.7"), [3]uint32{8, 3, 4}},
		{"and from another", pod("b", "192.0.2.7"), [3]uint32{8, 3, 4}},
		{"one source leaves", pod("a"), [3]uint32{8, 3, 4}},
		{"one comes as the other goes", func() {
			gone := zone.Hosts{Parent: dnsname.MustParse("pods.two"), Source: "b"}
			come := zone.Hosts{Parent: gone.Parent, Source: "c", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, TTL: ttl, Reverse: true, Rank: zone.Tier(3, zone.Last)}
			db.Apply(zone.Changes{Hosts: []zone.Hosts{gone, come}})
		}, [3]uint32{8, 3, 4}},
		{"the last leaves", pod("c"), [3]uint32{8, 4, 5}},
	}
	for _, s := range steps {
		s.change()
		if got := serials(); got != s.want {
			t.Fatalf("serials after %s = %v, want %v", s.claim, got, s.want)
		}
	}
}

// TestNothingRemainsAfterDeletion adds and deletes names by the thousand, one by one and at
// once, and checks that nothing is left.
func TestNothingRemainsAfterDeletion(t *testing.T) {
	db := newDB(t, "example")
	const names = 20000
	name := func(i int) string { return fmt.Sprintf("h.n%d.example", i) }
	var changes zone.Changes
	for i := range names {
		if i < names/10 {
			set(db, name(i), addrs("192.0.2.1"))
			continue
		}
		changes.Subtrees = append(changes.Subtrees, change(name(i), addrs("192.0.2.1")))
	}
	db.Apply(changes)
	for i := range names {
		if a := lookup(db, name(i), dnswire.TypeA); a.Outcome != zone.Found {
			t.Fatalf("Lookup(%s) = %v, want Found", name(i), a.Outcome)
		}
	}
	for i := range names {
		set(db, name(i), emptySubtree)
		if a := lookup(db, name(i), dnswire.TypeA); a.Outcome != zone.NXDomain {
			t.Fatalf("Lookup(%s) after it went = %v, want NXDomain", name(i), a.Outcome)
		}
	}
	if left := db.Entries(); len(left) != 1 {
		t.Errorf("%d entries are left, want the apex", len(left))
	}
}

// TestReadersSeeWholeRRsets checks that concurrent readers see only states that
// the writer made, and never miss a name that always exists.
func TestReadersSeeWholeRRsets(t *testing.T) {
	db := newDB(t, "example")
	set(db, "always.example", addrs("192.0.2.1"))
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
		if i%4 < len(states) {
			set(db, "often.example", addrs(states[i%4]...))
		} else {
			set(db, "often.example", emptySubtree)
		}
		// Growing and shrinking moves everything in the meantime.
		if i%1000 < 500 {
			set(db, fmt.Sprintf("n%d.example", i%500), addrs("192.0.2.9"))
		} else {
			set(db, fmt.Sprintf("n%d.example", i%500), emptySubtree)
		}
	}
	close(stop)
	readers.Wait()
}

// TestLookupAllocatesNothing covers answers, synthesized answers and denials.
func TestLookupAllocatesNothing(t *testing.T) {
	db := newDB(t, "example", "in-addr.arpa")
	set(db, "a.example", func(b *zone.Builder) {
		addrs("192.0.2.1")(b)
		b.Add(dnswire.TypeA, []byte{192, 0, 2, 1}, "_x", "_y")
		b.AddHostPTR(netip.MustParseAddr("192.0.2.1"), 0)
		b.AddPTR(netip.MustParseAddr("192.0.2.1"), 0)
	})
	set(db, "pods.example", marks(zone.Metadata{Children: zone.Synthesized}))
	set(db, "spelled.example", func(b *zone.Builder) {
		b.Metadata.Children = zone.AnySpelling
		b.AddHost(netip.MustParseAddr("fd00::1"))
	})
	setHosts(db, "hosts.example", "s", "192.0.2.2")
	scratch := new(zone.Scratch)
	for name, want := range map[string]zone.Outcome{
		"a.example": zone.Found, "_x._y.a.example": zone.Found, "b.example": zone.NXDomain, "10-0-0-1.pods.example": zone.Found,
		"fd00-0--0001.spelled.example": zone.Found, "fd00--2.spelled.example": zone.NXDomain, "192-0-2-2.hosts.example": zone.Found,
		"1.2.0.192.in-addr.arpa": zone.Found, "2.0.192.in-addr.arpa": zone.NoData, "x.test": zone.OutOfZone,
	} {
		qname := []byte(dnsname.MustParse(name).WireLabels())
		if got := db.Lookup(scratch, qname, dnswire.TypeANY).Outcome; got != want {
			t.Errorf("Lookup(%s, ANY) = %v, want %v", name, got, want)
		}
		if n := testing.AllocsPerRun(100, func() { db.Lookup(scratch, qname, dnswire.TypeANY) }); n != 0 {
			t.Errorf("Lookup(%s): %v allocations, want 0", name, n)
		}
	}
}

// TestInnerZones checks that names above an inner zone exist in the outer one,
// for any order of zones.
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

// watch calls look repeatedly, concurrently with change.
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

// TestReplacedNamesAreNeverDenied checks that a name that exists before and after
// a change is not denied during it, although its data is replaced.
func TestReplacedNamesAreNeverDenied(t *testing.T) {
	db := newDB(t, "example", "in-addr.arpa")
	port := func(name string) func(*zone.Builder) {
		return func(b *zone.Builder) { b.AddAddr(netip.MustParseAddr("192.0.2.1"), name, "_tcp") }
	}
	moved := netip.MustParseAddr("192.0.2.1")
	has := func(b *zone.Builder) { b.AddHostPTR(moved, 0) }
	hosts := func(addrs ...netip.Addr) zone.Hosts {
		return zone.Hosts{Parent: dnsname.MustParse("ns.pod.example"), Source: "s", Addrs: addrs, TTL: ttl, Reverse: true}
	}
	states := []zone.Changes{
		{Subtrees: []zone.Change{
			change("svc.example", port("_a")), change("x.between.example", addrs("192.0.2.1")), change("y.between.example", emptySubtree),
			change("one.example", has), change("two.example", emptySubtree), change("ns.pod.example", emptySubtree),
		}, Hosts: []zone.Hosts{hosts(netip.MustParseAddr("10.1.2.3"))}},
		{Subtrees: []zone.Change{
			change("svc.example", port("_b")), change("x.between.example", emptySubtree), change("y.between.example", addrs("192.0.2.1")),
			change("one.example", emptySubtree), change("two.example", has), change("ns.pod.example", marks(zone.Metadata{Exists: true})),
			change("three.example", func(b *zone.Builder) { b.AddHostPTR(netip.MustParseAddr("10.99.0.1"), 0) }),
		}, Hosts: []zone.Hosts{hosts()}},
	}
	states[0].Subtrees = append(states[0].Subtrees, change("three.example", emptySubtree))
	db.Apply(states[0])
	watch(func() {
		for name, want := range map[string]zone.Outcome{
			"_tcp.svc.example": zone.NoData, "between.example": zone.NoData, "ns.pod.example": zone.NoData,
			"1.2.0.192.in-addr.arpa": zone.Found, "10.in-addr.arpa": zone.NoData,
		} {
			if a := lookup(db, name, dnswire.TypePTR); a.Outcome != want {
				t.Errorf("Lookup(%s) = %v, want %v", name, a.Outcome, want)
			}
		}
	}, func() {
		for i := range 3000 {
			db.Apply(states[(i+1)%2])
		}
	})
}

// TestStaleIsPartOfADenial checks that a name is never denied that is added in
// the change that removes the stale mark which prevented its denial.
func TestStaleIsPartOfADenial(t *testing.T) {
	db := newDB(t, "example")
	confirming := &zone.Stale{Found: &zone.EDE{}, Denied: &zone.EDE{Pending: true}}
	states := []zone.Changes{
		{Subtrees: []zone.Change{change("a.svc.example", emptySubtree), change("svc.example", marks(zone.Metadata{Exists: true, Stale: confirming}))}},
		{Subtrees: []zone.Change{change("a.svc.example", addrs("192.0.2.1")), change("svc.example", marks(zone.Metadata{Exists: true}))}},
	}
	db.Apply(states[0])
	watch(func() {
		for range 100 {
			if a := lookup(db, "a.svc.example", dnswire.TypeA); a.Outcome == zone.NXDomain {
				t.Error("Lookup of a name that comes or is pending = NXDomain")
			}
		}
	}, func() {
		for i := range 30000 {
			db.Apply(states[(i+1)%2])
		}
	})
}

// TestSubtreesChangeAtOnce checks that a reader that has seen a subtree's new
// state does not see its old state afterwards.
func TestSubtreesChangeAtOnce(t *testing.T) {
	db := newDB(t, "example")
	state := func(i byte) func(*zone.Builder) {
		return func(b *zone.Builder) {
			for _, label := range []string{"a", "b"} {
				b.Add(dnswire.TypeTXT, []byte{1, i}, label)
			}
		}
	}
	set(db, "svc.example", state(0))
	watch(func() {
		first := lookup(db, "a.svc.example", dnswire.TypeTXT).RRset.RData()[0][1]
		second := lookup(db, "b.svc.example", dnswire.TypeTXT).RRset.RData()[0][1]
		if second < first {
			t.Errorf("after a name of state %d came one of state %d", first, second)
		}
	}, func() {
		for i := range 200 {
			set(db, "svc.example", state(byte(i)))
		}
	})
}

// TestLoadingIsNeverADenial checks that while everything is added in one
// change, in any order, a new name is pending and then exists, with the records
// of all its sources at once.
func TestLoadingIsNeverADenial(t *testing.T) {
	for range 20 {
		db := newDB(t, "example", "in-addr.arpa")
		pending := marks(zone.Metadata{Exists: true, Below: &zone.EDE{Pending: true}})
		loaded := marks(zone.Metadata{Exists: true, Below: &zone.EDE{Text: "no such"}})
		set(db, "svc.example", pending)
		set(db, "pod.example", pending)
		set(db, "in-addr.arpa", pending)
		all := zone.Changes{Subtrees: []zone.Change{change("svc.example", loaded), change("pod.example", loaded), change("in-addr.arpa", loaded)}}
		const services = 300
		for i := range services {
			all.Subtrees = append(all.Subtrees, change(fmt.Sprintf("s%d.svc.example", i), func(b *zone.Builder) {
				addrs("192.0.2.1")(b)
				b.AddPTR(netip.MustParseAddr("192.0.2.1"), 0)
			}))
			all.Hosts = append(all.Hosts, zone.Hosts{
				Parent: dnsname.MustParse("ns.pod.example"), Source: strconv.Itoa(i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i / 256), byte(i)})},
			})
		}
		watch(func() {
			for _, name := range []string{fmt.Sprintf("s%d.svc.example", services-1), "10-0-0-7.ns.pod.example", "1.2.0.192.in-addr.arpa"} {
				a := lookup(db, name, dnswire.TypeANY)
				if a.Outcome != zone.Found && a.Outcome != zone.Unanswered {
					t.Errorf("Lookup(%s) while it is loaded = %v, want Unanswered or Found", name, a.Outcome)
				}
				if a.RRset.Type == dnswire.TypePTR && a.RRset.Count != services {
					t.Errorf("Lookup(%s) has %d records, want %d", name, a.RRset.Count, services)
				}
			}
		}, func() { db.Apply(all) })
	}
}

// TestLongChangesAnswer checks that names that do not exist are denied while a change of many
// names is published.
func TestLongChangesAnswer(t *testing.T) {
	db := newDB(t, "example")
	var states [2]zone.Changes
	for i := range 20_000 {
		name := fmt.Sprintf("s%d.svc.example", i)
		states[0].Subtrees = append(states[0].Subtrees, change(name, addrs("192.0.2.1")))
		states[1].Subtrees = append(states[1].Subtrees, change(name, addrs("192.0.2.2")))
	}
	lookups := 0
	watch(func() {
		lookups++
		if a := lookup(db, "missing.example", dnswire.TypeA); a.Outcome != zone.NXDomain {
			t.Errorf("lookup %d of a name that does not exist = %v, want NXDomain", lookups, a.Outcome)
		}
	}, func() {
		for i := range 10 {
			db.Apply(states[i%2])
		}
	})
}
