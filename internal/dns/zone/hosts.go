package zone

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Hosts are addresses that one source gives a parent: for each there is a
// name directly below the parent that spells it with dashes, with its A or
// AAAA record. Several sources may give one parent the same address.
type Hosts struct {
	Parent dnsname.Name
	Source string // tells sources of one parent apart
	Addrs  []netip.Addr
	TTL    uint32 // in seconds
	// Reverse makes the addresses' reverse names point to the hosts.
	Reverse bool
	Rank    Rank
}

// hosts are those of one parent that come and go one by one. What stands in a
// Subtree comes and goes with it.
type hosts struct {
	ttls index[ttl] // of the records of each host, the lowest first

	// The writer's own.
	sources map[string]string // what each source gives, as Hosts.pack packs it
	deltas  []delta[ttl]      // by the change in hand
	touched bool              // by it
}

// holds tells whether h makes its parent exist.
func (h *hosts) holds() bool { return h != nil && !h.ttls.empty() }

// ttl is the TTL of a host's record, in seconds.
type ttl uint32

func (t ttl) Equal(o ttl) bool { return t == o }

// pack packs TTL, rank and addresses, and nothing when there are none.
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

// unpack gives what packed says of each host below parent.
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

// answerHost answers at a name directly below n whose label spells an address,
// if it exists; t is what is seen of n.
func (n *node) answerHost(s *Scratch, a *Answer, t *Subtree, label []byte, qtype dnswire.Type) (exists bool) {
	addr, ok := t.hostAt(s, label)
	if !ok {
		return false
	}
	if ttl, ok := n.host(t, addr); ok {
		a.address(s, addr, ttl, qtype)
		return true
	}
	sets, exists := t.find(appendHostLabel(s.name[:0], addr))
	if exists {
		t.answer(a, sets, qtype)
	}
	return exists
}

// hostAt is the address that the label of a host of t spells.
func (t *Subtree) hostAt(s *Scratch, label []byte) (addr netip.Addr, ok bool) {
	addr, ok = dnsname.ParseDashedAddr(label[1:])
	if !ok || t != nil && t.marks.Children != Exact {
		return addr, ok
	}
	return addr, string(appendHostLabel(s.name[:0], addr)) == string(label)
}

// host gives the TTL of the host of n with that address, if there is one; t is
// what is seen of n.
func (n *node) host(t *Subtree, addr netip.Addr) (ttl uint32, ok bool) {
	if t != nil && t.marks.Children == Synthesized {
		return t.marks.ChildTTL, true
	}
	return n.givenHost(t, addr)
}

// givenHost is host for those that were given.
func (n *node) givenHost(t *Subtree, addr netip.Addr) (ttl uint32, ok bool) {
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

// address answers at a host.
func (a *Answer) address(s *Scratch, addr netip.Addr, ttl uint32, qtype dnswire.Type) {
	a.Outcome = NoData
	if t := addrType(addr); t == qtype || qtype == dnswire.TypeANY {
		a.Outcome, a.RRset = Found, s.made.Addr(addr, ttl)
	}
}

// changeHosts shows readers what deltas make of n's hosts.
func (db *DB) changeHosts(n *node) {
	h, before := n.hosts.Load(), n.state()
	apply(&h.ttls, h.deltas, func(addr netip.Addr, old, all []ttl) {
		slices.Sort(all)
		if len(old) == 0 || len(all) == 0 || old[0] != all[0] {
			was := state{host: len(old) > 0}
			if was.host {
				was.ttl = uint32(old[0])
			}
			db.touch(n.zone, spot{n.name, addr}, was)
		}
	})
	if before.parent != h.holds() {
		db.touch(n.zone, spot{name: n.name}, before)
	}
	h.deltas, h.touched = nil, false
	n.settle()
}
