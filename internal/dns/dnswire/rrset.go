package dnswire

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// RRset is the records of one owner, type and TTL, ready to be copied into a
// response whose question asks for their owner: each record's owner name is a
// pointer to the question's. Names in RDATA are not compressed. An RRset is
// immutable; its zero value is empty.
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

// MaxRecords is how many records an RRset holds at most.
const MaxRecords = 1<<16 - 1

// maxRData is the longest RDATA of a record, in octets (RFC 1035, section 3.2.1).
const maxRData = 1<<16 - 1

// NewRRset makes an RRset of class IN, ttl in seconds, of the given RDATA, in
// their order. RDATA beyond MaxRecords is dropped, and RDATA of more than 65535
// octets: no message could hold it.
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

// NewChaosTXT makes a TXT RRset of class CHAOS and TTL 0, which tells about the
// server itself (RFC 4892).
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

// AppendRRset appends the RRset that NewRRset makes of the same, in a form
// that ReadRRset reads.
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

// ReadRRset is the RRset at the start of b, written there by AppendRRset. Its
// octets stay b's.
func ReadRRset(b []byte) RRset {
	end := rrsetHead + int(binary.BigEndian.Uint32(b[4:]))
	return RRset{
		Type:  Type(binary.BigEndian.Uint16(b)),
		Count: binary.BigEndian.Uint16(b[2:]),
		wire:  b[rrsetHead:end:end],
	}
}

// Assembly is an RRset put together while it is asked for, in memory that is
// used again. Its zero value is ready.
type RRsetBuilder struct {
	set RRset
	ttl uint32
}

// Start begins an RRset without records; what RRset gave before is no longer
// good.
func (a *RRsetBuilder) Start(t Type, ttl uint32) {
	a.set, a.ttl = RRset{Type: t, wire: a.set.wire[:0]}, ttl
}

// Add adds a record, unless there are MaxRecords, or its RDATA is longer than 65535
// octets.
func (a *RRsetBuilder) Add(rdata []byte) {
	if a.set.Count < MaxRecords && len(rdata) <= maxRData {
		a.set.Count++
		a.set.wire = appendRecord(a.set.wire, a.set.Type, ClassIN, a.ttl, rdata)
	}
}

// RRset is what was put together; it is good until the next Start.
func (a *RRsetBuilder) RRset() RRset { return a.set }

// Addr is the RRset of one address record, ttl in seconds; its type follows
// addr's family. It is good until the next Start.
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

// AppendSRV appends SRV's RDATA (RFC 2782); target is a name in uncompressed
// wire form.
func AppendSRV(b []byte, priority, weight, port uint16, target []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, priority)
	b = binary.BigEndian.AppendUint16(b, weight)
	b = binary.BigEndian.AppendUint16(b, port)
	return append(b, target...)
}

// AppendTXT appends TXT's RDATA: one character-string (RFC 1035, section
// 3.3.14), cut at 255 octets.
func AppendTXT(b []byte, text string) []byte {
	text = text[:min(len(text), 255)]
	return append(append(b, byte(len(text))), text...)
}

// TTL is the records' time to live, in seconds.
func (s RRset) TTL() uint32 {
	if s.Count == 0 {
		return 0
	}
	return binary.BigEndian.Uint32(s.wire[6:])
}

// RData lists each record's RDATA, in order; the octets are the RRset's own.
func (s RRset) RData() [][]byte {
	all := make([][]byte, 0, s.Count)
	for off := 0; off < len(s.wire); {
		end := off + recordLen(s.wire[off:])
		all = append(all, s.wire[off+recordFixed:end:end])
		off = end
	}
	return all
}

// Equal tells whether s and o hold the same records in the same order.
func (s RRset) Equal(o RRset) bool { return s.Type == o.Type && bytes.Equal(s.wire, o.wire) }

// Target is the name in the RDATA of a CNAME, NS or PTR RRset's first record,
// in wire form without the closing zero octet; nil for other types.
func (s RRset) Target() []byte {
	if !holdsName(s.Type) || s.Count == 0 {
		return nil
	}
	return s.wire[recordFixed : recordLen(s.wire)-1]
}

// recordLen is the length of the record at the start of b, which is one of an
// RRset's.
func recordLen(b []byte) int {
	return recordFixed + int(binary.BigEndian.Uint16(b[10:]))
}

// start is where the record number first begins.
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

// hasOneLength tells whether all RDATA of type t is equally long.
func hasOneLength(t Type) bool { return t == TypeA || t == TypeAAAA }

// CompareRData orders the RDATA of records of type t: as octets, but names
// canonically (RFC 4034, section 6.1), and SRV by its target first, so that
// equal targets are neighbours.
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

// holdsName tells whether t's RDATA is one name that may be compressed: the
// types of RFC 1035 (RFC 3597, section 4).
func holdsName(t Type) bool { return t == TypeCNAME || t == TypeNS || t == TypePTR }

// SOA is a zone's start of authority (RFC 1035, section 3.3.13); times are in
// seconds.
type SOA struct {
	Zone, MName, RName                      dnsname.Name
	TTL                                     uint32
	Serial, Refresh, Retry, Expire, Minimum uint32
}
