package zone_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// naive stores the input of a DB as given and answers by searching all of it.
type naive struct {
	apexes   []dnsname.Name
	subtrees map[dnsname.Name]subtree
	hosts    map[[2]string]zone.Hosts // by parent and source
}

type subtree struct {
	metadata zone.Metadata
	records  []record
	hosts    []netip.Addr
	ptrs     []ptr
}

type record struct {
	typ    dnswire.Type
	rdata  string
	labels []string
}

type ptr struct {
	addr   netip.Addr
	rank   zone.Rank
	host   bool
	labels []string
}

func (s *subtree) build(b *zone.Builder) {
	b.Metadata = s.metadata
	for _, r := range s.records {
		b.Add(r.typ, []byte(r.rdata), r.labels...)
	}
	for _, addr := range s.hosts {
		b.AddHost(addr)
	}
	for _, p := range s.ptrs {
		if p.host {
			b.AddHostPTR(p.addr, p.rank)
		} else {
			b.AddPTR(p.addr, p.rank, p.labels...)
		}
	}
}

// answers holds every existing name with its RRsets: RDATA as text, in order.
type answers map[dnsname.Name]map[dnswire.Type][]string

func (a answers) add(name dnsname.Name, t dnswire.Type, rdata string) {
	if a[name] == nil {
		a[name] = make(map[dnswire.Type][]string)
	}
	if t != 0 && !slices.Contains(a[name][t], rdata) {
		a[name][t] = append(a[name][t], rdata)
	}
}

func (a answers) addHost(parent dnsname.Name, addr netip.Addr) {
	typ := dnswire.TypeA
	if addr.Is6() {
		typ = dnswire.TypeAAAA
	}
	a.add(under(parent, dnsname.DashedAddr(addr)), typ, string(addr.AsSlice()))
}

func under(base dnsname.Name, labels ...string) dnsname.Name {
	if len(labels) == 0 {
		return base
	}
	name, err := dnsname.MustParse(strings.Join(labels, ".")).Under(base)
	if err != nil {
		panic(err)
	}
	return name
}

func (n *naive) zoneOf(name dnsname.Name) (apex dnsname.Name, ok bool) {
	for _, z := range n.apexes {
		if name.IsSubdomainOf(z) && z.Labels() >= apex.Labels() {
			apex, ok = z, true
		}
	}
	return apex, ok
}

// answers computes everything.
func (n *naive) answers() answers {
	all := make(answers)
	targets := make(map[netip.Addr]map[dnsname.Name]zone.Rank)
	point := func(addr netip.Addr, target dnsname.Name, rank zone.Rank) {
		if targets[addr] == nil {
			targets[addr] = make(map[dnsname.Name]zone.Rank)
		}
		if old, ok := targets[addr][target]; !ok || rank < old {
			targets[addr][target] = rank
		}
	}
	for base, s := range n.subtrees {
		if _, ok := n.zoneOf(base); !ok {
			continue
		}
		if s.metadata.Exists {
			all.add(base, 0, "")
		}
		for _, r := range s.records {
			all.add(under(base, r.labels...), r.typ, r.rdata)
		}
		for _, addr := range s.hosts {
			all.addHost(base, addr)
		}
		for _, p := range s.ptrs {
			if p.host {
				p.labels = []string{dnsname.DashedAddr(p.addr)}
			}
			point(p.addr, under(base, p.labels...), p.rank)
		}
	}
	for _, h := range n.hosts {
		for _, addr := range h.Addrs {
			all.addHost(h.Parent, addr)
			if h.Reverse {
				point(addr, under(h.Parent, dnsname.DashedAddr(addr)), h.Rank)
			}
		}
	}
	for addr, ranks := range targets {
		tier := slices.Min(slices.Collect(maps.Values(ranks))) | 1
		ordered := slices.SortedFunc(maps.Keys(ranks), func(a, b dnsname.Name) int {
			return cmp.Or(cmp.Compare(ranks[a], ranks[b]), a.Compare(b))
		})
		for _, target := range ordered {
			if ranks[target] <= tier {
				all.add(dnsname.Reverse(addr), dnswire.TypePTR, string(target.AppendWire(nil)))
			}
		}
	}
	for _, sets := range all {
		for t, rdata := range sets {
			if t != dnswire.TypePTR {
				slices.Sort(rdata)
			}
		}
	}
	n.addAncestors(all)
	return all
}

func (n *naive) addAncestors(all answers) {
	for _, z := range n.apexes {
		all.add(z, 0, "")
	}
	for name := range maps.Clone(all) {
		if _, ok := n.zoneOf(name); !ok {
			delete(all, name)
			continue
		}
		for _, ok := n.zoneOf(name); ok; _, ok = n.zoneOf(name) {
			all.add(name, 0, "")
			name = name.Parent()
		}
	}
}

// lookup is DB.Lookup in words: the outcome, the zone, the EDE and the records.
func (n *naive) lookup(all answers, name dnsname.Name, t dnswire.Type) string {
	apex, ok := n.zoneOf(name)
	if !ok {
		return fmt.Sprint(zone.OutOfZone)
	}
	sets, exists := all[name]
	if !exists {
		s := n.subtrees[name.Parent()]
		addr, ok := dnsname.ParseDashedAddr([]byte(name.Label()))
		if ok && s.metadata.Children == zone.Synthesized {
			made := make(answers)
			made.addHost(name.Parent(), addr)
			sets, exists = made[under(name.Parent(), dnsname.DashedAddr(addr))], true
		} else if ok && s.metadata.Children == zone.AnySpelling {
			sets, exists = all[under(name.Parent(), dnsname.DashedAddr(addr))]
		}
	}
	ede := n.ede(name, apex)
	switch {
	case !exists:
		return describe(zone.NXDomain, apex, ede, nil)
	case name == apex && t == dnswire.TypeSOA && (n.subtrees[name].metadata.EDE == nil || !n.subtrees[name].metadata.EDE.Pending):
		return describe(zone.Authority, apex, nil, nil)
	}
	for _, typ := range slices.Sorted(maps.Keys(sets)) {
		switch {
		case typ == t || t == dnswire.TypeANY:
			return describe(zone.Found, apex, nil, sets[typ])
		case typ == dnswire.TypeCNAME:
			return describe(zone.Alias, apex, nil, sets[typ])
		}
	}
	return describe(zone.NoData, apex, n.subtrees[name].metadata.EDE, nil)
}

// ede returns the nearest EDE for a denial of name.
func (n *naive) ede(name, apex dnsname.Name) *zone.EDE {
	if m := n.subtrees[name].metadata; m.EDE != nil {
		return m.EDE
	}
	for name != apex {
		m := n.subtrees[name.Parent()].metadata
		if strings.HasPrefix(name.Label(), "_") && m.Underscored != nil {
			return m.Underscored
		}
		if m.Below != nil {
			return m.Below
		}
		name = name.Parent()
	}
	return nil
}

func describe(o zone.Outcome, apex dnsname.Name, ede *zone.EDE, rdata []string) string {
	if ede != nil && ede.Pending {
		o = zone.Unanswered
	}
	var text strings.Builder
	fmt.Fprintf(&text, "outcome %d, zone %s, ede %p, records", o, apex, ede)
	for _, d := range rdata {
		fmt.Fprintf(&text, " %x", d)
	}
	return text.String()
}

func describeAnswer(a zone.Answer) string {
	if a.SOA == nil {
		return fmt.Sprint(a.Outcome)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "outcome %d, zone %s, ede %p, records", a.Outcome, a.SOA.Zone, a.EDE)
	for _, d := range a.RRset.RData() {
		fmt.Fprintf(&text, " %x", d)
	}
	return text.String()
}

// random makes changes to a few names, so that they interact.
type random struct{ *rand.Rand }

func pick[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

func some[T any](r random, most int, one func() T) (all []T) {
	for range r.IntN(most + 1) {
		all = append(all, one())
	}
	return all
}

func (r random) addr() netip.Addr {
	return netip.MustParseAddr(pick(r, "10.0.0.1", "10.0.0.2", "10.9.0.1", "192.0.2.1", "fd00::1", "fd00::1:0", "::ffff:10.0.0.1"))
}

var edes = []*zone.EDE{nil, nil, {Text: "why"}, {Text: "wait", Pending: true}}

func (r random) subtree() subtree {
	return subtree{
		metadata: zone.Metadata{
			Exists: r.IntN(4) == 0, Children: pick(r, zone.Exact, zone.AnySpelling, zone.Synthesized),
			EDE: pick(r, edes...), Below: pick(r, edes...), Underscored: pick(r, edes...),
		},
		records: some(r, 5, func() record {
			target := pick(r, "\x01a\x00", "\x01b\x00")
			if r.IntN(3) == 0 {
				return record{dnswire.TypeCNAME, target, r.labels()}
			}
			return record{dnswire.TypeSRV, "\x00\x00\x00\x64\x00\x50" + target, r.labels()}
		}),
		hosts: some(r, 3, r.addr),
		ptrs: some(r, 3, func() ptr {
			return ptr{r.addr(), zone.Tier(uint8(r.IntN(2)), pick(r, zone.First, zone.Last)), r.IntN(2) == 0, r.labels()}
		}),
	}
}

func (r random) labels() []string {
	return pick(r, nil, []string{"h"}, []string{"_x", "_y"}, []string{"_z", "_y"}, []string{"10-0-0-1"}, []string{"fd00--1"}, []string{"fd00-0--1"})
}

// change makes a change to n and returns it as input for a DB.
func (r random) change(n *naive) (c zone.Changes) {
	for _, base := range []string{"one.x.a", "two.x.a", "b.a", "three.b.a", "four.elsewhere"} {
		if r.IntN(3) > 0 {
			continue
		}
		name, s := dnsname.MustParse(base), r.subtree()
		if r.IntN(3) == 0 {
			s = subtree{}
		}
		n.subtrees[name] = s
		c.Subtrees = append(c.Subtrees, change(base, s.build))
	}
	for range r.IntN(3) {
		h := zone.Hosts{
			Parent: dnsname.MustParse(pick(r, "p.a", "p.b.a")), Source: pick(r, "s", "t"), TTL: ttl,
			Addrs: some(r, 2, r.addr), Reverse: r.IntN(2) == 0, Rank: zone.Tier(1, zone.Last),
		}
		n.hosts[[2]string{h.Parent.String(), h.Source}] = h
		c.Hosts = append(c.Hosts, h)
	}
	return c
}

// FuzzAgainstNaive compares a DB with naive after random changes: lookups, the
// list of names and the serials.
func FuzzAgainstNaive(f *testing.F) {
	for seed := range uint64(6) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := random{rand.New(rand.NewPCG(seed, 3))}
		n := &naive{subtrees: make(map[dnsname.Name]subtree), hosts: make(map[[2]string]zone.Hosts)}
		apexes := []string{"a", "b.a", "10.in-addr.arpa", [...]string{"arpa", "in-addr.arpa", "ip6.arpa"}[seed%3]}
		for _, z := range apexes {
			n.apexes = append(n.apexes, dnsname.MustParse(z))
		}
		db := newDB(t, apexes...)
		before, metadata, serials := n.answers(), n.dataMetadata(), n.serials(db)
		for range 10 {
			db.Apply(r.change(n))
			all := n.answers()
			n.checkLookups(t, db, all)
			checkEntries(t, db, all)
			for i, z := range n.apexes {
				if n.zoneDump(before, metadata, z) != n.zoneDump(all, n.dataMetadata(), z) {
					serials[i]++
				}
			}
			if got := n.serials(db); !slices.Equal(got, serials) {
				t.Fatalf("serials of %v = %v, want %v", n.apexes, got, serials)
			}
			before, metadata = all, n.dataMetadata()
		}
	})
}

func (n *naive) serials(db *zone.DB) (all []uint32) {
	for _, z := range n.apexes {
		all = append(all, lookup(db, z.String(), dnswire.TypeSOA).SOA.Serial)
	}
	return all
}

// dataMetadata returns the metadata, any change of which counts as a change of
// data.
func (n *naive) dataMetadata() map[dnsname.Name]string {
	all := make(map[dnsname.Name]string)
	for name, s := range n.subtrees {
		all[name] = string(zone.AppendMetadata(nil, &s.metadata))
	}
	return all
}

// zoneDump formats what is served of a zone in one line. Zero metadata is
// omitted.
func (n *naive) zoneDump(all answers, metadata map[dnsname.Name]string, z dnsname.Name) string {
	var lines []string
	for name, sets := range all {
		if apex, _ := n.zoneOf(name); apex == z {
			lines = append(lines, fmt.Sprint(name, sets))
		}
	}
	for name, m := range metadata {
		if apex, ok := n.zoneOf(name); ok && apex == z && m != string(zone.AppendMetadata(nil, new(zone.Metadata))) {
			lines = append(lines, fmt.Sprint(name, m))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (n *naive) checkLookups(t *testing.T, db *zone.DB, all answers) {
	t.Helper()
	asked := slices.Collect(maps.Keys(all))
	for _, name := range slices.Concat(asked, slices.Collect(maps.Keys(n.subtrees)), []dnsname.Name{dnsname.MustParse("p.a"), dnsname.Root}) {
		for _, label := range []string{"h", "_x", "_y", "x.y", "10-0-0-1", "fd00-0--1", "fd00--1", "1", "0"} {
			asked = append(asked, under(name, label))
		}
	}
	for _, name := range asked {
		for _, typ := range []dnswire.Type{dnswire.TypeA, dnswire.TypeAAAA, dnswire.TypeTXT, dnswire.TypePTR, dnswire.TypeSOA, dnswire.TypeANY} {
			if got, want := describeAnswer(lookup(db, name.String(), typ)), n.lookup(all, name, typ); got != want {
				t.Errorf("Lookup(%s, %s) = %s, want %s", name, typ, got, want)
			}
		}
	}
	checkAddresses(t, db, asked)
}

// checkAddresses checks that Addresses finds what Lookup finds, for one name
// after another.
func checkAddresses(t *testing.T, db *zone.DB, names []dnsname.Name) {
	t.Helper()
	scratch := new(zone.Scratch)
	for _, name := range names {
		a, aaaa := db.Addresses(scratch, []byte(name.WireLabels()))
		for typ, got := range map[dnswire.Type]dnswire.RRset{dnswire.TypeA: a, dnswire.TypeAAAA: aaaa} {
			want := lookup(db, name.String(), typ)
			if want.Outcome != zone.Found {
				want.RRset = dnswire.RRset{}
			}
			if got.Count != want.RRset.Count || got.Count > 0 && !got.Equal(want.RRset) {
				t.Errorf("Addresses(%s): %d %s, want those of Lookup, %d", name, got.Count, typ, want.RRset.Count)
			}
		}
	}
}

func checkEntries(t *testing.T, db *zone.DB, all answers) {
	t.Helper()
	got := make(answers)
	var last dnsname.Name
	for i, e := range db.Entries() {
		if i > 0 && e.Name.Compare(last) <= 0 {
			t.Errorf("entry %s comes behind %s", e.Name, last)
		}
		last = e.Name
		if !e.Exists {
			continue
		}
		got.add(e.Name, 0, "")
		for _, set := range e.Sets {
			for _, d := range set.RData() {
				got.add(e.Name, set.Type, string(d))
			}
		}
	}
	if diff := gocmp.Diff(all, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
