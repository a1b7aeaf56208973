package zone

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Rank orders the PTR records that several sources contribute to one address.
type Rank uint8

// Of the PTR records of one address, only those of the lowest tier are served.
// Within a tier, records with First come before records with Last.
const (
	First Rank = 0
	Last  Rank = 1
)

// Tier returns the rank of a record in tier n, from 0.
func Tier(n uint8, order Rank) Rank { return Rank(n)<<1 | order }

func (r Rank) tier() uint8 { return uint8(r >> 1) }

// pointer is one PTR record of an address. A host as target needs no more
// memory than its parent's name.
type pointer struct {
	base dnsname.Name
	ttl  uint32
	rank Rank
	host bool // the target is the base's host with this address, not the base
	// repeated is set if an earlier pointer of the same tier has the same
	// target.
	repeated bool
}

// Equal reports whether p and o are the same record with the same rank.
func (p pointer) Equal(o pointer) bool {
	p.repeated = o.repeated
	return p == o
}

// appendTarget appends the uncompressed wire form of the target of p, a pointer
// of addr.
func (p pointer) appendTarget(b []byte, addr netip.Addr) []byte {
	if p.host {
		b = appendHostLabel(b, addr)
	}
	return p.base.AppendWire(b)
}

// compare orders pointers of addr by rank, then by target.
func (p pointer) compare(o pointer, addr netip.Addr) int {
	if c := cmp.Compare(p.rank, o.rank); c != 0 {
		return c
	}
	return p.compareTarget(o, addr)
}

func (p pointer) compareTarget(o pointer, addr netip.Addr) int {
	var a, b [dnsname.MaxWire]byte
	return dnswire.CompareRData(dnswire.TypePTR, p.appendTarget(a[:0], addr), o.appendTarget(b[:0], addr))
}

// arrangePointers sorts the pointers of addr and sets repeated.
func arrangePointers(all []pointer, addr netip.Addr) {
	slices.SortFunc(all, func(p, o pointer) int { return p.compare(o, addr) })
	for len(all) > 0 {
		tier := lowestTier(all)
		markRepeated(tier, addr)
		all = all[len(tier):]
	}
}

// markRepeated sets repeated on the pointers of one tier: an equal target is a
// neighbor of the same rank, or among those of rank First.
func markRepeated(tier []pointer, addr netip.Addr) {
	first := 0
	for first < len(tier) && tier[first].rank == tier[0].rank {
		first++
	}
	for i := range tier {
		p := &tier[i]
		p.repeated = i > 0 && tier[i-1].compare(*p, addr) == 0
		if i >= first && !p.repeated {
			_, p.repeated = slices.BinarySearchFunc(tier[:first], *p, func(a, b pointer) int { return a.compareTarget(b, addr) })
		}
	}
}

// lowestTier returns the pointers that are served; all is sorted.
func lowestTier(all []pointer) []pointer {
	n := 0
	for n < len(all) && all[n].rank.tier() == all[0].rank.tier() {
		n++
	}
	return all[:n]
}

// lowestTTL returns the TTL of the RRset (RFC 2181, section 5.2).
func lowestTTL(tier []pointer) uint32 {
	ttl := tier[0].ttl
	for _, p := range tier[1:] {
		ttl = min(ttl, p.ttl)
	}
	return ttl
}

// sameAnswer reports whether the pointers a and b of addr make the same RRset.
func sameAnswer(a, b []pointer, addr netip.Addr) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	a, b = lowestTier(a), lowestTier(b)
	return lowestTTL(a) == lowestTTL(b) && slices.EqualFunc(distinct(a), distinct(b), func(p, o pointer) bool {
		return p.compareTarget(o, addr) == 0
	})
}

func distinct(tier []pointer) []pointer {
	return slices.DeleteFunc(slices.Clone(tier), func(p pointer) bool { return p.repeated })
}

// answerReverse fills a with the answer at the reverse name of an address or of
// a prefix, if it exists.
func (db *DB) answerReverse(s *Scratch, a *Answer, qname []byte, qtype dnswire.Type) (exists bool) {
	prefix, ok := dnsname.ParseReverse(qname)
	if !ok {
		return false
	}
	if !prefix.IsSingleIP() {
		if exists = db.pointers.covers(prefix); exists {
			a.Outcome = NoData
		}
		return exists
	}
	all := db.pointers.find(prefix.Addr())
	if len(all) == 0 {
		return false
	}
	a.Outcome = NoData
	if qtype == dnswire.TypePTR || qtype == dnswire.TypeANY {
		a.Outcome, a.RRset = Found, s.pointerSet(all, prefix.Addr())
	}
	return true
}

// pointerSet returns the PTR RRset of addr.
func (s *Scratch) pointerSet(all []pointer, addr netip.Addr) dnswire.RRset {
	tier := lowestTier(all)
	s.rrset.Start(dnswire.TypePTR, lowestTTL(tier))
	for _, p := range tier {
		if !p.repeated {
			s.rrset.Add(p.appendTarget(s.name[:0], addr))
		}
	}
	return s.rrset.RRset()
}

// zoneOf returns the zone that contains the reverse name of addr, or nil.
func (db *DB) zoneOf(addr netip.Addr) *zoneState {
	var buf [dnsname.MaxWire]byte
	n, _, _ := db.closestNode(dnsname.AppendReverse(buf[:0], netip.PrefixFrom(addr, addr.BitLen())))
	if n == nil {
		return nil
	}
	return n.zone
}

// comparePointers appends the changes of PTR records that replacing the subtree
// old at base by t causes.
func comparePointers(deltas []delta[pointer], base dnsname.Name, old, t *Subtree) []delta[pointer] {
	before, after := old.packedPointers(), t.packedPointers()
	sameTTL := old != nil && t != nil && old.ttl == t.ttl
	for len(before) > 0 || len(after) > 0 {
		b, c := firstPointer(before), firstPointer(after)
		order := bytes.Compare(b, c)
		switch {
		case order == 0 && sameTTL:
			before, after = before[len(b):], after[len(c):]
		case len(c) == 0 || order < 0 && len(b) > 0:
			addr, p := old.readPointer(b, base)
			deltas = append(deltas, delta[pointer]{addr, p, true})
			before = before[len(b):]
		default:
			addr, p := t.readPointer(c, base)
			deltas = append(deltas, delta[pointer]{addr, p, false})
			after = after[len(c):]
		}
	}
	return deltas
}
