package dnswire

import (
	"bytes"
	"encoding/binary"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// OptionMarks asks a transfer to hold what a replica needs beside the zone's
// records. Its value is empty; its code is of the range for experiments (RFC
// 6891, section 9).
const OptionMetadata = OptionCode(65002)

// OpcodeNotify tells that a zone has changed (RFC 1996).
const OpcodeNotify = Opcode(dns.OpcodeNotify)

// Held is what a secondary says that it holds of a zone, in a query for IXFR
// (RFC 1995, section 3).
type IXFRBase struct {
	Serial uint32
	MName  dnsname.Name
}

// ReadHeld reads that from a query that was parsed without error; ok is false
// where it doesn't say.
func ReadIXFRBase(query []byte) (h IXFRBase, ok bool) {
	if len(query) < HeaderLen || binary.BigEndian.Uint16(query[4:]) != 1 || binary.BigEndian.Uint16(query[6:]) != 0 || binary.BigEndian.Uint16(query[8:]) == 0 {
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

// transferLen is how long the messages of a transfer become, about: compression
// pointers reach all of such a one, and it is little to hold for each peer.
const transferLen = 16 << 10

// Transfer encodes the records of a transfer into messages (RFC 5936, section
// 2.2): the first repeats the question, the others have none. The same serve all
// who ask; Address makes one an answer.
type Transfer struct {
	done  [][]byte
	buf   []byte // the message in hand
	names map[string]uint16
}

// NewTransfer begins the answer to a question for a transfer of a zone.
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

// maxTransferRecord is the longest record of a transfer, in octets: a message holds
// it beside its header, a question, and OPT and TSIG records.
const maxTransferRecord = MaxMessage - 1<<10

// Add adds the records of an owner, given in lower-case wire form without the
// root's closing zero octet. A record that no message could hold is left out.
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

// addRecord adds one record, as it is in an RRset.
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

// addName adds a name, and a pointer for as much of its end as the message has
// already.
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

// Messages are those of all that was added.
func (x *Transfer) Messages() [][]byte { return append(x.done, bytes.Clone(x.buf)) }

// Address appends a message of a transfer as the answer to q: with its ID, and
// its question as it came. Where q has an OPT record so has the first message
// (RFC 5936, section 2.2.5).
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

// TransferQuery is what an answer repeats of a query for a transfer.
type TransferQuery struct {
	ID, Flags uint16
	Question  []byte
	EDNS      bool
}

// NewNotify says that a zone has changed, and its SOA now (RFC 1996, section
// 3.7).
func NewNotify(id uint16, soa *SOA) []byte {
	x := NewTransfer(soa.Zone, TypeSOA)
	x.AddSOA(soa)
	m := x.Messages()[0]
	binary.BigEndian.PutUint16(m, id)
	binary.BigEndian.PutUint16(m[2:], uint16(OpcodeNotify)<<opcodeShift|FlagAA)
	return m
}

// AnswersNotify tells whether reply answers notify, and with which code.
func MatchNotifyReply(reply, notify []byte) (code RCode, ok bool) {
	if len(reply) < HeaderLen || !bytes.Equal(reply[:2], notify[:2]) {
		return 0, false
	}
	flags := binary.BigEndian.Uint16(reply[2:])
	return RCode(flags & 0xf), flags&FlagQR != 0 && Opcode(flags&opcodeMask>>opcodeShift) == OpcodeNotify
}

// FailTransfer is the answer SERVFAIL to a question for a transfer of zone.
func NewTransferFailure(q TransferQuery, zone dnsname.Name, t Type) []byte {
	m := AppendTransferReply(nil, NewTransfer(zone, t).Messages()[0], TransferQuery{ID: q.ID, Flags: q.Flags, Question: q.Question}, 0)
	binary.BigEndian.PutUint16(m[2:], FlagQR|q.Flags&FlagRD|uint16(ServFail))
	return m
}
