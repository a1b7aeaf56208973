package dnswire

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// RRset is the records of one owner and type, ready to copy into a response
// whose question has the owner's name: each record's owner is a pointer to the
// question. Names in RDATA are not compressed. An RRset is immutable; its zero
// value is empty.
type RRset struct {
	Type  Type
	Count uint16
	wire  []byte
}

// questionPointer points to the name of the question.
const questionPointer = 0xc000 | HeaderLen

// recordFixed is the length of a record of an RRset before its RDATA: owner
// pointer, type, class, TTL, RDLENGTH.
const recordFixed = 12

// srvFixed is the length of SRV's RDATA before its target (RFC 2782).
const srvFixed = 6

// MaxRecords is the largest number of records in an RRset.
const MaxRecords = 1<<16 - 1

// maxRData is the longest RDATA of a record, in octets (RFC 1035, section 3.2.1).
const maxRData = 1<<16 - 1

// NewRRset returns an RRset of class IN with the given TTL in seconds and
// RDATA, in order. It drops RDATA beyond MaxRecords or longer than 65535
// octets, which no message can hold.
func NewRRset(t Type, ttl uint32, rdata ...[]byte) RRset {
	size := 0
	for _, d := range rdata {
		size += recordFixed + len(d)
	}
	a := RRsetBuilder{set: RRset{Type: t, wire: make([]byte, 0, size)}, ttl: ttl}
	for _, d := range rdata {
		a.Add(d)
	}
	return a.set
}

// NewChaosTXT returns a TXT RRset of class CHAOS and TTL 0, for information
// about the server (RFC 4892).
func NewChaosTXT(text string) RRset {
	return RRset{TypeTXT, 1, appendRecord(nil, TypeTXT, ClassCHAOS, 0, AppendTXT(nil, text))}
}

func appendRecord(wire []byte, t Type, class Class, ttl uint32, rdata []byte) []byte {
	var fixed [recordFixed]byte
	binary.BigEndian.PutUint16(fixed[:], questionPointer)
	binary.BigEndian.PutUint16(fixed[2:], uint16(t))
	binary.BigEndian.PutUint16(fixed[4:], uint16(class))
	binary.BigEndian.PutUint32(fixed[6:], ttl)
	binary.BigEndian.PutUint16(fixed[10:], uint16(len(rdata)))
	return append(append(wire, fixed[:]...), rdata...)
}

// AppendRRset appends the RRset that NewRRset would return, in a form that
// ReadRRset reads.
func AppendRRset(b []byte, t Type, ttl uint32, rdata ...[]byte) []byte {
	head := len(b)
	b = append(b, make([]byte, rrsetHead)...)
	a := RRsetBuilder{set: RRset{Type: t, wire: b}, ttl: ttl}
	for _, d := range rdata {
		a.Add(d)
	}
	b = a.set.wire
	binary.BigEndian.PutUint16(b[head:], uint16(t))
	binary.BigEndian.PutUint16(b[head+2:], a.set.Count)
	binary.BigEndian.PutUint32(b[head+4:], uint32(len(b)-head-rrsetHead))
	return b
}

// rrsetHead is the length of what AppendRRset writes before the records: type,
// count, length.
const rrsetHead = 8

// ReadRRset returns the RRset at the start of b, written by AppendRRset. It
// refers to b.
func ReadRRset(b []byte) RRset {
	end := rrsetHead + int(binary.BigEndian.Uint32(b[4:]))
	return RRset{
		Type:  Type(binary.BigEndian.Uint16(b)),
		Count: binary.BigEndian.Uint16(b[2:]),
		wire:  b[rrsetHead:end:end],
	}
}

// RRsetBuilder builds an RRset at query time and reuses its memory. Its zero
// value is ready to use.
type RRsetBuilder struct {
	set RRset
	ttl uint32
}

// Start begins an RRset without records; the RRset returned before becomes
// invalid. The TTL is in seconds.
func (a *RRsetBuilder) Start(t Type, ttl uint32) {
	a.set, a.ttl = RRset{Type: t, wire: a.set.wire[:0]}, ttl
}

// Add adds a record, unless there are MaxRecords or rdata is longer than 65535
// octets.
func (a *RRsetBuilder) Add(rdata []byte) {
	if a.set.Count < MaxRecords && len(rdata) <= maxRData {
		a.set.Count++
		a.set.wire = appendRecord(a.set.wire, a.set.Type, ClassIN, a.ttl, rdata)
	}
}

// RRset returns the RRset; it is valid until the next Start.
func (a *RRsetBuilder) RRset() RRset { return a.set }

// Addr returns the RRset of one A or AAAA record; the TTL is in seconds. It is
// valid until the next Start.
func (a *RRsetBuilder) Addr(addr netip.Addr, ttl uint32) RRset {
	if addr.Is4() {
		raw := addr.As4()
		a.Start(TypeA, ttl)
		a.Add(raw[:])
	} else {
		raw := addr.As16()
		a.Start(TypeAAAA, ttl)
		a.Add(raw[:])
	}
	return a.set
}

// AppendSRV appends the RDATA of an SRV record (RFC 2782); target is in
// uncompressed wire form.
func AppendSRV(b []byte, priority, weight, port uint16, target []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, priority)
	b = binary.BigEndian.AppendUint16(b, weight)
	b = binary.BigEndian.AppendUint16(b, port)
	return append(b, target...)
}

// AppendTXT appends the RDATA of a TXT record: one character-string (RFC 1035,
// section 3.3.14), cut at 255 octets.
func AppendTXT(b []byte, text string) []byte {
	text = text[:min(len(text), 255)]
	return append(append(b, byte(len(text))), text...)
}

// TTL returns the records' time to live, in seconds.
func (s RRset) TTL() uint32 {
	if s.Count == 0 {
		return 0
	}
	return binary.BigEndian.Uint32(s.wire[6:])
}

// RData returns each record's RDATA, in order; the octets belong to the RRset.
func (s RRset) RData() [][]byte {
	all := make([][]byte, 0, s.Count)
	for off := 0; off < len(s.wire); {
		end := off + recordLen(s.wire[off:])
		all = append(all, s.wire[off+recordFixed:end:end])
		off = end
	}
	return all
}

// Equal reports whether s and o have the same records in the same order.
func (s RRset) Equal(o RRset) bool { return s.Type == o.Type && bytes.Equal(s.wire, o.wire) }

// Target returns the name in the RDATA of the first record of a CNAME, NS or
// PTR RRset, in wire form without the closing zero octet; nil for other types.
func (s RRset) Target() []byte {
	if !holdsName(s.Type) || s.Count == 0 {
		return nil
	}
	return s.wire[recordFixed : recordLen(s.wire)-1]
}

// Targets yields the name in the RDATA of each record of a CNAME, NS or PTR RRset,
// in wire form without the closing zero octet; none of other types.
func (s RRset) Targets(yield func([]byte) bool) {
	if !holdsName(s.Type) {
		return
	}
	for off := 0; off < len(s.wire); off += recordLen(s.wire[off:]) {
		if !yield(s.wire[off+recordFixed : off+recordLen(s.wire[off:])-1]) {
			return
		}
	}
}

// recordLen returns the length of the RRset's record at the start of b.
func recordLen(b []byte) int {
	return recordFixed + int(binary.BigEndian.Uint16(b[10:]))
}

// start returns the offset of record number first.
func (s RRset) start(first int) int {
	if first == 0 {
		return 0
	}
	if hasOneLength(s.Type) {
		return first * recordLen(s.wire)
	}
	off := 0
	for range first {
		off += recordLen(s.wire[off:])
	}
	return off
}

// hasOneLength reports whether all RDATA of type t has the same length.
func hasOneLength(t Type) bool { return t == TypeA || t == TypeAAAA }

// CompareRData compares RDATA of type t: as octets, but names in canonical
// order (RFC 4034, section 6.1), and SRV by its target first, so that equal
// targets are neighbors. It returns a negative number, 0 or a positive number.
func CompareRData(t Type, a, b []byte) int {
	if holdsName(t) {
		x, _, errX := dnsname.FromWire(a)
		y, _, errY := dnsname.FromWire(b)
		if errX == nil && errY == nil {
			return x.Compare(y)
		}
	}
	if t == TypeSRV {
		if c := bytes.Compare(a[srvFixed:], b[srvFixed:]); c != 0 {
			return c
		}
	}
	return bytes.Compare(a, b)
}

// holdsName reports whether t's RDATA is one name that may be compressed: a
// type of RFC 1035 (RFC 3597, section 4).
func holdsName(t Type) bool { return t == TypeCNAME || t == TypeNS || t == TypePTR }

// SOA is a zone's start of authority (RFC 1035, section 3.3.13); times are in
// seconds.
type SOA struct {
	Zone, MName, RName                      dnsname.Name
	TTL                                     uint32
	Serial, Refresh, Retry, Expire, Minimum uint32
}
