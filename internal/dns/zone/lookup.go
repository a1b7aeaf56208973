package zone

import (
	"sync/atomic"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Outcome is how a lookup ended.
type Outcome uint8

// The outcomes. The zero value is harmless.
const (
	Unanswered Outcome = iota // the data is not loaded: SERVFAIL
	OutOfZone                 // the name is in none of the zones
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
	EDE *EDE
	// Aged says that the answer is from an earlier time, when it is.
	StaleEDE *EDE
}

// Scratch is what a lookup works in; one goroutine uses it at a time. Its zero
// value is ready.
type Scratch struct {
	name [dnsname.MaxWire]byte
	made dnswire.RRsetBuilder
	soa  dnswire.SOA

	near       *node  // found last by Addresses
	nearAt     uint64 // how much was published then
	nearLabels int32  // of its name
}

// Lookup finds the RRset of qtype at the name that has the given wire form,
// lower-case and without the root's closing zero octet. ANY finds one RRset
// (RFC 8482, section 4.1). It takes no lock and allocates nothing.
func (db *DB) Lookup(s *Scratch, qname []byte, qtype dnswire.Type) Answer {
	for range maxLooks {
		before := db.published.Load()
		a := db.look(s, qname, qtype)
		if a.Outcome != NXDomain || db.published.Load() == before {
			return a
		}
		// The name may have come meanwhile, and what denies it behind it: see
		// Apply. That a mark of age was there, or not, is part of the denial.
	}
	return Answer{Outcome: Unanswered}
}

// maxLooks is how often a lookup is tried in which a name seems to be denied
// while something changes. More than two are needed only by a reader that is held
// up each time.
const maxLooks = 8

// look is one attempt.
func (db *DB) look(s *Scratch, qname []byte, qtype dnswire.Type) Answer {
	a := db.lookup(s, qname, qtype)
	if db.aged.Load() != 0 {
		db.age(s, qname, &a)
	}
	return a
}

func (db *DB) lookup(s *Scratch, qname []byte, qtype dnswire.Type) Answer {
	n, at, child := db.closest(qname)
	if n == nil {
		return Answer{Outcome: OutOfZone}
	}
	a := Answer{Outcome: NXDomain, SOA: n.zone.soa.Load()}
	exists := false
	if at == 0 {
		exists = n.answer(&a, qtype)
	} else {
		exists = n.answerBelow(s, &a, qname[:at], qtype)
	}
	if !exists && n.zone.reverse {
		exists = db.answerReverse(s, &a, qname, qtype)
	}
	if !exists {
		n.explain(&a, qname, at, child)
	}
	return a
}

// closest finds the node of qname or, where there is none, of its closest
// ancestor that has one: where in qname that begins, and where the name
// directly below it does.
func (db *DB) closest(qname []byte) (n *node, at, child int) {
	t, depth := db.table.Load(), int(db.depth(qname).Load())
	for labels := countLabels(qname); labels > 0; labels-- {
		if labels <= depth {
			if n := t.find(qname[at:]); n != nil {
				return n, at, child
			}
		}
		child, at = at, at+1+int(qname[at])
	}
	return nil, 0, 0
}

// depth is how many labels the longest name of a node ever had, among reverse
// names or others: the one are long, and their nodes few and high up.
func (db *DB) depth(name []byte) *atomic.Int32 {
	const arpa = "\x04arpa"
	if n := len(name) - len(arpa); n >= 0 && string(name[n:]) == arpa {
		return &db.depths[1]
	}
	return &db.depths[0]
}

func countLabels(qname []byte) int {
	count := 0
	for off := 0; off < len(qname); off += 1 + int(qname[off]) {
		count++
	}
	return count
}

// answer answers at n's name, if it exists.
func (n *node) answer(a *Answer, qtype dnswire.Type) (exists bool) {
	t, apex := n.seen.Load(), n.zone.apex == n
	if !apex && !t.holds() && !n.hosts.Load().holds() && !n.nonTerminal.Load() {
		return false
	}
	if apex && qtype == dnswire.TypeSOA && !t.pending() { // what is not loaded has none
		a.Outcome = Authority
		return true
	}
	t.answer(a, t.base(), qtype)
	if a.Outcome == NoData && t != nil && t.marks.EDE != nil {
		a.deny(NoData, t.marks.EDE)
	}
	return true
}

// pending tells whether nothing is known of t's base yet.
func (t *Subtree) pending() bool { return t != nil && t.marks.EDE != nil && t.marks.EDE.Pending }

// answerBelow answers at the name that labels make below n's, if it exists.
func (n *node) answerBelow(s *Scratch, a *Answer, labels []byte, qtype dnswire.Type) (exists bool) {
	t := n.seen.Load()
	if sets, exists := t.find(labels); exists {
		t.answer(a, sets, qtype)
		return true
	}
	return len(labels) == 1+int(labels[0]) && n.answerHost(s, a, t, labels, qtype)
}

// answer answers from the RRsets at the given places.
func (t *Subtree) answer(a *Answer, places []byte, qtype dnswire.Type) {
	a.Outcome = NoData
	for ; len(places) > 0; places = places[placeLen:] {
		set := dnswire.ReadRRset(t.data[place(places):])
		switch {
		case set.Type == qtype || qtype == dnswire.TypeANY:
			a.Outcome, a.RRset = Found, set
			return
		case set.Type == dnswire.TypeCNAME:
			a.Outcome, a.RRset = Alias, set
			return
		}
	}
}

// deny sets the outcome, or Unanswered when the note says that there is no
// denial yet.
func (a *Answer) deny(o Outcome, note *EDE) {
	a.Outcome, a.EDE = o, note
	if note.Pending {
		a.Outcome = Unanswered
	}
}

// explain denies qname with the nearest note, going up from n to the zone's
// apex; n's name begins at the given place, the one below it at child.
func (n *node) explain(a *Answer, qname []byte, at, child int) {
	for {
		if t := n.seen.Load(); t != nil {
			if note := t.marks.noteFor(qname, at, child); note != nil {
				a.deny(NXDomain, note)
				return
			}
		}
		if n.zone.apex == n {
			return
		}
		n, child, at = n.parent, at, at+1+int(qname[at])
	}
}
