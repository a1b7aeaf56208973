package zone

import (
	"math"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
)

// Owner names what contributes records: any string, unique to it.
type Owner string

// Note says why a name is denied, as an Extended DNS Error (RFC 8914).
type Note struct {
	Code dnswire.EDECode
	Text string
	// Pending means that the data is not loaded: there is no denial yet, the
	// outcome is Unanswered.
	Pending bool
}

// Children says how the names directly below a name are found when their
// first label spells an address with dashes.
type Children uint8

// The ways to find a child.
const (
	Exact       Children = iota // as any name
	AnySpelling                 // the label may spell the address of a child in any form
	Synthesized                 // a child exists for each address
)

// Marks are what an owner says of a name beside its records.
type Marks struct {
	// Exists makes the name exist without records.
	Exists   bool
	Children Children
	// ChildTTL is the TTL of synthesized children, in seconds.
	ChildTTL uint32
	// Note goes with a denial at the name itself. Below goes with a denial of
	// a name below it that has no nearer note, Underscored instead where the
	// label directly below begins with an underscore (RFC 8552).
	Note, Below, Underscored *Note
	// Aged says that the name and those below it are from an earlier time; nil
	// when they are not. A nearer mark counts.
	Aged *Aged
}

// Rank orders what several owners contribute to one RRset.
type Rank uint8

// Among the records of one name those of the lowest tier are seen, the others
// are as if they were not there. First puts a record before those of its tier
// without it.
const (
	First Rank = 0
	Last  Rank = 1
)

// Tier is the rank of a record in tier n, from 0.
func Tier(n uint8, order Rank) Rank { return Rank(n)<<1 | order }

func (r Rank) tier() uint8 { return uint8(r >> 1) }

// bundle is what one owner contributes to one name, or what all of them do
// together. It is immutable.
type bundle struct {
	sets []dnswire.RRset // in order of type, none empty
	// ranks holds a rank for each record of the only set, where they differ
	// or are not the lowest; else it is nil.
	ranks []Rank
	marks *Marks // nil when nothing is said
}

func (b *bundle) equal(o *bundle) bool {
	if b == o {
		return true
	}
	if b == nil || o == nil || !slices.Equal(b.ranks, o.ranks) {
		return false
	}
	if (b.marks == nil) != (o.marks == nil) || b.marks != nil && !b.marks.equal(o.marks) {
		return false
	}
	return slices.EqualFunc(b.sets, o.sets, dnswire.RRset.Equal)
}

// holds tells whether b makes its name exist.
func (b *bundle) holds() bool {
	return b != nil && (len(b.sets) > 0 || b.marks != nil && b.marks.Exists)
}

// sameData tells whether b and o make the same records and names; notes may
// differ.
func (b *bundle) sameData(o *bundle) bool {
	if b == o {
		return true
	}
	var none bundle
	if b == nil {
		b = &none
	}
	if o == nil {
		o = &none
	}
	return b.names() == o.names() && slices.EqualFunc(b.sets, o.sets, dnswire.RRset.Equal)
}

// names is what b's marks say of names that have no records.
func (b *bundle) names() Marks {
	if b.marks == nil {
		return Marks{}
	}
	return Marks{Exists: b.marks.Exists, Children: b.marks.Children, ChildTTL: b.marks.ChildTTL}
}

func (m *Marks) equal(o *Marks) bool {
	return m.Exists == o.Exists && m.Children == o.Children && m.ChildTTL == o.ChildTTL &&
		equalNotes(m.Note, o.Note) && equalNotes(m.Below, o.Below) && equalNotes(m.Underscored, o.Underscored) && m.Aged.equal(o.Aged)
}

func equalNotes(a, b *Note) bool { return a == b || a != nil && b != nil && *a == *b }

// Contribution is all that one owner says. The zero value is nothing.
type Contribution struct{ shares []share }

// share is an owner's bundle at a name.
type share struct {
	name   dnsname.Name
	bundle *bundle
}

// Builder collects a contribution. The zero Builder is empty and ready.
type Builder struct {
	records []record
	marks   map[dnsname.Name]*Marks
}

type record struct {
	name  dnsname.Name
	typ   dnswire.Type
	rank  Rank
	ttl   uint32
	rdata []byte
}

func (a record) compare(b record) int {
	if c := strings.Compare(a.name.WireLabels(), b.name.WireLabels()); c != 0 {
		return c
	}
	if c := int(a.typ) - int(b.typ); c != 0 {
		return c
	}
	if c := int(a.rank) - int(b.rank); c != 0 {
		return c
	}
	return dnswire.CompareRData(a.typ, a.rdata, b.rdata)
}

// Add adds a record of the lowest rank, ttl in seconds. Records that are equal
// but for their TTL become one, with the lower TTL.
func (b *Builder) Add(name dnsname.Name, t dnswire.Type, ttl uint32, rdata []byte) {
	b.AddRanked(name, t, ttl, 0, rdata)
}

// AddRanked adds a record of the given rank. A name that has ranked records
// should have one type.
func (b *Builder) AddRanked(name dnsname.Name, t dnswire.Type, ttl uint32, rank Rank, rdata []byte) {
	b.records = append(b.records, record{name, t, rank, ttl, rdata})
}

// Mark gives the marks of name, to be set.
func (b *Builder) Mark(name dnsname.Name) *Marks {
	if b.marks == nil {
		b.marks = make(map[dnsname.Name]*Marks)
	}
	m := b.marks[name]
	if m == nil {
		m = new(Marks)
		b.marks[name] = m
	}
	return m
}

// Contribution is what was added. The Builder is then used up.
func (b *Builder) Contribution() Contribution {
	slices.SortFunc(b.records, record.compare)
	var c Contribution
	for rest := b.records; len(rest) > 0; {
		n := runLength(rest, func(r record) bool { return r.name == rest[0].name })
		name := rest[0].name
		made := newBundle(rest[:n])
		made.marks = b.marks[name]
		delete(b.marks, name)
		c.shares = append(c.shares, share{name, made})
		rest = rest[n:]
	}
	if len(b.marks) > 0 {
		for name, marks := range b.marks {
			c.shares = append(c.shares, share{name, &bundle{marks: marks}})
		}
		slices.SortFunc(c.shares, func(a, b share) int {
			return strings.Compare(a.name.WireLabels(), b.name.WireLabels())
		})
	}
	return c
}

func runLength(rs []record, same func(record) bool) int {
	n := 1
	for n < len(rs) && same(rs[n]) {
		n++
	}
	return n
}

// newBundle makes a bundle of the records of one name, in order of type, rank
// and RDATA. Only the lowest tier stays.
func newBundle(rs []record) *bundle {
	lowest := rs[0].rank.tier()
	for _, r := range rs {
		lowest = min(lowest, r.rank.tier())
	}
	b := new(bundle)
	for len(rs) > 0 {
		n := runLength(rs, func(r record) bool { return r.typ == rs[0].typ })
		b.addSet(rs[:n], lowest)
		rs = rs[n:]
	}
	return b
}

// addSet adds the set of the records of one type that are in the given tier.
// Of equal RDATA the first, lowest rank stays.
func (b *bundle) addSet(rs []record, tier uint8) {
	ttl := uint32(math.MaxUint32)
	var rdata [][]byte
	var ranks []Rank
	for _, r := range rs {
		if r.rank.tier() != tier {
			continue
		}
		ttl = min(ttl, r.ttl) // RFC 2181, section 5.2
		if containsRData(rdata, ranks, r) {
			continue
		}
		rdata = append(rdata, r.rdata)
		ranks = append(ranks, r.rank)
	}
	if len(rdata) == 0 {
		return
	}
	b.sets = append(b.sets, dnswire.NewRRset(rs[0].typ, ttl, rdata...))
	if slices.ContainsFunc(ranks, func(r Rank) bool { return r != 0 }) {
		b.ranks = ranks
	}
}

// containsRData tells whether r's RDATA is there already. Records come in
// order of rank and RDATA, so within the same rank only the last can be equal;
// a change of rank is rare and searched.
func containsRData(rdata [][]byte, ranks []Rank, r record) bool {
	n := len(rdata)
	if n == 0 {
		return false
	}
	if slices.Equal(rdata[n-1], r.rdata) {
		return true
	}
	if ranks[0] == r.rank {
		return false
	}
	return slices.ContainsFunc(rdata, func(d []byte) bool { return slices.Equal(d, r.rdata) })
}

// merge makes one bundle of what several owners contribute to a name.
func merge(name dnsname.Name, bundles []*bundle) *bundle {
	switch len(bundles) {
	case 0:
		return nil
	case 1:
		return bundles[0]
	}
	var rs []record
	for _, b := range bundles {
		for _, set := range b.sets {
			for i, rdata := range set.RData() {
				r := record{name: name, typ: set.Type, ttl: set.TTL(), rdata: rdata}
				if b.ranks != nil {
					r.rank = b.ranks[i]
				}
				rs = append(rs, r)
			}
		}
	}
	merged := new(bundle)
	if len(rs) > 0 {
		slices.SortFunc(rs, record.compare)
		merged = newBundle(rs)
	}
	merged.marks = mergeMarks(bundles)
	return merged
}

// mergeMarks joins marks; of notes the first one stays.
func mergeMarks(bundles []*bundle) *Marks {
	var joined *Marks
	for _, b := range bundles {
		m := b.marks
		if m == nil {
			continue
		}
		if joined == nil {
			joined = new(Marks)
			*joined = *m
			continue
		}
		joined.Exists = joined.Exists || m.Exists
		if m.Children > joined.Children {
			joined.Children, joined.ChildTTL = m.Children, m.ChildTTL
		}
		joined.Note = firstNote(joined.Note, m.Note)
		joined.Below = firstNote(joined.Below, m.Below)
		joined.Underscored = firstNote(joined.Underscored, m.Underscored)
		if joined.Aged == nil {
			joined.Aged = m.Aged
		}
	}
	return joined
}

func firstNote(a, b *Note) *Note {
	if a != nil {
		return a
	}
	return b
}
