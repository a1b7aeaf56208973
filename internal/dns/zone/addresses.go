package zone

import "portolan.dev/portolan/internal/dns/dnswire"

// Addresses returns the A and the AAAA RRset at name, as two calls of Lookup
// would; an RRset that does not exist is empty. The name is in lower-case wire
// form without the root's closing zero octet. Both RRsets are valid until s is
// used again. Consecutive calls for names directly below the same node are
// cheaper, as long as the data does not change.
func (db *DB) Addresses(s *Scratch, name []byte) (a, aaaa dnswire.RRset) {
	n, at := db.closestNodeCached(s, name)
	if n == nil {
		return a, aaaa
	}
	t := n.subtree.Load()
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
	addr, ok := t.hostAddr(s, labels)
	if !ok {
		return a, aaaa
	}
	ttl, ok := n.host(t, addr)
	if !ok {
		sets, _ := t.find(appendHostLabel(s.name[:0], addr))
		return t.addresses(sets)
	}
	if addr.Is4() {
		return s.rrset.Addr(addr, ttl), aaaa
	}
	return a, s.rrset.Addr(addr, ttl)
}

// closestNodeCached is closestNode with a cache: if name is directly below the
// last node found, and no node has a name that long, the node is known without
// a search.
func (db *DB) closestNodeCached(s *Scratch, name []byte) (n *node, at int) {
	now := db.generation.Load()
	if n := s.lastNode; n != nil && s.lastGeneration == now {
		base := n.name.WireLabels()
		at := len(name) - len(base)
		if at > 0 && at == 1+int(name[0]) && string(name[at:]) == base && s.lastLabels >= db.depth(name).Load() {
			return n, at
		}
	}
	n, at, _ = db.closestNode(name)
	s.lastNode, s.lastGeneration = n, now
	if n != nil {
		s.lastLabels = int32(n.name.Labels())
	}
	return n, at
}

// addresses returns the A and AAAA RRsets among those at the given offsets.
func (t *Subtree) addresses(offsets []byte) (a, aaaa dnswire.RRset) {
	for ; len(offsets) > 0; offsets = offsets[offsetLen:] {
		switch set := dnswire.ReadRRset(t.data[readOffset(offsets):]); set.Type {
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
