package zone

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Subtree is what stands at a name, its base, and below it: records, hosts,
// marks, and PTR records that point into it. It is immutable, and packed into
// octets rather than an object for each name, so that a subtree costs little
// more than its records. A Builder makes it; nil is nothing.
//
// A lookup waits for memory rather than for anything else: a Subtree is not
// longer than a cache line, and what most ask for stands near the beginning of
// data.
type Subtree struct {
	// data holds, one behind another:
	//   where each name begins, 4 octets for each, in order of the names
	//   names: a length, the labels below the base, the number of RRsets and, 4
	//   octets for each, where they begin; and RRsets, behind the first name
	//   that has them
	//   the addresses of hosts, in order, IPv4 first
	//   pointers, each as Builder.addPointer makes it, in order
	data           []byte
	marks          *Metadata // of the base, shared with others that have the same
	ttl            uint32
	names          uint32 // that have records or names below them, the base only with records
	hosts4, hosts6 uint32
	pointers       uint32 // where in data they begin
}

// nothing holds nothing.
var nothing = Subtree{marks: new(Metadata)}

const placeLen = 4

func place(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

// holds tells whether t makes its base exist.
func (t *Subtree) holds() bool {
	return t != nil && (t.marks.Exists || t.names+t.hosts4+t.hosts6 > 0)
}

func (t *Subtree) equal(o *Subtree) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.ttl == o.ttl && t.marks.equal(o.marks) && bytes.Equal(t.data, o.data) && t.sameLayout(o)
}

// sameData tells whether t and o make the same answers, but for their age.
func (t *Subtree) sameData(o *Subtree) bool {
	if t == nil {
		t = &nothing
	}
	if o == nil {
		o = &nothing
	}
	hosts := t.hosts4+t.hosts6 > 0
	return t.marks.sameAnswers(o.marks) && t.sameLayout(o) && (t.ttl == o.ttl || !hosts) &&
		bytes.Equal(t.data[:t.pointers], o.data[:o.pointers])
}

func (t *Subtree) sameLayout(o *Subtree) bool {
	return t.names == o.names && t.hosts4 == o.hosts4 && t.hosts6 == o.hosts6
}

// name is name number i, as labels below the base, and the places of its
// RRsets.
func (t *Subtree) name(i int) (labels, sets []byte) {
	return readName(t.data[place(t.data[i*placeLen:]):])
}

// readName reads the name at the start of b.
func readName(b []byte) (labels, sets []byte) {
	labels, b = b[1:1+b[0]], b[1+b[0]:]
	return labels, b[1 : 1+placeLen*int(b[0])]
}

// find gives the places of the RRsets of the name that the labels make below
// the base.
func (t *Subtree) find(labels []byte) (sets []byte, exists bool) {
	if t == nil {
		return nil, false
	}
	low, high := 0, int(t.names)
	for low < high {
		middle := int(uint(low+high) / 2)
		b := t.data[place(t.data[middle*placeLen:]):]
		order := bytes.Compare(b[1:1+b[0]], labels)
		if order == 0 {
			_, sets = t.name(middle)
			return sets, true
		}
		if order < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return nil, false
}

// base gives the places of the RRsets of the base, whose name is the first.
func (t *Subtree) base() (sets []byte) {
	if t == nil || t.names == 0 {
		return nil
	}
	if labels, sets := readName(t.data[placeLen*t.names:]); len(labels) == 0 {
		return sets
	}
	return nil
}

// sets are the RRsets at the given places.
func (t *Subtree) sets(places []byte) (sets []dnswire.RRset) {
	for ; len(places) > 0; places = places[placeLen:] {
		sets = append(sets, dnswire.ReadRRset(t.data[place(places):]))
	}
	return sets
}

// hostKeys are the addresses of the hosts of each family.
func (t *Subtree) hostKeys() (v4, v6 []byte) {
	b := t.data[t.pointers-16*t.hosts6-4*t.hosts4 : t.pointers]
	return b[:4*t.hosts4], b[4*t.hosts4:]
}

// hosts yields the address of each host.
func (t *Subtree) hosts(yield func(netip.Addr) bool) {
	v4, v6 := t.hostKeys()
	for ; len(v4) > 0; v4 = v4[4:] {
		if !yield(netip.AddrFrom4([4]byte(v4))) {
			return
		}
	}
	for ; len(v6) > 0; v6 = v6[16:] {
		if !yield(netip.AddrFrom16([16]byte(v6))) {
			return
		}
	}
}

func (t *Subtree) hasHost(addr netip.Addr) bool {
	if t == nil {
		return false
	}
	keys, v6 := t.hostKeys()
	if !addr.Is4() {
		keys = v6
	}
	k := keyOf(addr)
	return isAt(keys, search(keys, k.octets()), k.octets())
}

// packedPointers are t's pointers, one behind another.
func (t *Subtree) packedPointers() []byte {
	if t == nil {
		return nil
	}
	return t.data[t.pointers:]
}

// firstPointer is the first of packed pointers.
func firstPointer(packed []byte) []byte {
	if len(packed) == 0 {
		return nil
	}
	length := 1 + int(packed[0])
	if n := packed[length]; n != toHost {
		length += int(n)
	}
	return packed[:length+2]
}

// readPointer reads one packed pointer of a subtree at base.
func (t *Subtree) readPointer(packed []byte, base dnsname.Name) (addr netip.Addr, p pointer) {
	labels := 1 + int(packed[0])
	addr, _ = netip.AddrFromSlice(packed[1:labels])
	p = pointer{base: base, ttl: t.ttl, rank: Rank(packed[len(packed)-1])}
	switch n := packed[labels]; n {
	case 0:
	case toHost:
		p.host = true
	default:
		p.base = below(packed[labels+1:len(packed)-1], base)
	}
	return addr, p
}

// below is the name that labels make below base; it is known to be short
// enough.
func below(labels []byte, base dnsname.Name) dnsname.Name {
	var buf [dnsname.MaxWire]byte
	name, _, _ := dnsname.FromWire(base.AppendWire(append(buf[:0], labels...)))
	return name
}
