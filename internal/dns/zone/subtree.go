package zone

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Subtree is the data of a name, its base, and of the names below it: records,
// hosts, metadata, and PTR records that point into it. It is immutable and
// packed into octets instead of one object per name, so that it takes little
// more memory than its records. A Builder builds it; nil is empty.
//
// Memory latency dominates the cost of a lookup: a Subtree is not longer than a
// cache line, and the data needed most often is at the beginning of data.
type Subtree struct {
	// data holds, in this order:
	//	- the offset of each name, 4 octets, in order of the names
	//	- names: a length, the labels below the base, the number of RRsets
	//	  and their offsets, 4 octets each; an RRset follows the first name
	//	  that has it
	//	- the addresses of hosts, in order, IPv4 first
	//	- pointers as Builder.addPointer packs them, in order
	data           []byte
	metadata       *Metadata // of the base, shared with other subtrees
	ttl            uint32
	names          uint32 // names with records, and empty non-terminals; the base only if it has records
	hosts4, hosts6 uint32
	pointers       uint32 // their offset in data
}

// emptySubtree has no data.
var emptySubtree = Subtree{metadata: new(Metadata)}

const offsetLen = 4

func readOffset(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

// hasData reports whether t makes its base exist.
func (t *Subtree) hasData() bool {
	return t != nil && (t.metadata.Exists || t.names+t.hosts4+t.hosts6 > 0)
}

func (t *Subtree) equal(o *Subtree) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.ttl == o.ttl && t.metadata.equal(o.metadata) && bytes.Equal(t.data, o.data) && t.sameLayout(o)
}

// sameData reports whether t and o give the same answers, except for stale
// marks.
func (t *Subtree) sameData(o *Subtree) bool {
	if t == nil {
		t = &emptySubtree
	}
	if o == nil {
		o = &emptySubtree
	}
	hosts := t.hosts4+t.hosts6 > 0
	return t.metadata.sameAnswers(o.metadata) && t.sameLayout(o) && (t.ttl == o.ttl || !hosts) &&
		bytes.Equal(t.data[:t.pointers], o.data[:o.pointers])
}

func (t *Subtree) sameLayout(o *Subtree) bool {
	return t.names == o.names && t.hosts4 == o.hosts4 && t.hosts6 == o.hosts6
}

// name returns name i, as labels below the base, and the offsets of its RRsets.
func (t *Subtree) name(i int) (labels, sets []byte) {
	return readName(t.data[readOffset(t.data[i*offsetLen:]):])
}

// readName reads the name at the start of b.
func readName(b []byte) (labels, sets []byte) {
	labels, b = b[1:1+b[0]], b[1+b[0]:]
	return labels, b[1 : 1+offsetLen*int(b[0])]
}

// find returns the offsets of the RRsets at the name with the given labels
// below the base.
func (t *Subtree) find(labels []byte) (sets []byte, exists bool) {
	if t == nil {
		return nil, false
	}
	low, high := 0, int(t.names)
	for low < high {
		middle := int(uint(low+high) / 2)
		b := t.data[readOffset(t.data[middle*offsetLen:]):]
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

// base returns the offsets of the base's RRsets; the base is the first name.
func (t *Subtree) base() (sets []byte) {
	if t == nil || t.names == 0 {
		return nil
	}
	if labels, sets := readName(t.data[offsetLen*t.names:]); len(labels) == 0 {
		return sets
	}
	return nil
}

// sets returns the RRsets at the given offsets.
func (t *Subtree) sets(offsets []byte) (sets []dnswire.RRset) {
	for ; len(offsets) > 0; offsets = offsets[offsetLen:] {
		sets = append(sets, dnswire.ReadRRset(t.data[readOffset(offsets):]))
	}
	return sets
}

// hostKeys returns the packed addresses of the hosts of each family.
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
	return keyAt(keys, search(keys, k.octets()), k.octets())
}

// packedPointers returns t's pointers, concatenated.
func (t *Subtree) packedPointers() []byte {
	if t == nil {
		return nil
	}
	return t.data[t.pointers:]
}

// firstPointer returns the first of packed pointers.
func firstPointer(packed []byte) []byte {
	if len(packed) == 0 {
		return nil
	}
	length := 1 + int(packed[0])
	if n := packed[length]; n != hostTarget {
		length += int(n)
	}
	return packed[:length+2]
}

// readPointer unpacks one pointer of a subtree at base.
func (t *Subtree) readPointer(packed []byte, base dnsname.Name) (addr netip.Addr, p pointer) {
	labels := 1 + int(packed[0])
	addr, _ = netip.AddrFromSlice(packed[1:labels])
	p = pointer{base: base, ttl: t.ttl, rank: Rank(packed[len(packed)-1])}
	switch n := packed[labels]; n {
	case 0:
	case hostTarget:
		p.host = true
	default:
		p.base = below(packed[labels+1:len(packed)-1], base)
	}
	return addr, p
}

// below returns the name with labels below base. It must not exceed the limit
// of names.
func below(labels []byte, base dnsname.Name) dnsname.Name {
	var buf [dnsname.MaxWire]byte
	name, _, _ := dnsname.FromWire(base.AppendWire(append(buf[:0], labels...)))
	return name
}
