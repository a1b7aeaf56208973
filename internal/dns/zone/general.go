package zone

import (
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// general is a lookup in a general zone: the name, the offsets of the closest node's
// name and of the name directly below it, and the type.
type general struct {
	qname     []byte
	at, child int
	qtype     dnswire.Type
}

// answerGeneral fills a with the answer to a lookup in a general zone, whose closest
// node is n (RFC 1034, section 4.3.2, steps 3 and 4).
func (db *DB) answerGeneral(s *Scratch, a *Answer, n *node, g general) {
	if n.refer(a, g) {
		return
	}
	var exists bool
	if g.at == 0 {
		exists = n.answer(a, g.qtype)
	} else {
		exists = n.answerBelow(s, a, g.qname[:g.at], g.qtype)
	}
	if !exists && n.zone.reverse {
		exists = db.answerReverse(s, a, g.qname, g.qtype)
	}
	if !exists {
		exists = db.answerWildcard(s, a, n, g)
	}
	if !exists {
		n.explain(a, g.qname, g.at, g.child)
	}
}

// refer fills a with a referral if n's name or a name above it is delegated. DS
// records of a delegated name are the parent's (RFC 3658, section 2.2.1).
func (n *node) refer(a *Answer, g general) (delegated bool) {
	for at := g.at; n.zone.apex != n; n = n.parent {
		if set := n.subtree.Load().baseSet(dnswire.TypeNS); set.Count > 0 && (at > 0 || g.qtype != dnswire.TypeDS) {
			a.Outcome, a.RRset, a.Cut = Referral, set, at
			delegated = true
		}
		at += 1 + int(g.qname[at])
	}
	return delegated
}

// baseSet returns the base's RRset of a type; it is empty if there is none.
func (t *Subtree) baseSet(typ dnswire.Type) dnswire.RRset {
	for offsets := t.base(); len(offsets) > 0; offsets = offsets[offsetLen:] {
		if set := dnswire.ReadRRset(t.data[readOffset(offsets):]); set.Type == typ {
			return set
		}
	}
	return dnswire.RRset{}
}

// answerWildcard fills a from the wildcard below the closest encloser of the name, if
// there is one (RFC 4592, section 3.3.1). n is the closest node. It need not exist: nodes
// are made before their data is published, and removed after it is deleted.
func (db *DB) answerWildcard(s *Scratch, a *Answer, n *node, g general) (exists bool) {
	t := n.subtree.Load()
	for g.at == 0 || !n.existsWith(t) { // the apex exists
		g.at += 1 + int(g.qname[g.at])
		n = n.parent
		t = n.subtree.Load()
	}
	for off := 1 + int(g.qname[0]); off < g.at; off += 1 + int(g.qname[off]) {
		if _, enclosed := t.find(g.qname[off:g.at]); enclosed {
			return false
		}
	}
	base := n.name.WireLabels()
	if 2+len(base) >= dnsname.MaxWire {
		return false
	}
	wildcard := db.table.Load().find(append(append(s.name[:0], 1, '*'), base...))
	return wildcard != nil && wildcard.zone == n.zone && wildcard.answer(a, g.qtype)
}
