package dnswire

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"portolan.dev/portolan/internal/dnsname"
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

// NewRRset makes an RRset of class IN, ttl in seconds, of the given RDATA, in
// their order. RDATA beyond MaxRecords is dropped: no message could hold it.
func NewRRset(t Type, ttl uint32, rdata ...[]byte) RRset {
	rdata = rdata[:min(len(rdata), MaxRecords)]
	size := 0
	for _, d := range rdata {
		size += recordFixed + len(d)
	}
	wire := make([]byte, 0, size)
	for _, d := range rdata {
		wire = appendRecord(wire, t, ClassIN, ttl, d)
	}
	return RRset{Type: t, Count: uint16(len(rdata)), wire: wire}
}

// NewChaosTXT makes a TXT RRset of class CHAOS and TTL 0, which tells about the
// server itself (RFC 4892).
func NewChaosTXT(text string) RRset {
	return RRset{TypeTXT, 1, appendRecord(nil, TypeTXT, ClassCHAOS, 0, AppendTXT(nil, text))}
}

func appendRecord(wire []byte, t Type, class Class, ttl uint32, rdata []byte) []byte {
	wire = binary.BigEndian.AppendUint16(wire, questionPointer)
	wire = binary.BigEndian.AppendUint16(wire, uint16(t))
	wire = binary.BigEndian.AppendUint16(wire, uint16(class))
	wire = binary.BigEndian.AppendUint32(wire, ttl)
	wire = binary.BigEndian.AppendUint16(wire, uint16(len(rdata)))
	return append(wire, rdata...)
}

// SingleAddr is an RRset of one address record in an array of its own, for
// answers made up while they are asked. It is good until the next Set.
type SingleAddr struct{ wire [recordFixed + 16]byte }

// Set makes the RRset of addr, ttl in seconds; its type follows addr's family.
func (s *SingleAddr) Set(addr netip.Addr, ttl uint32) RRset {
	var raw [16]byte
	if addr.Is4() {
		v4 := addr.As4()
		copy(raw[:], v4[:])
		return RRset{TypeA, 1, appendRecord(s.wire[:0], TypeA, ClassIN, ttl, raw[:4])}
	}
	raw = addr.As16()
	return RRset{TypeAAAA, 1, appendRecord(s.wire[:0], TypeAAAA, ClassIN, ttl, raw[:])}
}

// AppendSRV appends SRV's RDATA (RFC 2782), the target uncompressed.
func AppendSRV(b []byte, priority, weight, port uint16, target dnsname.Name) []byte {
	b = binary.BigEndian.AppendUint16(b, priority)
	b = binary.BigEndian.AppendUint16(b, weight)
	b = binary.BigEndian.AppendUint16(b, port)
	return target.AppendWire(b)
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
	if s.Type == TypeA || s.Type == TypeAAAA {
		return first * recordLen(s.wire)
	}
	off := 0
	for range first {
		off += recordLen(s.wire[off:])
	}
	return off
}

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
