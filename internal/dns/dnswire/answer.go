package dnswire

import (
	"encoding/binary"
	"net/netip"
)

// AnswerReader reads the records in the answer section of a response, one after
// another. It trusts nothing in the message: it ends before the first malformed
// record. It allocates nothing.
//
//	for r := NewAnswerReader(message); r.Next(); { … }
type AnswerReader struct {
	message []byte
	left    uint16 // records after the present one
	start   int    // offset of the present record's owner
	fixed   int    // offset of its type
	end     int    // and of its end
}

// NewAnswerReader returns a reader before the first record of message, which has
// one question. Of other messages it reads nothing.
func NewAnswerReader(message []byte) AnswerReader {
	if len(message) < HeaderLen || binary.BigEndian.Uint16(message[4:]) != 1 {
		return AnswerReader{}
	}
	name, ok := plainName(message[HeaderLen:])
	if !ok || HeaderLen+name+4 > len(message) {
		return AnswerReader{}
	}
	return AnswerReader{message: message, left: binary.BigEndian.Uint16(message[6:]), end: HeaderLen + name + 4}
}

// Next goes to the next record and reports whether there is one.
func (r *AnswerReader) Next() bool {
	if r.left == 0 {
		return false
	}
	r.left--
	r.start = r.end
	fixed, ok := endOfName(r.message, r.start)
	if !ok || fixed+recordHead > len(r.message) {
		return r.stop()
	}
	r.fixed, r.end = fixed, fixed+recordHead+int(binary.BigEndian.Uint16(r.message[fixed+8:]))
	if r.end > len(r.message) {
		return r.stop()
	}
	switch r.Type() {
	case TypeA, TypeAAAA, TypeCNAME:
		if !soundRData(r.message, r.fixed, r.end) {
			return r.stop()
		}
	}
	return true
}

func (r *AnswerReader) stop() bool {
	r.left = 0
	return false
}

// Type returns the type of the present record; 0 for a class other than IN.
func (r *AnswerReader) Type() Type {
	if Class(binary.BigEndian.Uint16(r.message[r.fixed+2:])) != ClassIN {
		return 0
	}
	return Type(binary.BigEndian.Uint16(r.message[r.fixed:]))
}

// TTL returns the time to live of the present record, in seconds, as
// ReplyRecord.TTL does.
func (r *AnswerReader) TTL() uint32 {
	ttl := binary.BigEndian.Uint32(r.message[r.fixed+4:])
	if ttl>>31 != 0 {
		return 0
	}
	return ttl
}

// IsOfQuestion reports whether the present record's owner is a pointer to the
// question's name. It may have that name although it is none.
func (r *AnswerReader) IsOfQuestion() bool {
	return binary.BigEndian.Uint16(r.message[r.start:]) == questionPointer
}

// AppendQuestion appends the question's name in lower-case wire form, without
// the closing zero octet; nothing if there is no question.
func (r *AnswerReader) AppendQuestion(b []byte) []byte {
	if r.message == nil {
		return b
	}
	return appendName(b, r.message, HeaderLen)
}

// AppendOwner appends the owner of the present record in the same form.
func (r *AnswerReader) AppendOwner(b []byte) []byte { return appendName(b, r.message, r.start) }

// AppendTarget appends the name in the RDATA of a CNAME record in the same form;
// nothing for other types.
func (r *AnswerReader) AppendTarget(b []byte) []byte {
	if r.Type() != TypeCNAME {
		return b
	}
	return appendName(b, r.message, r.fixed+recordHead)
}

// Addr returns the address of an A or AAAA record; the zero Addr for other types.
func (r *AnswerReader) Addr() netip.Addr {
	switch r.Type() {
	case TypeA, TypeAAAA:
		addr, _ := netip.AddrFromSlice(r.message[r.fixed+recordHead : r.end]) // its length was validated
		return addr
	}
	return netip.Addr{}
}
