package zone

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Entry is one name and its published data.
type Entry struct {
	Name   dnsname.Name
	Zone   dnsname.Name // the zone that contains the name
	Exists bool
	// SOA is the zone's SOA if the name is its apex, otherwise nil.
	SOA      *dnswire.SOA
	Sets     []dnswire.RRset
	Metadata Metadata
}

// Entries returns every name in canonical order, as of one moment. It blocks
// writers but not readers.
func (db *DB) Entries() []Entry {
	entries := db.unsorted()
	slices.SortFunc(entries, func(a, b Entry) int { return a.Name.Compare(b.Name) })
	return entries
}

func (db *DB) unsorted() []Entry {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := db.table.Load()
	entries := make([]Entry, 0, t.nodes)
	for n := range t.all {
		entries = n.appendEntries(entries)
	}
	return db.appendReverse(entries)
}

// appendEntries appends the entry of n and those of the names in its subtree
// and of its hosts.
func (n *node) appendEntries(entries []Entry) []Entry {
	apex := n.zone.apex
	e := Entry{Name: n.name, Zone: apex.name, Exists: n.exists}
	if apex == n {
		e.SOA = n.zone.soa.Load()
	}
	add := func(labels []byte, sets ...dnswire.RRset) {
		entries = append(entries, Entry{Name: below(labels, n.name), Zone: apex.name, Exists: true, Sets: sets})
	}
	addHost := func(addr netip.Addr, ttl uint32) {
		add(appendHostLabel(nil, addr), new(dnswire.RRsetBuilder).Addr(addr, ttl))
	}
	if t := n.subtree.Load(); t != nil {
		e.Sets, e.Metadata = t.sets(t.base()), *t.metadata
		for i := range int(t.names) {
			if labels, sets := t.name(i); len(labels) > 0 {
				add(labels, t.sets(sets)...)
			}
		}
		for addr := range t.hosts {
			addHost(addr, t.ttl)
		}
	}
	if h := n.hosts.Load(); h != nil {
		for addr, ttls := range h.ttls.all {
			addHost(addr, uint32(ttls[0]))
		}
	}
	return append(entries, e)
}

// appendReverse appends the entries of addresses' reverse names and of the
// names above them that have no node.
func (db *DB) appendReverse(entries []Entry) []Entry {
	var last netip.Addr
	for addr, pointers := range db.pointers.all {
		sets := []dnswire.RRset{new(Scratch).pointerSet(pointers, addr)}
		step := 4
		if addr.Is4() {
			step = 8
		}
		for bits := addr.BitLen(); bits >= 0; bits -= step {
			prefix, _ := addr.Prefix(bits)
			n, at, _ := db.closestNode(dnsname.AppendReverse(nil, prefix))
			if n == nil || at == 0 || prefix.Contains(last) {
				break
			}
			name, _, _ := dnsname.FromWire(append(dnsname.AppendReverse(nil, prefix), 0))
			entries = append(entries, Entry{Name: name, Zone: n.zone.apex.name, Exists: true, Sets: sets})
			sets = nil
		}
		last = addr
	}
	return entries
}
