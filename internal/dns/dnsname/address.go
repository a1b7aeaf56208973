package dnsname

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// The trees of reverse names (RFC 1035, section 3.5, and RFC 3596, section
// 2.5).
var (
	ReverseIPv4 = MustParse("in-addr.arpa")
	ReverseIPv6 = MustParse("ip6.arpa")
)

// Reverse returns the name that owns addr's PTR records. It ignores the zone of
// a scoped address and returns the root for an invalid address.
func Reverse(addr netip.Addr) Name {
	switch {
	case addr.Is4():
		return reversePrefix(addr, 32)
	case addr.IsValid():
		return reversePrefix(addr, 128)
	}
	return Root
}

// reversePrefix returns the reverse name of addr's first bits, which must be
// whole octets (IPv4) or nibbles (IPv6).
func reversePrefix(addr netip.Addr, bits int) Name {
	var buf [MaxWire]byte
	return Name{string(appendReverse(buf[:0], addr, bits))}
}

// AppendReverse appends the wire form of prefix's reverse name, without the
// root's closing zero octet. Its bits must be whole octets (IPv4) or nibbles
// (IPv6).
func AppendReverse(b []byte, prefix netip.Prefix) []byte {
	return appendReverse(b, prefix.Addr(), prefix.Bits())
}

func appendReverse(b []byte, addr netip.Addr, bits int) []byte {
	if addr.Is4() {
		raw := addr.As4()
		for i := bits/8 - 1; i >= 0; i-- {
			length := len(b)
			b = strconv.AppendUint(append(b, 0), uint64(raw[i]), 10)
			b[length] = byte(len(b) - length - 1)
		}
		return append(b, ReverseIPv4.labels...)
	}
	const hex = "0123456789abcdef"
	raw := addr.As16()
	for i := bits/4 - 1; i >= 0; i-- {
		b = append(b, 1, hex[raw[i/2]>>(4*(1-i%2))&0xf])
	}
	return append(b, ReverseIPv6.labels...)
}

// ErrPrefix is wrapped by ReverseZones for a prefix that zones cannot cover.
var ErrPrefix = errors.New("prefix too short")

// ReverseZones returns the octet zones (IPv4) or nibble zones (IPv6) that cover
// prefix, in order. An IPv4 prefix longer than 24 bits, or an IPv6 prefix
// longer than 124, is covered by its enclosing zone. A prefix of length 0 is an
// error, because its zone is the whole reverse tree.
func ReverseZones(prefix netip.Prefix) ([]Name, error) {
	if !prefix.IsValid() || prefix.Bits() == 0 {
		return nil, fmt.Errorf("reverse zones of %s: %w", prefix, ErrPrefix)
	}
	prefix = prefix.Masked()
	step, longest := 4, 124
	if prefix.Addr().Is4() {
		step, longest = 8, 24
	}
	bits := min((prefix.Bits()+step-1)/step*step, longest)
	count := 1 << max(0, bits-prefix.Bits())
	raw := prefix.Addr().AsSlice()
	last := bits/8 - 1 // the octet that differs between the zones
	if bits%8 != 0 {
		last++
	}
	unit := byte(1) << ((8 - bits%8) % 8)
	zones := make([]Name, 0, count)
	for range count {
		addr, _ := netip.AddrFromSlice(raw)
		zones = append(zones, reversePrefix(addr, bits))
		raw[last] += unit
	}
	return zones, nil
}

// ReverseAddr returns the address whose reverse name n is. ok is false for any
// other name, including names with fewer or more labels.
func ReverseAddr(n Name) (addr netip.Addr, ok bool) {
	prefix, ok := ParseReverse([]byte(n.labels))
	if !ok || !prefix.IsSingleIP() {
		return netip.Addr{}, false
	}
	return prefix.Addr(), true
}

// ParseReverse parses the reverse name of an address, or of its leading octets
// (IPv4) or nibbles (IPv6), of which there may be none. The name is in
// lower-case wire form without the root's closing zero octet. It allocates
// nothing.
func ParseReverse(labels []byte) (prefix netip.Prefix, ok bool) {
	if rest, ok := cutSuffix(labels, ReverseIPv4.labels); ok {
		return parseReverse4(rest)
	}
	if rest, ok := cutSuffix(labels, ReverseIPv6.labels); ok {
		return parseReverse6(rest)
	}
	return netip.Prefix{}, false
}

func cutSuffix(labels []byte, suffix string) ([]byte, bool) {
	n := len(labels) - len(suffix)
	if n < 0 || string(labels[n:]) != suffix {
		return nil, false
	}
	return labels[:n], true
}

func parseReverse4(labels []byte) (netip.Prefix, bool) {
	var octets [4]byte // in the order of the name, the last octet first
	count := 0
	for ; len(labels) > 0; count++ {
		end := 1 + int(labels[0])
		if count == len(octets) || end > len(labels) {
			return netip.Prefix{}, false
		}
		octet, ok := parseOctet(labels[1:end])
		if !ok {
			return netip.Prefix{}, false
		}
		octets[count] = octet
		labels = labels[end:]
	}
	slices.Reverse(octets[:count])
	return netip.PrefixFrom(netip.AddrFrom4(octets), 8*count), true
}

// parseOctet parses a decimal octet without leading zeros.
func parseOctet(digits []byte) (octet byte, ok bool) {
	value := 0
	for i, c := range digits {
		if !isDigit(c) || i == 3 || i > 0 && value == 0 {
			return 0, false
		}
		value = 10*value + int(c-'0')
	}
	return byte(value), len(digits) > 0 && value <= 255
}

func parseReverse6(labels []byte) (netip.Prefix, bool) {
	const nibbles = 32
	if len(labels)%2 != 0 || len(labels) > 2*nibbles {
		return netip.Prefix{}, false
	}
	var raw [16]byte
	count := len(labels) / 2
	for i := range count {
		at := len(labels) - 2*(i+1)
		value := hexDigit(labels[at+1])
		if labels[at] != 1 || value < 0 {
			return netip.Prefix{}, false
		}
		raw[i/2] |= byte(value) << (4 * (1 - i%2))
	}
	return netip.PrefixFrom(netip.AddrFrom16(raw), 4*count), true
}

// DashedAddr returns addr as one label: its canonical text with dashes instead
// of dots or colons, and a 0 before a leading and after a trailing dash, so
// that the label is valid in a host name. An IPv4-mapped address is written as
// IPv6 groups throughout, because with dashes the mixed form would spell
// another address. The zone of a scoped address is ignored; an invalid address
// gives "".
func DashedAddr(addr netip.Addr) string {
	var buf [MaxDashedAddr]byte
	return string(AppendDashedAddr(buf[:0], addr))
}

// AppendDashedAddr appends DashedAddr(addr) to b.
func AppendDashedAddr(b []byte, addr netip.Addr) []byte {
	if !addr.IsValid() {
		return b
	}
	if addr.Is4In6() {
		raw := addr.As16()
		b = append(b, "0--ffff-"...)
		b = strconv.AppendUint(b, uint64(raw[12])<<8|uint64(raw[13]), 16)
		b = append(b, '-')
		return strconv.AppendUint(b, uint64(raw[14])<<8|uint64(raw[15]), 16)
	}
	var text [MaxDashedAddr]byte
	t := addr.WithZone("").AppendTo(text[:0])
	if t[0] == ':' {
		b = append(b, '0')
	}
	start := len(b)
	b = append(b, t...)
	for i := start; i < len(b); i++ {
		if b[i] == '.' || b[i] == ':' {
			b[i] = '-'
		}
	}
	if b[len(b)-1] == '-' {
		b = append(b, '0')
	}
	return b
}

// MaxDashedAddr is the length of the longest label that DashedAddr returns.
const MaxDashedAddr = len("ffff-ffff-ffff-ffff-ffff-ffff-ffff-ffff")

// ParseDashedAddr parses a label that spells an address with dashes, in any
// form that netip accepts: four decimal octets, or an IPv6 address, with or
// without zeros compressed, with leading zeros, in any case. It allocates
// nothing.
func ParseDashedAddr(label []byte) (addr netip.Addr, ok bool) {
	if addr, ok := parseDashedAddr4(label); ok {
		return addr, true
	}
	return parseDashedAddr6(label)
}

func parseDashedAddr4(label []byte) (netip.Addr, bool) {
	var raw [4]byte
	octet, digits, value := 0, 0, 0
	for i := 0; i <= len(label); i++ {
		if i < len(label) && isDigit(label[i]) {
			value = value*10 + int(label[i]-'0')
			if digits++; digits > 3 || value > 255 || digits > 1 && value < 10 {
				return netip.Addr{}, false
			}
			continue
		}
		if i < len(label) && label[i] != '-' || digits == 0 || octet > 3 {
			return netip.Addr{}, false
		}
		raw[octet] = byte(value)
		octet, digits, value = octet+1, 0, 0
	}
	return netip.AddrFrom4(raw), octet == 4
}

// parseDashedAddr6 parses up to eight groups; one empty group stands for the
// missing zero groups.
func parseDashedAddr6(label []byte) (netip.Addr, bool) {
	var groups [8]uint16
	count, gap, digits, value := 0, -1, 0, 0
	for i := 0; i <= len(label); i++ {
		if i < len(label) && label[i] != '-' {
			d := hexDigit(label[i])
			if digits++; d < 0 || digits > 4 {
				return netip.Addr{}, false
			}
			value = value<<4 | d
			continue
		}
		switch {
		case digits > 0:
			if count == 8 {
				return netip.Addr{}, false
			}
			groups[count] = uint16(value)
			count, digits, value = count+1, 0, 0
		case i == 0 && len(label) > 1 && label[1] == '-', i == len(label) && gap == count && count < 8:
			// The outer dash of a leading or trailing "--".
		case gap >= 0 || i == 0 || i == len(label):
			return netip.Addr{}, false
		default:
			gap = count
		}
	}
	if gap < 0 && count != 8 || gap >= 0 && count > 7 {
		return netip.Addr{}, false
	}
	var raw [16]byte
	for i := range count {
		at := i
		if gap >= 0 && i >= gap {
			at = 8 - count + i
		}
		raw[2*at], raw[2*at+1] = byte(groups[i]>>8), byte(groups[i])
	}
	return netip.AddrFrom16(raw), true
}

func hexDigit(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
