package dnswire

import (
	"bytes"
	"encoding/binary"
)

// Response writes a response into a buffer that is given to it, section by
// section in their order, never past the limit set at the start. Records that
// do not fit are left out whole, and the caller is told. Owner names and names
// in RDATA of RFC 1035's types are compressed against the question (RFC 1035,
// section 4.1.4), those in SRV never are (RFC 2782).
type Response struct {
	buf    []byte
	limit  int // the message may not grow past it
	query  *Query
	counts [4]uint16
	// owner is the pointer to the name that the next RRset belongs to: the
	// question's, or that of the CNAME record written last.
	owner uint16
	// What SRVTarget found on its way: the end of the answer section, the
	// first target and the one before.
	answerEnd               int
	firstTarget, lastTarget []byte
}

// Sections of a message, in their order.
type Section int

// The sections that hold records.
const (
	Answer Section = iota + 1
	Authority
	Additional
)

// Start begins the response to q in buf, which must have room for limit
// octets. The question is repeated as it came, when one was read.
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

// DropRecords takes out the records that were written; what is reserved stays.
func (r *Response) DropRecords() {
	r.buf = r.buf[:HeaderLen+len(r.query.Question)]
	r.counts = [4]uint16{0: r.counts[0]}
	r.owner = questionPointer
}

// Len is the message's length so far.
func (r *Response) Len() int { return len(r.buf) }

// Reserve keeps n octets at the message's end out of use; a negative n gives
// them back.
func (r *Response) Reserve(n int) { r.limit -= n }

// AddRRset writes set to section s, beginning with its record number first
// and going round. It reports whether every record did fit; as many whole
// records as fit are written. A CNAME's target owns the next RRset.
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

// addSome writes as many whole records of wire as fit.
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

// addSomeOfOneLength is addSome for records that are equally long.
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

// pointOwners makes the records from head on belong to the present owner.
func (r *Response) pointOwners(head int) {
	if r.owner == questionPointer {
		return
	}
	for off := head; off < len(r.buf); off += recordLen(r.buf[off:]) {
		binary.BigEndian.PutUint16(r.buf[off:], r.owner)
	}
}

// addNames writes as many records of wire as fit, whose RDATA is one name,
// compressed.
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

// AddSOA writes soa with its own TTL and reports whether it did fit.
func (r *Response) AddSOA(s Section, soa *SOA) bool {
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
	r.buf = binary.BigEndian.AppendUint32(r.buf, soa.TTL)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(dataLen))
	r.appendName(mname)
	r.appendName(rname)
	for _, n := range numbers {
		r.buf = binary.BigEndian.AppendUint32(r.buf, n)
	}
	r.counts[s]++
	return true
}

// compressed is a name as it is written: some labels, then a pointer into the
// question or, where that is 0, the root.
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

// compress makes the name with the given wire form (no closing zero octet) end
// with a pointer where it and the question end alike.
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

// suffixAt tells where the question's name ends in the given labels. Names are
// compared in lower case: RDATA may come back in the question's case.
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

// SRVTarget finds the next SRV record of the answer section from offset off on
// (0 to begin, when the answer section is whole) with a target that it did not
// give yet: equal targets are neighbours in an SRV RRset, going round. at is
// where in the message the target's name stands, next where to go on. target
// is its wire form without the closing zero octet, nil when no record is left.
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

// lastPointable is how far into a message a compression pointer reaches.
const lastPointable = 1<<14 - 1

// AddGlue writes set to the additional section if all of it fits, and reports
// whether it did. Its owner is the target that stands at the given place of the
// message: a pointer, as far as pointers reach (RFC 1035, section 4.1.4).
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

// addSpelledOut writes set to the additional section with the given owner, if
// all of it fits.
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

// AddOPT begins the OPT record, which must be the message's last; options
// follow by AddOption. It does not look at the limit: reserve what it takes.
func (r *Response) AddOPT(udpSize uint16, rcode RCode, flags EDNSFlags) {
	r.buf = append(r.buf, 0)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(TypeOPT))
	r.buf = binary.BigEndian.AppendUint16(r.buf, udpSize)
	r.buf = append(r.buf, byte(rcode>>4), 0)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(flags))
	r.buf = append(r.buf, 0, 0)
	r.counts[Additional]++
}

// OptionLen is how much an OPT record grows by an option with a value of n
// octets, and OPTLen by the record itself.
func OptionLen(n int) int { return 4 + n }

// OPTLen is the length of an OPT record without options.
const OPTLen = optFixed

// AddOption adds to the OPT record begun last; opt is where it begins, as Len
// said before AddOPT.
func (r *Response) AddOption(opt int, code OptionCode, value []byte) {
	addOption(r, opt, code, value)
}

// AddOptionString is AddOption for a value that is text.
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
// that begins at opt, without its text when there is no room for it, or not at
// all.
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
// opt, so that the message's length becomes a multiple of block, but not more
// than the limit.
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

// Finish writes the header and returns the message: the query's ID, opcode, RD
// and CD, the given flags and the low bits of rcode.
func (r *Response) Finish(flags uint16, rcode RCode) []byte {
	flags |= FlagQR | r.query.Flags&(FlagRD|FlagCD|opcodeMask) | uint16(rcode)&0xf
	binary.BigEndian.PutUint16(r.buf, r.query.ID)
	binary.BigEndian.PutUint16(r.buf[2:], flags)
	for i, n := range r.counts {
		binary.BigEndian.PutUint16(r.buf[4+2*i:], n)
	}
	return r.buf
}
