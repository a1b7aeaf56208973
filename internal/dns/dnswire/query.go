package dnswire

import (
	"encoding/binary"
	"errors"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// Errors of ParseHeader and ParseBody. They carry no detail, so that malformed
// packets cost no allocation.
var (
	ErrShort     = errors.New("message shorter than its header")
	ErrMalformed = errors.New("malformed message")
	ErrQuestions = errors.New("not exactly one question")
)

// Query is a parsed query. Its slices refer to the packet and to the Query
// itself, so it is valid until either is reused. The zero Query is ready to
// parse into.
type Query struct {
	ID     uint16
	Flags  uint16
	Opcode Opcode

	// Question is the question as received: name, type, class. It is nil if
	// none was parsed.
	Question []byte
	Type     Type
	Class    Class
	EDNS     EDNS
	// SearchOption is the code of the EDNS option with search paths; 0 means
	// none. Parsing a packet does not change it.
	SearchOption OptionCode

	questions  uint16
	records    [3]uint16 // numbers of answer, authority, additional
	name       [dnsname.MaxWire]byte
	nameLen    int
	labelStart [dnsname.MaxWire / 2]uint8
	labels     int
	tsig       bool // the last record is a TSIG record
}

// EDNS is the content of a query's OPT record (RFC 6891, section 6.1).
type EDNS struct {
	Present bool
	Version uint8
	UDPSize uint16
	Flags   EDNSFlags // known flags only

	Cookie    []byte // client cookie and server cookie; nil if absent
	NSID      bool
	Keepalive bool
	Padding   bool
	Metadata  bool   // OptionMetadata is present
	Subnet    Subnet // not validated
	Search    []byte // value of the SearchOption; nil if absent
}

// QName returns the question's name in lower-case wire form without the root's
// closing zero octet.
func (q *Query) QName() []byte { return q.name[:q.nameLen] }

// QuestionCount returns the number of questions in the header.
func (q *Query) QuestionCount() int { return int(q.questions) }

// ParseHeader parses the header of packet and resets q. It fails with ErrShort
// only.
func (q *Query) ParseHeader(packet []byte) error {
	q.ID, q.Flags, q.Opcode, q.questions, q.records = 0, 0, 0, 0, [3]uint16{}
	q.Question, q.EDNS = nil, EDNS{}
	q.Type, q.Class, q.nameLen, q.labels, q.tsig = 0, 0, 0, 0, false
	if len(packet) < HeaderLen {
		return ErrShort
	}
	q.ID = binary.BigEndian.Uint16(packet)
	q.Flags = binary.BigEndian.Uint16(packet[2:])
	q.Opcode = Opcode(q.Flags & opcodeMask >> opcodeShift)
	q.questions = binary.BigEndian.Uint16(packet[4:])
	for i := range q.records {
		q.records[i] = binary.BigEndian.Uint16(packet[6+2*i:])
	}
	return nil
}

// ParseBody parses what follows the header of a QUERY: the question and the OPT
// record; it skips other records. It fails with ErrQuestions or ErrMalformed.
// Then q.EDNS still holds what could be parsed, because the response to a query
// with an OPT record must have one (RFC 6891, section 6.1.1).
func (q *Query) ParseBody(packet []byte) error {
	off := HeaderLen
	for range q.questions {
		n, ok := q.parseQuestion(packet[off:])
		if !ok {
			return ErrMalformed
		}
		off += n
		if q.questions > 1 {
			q.Question = nil // none of several is answered
		}
	}
	for section := range q.records {
		for range q.records[section] {
			n, ok := q.parseRecord(packet, off, Section(section)+Answer)
			if !ok {
				return ErrMalformed
			}
			off += n
		}
	}
	if off != len(packet) {
		return ErrMalformed
	}
	if q.questions != 1 {
		return ErrQuestions
	}
	return nil
}

// parseQuestion parses the question at the start of b and returns its length.
// No name precedes it, so it cannot contain a compression pointer.
func (q *Query) parseQuestion(b []byte) (length int, ok bool) {
	q.labels = 0
	off := 0
	for {
		if off >= len(b) || off >= dnsname.MaxWire {
			return 0, false
		}
		l := int(b[off])
		if l == 0 {
			break
		}
		if l > dnsname.MaxLabel || off+1+l >= len(b) || off+1+l >= dnsname.MaxWire {
			return 0, false
		}
		q.labelStart[q.labels] = uint8(off)
		q.labels++
		off += 1 + l
	}
	if off+5 > len(b) {
		return 0, false
	}
	q.nameLen = len(dnsname.AppendLower(q.name[:0], b[:off]))
	q.Type = Type(binary.BigEndian.Uint16(b[off+1:]))
	q.Class = Class(binary.BigEndian.Uint16(b[off+3:]))
	q.Question = b[: off+5 : off+5]
	return off + 5, true
}

// parseRecord skips the record at off and returns its length. It parses an OPT
// record of the additional section.
func (q *Query) parseRecord(packet []byte, off int, section Section) (length int, ok bool) {
	nameLen, ok := skipName(packet[off:])
	const fixed = 10 // type, class, TTL, length
	if !ok || off+nameLen+fixed > len(packet) {
		return 0, false
	}
	r := packet[off+nameLen:]
	dataLen := int(binary.BigEndian.Uint16(r[8:]))
	if len(r) < fixed+dataLen {
		return 0, false
	}
	t := Type(binary.BigEndian.Uint16(r))
	q.tsig = t == typeTSIG
	if t == TypeOPT {
		// One OPT record, owned by the root (RFC 6891, section 6.1.1).
		if section != Additional || q.EDNS.Present || nameLen != 1 {
			return 0, false
		}
		q.EDNS.Present = true
		q.EDNS.UDPSize = binary.BigEndian.Uint16(r[2:])
		q.EDNS.Version = r[5]
		q.EDNS.Flags = EDNSFlags(binary.BigEndian.Uint16(r[6:])) & FlagDO
		if !q.EDNS.parseOptions(r[fixed:fixed+dataLen], q.SearchOption) {
			return 0, false
		}
	}
	return nameLen + fixed + dataLen, true
}

func (e *EDNS) parseOptions(b []byte, search OptionCode) bool {
	for len(b) > 0 {
		if len(b) < 4 {
			return false
		}
		code, n := OptionCode(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
		if len(b) < 4+n {
			return false
		}
		value := b[4 : 4+n : 4+n]
		b = b[4+n:]
		switch code {
		case OptionCookie:
			if e.Cookie != nil {
				continue // RFC 7873, section 5.2: the first one counts
			}
			// RFC 7873, section 5.2.2: 8 octets, or 16 to 40.
			if n != 8 && (n < 16 || n > 40) {
				return false
			}
			e.Cookie = value
		case OptionNSID:
			e.NSID = true
		case OptionKeepalive:
			e.Keepalive = true
		case OptionPadding:
			e.Padding = true
		case OptionMetadata:
			e.Metadata = e.Metadata || n == 0
		case OptionSubnet:
			e.Subnet = value
		case search:
			if e.Search == nil && code != 0 {
				e.Search = value
			}
		}
	}
	return true
}

// skipName returns the length of the name at the start of b. A compression
// pointer ends the name and is not followed.
func skipName(b []byte) (length int, ok bool) {
	for off := 0; off < len(b) && off < dnsname.MaxWire; {
		l := int(b[off])
		switch {
		case l == 0:
			return off + 1, true
		case l >= 0xc0:
			return off + 2, off+2 <= len(b)
		case l > dnsname.MaxLabel:
			return 0, false
		}
		off += 1 + l
	}
	return 0, false
}
