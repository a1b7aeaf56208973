package dnswire

import (
	"bytes"
	"encoding/binary"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// OptionMetadata requests a transfer with records of zone.TypeMetadata, which a
// Portolan secondary needs. Its value is empty; its code is from the range for
// local use (RFC 6891, section 9).
const OptionMetadata = OptionCode(65002)

// OpcodeNotify announces that a zone has changed (RFC 1996).
const OpcodeNotify = Opcode(dns.OpcodeNotify)

// IXFRBase is the version of a zone that a secondary has, from its IXFR query
// (RFC 1995, section 3).
type IXFRBase struct {
	Serial uint32
	MName  dnsname.Name
}

// ReadIXFRBase parses the authority section of a query that was parsed without
// error. ok is false if it has no SOA record.
func ReadIXFRBase(query []byte) (h IXFRBase, ok bool) {
	if len(query) < HeaderLen || binary.BigEndian.Uint16(query[4:]) != 1 || binary.BigEndian.Uint16(query[6:]) != 0 ||
		binary.BigEndian.Uint16(query[8:]) == 0 {
		return IXFRBase{}, false
	}
	name, ok := plainName(query[HeaderLen:])
	if !ok {
		return IXFRBase{}, false
	}
	fixed, ok := endOfName(query, HeaderLen+name+4)
	if !ok || fixed+recordHead > len(query) || Type(binary.BigEndian.Uint16(query[fixed:])) != TypeSOA {
		return IXFRBase{}, false
	}
	end := fixed + recordHead + int(binary.BigEndian.Uint16(query[fixed+8:]))
	if end > len(query) || !soundRData(query, fixed, end) {
		return IXFRBase{}, false
	}
	var buf [dnsname.MaxWire]byte
	h.MName, _, _ = dnsname.FromWire(append(appendName(buf[:0], query, fixed+recordHead), 0))
	h.Serial = binary.BigEndian.Uint32(query[end-soaNumbers:])
	return h, true
}

// transferLen is the approximate length of a transfer's messages: compression
// pointers reach every offset, and little memory is needed per client.
const transferLen = 16 << 10

// Transfer encodes the records of a transfer into messages (RFC 5936, section
// 2.2): the first one repeats the question, the others have none. The messages
// serve all clients; AppendTransferReply adapts one to a query.
type Transfer struct {
	done  [][]byte
	buf   []byte // the current message
	names map[string]uint16
}

// NewTransfer begins the messages of a transfer of zone; t is TypeAXFR or
// TypeIXFR.
func NewTransfer(zone dnsname.Name, t Type) *Transfer {
	x := new(Transfer)
	x.begin()
	x.addName(zone.WireLabels())
	x.buf = binary.BigEndian.AppendUint16(x.buf, uint16(t))
	x.buf = binary.BigEndian.AppendUint16(x.buf, uint16(ClassIN))
	binary.BigEndian.PutUint16(x.buf[4:], 1)
	return x
}

func (x *Transfer) begin() {
	x.buf = append(make([]byte, 0, transferLen), make([]byte, HeaderLen)...)
	binary.BigEndian.PutUint16(x.buf[2:], FlagQR|FlagAA)
	x.names = make(map[string]uint16)
}

// AddSOA adds an SOA record.
func (x *Transfer) AddSOA(soa *SOA) {
	x.Add([]byte(soa.Zone.WireLabels()), NewRRset(TypeSOA, soa.TTL, soa.AppendRData(nil)))
}

// maxTransferRecord is the longest record of a transfer, in octets: it leaves
// room for the header, a question, and OPT and TSIG records.
const maxTransferRecord = MaxMessage - 1<<10

// Add adds an RRset; owner is in lower-case wire form without the root's
// closing zero octet. A record that no message can hold is omitted.
func (x *Transfer) Add(owner []byte, set RRset) {
	for wire := set.wire; len(wire) > 0; {
		n := recordLen(wire)
		if len(owner)+n > maxTransferRecord {
			wire = wire[n:]
			continue
		}
		if len(x.buf)+len(owner)+n > transferLen && binary.BigEndian.Uint16(x.buf[6:]) > 0 {
			x.done = append(x.done, bytes.Clone(x.buf))
			x.begin()
		}
		x.addRecord(owner, wire[:n])
		wire = wire[n:]
	}
}

// addRecord adds one record in the form that it has in an RRset.
func (x *Transfer) addRecord(owner, record []byte) {
	x.addName(string(owner))
	x.buf = append(x.buf, record[2:recordFixed]...) // type, class, TTL, length
	start := len(x.buf)
	rdata := record[recordFixed:]
	if holdsName(Type(binary.BigEndian.Uint16(record[2:]))) {
		x.addName(string(rdata[:len(rdata)-1]))
	} else {
		x.buf = append(x.buf, rdata...)
	}
	binary.BigEndian.PutUint16(x.buf[start-2:], uint16(len(x.buf)-start))
	binary.BigEndian.PutUint16(x.buf[6:], binary.BigEndian.Uint16(x.buf[6:])+1)
}

// addName adds a name, compressed if the message already contains a suffix of
// it.
func (x *Transfer) addName(labels string) {
	for labels != "" {
		if at, ok := x.names[labels]; ok {
			x.buf = binary.BigEndian.AppendUint16(x.buf, 0xc000|at)
			return
		}
		if len(x.buf) <= lastPointable {
			x.names[labels] = uint16(len(x.buf))
		}
		n := 1 + int(labels[0])
		x.buf, labels = append(x.buf, labels[:n]...), labels[n:]
	}
	x.buf = append(x.buf, 0)
}

// Messages returns the messages with all records added.
func (x *Transfer) Messages() [][]byte { return append(x.done, bytes.Clone(x.buf)) }

// AppendTransferReply appends message as a reply to q, with its ID and its
// question as received. If q has an OPT record, the first message of the
// transfer gets one (RFC 5936, section 2.2.5).
func AppendTransferReply(b, message []byte, q TransferQuery, udpSize uint16) []byte {
	b = append(b, message...)
	binary.BigEndian.PutUint16(b, q.ID)
	binary.BigEndian.PutUint16(b[2:], FlagQR|FlagAA|q.Flags&FlagRD)
	if binary.BigEndian.Uint16(b[4:]) == 0 {
		return b
	}
	copy(b[HeaderLen:], q.Question)
	if q.EDNS {
		b = append(b, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(TypeOPT))
		b = binary.BigEndian.AppendUint16(b, udpSize)
		b = append(b, 0, 0, 0, 0, 0, 0)
		binary.BigEndian.PutUint16(b[10:], binary.BigEndian.Uint16(b[10:])+1)
	}
	return b
}

// TransferQuery is what the reply to a transfer query repeats.
type TransferQuery struct {
	ID, Flags uint16
	Question  []byte
	EDNS      bool
}

// NewNotify returns a NOTIFY message with the zone's new SOA (RFC 1996, section
// 3.7).
func NewNotify(id uint16, soa *SOA) []byte {
	x := NewTransfer(soa.Zone, TypeSOA)
	x.AddSOA(soa)
	m := x.Messages()[0]
	binary.BigEndian.PutUint16(m, id)
	binary.BigEndian.PutUint16(m[2:], uint16(OpcodeNotify)<<opcodeShift|FlagAA)
	return m
}

// MatchNotifyReply reports whether reply answers notify, and with which code.
func MatchNotifyReply(reply, notify []byte) (code RCode, ok bool) {
	if len(reply) < HeaderLen || !bytes.Equal(reply[:2], notify[:2]) {
		return 0, false
	}
	flags := binary.BigEndian.Uint16(reply[2:])
	return RCode(flags & 0xf), flags&FlagQR != 0 && Opcode(flags&opcodeMask>>opcodeShift) == OpcodeNotify
}

// NewTransferFailure returns a SERVFAIL reply to a query for a transfer of
// zone.
func NewTransferFailure(q TransferQuery, zone dnsname.Name, t Type) []byte {
	m := AppendTransferReply(nil, NewTransfer(zone, t).Messages()[0],
		TransferQuery{ID: q.ID, Flags: q.Flags, Question: q.Question}, 0)
	binary.BigEndian.PutUint16(m[2:], FlagQR|q.Flags&FlagRD|uint16(ServFail))
	return m
}
