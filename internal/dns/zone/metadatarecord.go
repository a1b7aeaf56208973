package zone

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// TypeMarks is the type of records that tell a replica what is said of a name
// beside its records. It is of the range for private use (RFC 6895, section 3.1);
// only replicas are sent such records. Each base of a Subtree, and each parent of
// Hosts, owns one that holds its Marks; a reverse name owns one for each target
// that comes before the others, where the order is not the canonical one.
const TypeMetadata = dnswire.Type(65280)

// ErrMarks is wrapped by errors about RDATA of TypeMarks.
var ErrMetadata = errors.New("not marks of a known version")

// What the first octet of such RDATA says that it is, and in which version.
const (
	baseMarks1    = 1 // of a base
	pointerMarks1 = 2 // of a reverse name
)

// The second octet of a base's.
const (
	markExists        = 1 << 0
	markChildrenShift = 1 // two bits
	markNote          = 1 << 3
	markBelow         = 1 << 4
	markUnderscored   = 1 << 5
	markUnknown       = 1<<6 | 1<<7

	markPending = 1 << 0 // of a note
)

// maxNoteText is the longest text of a note that is sent, in octets.
const maxNoteText = 4096

// AppendMarks appends m, but for Aged, as RDATA of TypeMarks: 1, flags, ChildTTL,
// and each note that there is: code, flags, length of the text, the text.
func AppendMetadata(b []byte, m *Metadata) []byte {
	flags := byte(m.Children) << markChildrenShift
	if m.Exists {
		flags |= markExists
	}
	head := len(b)
	b = append(b, baseMarks1, 0)
	b = binary.BigEndian.AppendUint32(b, m.ChildTTL)
	for _, n := range [...]struct {
		flag byte
		note *EDE
	}{{markNote, m.EDE}, {markBelow, m.Below}, {markUnderscored, m.Underscored}} {
		if n.note != nil {
			flags |= n.flag
			b = appendNote(b, n.note)
		}
	}
	b[head+1] = flags
	return b
}

func appendNote(b []byte, n *EDE) []byte {
	text := n.Text[:min(len(n.Text), maxNoteText)]
	b = binary.BigEndian.AppendUint16(b, uint16(n.Code))
	if n.Pending {
		b = append(b, markPending)
	} else {
		b = append(b, 0)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// ParseMarks reads RDATA that AppendMarks made.
func ParseMetadata(rdata []byte) (m Metadata, err error) {
	if len(rdata) < 6 || rdata[0] != baseMarks1 || rdata[1]&markUnknown != 0 {
		return Metadata{}, ErrMetadata
	}
	flags := rdata[1]
	m.Exists = flags&markExists != 0
	m.Children = Children(flags >> markChildrenShift & 3)
	m.ChildTTL = binary.BigEndian.Uint32(rdata[2:])
	rdata = rdata[6:]
	for _, n := range [...]struct {
		flag byte
		note **EDE
	}{{markNote, &m.EDE}, {markBelow, &m.Below}, {markUnderscored, &m.Underscored}} {
		if flags&n.flag == 0 {
			continue
		}
		if *n.note, rdata = parseNote(rdata); *n.note == nil {
			return Metadata{}, ErrMetadata
		}
	}
	if len(rdata) != 0 || m.Children > Synthesized {
		return Metadata{}, ErrMetadata
	}
	return m, nil
}

// parseNote reads the note at the start of b, nil when there is none, and gives
// what is behind it.
func parseNote(b []byte) (n *EDE, rest []byte) {
	const fixed = 5
	if len(b) < fixed || b[2]&^markPending != 0 {
		return nil, nil
	}
	end := fixed + int(binary.BigEndian.Uint16(b[3:]))
	if len(b) < end || end-fixed > maxNoteText {
		return nil, nil
	}
	return &EDE{
		Code: dnswire.EDECode(binary.BigEndian.Uint16(b)), Pending: b[2]&markPending != 0, Text: string(b[fixed:end]),
	}, b[end:]
}

// pointerMarks is RDATA of TypeMarks that says that a target of a PTR record comes
// before those of which there is none: 2, and its name.
func pointerMarks(p pointer, addr netip.Addr) []byte {
	return p.appendTarget([]byte{pointerMarks1}, addr)
}

// parsePointerMarks reads the target in RDATA that pointerMarks made.
func parsePointerMarks(rdata []byte) (target dnsname.Name, err error) {
	if len(rdata) == 0 || rdata[0] != pointerMarks1 {
		return dnsname.Name{}, ErrMetadata
	}
	target, n, err := dnsname.FromWire(rdata[1:])
	if err != nil || 1+n != len(rdata) {
		return dnsname.Name{}, ErrMetadata
	}
	return target, nil
}
