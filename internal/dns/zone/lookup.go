package zone

import (
	"sync/atomic"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Outcome is the result of a lookup.
type Outcome uint8

// Outcomes. The zero value, Unanswered, makes the server answer SERVFAIL.
const (
	Unanswered Outcome = iota // the data is not loaded
	OutOfZone                 // no zone contains the name
	NXDomain                  // the name does not exist
	NoData                    // the name exists without records of the type
	Found                     // RRset holds the answer
	Alias                     // RRset is the CNAME record at the name
	Authority                 // the answer is SOA, the zone's start of authority
	Referral                  // the name is delegated: RRset is the NS RRset of Cut
)

// Answer is the result of a lookup. It is valid until the Scratch is used
// again.
type Answer struct {
	Outcome Outcome
	RRset   dnswire.RRset
	// Cut is the offset in the query's name of the name that is delegated.
	Cut int
	// SOA is the SOA of the zone that contains the name; nil if there is none.
	SOA *dnswire.SOA
	// EDE explains a denial; usually nil.
	EDE *EDE
	// StaleEDE is set if the answer comes from stale data.
	StaleEDE *EDE
}

// Scratch is the working memory of lookups, for one goroutine at a time. Its
// zero value is ready to use.
type Scratch struct {
	name  [dnsname.MaxWire]byte
	rrset dnswire.RRsetBuilder
	soa   dnswire.SOA

	lastNode       *node  // the last node that Addresses found
	lastGeneration uint64 // DB.generation then
	lastLabels     int32  // the number of labels of its name
}

// Lookup returns the RRset of qtype at qname, which is in lower-case wire form
// without the root's closing zero octet. For ANY it returns one RRset (RFC
// 8482, section 4.1). It takes no lock and allocates nothing.
func (db *DB) Lookup(s *Scratch, qname []byte, qtype dnswire.Type) Answer {
	for range maxAttempts {
		batches, before := db.batches.Load(), db.generation.Load()
		a := db.lookupOnce(s, qname, qtype)
		if a.Outcome != NXDomain || db.generation.Load() == before {
			return a
		}
		// The data changed during the lookup: the name may have been added
		// after it was searched and its denial published after that (see
		// Apply). Whether stale metadata was present is part of the denial,
		// too. If the name is still missing, and no second batch began, which
		// could have deleted what the first added, it was missing all the time.
		if again := db.lookupOnce(s, qname, qtype); again.Outcome != NXDomain {
			return again
		}
		if db.batches.Load() == batches {
			return a
		}
	}
	return Answer{Outcome: Unanswered}
}

// maxAttempts is how often a lookup is repeated if it denies a name while data
// changes. Only a reader that is suspended each time needs more than two
// attempts.
const maxAttempts = 8

// lookupOnce is one attempt of Lookup.
func (db *DB) lookupOnce(s *Scratch, qname []byte, qtype dnswire.Type) Answer {
	a := db.lookup(s, qname, qtype)
	if db.staleCount.Load() != 0 {
		db.applyStale(s, qname, &a)
	}
	return a
}

func (db *DB) lookup(s *Scratch, qname []byte, qtype dnswire.Type) Answer {
	n, at, child := db.closestNode(qname)
	if n == nil {
		return Answer{Outcome: OutOfZone}
	}
	a := Answer{Outcome: NXDomain, SOA: n.zone.soa.Load()}
	if n.zone.wildcards {
		db.answerWithWildcards(s, &a, n, lookup{qname: qname, at: at, child: child, qtype: qtype})
		return a
	}
	var exists bool
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

// closestNode returns the node of qname or, if it has none, of its closest
// ancestor with a node, the offset of that ancestor's name in qname, and the
// offset of the name directly below it.
func (db *DB) closestNode(qname []byte) (n *node, at, child int) {
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

// depth returns the largest number of labels that any node has had, counted
// separately for reverse names: these are long, but their nodes are few and
// near the root.
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

// answer fills a with the answer at n's name, if it exists.
func (n *node) answer(a *Answer, qtype dnswire.Type) (exists bool) {
	t := n.subtree.Load()
	if !n.existsWith(t) {
		return false
	}
	if n.zone.apex == n && qtype == dnswire.TypeSOA && !t.pending() { // data that is not loaded has no SOA
		a.Outcome = Authority
		return true
	}
	t.answer(a, t.base(), qtype)
	if a.Outcome == NoData && t != nil && t.metadata.EDE != nil {
		a.deny(NoData, t.metadata.EDE)
	}
	return true
}

// existsWith reports whether n's name exists to readers; t is n's published subtree.
func (n *node) existsWith(t *Subtree) bool {
	return n.zone.apex == n || t.hasData() || n.hosts.Load().hasData() || n.nonTerminal.Load()
}

// pending reports whether the data at t's base is not loaded yet.
func (t *Subtree) pending() bool { return t != nil && t.metadata.EDE != nil && t.metadata.EDE.Pending }

// answerBelow fills a with the answer at the name with the given labels below
// n's, if it exists.
func (n *node) answerBelow(s *Scratch, a *Answer, labels []byte, qtype dnswire.Type) (exists bool) {
	t := n.subtree.Load()
	if sets, exists := t.find(labels); exists {
		t.answer(a, sets, qtype)
		return true
	}
	return len(labels) == 1+int(labels[0]) && n.answerHost(s, a, t, labels, qtype)
}

// answer fills a from the RRsets at the given offsets.
func (t *Subtree) answer(a *Answer, offsets []byte, qtype dnswire.Type) {
	a.Outcome = NoData
	for ; len(offsets) > 0; offsets = offsets[offsetLen:] {
		set := dnswire.ReadRRset(t.data[readOffset(offsets):])
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

// deny sets the outcome and its EDE, or Unanswered if the EDE says that data is
// pending.
func (a *Answer) deny(o Outcome, ede *EDE) {
	a.Outcome, a.EDE = o, ede
	if ede.Pending {
		a.Outcome = Unanswered
	}
}

// explain denies qname with the nearest EDE between n and the zone's apex. n's
// name begins at offset at, the name below it at offset child.
func (n *node) explain(a *Answer, qname []byte, at, child int) {
	for {
		if t := n.subtree.Load(); t != nil {
			if ede := t.metadata.edeFor(qname, at, child); ede != nil {
				a.deny(NXDomain, ede)
				return
			}
		}
		if n.zone.apex == n {
			return
		}
		n, child, at = n.parent, at, at+1+int(qname[at])
	}
}
