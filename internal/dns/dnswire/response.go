package dnswire

import (
	"bytes"
	"encoding/binary"
)

// Response writes a response into a buffer, section by section in order, and
// never beyond the limit set at the start. Records that do not fit are omitted
// as a whole, which the methods report. Owner names and names in RDATA of RFC
// 1035's types are compressed against the question (RFC 1035, section 4.1.4);
// names in SRV never are (RFC 2782).
type Response struct {
	buf    []byte
	limit  int // the maximum length of the message
	query  *Query
	counts [4]uint16
	// owner is the pointer to the owner of the next RRset: the question's name,
	// or the target of the last CNAME record.
	owner uint16
	// State of SRVTarget: the end of the answer section, the first target and
	// the previous one.
	answerEnd               int
	firstTarget, lastTarget []byte
}

// Section is a section of a message that holds records.
type Section int

// Sections, in their order.
const (
	Answer Section = iota + 1
	Authority
	Additional
)

// Start begins the response to q in buf, which must have a capacity of limit
// octets. It repeats the question as received, if one was parsed.
func (r *Response) Start(buf []byte, q *Query, limit int) {
	r.buf, r.limit, r.query = buf[:HeaderLen], limit, q
	r.counts = [4]uint16{}
	r.owner = questionPointer
	clear(r.buf)
	if q.Question != nil {
		r.buf = append(r.buf, q.Question...)
		r.counts[0] = 1
	}
}

// DropRecords removes all records; the reserved space stays reserved.
func (r *Response) DropRecords() {
	r.buf = r.buf[:HeaderLen+len(r.query.Question)]
	r.counts = [4]uint16{0: r.counts[0]}
	r.owner = questionPointer
}

// Len returns the message's present length.
func (r *Response) Len() int { return len(r.buf) }

// Answers returns the number of records in the answer section.
func (r *Response) Answers() int { return int(r.counts[Answer]) }

// Reserve lowers the limit by n octets, to keep space for the message's end; a
// negative n raises it again.
func (r *Response) Reserve(n int) { r.limit -= n }

// AddRRset adds set to section s, starting with record number first and
// wrapping around. It adds as many whole records as fit and reports whether all
// did. The target of a CNAME record owns the next RRset.
func (r *Response) AddRRset(s Section, set RRset, first int) (whole bool) {
	start := set.start(first)
	begin, rest := set.wire[start:], set.wire[:start]
	if holdsName(set.Type) {
		owner := r.owner
		return r.addNames(s, owner, begin) && r.addNames(s, owner, rest)
	}
	head := len(r.buf)
	whole = true
	if len(r.buf)+len(set.wire) <= r.limit {
		r.buf = append(append(r.buf, begin...), rest...)
		r.counts[s] += set.Count
	} else {
		add := r.addSome
		if hasOneLength(set.Type) {
			add = r.addSomeOfOneLength
		}
		whole = add(s, begin) && add(s, rest)
	}
	r.pointOwners(head)
	return whole
}

// addSome writes as many whole records of wire as fit, and reports whether all
// did.
func (r *Response) addSome(s Section, wire []byte) (whole bool) {
	for len(wire) > 0 {
		n := recordLen(wire)
		if len(r.buf)+n > r.limit {
			return false
		}
		r.buf = append(r.buf, wire[:n]...)
		r.counts[s]++
		wire = wire[n:]
	}
	return true
}

// addSomeOfOneLength is addSome for records of equal length.
func (r *Response) addSomeOfOneLength(s Section, wire []byte) (whole bool) {
	if len(wire) == 0 {
		return true
	}
	n := recordLen(wire)
	fit := min(max(r.limit-len(r.buf), 0), len(wire)) / n
	r.buf = append(r.buf, wire[:fit*n]...)
	r.counts[s] += uint16(fit)
	return fit*n == len(wire)
}

// pointOwners makes the present owner the owner of the records from head on.
func (r *Response) pointOwners(head int) {
	if r.owner == questionPointer {
		return
	}
	for off := head; off < len(r.buf); off += recordLen(r.buf[off:]) {
		binary.BigEndian.PutUint16(r.buf[off:], r.owner)
	}
}

// addNames writes as many records as fit of wire, whose RDATA is one name each,
// and compresses the names.
func (r *Response) addNames(s Section, owner uint16, wire []byte) (whole bool) {
	for len(wire) > 0 {
		n := recordLen(wire)
		name := r.compress(wire[recordFixed : n-1])
		head := len(r.buf)
		if head+recordFixed+name.wireLen() > r.limit {
			return false
		}
		r.buf = append(r.buf, wire[:recordFixed]...)
		binary.BigEndian.PutUint16(r.buf[head:], owner)
		binary.BigEndian.PutUint16(r.buf[head+10:], uint16(name.wireLen()))
		r.appendName(name)
		r.counts[s]++
		if Type(binary.BigEndian.Uint16(wire[2:])) == TypeCNAME {
			r.owner = 0xc000 | uint16(head+recordFixed)
		}
		wire = wire[n:]
	}
	return true
}

// AddDenial adds soa to the authority section and reports whether it fit. Its TTL is
// at most MINIMUM (RFC 2308, section 3).
func (r *Response) AddDenial(soa *SOA) bool {
	return r.addSOA(Authority, soa, min(soa.TTL, soa.Minimum))
}

// AddSOA adds soa with its own TTL and reports whether it fit.
func (r *Response) AddSOA(s Section, soa *SOA) bool { return r.addSOA(s, soa, soa.TTL) }

func (r *Response) addSOA(s Section, soa *SOA, ttl uint32) bool {
	zone := r.compress([]byte(soa.Zone.WireLabels()))
	mname := r.compress([]byte(soa.MName.WireLabels()))
	rname := r.compress([]byte(soa.RName.WireLabels()))
	numbers := [...]uint32{soa.Serial, soa.Refresh, soa.Retry, soa.Expire, soa.Minimum}
	const fixed = 10 // type, class, TTL, length
	dataLen := mname.wireLen() + rname.wireLen() + 4*len(numbers)
	if len(r.buf)+zone.wireLen()+fixed+dataLen > r.limit {
		return false
	}
	r.appendName(zone)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(TypeSOA))
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(ClassIN))
	r.buf = binary.BigEndian.AppendUint32(r.buf, ttl)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(dataLen))
	r.appendName(mname)
	r.appendName(rname)
	for _, n := range numbers {
		r.buf = binary.BigEndian.AppendUint32(r.buf, n)
	}
	r.counts[s]++
	return true
}

// compressed is a compressed name: some labels, followed by a pointer into the
// question or, if that is 0, by the root.
type compressed struct {
	labels  []byte
	pointer uint16
}

func (c compressed) wireLen() int {
	if c.pointer == 0 {
		return len(c.labels) + 1
	}
	return len(c.labels) + 2
}

// compress compresses the name with the given wire form (without closing zero
// octet) against the question.
func (r *Response) compress(labels []byte) compressed {
	for off := 0; off < len(labels); off += 1 + int(labels[off]) {
		if at, ok := r.query.suffixAt(labels[off:]); ok {
			return compressed{labels[:off], 0xc000 | uint16(HeaderLen+at)}
		}
	}
	return compressed{labels: labels}
}

func (r *Response) appendName(c compressed) {
	r.buf = append(r.buf, c.labels...)
	if c.pointer == 0 {
		r.buf = append(r.buf, 0)
		return
	}
	r.buf = binary.BigEndian.AppendUint16(r.buf, c.pointer)
}

// suffixAt returns the offset in labels of the longest suffix of the question's
// name that ends labels. It compares names in lower case; RDATA may therefore
// appear in the question's case.
func (q *Query) suffixAt(labels []byte) (at int, ok bool) {
	name := q.QName()
	at = len(name) - len(labels)
	if q.Question == nil || at < 0 || !bytes.Equal(name[at:], labels) {
		return 0, false
	}
	for i := q.labels - 1; i >= 0 && int(q.labelStart[i]) >= at; i-- {
		if int(q.labelStart[i]) == at {
			return at, true
		}
	}
	return 0, false
}

// SRVTarget returns the next target in the SRV records of the answer section,
// from offset off on, that it did not return yet. off is 0 to start, after the
// answer section is complete. Equal targets are neighbors in an SRV RRset,
// cyclically. target is in wire form without the closing zero octet, nil if
// none is left; at is its offset in the message; next is the offset to continue
// at.
func (r *Response) SRVTarget(off int) (target []byte, at, next int) {
	if off == 0 {
		off = HeaderLen + len(r.query.Question)
		r.answerEnd, r.firstTarget, r.lastTarget = len(r.buf), nil, nil
	}
	for off < r.answerEnd {
		n := recordLen(r.buf[off:])
		if Type(binary.BigEndian.Uint16(r.buf[off+2:])) == TypeSRV {
			at, end := off+recordFixed+srvFixed, off+n-1
			target := r.buf[at:end]
			if r.firstTarget == nil {
				r.firstTarget, r.lastTarget = target, target
				return target, at, off + n
			}
			if !bytes.Equal(target, r.lastTarget) && !bytes.Equal(target, r.firstTarget) {
				r.lastTarget = target
				return target, at, off + n
			}
		}
		off += n
	}
	return nil, 0, off
}

// lastPointable is the highest offset that a compression pointer can reach.
const lastPointable = 1<<14 - 1

// AddGlue adds set to the additional section if it fits as a whole, and reports
// whether it did. The owner is target, which is at offset at of the message; it
// becomes a pointer if pointers reach that far (RFC 1035, section 4.1.4).
func (r *Response) AddGlue(set RRset, target []byte, at int) (whole bool) {
	if at > lastPointable {
		return r.addSpelledOut(set, target)
	}
	if len(r.buf)+len(set.wire) > r.limit {
		return false
	}
	owner := r.owner
	r.owner = 0xc000 | uint16(at)
	whole = r.AddRRset(Additional, set, 0)
	r.owner = owner
	return whole
}

// AddReferral adds the NS records of a name to the authority section: the part of
// the question's name that begins at offset cut. It adds as many whole records as
// fit and reports whether all did.
func (r *Response) AddReferral(set RRset, cut int) (whole bool) {
	owner := r.owner
	r.owner = questionPointer + uint16(cut)
	whole = r.AddRRset(Authority, set, 0)
	r.owner = owner
	return whole
}

// AddOwned is AddGlue for an owner that is nowhere in the message.
func (r *Response) AddOwned(set RRset, owner []byte) (whole bool) { return r.addSpelledOut(set, owner) }

// addSpelledOut adds set to the additional section with an uncompressed owner,
// if it fits as a whole.
func (r *Response) addSpelledOut(set RRset, owner []byte) (whole bool) {
	const pointer = 2
	head := len(r.buf)
	for wire := set.wire; len(wire) > 0; {
		n := recordLen(wire)
		name := r.compress(owner)
		if len(r.buf)+name.wireLen()+n-pointer > r.limit {
			r.buf = r.buf[:head]
			return false
		}
		r.appendName(name)
		r.buf = append(r.buf, wire[pointer:n]...)
		wire = wire[n:]
	}
	r.counts[Additional] += set.Count
	return true
}

// optFixed is the length of an OPT record without options.
const optFixed = 11

// AddOPT begins the OPT record, which must be the message's last; AddOption
// adds options. It ignores the limit: reserve the space before.
func (r *Response) AddOPT(udpSize uint16, rcode RCode, flags EDNSFlags) {
	r.buf = append(r.buf, 0)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(TypeOPT))
	r.buf = binary.BigEndian.AppendUint16(r.buf, udpSize)
	r.buf = append(r.buf, byte(rcode>>4), 0)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(flags))
	r.buf = append(r.buf, 0, 0)
	r.counts[Additional]++
}

// OptionLen returns the length of an option with a value of n octets in an OPT
// record.
func OptionLen(n int) int { return 4 + n }

// OPTLen is the length of an OPT record without options.
const OPTLen = optFixed

// AddOption adds an option to the OPT record that begins at offset opt, the
// value of Len before AddOPT.
func (r *Response) AddOption(opt int, code OptionCode, value []byte) {
	addOption(r, opt, code, value)
}

// AddOptionString is AddOption with a string.
func (r *Response) AddOptionString(opt int, code OptionCode, value string) {
	addOption(r, opt, code, value)
}

func addOption[V []byte | string](r *Response, opt int, code OptionCode, value V) {
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(code))
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(len(value)))
	r.buf = append(r.buf, value...)
	r.closeOption(opt)
}

// AddEDE adds an Extended DNS Error (RFC 8914, section 2) to the OPT record
// that begins at opt. Without space for text it adds the code alone, or
// nothing.
func (r *Response) AddEDE(opt int, code EDECode, text string) {
	if len(r.buf)+OptionLen(2+len(text)) > r.limit {
		text = ""
	}
	if len(r.buf)+OptionLen(2) > r.limit {
		return
	}
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(OptionEDE))
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(2+len(text)))
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(code))
	r.buf = append(r.buf, text...)
	r.closeOption(opt)
}

// AddPadding adds a padding option (RFC 7830) to the OPT record that begins at
// opt, so that the message's length becomes a multiple of block, within the
// limit.
func (r *Response) AddPadding(opt, block int) {
	want := min((len(r.buf)+OptionLen(0)+block-1)/block*block, r.limit)
	n := want - len(r.buf) - OptionLen(0)
	if n < 0 {
		return
	}
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(OptionPadding))
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(n))
	for range n {
		r.buf = append(r.buf, 0)
	}
	r.closeOption(opt)
}

func (r *Response) closeOption(opt int) {
	binary.BigEndian.PutUint16(r.buf[opt+optFixed-2:], uint16(len(r.buf)-opt-optFixed))
}

// Finish writes the header and returns the message, with the query's ID,
// opcode, RD and CD, the given flags and the low bits of rcode.
func (r *Response) Finish(flags uint16, rcode RCode) []byte {
	flags |= FlagQR | r.query.Flags&(FlagRD|FlagCD|opcodeMask) | uint16(rcode)&0xf
	binary.BigEndian.PutUint16(r.buf, r.query.ID)
	binary.BigEndian.PutUint16(r.buf[2:], flags)
	for i, n := range r.counts {
		binary.BigEndian.PutUint16(r.buf[4+2*i:], n)
	}
	return r.buf
}
