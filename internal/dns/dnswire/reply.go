package dnswire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// ErrReply is the error of ParseReply. It carries no detail, because anyone can
// send a malformed packet.
var ErrReply = errors.New("malformed reply")

// Reply is a response of an upstream or of a primary, validated so that its
// records can be relayed: each record is complete, and each name ends inside
// the message, by pointers that lead backward. The OPT record and everything
// after it is removed.
//
// A Reply is immutable, except that AdjustTTLs and DropAdditional may be called
// and Subnet set before it is shared.
type Reply struct {
	ID    uint16
	Flags uint16
	RCode RCode
	// EDNS reports whether there was an OPT record. EDE is its Extended DNS
	// Error, if any.
	EDNS bool
	EDE  *ReplyEDE
	// Subnet is the client subnet option; it is not validated.
	Subnet Subnet
	// Options are the codes of the other options, at most maxOptions.
	Options []OptionCode
	// HasCNAME reports whether the answer section has a CNAME record.
	HasCNAME bool

	wire     []byte // the message up to the end of the last record
	question int    // offset of the question's end
	counts   [4]uint16
	fixed    []uint16 // offsets of the records' types, which follow the owners
}

// ReplyEDE is the Extended DNS Error in a Reply (RFC 8914).
type ReplyEDE struct {
	Code EDECode
	Text string
}

// recordHead is the length of a record's type, class, TTL and RDLENGTH.
const recordHead = 10

// ParseReply parses a response with one question. It copies what it keeps of
// packet. It fails with ErrReply.
func ParseReply(packet []byte) (*Reply, error) { return parseReply(packet, 1) }

// ParseTransferReply is ParseReply for a message of a zone transfer, which may
// lack the question (RFC 5936, section 2.2.1).
func ParseTransferReply(packet []byte) (*Reply, error) {
	if len(packet) >= HeaderLen && binary.BigEndian.Uint16(packet[4:]) == 0 {
		return parseReply(packet, 0)
	}
	return parseReply(packet, 1)
}

func parseReply(packet []byte, questions uint16) (*Reply, error) {
	if len(packet) < HeaderLen || len(packet) > MaxMessage {
		return nil, ErrReply
	}
	r := &Reply{
		ID:    binary.BigEndian.Uint16(packet),
		Flags: binary.BigEndian.Uint16(packet[2:]),
		wire:  packet,
	}
	r.RCode = RCode(r.Flags & 0xf)
	if r.Flags&FlagQR == 0 || Opcode(r.Flags&opcodeMask>>opcodeShift) != OpcodeQuery ||
		binary.BigEndian.Uint16(packet[4:]) != questions {
		return nil, ErrReply
	}
	r.counts[0], r.question = questions, HeaderLen
	if questions > 0 {
		name, ok := plainName(packet[HeaderLen:])
		if !ok || HeaderLen+name+4 > len(packet) {
			return nil, ErrReply
		}
		r.question += name + 4
	}
	end, ok := r.parseRecords(packet)
	if !ok {
		return nil, ErrReply
	}
	r.wire = bytes.Clone(packet[:end])
	r.fixed = append(make([]uint16, 0, len(r.fixed)), r.fixed...)
	return r, nil
}

// parseRecords records the offsets of the records up to the OPT record, and
// returns their end.
func (r *Reply) parseRecords(packet []byte) (end int, ok bool) {
	var room [64]uint16
	r.fixed = room[:0]
	off := r.question
	for s := Answer; s <= Additional; s++ {
		for range binary.BigEndian.Uint16(packet[4+2*s:]) {
			nameEnd, ok := endOfName(packet, off)
			if !ok || nameEnd+recordHead > len(packet) {
				return 0, false
			}
			next := nameEnd + recordHead + int(binary.BigEndian.Uint16(packet[nameEnd+8:]))
			if next > len(packet) {
				return 0, false
			}
			if Type(binary.BigEndian.Uint16(packet[nameEnd:])) == TypeOPT {
				if s != Additional || nameEnd != off+1 {
					return 0, false
				}
				return off, r.parseOPT(packet[nameEnd:next])
			}
			if !soundRData(packet, nameEnd, next) {
				return 0, false
			}
			if s == Answer && Type(binary.BigEndian.Uint16(packet[nameEnd:])) == TypeCNAME {
				r.HasCNAME = true
			}
			r.fixed = append(r.fixed, uint16(nameEnd))
			r.counts[s]++
			off = next
		}
	}
	return off, true
}

// maxOptions is how many options of a reply are recorded.
const maxOptions = 16

// parseOPT parses an OPT record from its type on.
func (r *Reply) parseOPT(opt []byte) (ok bool) {
	r.EDNS = true
	r.RCode |= RCode(opt[4]) << 4
	for b := opt[recordHead:]; len(b) > 0; {
		if len(b) < 4 {
			return false
		}
		n := OptionLen(int(binary.BigEndian.Uint16(b[2:])))
		if n > len(b) {
			return false
		}
		switch code := OptionCode(binary.BigEndian.Uint16(b)); {
		case code == OptionEDE && n >= OptionLen(2) && r.EDE == nil:
			r.EDE = &ReplyEDE{EDECode(binary.BigEndian.Uint16(b[4:])), string(b[6:n])}
		case code == OptionSubnet:
			r.Subnet = bytes.Clone(b[4:n])
		case len(r.Options) < maxOptions:
			r.Options = append(r.Options, code)
		}
		b = b[n:]
	}
	return true
}

// plainName returns the length of the uncompressed name at the start of b.
func plainName(b []byte) (length int, ok bool) {
	for off := 0; off < len(b) && off < dnsname.MaxWire; off += 1 + int(b[off]) {
		switch {
		case b[off] == 0:
			return off + 1, true
		case b[off] > dnsname.MaxLabel:
			return 0, false
		}
	}
	return 0, false
}

// endOfName returns the end of the name at off, and whether the name is valid:
// its pointers lead backward but not into the header, and it is not too long.
func endOfName(message []byte, off int) (end int, ok bool) {
	length, start := 0, off
	for off < len(message) {
		l := int(message[off])
		switch {
		case l == 0:
			if end == 0 {
				end = off + 1
			}
			return end, length+1 <= dnsname.MaxWire
		case l >= 0xc0:
			if off+2 > len(message) {
				return 0, false
			}
			if end == 0 {
				end = off + 2
			}
			to := int(binary.BigEndian.Uint16(message[off:]) & 0x3fff)
			if to >= start || to < HeaderLen {
				return 0, false
			}
			off, start = to, to
			continue
		case l > dnsname.MaxLabel:
			return 0, false
		}
		off += 1 + l
		if length += 1 + l; length > dnsname.MaxWire {
			return 0, false
		}
	}
	return 0, false
}

// layout describes where a type's RDATA contains names.
type layout struct {
	before int // octets before the names
	names  int
	after  int // octets after the names, or atLeast
	more   bool
}

// layouts lists the types whose RDATA may contain compressed names: all of RFC
// 1035, and those of RFC 3597, section 4, that a server may receive.
var layouts = map[Type]layout{
	TypeNS:    {names: 1},
	TypeCNAME: {names: 1},
	TypePTR:   {names: 1},
	typeDNAME: {names: 1},
	typeMB:    {names: 1},
	typeMG:    {names: 1},
	typeMR:    {names: 1},
	TypeSOA:   {names: 2, after: soaNumbers},
	typeMINFO: {names: 2},
	typeRP:    {names: 2},
	typeMX:    {before: 2, names: 1},
	typeAFSDB: {before: 2, names: 1},
	typeRT:    {before: 2, names: 1},
	typeKX:    {before: 2, names: 1},
	typePX:    {before: 2, names: 2},
	TypeSRV:   {before: srvFixed, names: 1},
	TypeRRSIG: {before: 18, names: 1, more: true},
	typeNSEC:  {names: 1, more: true},
}

// soaNumbers is the length of the numbers at the end of an SOA record.
const soaNumbers = 20

// soundRData reports whether a record can be relayed. Its type is at offset
// fixed, and it ends at end.
func soundRData(message []byte, fixed, end int) bool {
	off := fixed + recordHead
	switch t := Type(binary.BigEndian.Uint16(message[fixed:])); t {
	case TypeA:
		return end-off == 4
	case TypeAAAA:
		return end-off == 16
	case typeNAPTR:
		off, ok := naptrName(message[:end], off)
		if !ok {
			return false
		}
		nameEnd, ok := endOfName(message[:end], off)
		return ok && nameEnd == end
	default:
		l, ok := layouts[t]
		if !ok {
			return true
		}
		off += l.before
		for range l.names {
			if off, ok = endOfName(message[:end], off); !ok {
				return false
			}
		}
		off += l.after
		return off == end || l.more && off < end
	}
}

// naptrName returns the offset of the name in a NAPTR record (RFC 3403, section
// 4.1) whose RDATA begins at off: after two numbers and three strings.
func naptrName(message []byte, off int) (at int, ok bool) {
	off += 4
	for range 3 {
		if off >= len(message) {
			return 0, false
		}
		off += 1 + int(message[off])
	}
	return off, off < len(message)
}

// Question returns the question as received: name, type, class.
func (r *Reply) Question() []byte { return r.wire[HeaderLen:r.question] }

// Size estimates the memory that r takes, in octets.
func (r *Reply) Size() int {
	const head = 160
	return head + len(r.wire) + 2*len(r.fixed) + len(r.Subnet)
}

// Count returns the number of records in a section.
func (r *Reply) Count(s Section) int { return int(r.counts[s]) }

// DropAdditional removes the additional section, before the Reply is shared.
func (r *Reply) DropAdditional() {
	r.wire = r.wire[:r.sectionEnd(Authority)]
	r.fixed = r.fixed[:r.counts[Answer]+r.counts[Authority]]
	r.counts[Additional] = 0
}

// ReplyRecord is one record of a Reply.
type ReplyRecord struct {
	Section Section
	of      *Reply
	start   int // offset of its owner
	fixed   int // offset of its type
}

// Records yields the records in their order.
func (r *Reply) Records(yield func(ReplyRecord) bool) {
	start, i := r.question, 0
	for s := Answer; s <= Additional; s++ {
		for range r.counts[s] {
			rec := ReplyRecord{s, r, start, int(r.fixed[i])}
			if !yield(rec) {
				return
			}
			start = rec.end()
			i++
		}
	}
}

func (c ReplyRecord) end() int {
	return c.fixed + recordHead + int(binary.BigEndian.Uint16(c.of.wire[c.fixed+8:]))
}

// Type returns the record's type.
func (c ReplyRecord) Type() Type { return Type(binary.BigEndian.Uint16(c.of.wire[c.fixed:])) }

// Class returns the record's class.
func (c ReplyRecord) Class() Class { return Class(binary.BigEndian.Uint16(c.of.wire[c.fixed+2:])) }

// TTL returns the record's time to live, in seconds; a value with the first bit
// set counts as 0 (RFC 2181, section 8).
func (c ReplyRecord) TTL() uint32 {
	ttl := binary.BigEndian.Uint32(c.of.wire[c.fixed+4:])
	if ttl>>31 != 0 {
		return 0
	}
	return ttl
}

// AppendOwner appends the owner's name in lower-case wire form, without the
// closing zero octet.
func (c ReplyRecord) AppendOwner(b []byte) []byte { return appendName(b, c.of.wire, c.start) }

// AppendTarget appends the name in the RDATA of a CNAME record, in the same
// form; nothing for other types.
func (c ReplyRecord) AppendTarget(b []byte) []byte {
	if c.Type() != TypeCNAME {
		return b
	}
	return appendName(b, c.of.wire, c.fixed+recordHead)
}

// RData returns the record's RDATA as received; names in it may be compressed.
func (c ReplyRecord) RData() []byte { return c.of.wire[c.fixed+recordHead : c.end()] }

// Keys of the SVCB and HTTPS parameters that hold addresses (RFC 9460, section
// 14.3.2).
const (
	keyIPv4Hint = 4
	keyIPv6Hint = 6
)

// Addresses yields the addresses in the record: the address of an A or AAAA
// record, and the hints of an SVCB or HTTPS record (RFC 9460, sections 2.2 and
// 7.3). If such a record is malformed, the last address is the zero Addr,
// because other implementations may find an address there.
func (c ReplyRecord) Addresses(yield func(netip.Addr) bool) {
	b := c.RData()
	switch c.Type() {
	case TypeA, TypeAAAA:
		addr, _ := netip.AddrFromSlice(b) // its length was validated
		yield(addr)
	case typeSVCB, typeHTTPS:
		eachHint(b, yield)
	}
}

// eachHint yields the hints in the RDATA of an SVCB record, as Addresses does.
func eachHint(b []byte, yield func(netip.Addr) bool) {
	const priority, paramHead = 2, 4
	name, ok := plainName(b[min(priority, len(b)):])
	if !ok {
		yield(netip.Addr{})
		return
	}
	for b = b[priority+name:]; len(b) > 0; {
		if len(b) < paramHead || paramHead+int(binary.BigEndian.Uint16(b[2:])) > len(b) {
			yield(netip.Addr{})
			return
		}
		end := paramHead + int(binary.BigEndian.Uint16(b[2:]))
		if !eachAddress(binary.BigEndian.Uint16(b), b[paramHead:end], yield) {
			return
		}
		b = b[end:]
	}
}

// eachAddress yields the addresses of a parameter that holds some, and the zero
// Addr for the rest of a malformed value. It reports whether yield wants more.
func eachAddress(key uint16, value []byte, yield func(netip.Addr) bool) (more bool) {
	var length int
	switch key {
	case keyIPv4Hint:
		length = 4
	case keyIPv6Hint:
		length = 16
	default:
		return true
	}
	for ; len(value) > 0; value = value[min(length, len(value)):] {
		addr, _ := netip.AddrFromSlice(value[:min(length, len(value))]) // the zero Addr if truncated
		if !yield(addr) {
			return false
		}
	}
	return true
}

// Covers returns the type that an RRSIG record covers (RFC 4034, section
// 3.1.1).
func (c ReplyRecord) Covers() Type { return Type(binary.BigEndian.Uint16(c.RData())) }

// NegativeTTL returns, for an SOA record, the TTL of a denial that carries it
// (RFC 2308, section 5), in seconds.
func (c ReplyRecord) NegativeTTL() uint32 {
	return min(c.TTL(), binary.BigEndian.Uint32(c.of.wire[c.end()-4:]))
}

// appendName appends the valid name at off, in lower case and without the
// closing zero octet.
func appendName(b, message []byte, off int) []byte {
	for {
		l := int(message[off])
		switch {
		case l == 0:
			return b
		case l >= 0xc0:
			off = int(binary.BigEndian.Uint16(message[off:]) & 0x3fff)
		default:
			b = dnsname.AppendLower(b, message[off:off+1+l])
			off += 1 + l
		}
	}
}

// AdjustTTLs sets each record's TTL to what adjust returns for it, in seconds.
func (r *Reply) AdjustTTLs(adjust func(ReplyRecord) uint32) {
	for rec := range r.Records {
		binary.BigEndian.PutUint32(r.wire[rec.fixed+4:], adjust(rec))
	}
}

// sectionEnd returns the offset of the end of a section.
func (r *Reply) sectionEnd(s Section) int {
	n := 0
	for ; s >= Answer; s-- {
		n += int(r.counts[s])
	}
	if n == 0 {
		return r.question
	}
	last := ReplyRecord{of: r, fixed: int(r.fixed[n-1])}
	return last.end()
}

// LowercaseOwners lower-cases the owners of records, as far as they are not
// compressed: some servers repeat the question's letters in them.
func (r *Reply) LowercaseOwners() {
	for rec := range r.Records {
		for off := rec.start; r.wire[off] != 0 && r.wire[off] < 0xc0; off += 1 + int(r.wire[off]) {
			label := r.wire[off+1 : off+1+int(r.wire[off])]
			copy(label, dnsname.AppendLower(nil, label))
		}
	}
}

// EqualRecords reports whether r and o have the same records as received.
func (r *Reply) EqualRecords(o *Reply) bool {
	return r.RCode == o.RCode && r.counts == o.counts && bytes.Equal(r.wire[r.question:], o.wire[o.question:])
}

// MatchQuery reports whether r has the ID of query q, whether it has its
// question, and whether the question has the same case, which makes replies
// harder to forge.
func (r *Reply) MatchQuery(q []byte) (id, question, exactly bool) {
	id = len(q) >= r.question && binary.BigEndian.Uint16(q) == r.ID
	if len(q) < r.question {
		return id, false, false
	}
	ours, theirs := q[HeaderLen:r.question], r.Question()
	exactly = bytes.Equal(ours, theirs)
	return id, exactly || sameQuestion(ours, theirs), exactly
}

// sameQuestion compares names without case; type and class contain no letters.
func sameQuestion(a, b []byte) bool {
	n := len(a) - 4
	if len(a) != len(b) || !bytes.Equal(a[n:], b[n:]) {
		return false
	}
	var x, y [dnsname.MaxWire]byte
	return bytes.Equal(dnsname.AppendLower(x[:0], a[:n]), dnsname.AppendLower(y[:0], b[:n]))
}
