package zone

import (
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// lookup is a lookup in a zone that allows wildcards: the name, the offsets of the closest
// node's name and of the name directly below it, and the type.
type lookup struct {
	qname     []byte
	at, child int
	qtype     dnswire.Type
}

// answerWithWildcards fills a with the answer to a lookup in a zone that allows wildcards,
// whose closest node is n (RFC 1034, section 4.3.2, steps 3 and 4).
func (db *DB) answerWithWildcards(s *Scratch, a *Answer, n *node, l lookup) {
	if n.refer(a, l) {
		return
	}
	var exists bool
	if l.at == 0 {
		exists = n.answer(a, l.qtype)
	} else {
		exists = n.answerBelow(s, a, l.qname[:l.at], l.qtype)
	}
	if !exists && n.zone.reverse {
		exists = db.answerReverse(s, a, l.qname, l.qtype)
	}
	if !exists {
		exists = db.answerWildcard(s, a, n, l)
	}
	if !exists {
		n.explain(a, l.qname, l.at, l.child)
	}
}

// refer fills a with a referral if n's name or a name above it is delegated. DS
// records of a delegated name are the parent's (RFC 3658, section 2.2.1).
func (n *node) refer(a *Answer, l lookup) (delegated bool) {
	for at := l.at; n.zone.apex != n; n = n.parent {
		if set := n.subtree.Load().baseSet(dnswire.TypeNS); set.Count > 0 && (at > 0 || l.qtype != dnswire.TypeDS) {
			a.Outcome, a.RRset, a.Cut = Referral, set, at
			delegated = true
		}
		at += 1 + int(l.qname[at])
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
func (db *DB) answerWildcard(s *Scratch, a *Answer, n *node, l lookup) (exists bool) {
	t := n.subtree.Load()
	for l.at == 0 || !n.existsWith(t) { // the apex exists
		l.at += 1 + int(l.qname[l.at])
		n = n.parent
		t = n.subtree.Load()
	}
	for off := 1 + int(l.qname[0]); off < l.at; off += 1 + int(l.qname[off]) {
		if _, enclosed := t.find(l.qname[off:l.at]); enclosed {
			return false
		}
	}
	base := n.name.WireLabels()
	if 2+len(base) >= dnsname.MaxWire {
		return false
	}
	wildcard := db.table.Load().find(append(append(s.name[:0], 1, '*'), base...))
	return wildcard != nil && wildcard.zone == n.zone && wildcard.answer(a, l.qtype)
}
