package dnswire

import (
	"encoding/binary"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// Aging is the age of a Reply's records.
type Aging struct {
	// Age is the age in seconds, which is subtracted from each TTL.
	Age uint32
	// Stale, if not 0, is the TTL of all records, in seconds: their own TTL has
	// passed (RFC 8767, section 4).
	Stale uint32
}

// TTL returns what remains of a TTL, in seconds.
func (a Aging) TTL(ttl uint32) uint32 {
	if a.Stale != 0 {
		return a.Stale
	}
	return ttl - min(a.Age, ttl)
}

// AddReply copies the sections of p, the reply to the very question that r
// answers, as far as they fit: without the additional section if it does not
// fit as a whole, and otherwise as many whole records of the answer as fit. It
// returns the last section that was copied as a whole: Answer alone may be too
// little for a denial, and 0 means that the answer is truncated. It copies
// nothing if the questions differ in length or if r already has records,
// because compression pointers would be wrong.
func (r *Response) AddReply(p *Reply, a Aging) (last Section) {
	head := len(r.buf)
	if head != p.question {
		return 0
	}
	last = Additional
	for last > 0 && p.sectionEnd(last) > r.limit {
		last--
	}
	end := p.sectionEnd(last)
	if last == 0 {
		end = p.lastWhole(r.limit)
	}
	r.buf = append(r.buf, p.wire[p.question:end]...)
	n := 0
	for s := Answer; s <= max(last, Answer); s++ {
		for range p.counts[s] {
			at := int(p.fixed[n])
			if at+recordHead > len(r.buf) {
				return last
			}
			ttl := r.buf[at+4 : at+8]
			binary.BigEndian.PutUint32(ttl, a.TTL(binary.BigEndian.Uint32(ttl)))
			r.counts[s]++
			n++
		}
	}
	return last
}

// lastWhole returns the end of the last record that ends at or before limit.
func (r *Reply) lastWhole(limit int) int {
	end := r.question
	for rec := range r.Records {
		if rec.end() > limit {
			break
		}
		end = rec.end()
	}
	return end
}

// AddRelayedAtOwner adds a record of a reply to the answer section, owned by
// the question's name or the name set by SetOwner. It returns the offset of its
// RDATA and reports whether it fit.
func (r *Response) AddRelayedAtOwner(rec ReplyRecord, a Aging) (at int, whole bool) {
	head := len(r.buf)
	r.buf = binary.BigEndian.AppendUint16(r.buf, r.owner)
	return head + recordFixed, r.addRest(Answer, head, rec, a)
}

// SetOwner makes the name at offset at, which is the RDATA of a CNAME record,
// the owner of the records that follow. It reports whether a compression
// pointer can reach it.
func (r *Response) SetOwner(at int) (can bool) {
	if at > lastPointable {
		return false
	}
	r.owner = 0xc000 | uint16(at)
	return true
}

// AddRelayed adds a record of a reply with its own owner to section s and
// reports whether it fit.
func (r *Response) AddRelayed(s Section, rec ReplyRecord, a Aging) (whole bool) {
	var owner [dnsname.MaxWire]byte
	head := len(r.buf)
	r.appendName(r.compress(rec.AppendOwner(owner[:0])))
	return r.addRest(s, head, rec, a)
}

// addRest writes a record after its owner, which begins at head, or removes the
// owner if the record does not fit.
func (r *Response) addRest(s Section, head int, rec ReplyRecord, a Aging) (whole bool) {
	wire := rec.of.wire
	fixed := len(r.buf)
	r.buf = append(r.buf, wire[rec.fixed:rec.fixed+recordHead]...)
	binary.BigEndian.PutUint32(r.buf[fixed+4:], a.TTL(rec.TTL()))
	r.buf = rec.AppendRData(r.buf)
	binary.BigEndian.PutUint16(r.buf[fixed+8:], uint16(len(r.buf)-fixed-recordHead))
	if len(r.buf) > r.limit {
		r.buf = r.buf[:head]
		return false
	}
	r.counts[s]++
	return true
}

// AppendRData appends the RDATA with names decompressed. Names that may be
// compressed are in lower case.
func (c ReplyRecord) AppendRData(b []byte) []byte {
	wire, off, end := c.of.wire, c.fixed+recordHead, c.end()
	l := layouts[c.Type()]
	if c.Type() == typeNAPTR {
		at, _ := naptrName(wire[:end], off)
		l = layout{before: at - off, names: 1}
	}
	b = append(b, wire[off:off+l.before]...)
	off += l.before
	for range l.names {
		b = append(appendName(b, wire, off), 0)
		off, _ = endOfName(wire, off)
	}
	return append(b, wire[off:end]...)
}

// AppendQuery appends a query to an upstream for question, which holds name,
// type and class. RD and AD are set (RFC 6840, section 5.7). If udpSize is not
// 0, it adds an OPT record.
func AppendQuery(b []byte, id, flags uint16, question []byte, udpSize uint16, edns EDNSFlags) []byte {
	b = binary.BigEndian.AppendUint16(b, id)
	b = binary.BigEndian.AppendUint16(b, FlagRD|FlagAD|flags)
	b = append(b, 0, 1, 0, 0, 0, 0, 0, 0)
	b = append(b, question...)
	if udpSize > 0 {
		b[len(b)-len(question)-1] = 1
		b = append(b, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(TypeOPT))
		b = binary.BigEndian.AppendUint16(b, udpSize)
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(edns))
		b = append(b, 0, 0)
	}
	return b
}

// AppendQuestion appends a question for name, which is in wire form without its
// closing zero octet.
func AppendQuestion(b, name []byte, t Type) []byte {
	b = append(append(b, name...), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(t))
	return binary.BigEndian.AppendUint16(b, uint16(ClassIN))
}

// AppendOption adds an option to a query that ends with an OPT record without
// options.
func AppendOption(query []byte, code OptionCode, value []byte) []byte {
	binary.BigEndian.PutUint16(query[len(query)-2:], uint16(OptionLen(len(value))))
	query = binary.BigEndian.AppendUint16(query, uint16(code))
	query = binary.BigEndian.AppendUint16(query, uint16(len(value)))
	return append(query, value...)
}
