package zone

import "portolan.dev/portolan/internal/dns/dnswire"

// Addresses finds the A and the AAAA RRset at the name that has the given wire
// form, as Lookup finds each; one that is not there is empty. Both are good until
// the Scratch is used again. Names directly below one that has a node cost less
// one behind another, as long as nothing changes.
func (db *DB) Addresses(s *Scratch, name []byte) (a, aaaa dnswire.RRset) {
	n, at := db.closestAgain(s, name)
	if n == nil {
		return a, aaaa
	}
	t := n.seen.Load()
	if at == 0 {
		return t.addresses(t.base())
	}
	labels := name[:at]
	if sets, exists := t.find(labels); exists {
		return t.addresses(sets)
	}
	if len(labels) != 1+int(labels[0]) {
		return a, aaaa
	}
	addr, ok := t.hostAt(s, labels)
	if !ok {
		return a, aaaa
	}
	ttl, ok := n.host(t, addr)
	if !ok {
		sets, _ := t.find(appendHostLabel(s.name[:0], addr))
		return t.addresses(sets)
	}
	if addr.Is4() {
		return s.made.Addr(addr, ttl), aaaa
	}
	return a, s.made.Addr(addr, ttl)
}

// closestAgain is closest, which is known without looking where the name is
// directly below the node found last, and too long to have one itself.
func (db *DB) closestAgain(s *Scratch, name []byte) (n *node, at int) {
	now := db.published.Load()
	if n := s.near; n != nil && s.nearAt == now {
		base := n.name.WireLabels()
		at := len(name) - len(base)
		if at > 0 && at == 1+int(name[0]) && string(name[at:]) == base && s.nearLabels >= db.depth(name).Load() {
			return n, at
		}
	}
	n, at, _ = db.closest(name)
	s.near, s.nearAt = n, now
	if n != nil {
		s.nearLabels = int32(n.name.Labels())
	}
	return n, at
}

// addresses are those among the RRsets at the given places.
func (t *Subtree) addresses(places []byte) (a, aaaa dnswire.RRset) {
	for ; len(places) > 0; places = places[placeLen:] {
		switch set := dnswire.ReadRRset(t.data[place(places):]); set.Type {
		case dnswire.TypeA:
			a = set
		case dnswire.TypeAAAA:
			aaaa = set
		case dnswire.TypeCNAME:
			return a, aaaa // as Lookup does
		}
	}
	return a, aaaa
}
