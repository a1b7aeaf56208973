package zone

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Hosts are the addresses that one source contributes to a parent: each makes a
// name directly below the parent that spells the address with dashes, with its
// A or AAAA record. Several sources may contribute the same address.
type Hosts struct {
	Parent dnsname.Name
	Source string // identifies the source among those of the parent
	Addrs  []netip.Addr
	TTL    uint32 // in seconds
	// Reverse adds PTR records from the addresses to the hosts.
	Reverse bool
	Rank    Rank
}

// hosts are the hosts of one parent that change one by one. Hosts in a Subtree
// change with the subtree.
type hosts struct {
	ttls index[ttl] // TTLs of each host, lowest first; one for each source

	// Used by the writer only.
	sources map[string]string // what each source gives, as Hosts.pack packs it
	deltas  []delta[ttl]      // of the change in progress
	changed bool              // by the change in progress
}

// hasData reports whether h makes its parent exist.
func (h *hosts) hasData() bool { return h != nil && !h.ttls.empty() }

// ttl is the TTL of a host's record, in seconds.
type ttl uint32

func (t ttl) Equal(o ttl) bool { return t == o }

// pack packs TTL, rank and addresses. It returns "" if there are no addresses.
func (h *Hosts) pack() string {
	if len(h.Addrs) == 0 {
		return ""
	}
	var buf [64]byte
	b := binary.BigEndian.AppendUint32(buf[:0], h.TTL)
	b = append(b, 0, byte(h.Rank))
	if h.Reverse {
		b[4] = 1
	}
	for _, addr := range h.Addrs {
		if hostFits(h.Parent, addr) {
			k := keyOf(addr)
			b = append(append(b, byte(k.length)), k.octets()...)
		}
	}
	return string(b)
}

// unpack calls each with every host that packed holds below parent.
func unpack(packed string, parent dnsname.Name, each func(netip.Addr, ttl, *pointer)) {
	if packed == "" {
		return
	}
	b := []byte(packed)
	p := pointer{base: parent, ttl: binary.BigEndian.Uint32(b), rank: Rank(b[5]), host: true}
	target := &p
	if b[4] == 0 {
		target = nil
	}
	for b = b[6:]; len(b) > 0; b = b[1+b[0]:] {
		addr, _ := netip.AddrFromSlice(b[1 : 1+b[0]])
		each(addr, ttl(p.ttl), target)
	}
}

// answerHost fills a with the answer at a name directly below n whose label
// spells an address, if it exists; t is n's published subtree.
func (n *node) answerHost(s *Scratch, a *Answer, t *Subtree, label []byte, qtype dnswire.Type) (exists bool) {
	addr, ok := t.hostAddr(s, label)
	if !ok {
		return false
	}
	if ttl, ok := n.host(t, addr); ok {
		a.setAddress(s, addr, ttl, qtype)
		return true
	}
	sets, exists := t.find(appendHostLabel(s.name[:0], addr))
	if exists {
		t.answer(a, sets, qtype)
	}
	return exists
}

// hostAddr returns the address that the label of a host spells.
func (t *Subtree) hostAddr(s *Scratch, label []byte) (addr netip.Addr, ok bool) {
	addr, ok = dnsname.ParseDashedAddr(label[1:])
	if !ok || t != nil && t.metadata.Children != Exact {
		return addr, ok
	}
	return addr, string(appendHostLabel(s.name[:0], addr)) == string(label)
}

// host returns the TTL of the host of n with that address, if it exists; t is
// n's published subtree.
func (n *node) host(t *Subtree, addr netip.Addr) (ttl uint32, ok bool) {
	if t != nil && t.metadata.Children == Synthesized {
		return t.metadata.ChildTTL, true
	}
	return n.storedHost(t, addr)
}

// storedHost is host without synthesized hosts.
func (n *node) storedHost(t *Subtree, addr netip.Addr) (ttl uint32, ok bool) {
	if t.hasHost(addr) {
		return t.ttl, true
	}
	if h := n.hosts.Load(); h != nil {
		if ttls := h.ttls.find(addr); len(ttls) > 0 {
			return uint32(ttls[0]), true
		}
	}
	return 0, false
}

// setAddress fills a with the address record of a host.
func (a *Answer) setAddress(s *Scratch, addr netip.Addr, ttl uint32, qtype dnswire.Type) {
	a.Outcome = NoData
	if t := addrType(addr); t == qtype || qtype == dnswire.TypeANY {
		a.Outcome, a.RRset = Found, s.rrset.Addr(addr, ttl)
	}
}

// publishHosts applies the collected deltas to n's hosts.
func (db *DB) publishHosts(n *node) {
	h, before := n.hosts.Load(), n.state()
	applyDeltas(&h.ttls, h.deltas, func(addr netip.Addr, old, all []ttl) {
		slices.Sort(all)
		if len(old) == 0 || len(all) == 0 || old[0] != all[0] {
			was := state{host: len(old) > 0}
			if was.host {
				was.ttl = uint32(old[0])
			}
			db.recordChange(n.zone, changeKey{n.name, addr}, was)
		}
	})
	if before.parent != h.hasData() {
		db.recordChange(n.zone, changeKey{name: n.name}, before)
	}
	h.deltas, h.changed = nil, false
	n.data = n.hasData()
	db.updateExists(n)
}
