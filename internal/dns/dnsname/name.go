// Package dnsname holds domain names in one canonical form and the names of
// addresses in DNS.
//
// Names follow RFC 1035, sections 2.3.4 and 3.1 (labels of at most 63 octets,
// at most 255 octets in all); case-insensitive comparison follows RFC 4343;
// canonical order follows RFC 4034, section 6.1. Reverse names follow RFC 1035,
// section 3.5, and RFC 3596, section 2.5.
package dnsname

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of RFC 1035, section 2.3.4, in octets.
const (
	MaxLabel = 63
	MaxWire  = 255
)

// Errors that Parse and FromWire wrap.
var (
	ErrEmptyLabel = errors.New("empty label")
	ErrLongLabel  = errors.New("label longer than 63 octets")
	ErrLongName   = errors.New("name longer than 255 octets")
	ErrEscape     = errors.New("bad escape")
	ErrWire       = errors.New("not a name in wire form")
)

// Name is a domain name: comparable with ==, lower-case and absolute. Its zero
// value is the root.
type Name struct {
	// labels is the wire form without the root's closing zero octet, so
	// that the zero Name is the root.
	labels string
}

// Root is the root of the name space, the zero Name.
var Root Name

// Parse parses a name in presentation form (RFC 1035, section 5.1), with or
// without the closing dot; a backslash escapes one character or three decimal
// digits. "." is the root.
func Parse(s string) (Name, error) {
	if s == "." {
		return Root, nil
	}
	wire := make([]byte, 0, len(s)+1)
	start := 0 // offset of the current label's length octet
	wire = append(wire, 0)
	closeLabel := func() error {
		n := len(wire) - start - 1
		if n == 0 {
			return ErrEmptyLabel
		}
		if n > MaxLabel {
			return ErrLongLabel
		}
		wire[start] = byte(n)
		return nil
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch c {
		case '.':
			if err := closeLabel(); err != nil {
				return Root, fmt.Errorf("name %q: %w", s, err)
			}
			if i == len(s)-1 {
				return fromLabels(s, wire)
			}
			start = len(wire)
			wire = append(wire, 0)
		case '\\':
			b, n, ok := unescape(s[i+1:])
			if !ok {
				return Root, fmt.Errorf("name %q: %w", s, ErrEscape)
			}
			i += n
			wire = append(wire, lower(b))
		default:
			wire = append(wire, lower(c))
		}
	}
	if err := closeLabel(); err != nil {
		return Root, fmt.Errorf("name %q: %w", s, err)
	}
	return fromLabels(s, wire)
}

func fromLabels(s string, wire []byte) (Name, error) {
	if len(wire)+1 > MaxWire {
		return Root, fmt.Errorf("name %q: %w", s, ErrLongName)
	}
	return Name{string(wire)}, nil
}

// unescape decodes what follows a backslash: it returns the octet and how many
// characters of s it consumed.
func unescape(s string) (octet byte, taken int, ok bool) {
	if s == "" {
		return 0, 0, false
	}
	if !isDigit(s[0]) {
		return s[0], 1, true
	}
	if len(s) < 3 || !isDigit(s[1]) || !isDigit(s[2]) {
		return 0, 0, false
	}
	v := int(s[0]-'0')*100 + int(s[1]-'0')*10 + int(s[2]-'0')
	if v > 255 {
		return 0, 0, false
	}
	return byte(v), 3, true
}

// MustParse is like Parse but panics on an invalid name. It is for constants.
func MustParse(s string) Name {
	n, err := Parse(s)
	if err != nil {
		panic(err)
	}
	return n
}

// FromWire parses the uncompressed name at the start of wire, in any case, and
// returns how many octets it occupies. Labels are lower-cased.
func FromWire(wire []byte) (n Name, taken int, err error) {
	off := 0
	for {
		if off >= len(wire) || off >= MaxWire {
			return Root, 0, ErrWire
		}
		l := int(wire[off])
		if l == 0 {
			break
		}
		if l > MaxLabel || off+1+l >= len(wire) {
			return Root, 0, ErrWire
		}
		off += 1 + l
	}
	var buf [MaxWire]byte
	low := AppendLower(buf[:0], wire[:off])
	return Name{string(low)}, off + 1, nil
}

// AppendLower appends wire, a name or part of one, with its ASCII letters in
// lower case. Length octets are less than 'A', so all octets are mapped alike.
func AppendLower(dst, wire []byte) []byte {
	for _, c := range wire {
		dst = append(dst, lower(c))
	}
	return dst
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// Child returns the name one label below n. The label is a string of octets
// without escapes.
func (n Name) Child(label string) (Name, error) {
	switch {
	case label == "":
		return Root, fmt.Errorf("label below %s: %w", n, ErrEmptyLabel)
	case len(label) > MaxLabel:
		return Root, fmt.Errorf("label %q below %s: %w", label, n, ErrLongLabel)
	case 1+len(label)+len(n.labels)+1 > MaxWire:
		return Root, fmt.Errorf("label %q below %s: %w", label, n, ErrLongName)
	}
	var buf [MaxWire]byte
	b := AppendLabel(buf[:0], label)
	return Name{string(append(b, n.labels...))}, nil
}

// AppendLabel appends label in lower-case wire form. It must not be empty or
// longer than MaxLabel.
func AppendLabel(b []byte, label string) []byte {
	b = append(b, byte(len(label)))
	for i := range len(label) {
		b = append(b, lower(label[i]))
	}
	return b
}

// Parent returns the name one label above n; the root's parent is the root.
func (n Name) Parent() Name {
	if n.IsRoot() {
		return n
	}
	return Name{n.labels[1+int(n.labels[0]):]}
}

// Label returns n's first label, as octets; the root has none.
func (n Name) Label() string {
	if n.IsRoot() {
		return ""
	}
	return n.labels[1 : 1+int(n.labels[0])]
}

// IsRoot reports whether n is the root.
func (n Name) IsRoot() bool { return n.labels == "" }

// IsSubdomainOf reports whether n is zone or below it.
func (n Name) IsSubdomainOf(zone Name) bool { return endsWith(n.labels, zone.labels) }

// Contains reports whether the name with the given labels, in lower-case wire
// form without the root's closing zero octet, is n or below it. It allocates
// nothing.
func (n Name) Contains(labels []byte) bool { return endsWith(labels, n.labels) }

// endsWith reports whether labels ends with the whole labels of zone.
func endsWith[T string | []byte](labels T, zone string) bool {
	if len(labels) < len(zone) {
		return false
	}
	off := 0
	for len(labels)-off > len(zone) {
		off += 1 + int(labels[off])
	}
	return string(labels[off:]) == zone
}

// Labels returns the number of n's labels; the root has none.
func (n Name) Labels() int {
	count := 0
	for off := 0; off < len(n.labels); off += 1 + int(n.labels[off]) {
		count++
	}
	return count
}

// WireLen returns the length of n's wire form in octets, including the closing
// zero.
func (n Name) WireLen() int { return len(n.labels) + 1 }

// WireLabels returns n's wire form without its closing zero octet.
func (n Name) WireLabels() string { return n.labels }

// AppendWire appends n's uncompressed wire form.
func (n Name) AppendWire(b []byte) []byte {
	return append(append(b, n.labels...), 0)
}

// String returns n in presentation form with its closing dot; special and
// unprintable octets are escaped.
func (n Name) String() string { return string(AppendText(nil, n.labels)) }

// MaxText is the length of the longest name in presentation form, in octets: a name of escaped
// ones only.
const MaxText = MaxWire * len(`\000`)

// AppendText appends the presentation form of a name, which labels is without its closing zero
// octet in wire form.
func AppendText[T string | []byte](b []byte, labels T) []byte {
	if len(labels) == 0 {
		return append(b, '.')
	}
	for off := 0; off < len(labels); {
		l := int(labels[off])
		for i := off + 1; i <= off+l; i++ {
			b = appendEscaped(b, labels[i])
		}
		b = append(b, '.')
		off += 1 + l
	}
	return b
}

func appendEscaped(b []byte, c byte) []byte {
	switch {
	case strings.IndexByte(`.\"();@$`, c) >= 0:
		return append(b, '\\', c)
	case c <= ' ' || c > '~':
		return append(b, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
	}
	return append(b, c)
}

// Compare compares names in canonical order (RFC 4034, section 6.1): label by
// label from the root, each label as octets. It returns -1, 0 or +1.
func (n Name) Compare(m Name) int {
	var nBuf, mBuf [MaxWire / 2]uint8
	nOff, mOff := n.offsets(nBuf[:0]), m.offsets(mBuf[:0])
	for i, j := len(nOff)-1, len(mOff)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		a, b := n.labels[nOff[i]:], m.labels[mOff[j]:]
		if c := strings.Compare(a[1:1+int(a[0])], b[1:1+int(b[0])]); c != 0 {
			return c
		}
	}
	return len(nOff) - len(mOff)
}

func (n Name) offsets(buf []uint8) []uint8 {
	for off := 0; off < len(n.labels); off += 1 + int(n.labels[off]) {
		buf = append(buf, uint8(off))
	}
	return buf
}

// Under returns n followed by zone's labels.
func (n Name) Under(zone Name) (Name, error) {
	if len(n.labels)+zone.WireLen() > MaxWire {
		return Root, fmt.Errorf("%s below %s: %w", n, zone, ErrLongName)
	}
	return Name{n.labels + zone.labels}, nil
}
