package zone

import (
	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
)

// Outcome is how a lookup ended.
type Outcome uint8

// The outcomes. The zero value is harmless.
const (
	Unanswered Outcome = iota // the data is not loaded: SERVFAIL
	NotHere                   // the name is in none of the zones
	NXDomain                  // the name does not exist
	NoData                    // the name exists, the type does not
	Found                     // RRset holds the answer
	Alias                     // RRset is the CNAME that stands there instead
	Authority                 // SOA is the answer
)

// Answer is what a lookup found. It is good until the Scratch is used again.
type Answer struct {
	Outcome Outcome
	RRset   dnswire.RRset
	// SOA is that of the zone that the name is in; nil when it is in none.
	SOA *dnswire.SOA
	// Note says why, where somebody said so; nil for most.
	Note *Note
	// Aged says that the answer is from an earlier time, when it is.
	Aged *Note
}

// Scratch is what a lookup works in; one goroutine uses it at a time. Its zero
// value is ready.
type Scratch struct {
	name [dnsname.MaxWire + dnsname.MaxLabel]byte
	addr dnswire.SingleAddr
	soa  dnswire.SOA
}

// Lookup finds the RRset of qtype at the name that has the given wire form,
// lower-case and without the root's closing zero octet. ANY finds one RRset
// (RFC 8482, section 4.1). It takes no lock and allocates nothing.
func (db *DB) Lookup(s *Scratch, qname []byte, qtype dnswire.Type) Answer {
	a := db.lookup(s, qname, qtype)
	if db.aged.Load() != 0 {
		db.age(s, qname, &a)
	}
	return a
}

func (db *DB) lookup(s *Scratch, qname []byte, qtype dnswire.Type) Answer {
	if a, ok := db.exact(qname, qtype); ok {
		return a
	}
	denial := db.deny(s, qname, qtype)
	if denial.Outcome == NXDomain {
		// The name may have come meanwhile, and what denies it behind it: see
		// Apply.
		if a, ok := db.exact(qname, qtype); ok {
			return a
		}
	}
	return denial
}

// exact is the answer at the name, if it exists.
func (db *DB) exact(qname []byte, qtype dnswire.Type) (a Answer, exists bool) {
	n := db.table.Load().find(qname)
	if n == nil {
		return Answer{}, false
	}
	return n.answer(qtype)
}

// answer is the answer at a name, if it exists.
func (n *node) answer(qtype dnswire.Type) (a Answer, exists bool) {
	b := n.seen.Load() // before exists: see publish
	if !n.exists.Load() && (b == nil || len(b.sets) == 0) {
		return Answer{}, false
	}
	a = Answer{Outcome: NoData, SOA: n.zone.soa.Load()}
	if n.zone.apex == n && qtype == dnswire.TypeSOA {
		a.Outcome = Authority
		return a, true
	}
	if b == nil {
		return a, true
	}
	for _, set := range b.sets {
		switch {
		case set.Type == qtype || qtype == dnswire.TypeANY:
			a.Outcome, a.RRset = Found, set
			return a, true
		case set.Type == dnswire.TypeCNAME:
			a.Outcome, a.RRset = Alias, set
			return a, true
		}
	}
	if b.marks != nil && b.marks.Note != nil {
		a.deny(NoData, b.marks.Note)
	}
	return a, true
}

// deny sets the outcome, or Unanswered when the note says that there is no
// denial yet.
func (a *Answer) deny(o Outcome, note *Note) {
	a.Outcome, a.Note = o, note
	if note.Pending {
		a.Outcome = Unanswered
	}
}

// deny is the answer at a name that does not exist, unless it turns out to
// spell a child's address. It goes up from the name, to the first note and to
// the zone's apex.
func (db *DB) deny(s *Scratch, qname []byte, qtype dnswire.Type) Answer {
	t := db.table.Load()
	labels, depth := countLabels(qname), int(db.depth.Load())
	at, child := 0, 0 // where the name in hand and the one below it begin
	for ; labels > 0; labels, child, at = labels-1, at, at+1+int(qname[at]) {
		if labels > depth {
			continue
		}
		n := t.find(qname[at:])
		if n == nil {
			continue
		}
		a := Answer{Outcome: NXDomain, SOA: n.zone.soa.Load()}
		direct := at != 0 && at == 1+int(qname[0])
		if b := n.seen.Load(); b != nil && b.marks != nil {
			if direct && b.marks.Children != Exact {
				if found, ok := db.spelled(s, b.marks, qname, qtype, &a); ok {
					return found
				}
			}
			if note := b.marks.noteFor(qname, at, child); note != nil {
				a.deny(NXDomain, note)
				return a
			}
		}
		if n.zone.apex == n {
			return a
		}
	}
	return Answer{Outcome: NotHere}
}

// noteFor is the note for a denial of qname, said by the name that begins at
// the given place; child is where the name below it begins.
func (m *Marks) noteFor(qname []byte, at, child int) *Note {
	if at == 0 {
		return m.Note
	}
	if qname[child] > 0 && qname[child+1] == '_' && m.Underscored != nil {
		return m.Underscored
	}
	return m.Below
}

// spelled answers for a name directly below one whose children are addresses,
// when its first label spells one.
func (db *DB) spelled(s *Scratch, m *Marks, qname []byte, qtype dnswire.Type, denial *Answer) (Answer, bool) {
	first := 1 + int(qname[0])
	addr, ok := dnsname.ParseDashedAddr(qname[1:first])
	if !ok {
		return Answer{}, false
	}
	if m.Children == Synthesized {
		a := Answer{Outcome: NoData, SOA: denial.SOA}
		set := s.addr.Set(addr, m.ChildTTL)
		if set.Type == qtype || qtype == dnswire.TypeANY {
			a.Outcome, a.RRset = Found, set
		}
		return a, true
	}
	name := dnsname.AppendDashedAddr(s.name[:1], addr)
	name[0] = byte(len(name) - 1)
	name = append(name, qname[first:]...)
	return db.exact(name, qtype)
}

func countLabels(qname []byte) int {
	count := 0
	for off := 0; off < len(qname); off += 1 + int(qname[off]) {
		count++
	}
	return count
}
