package dnsname

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// The trees that reverse names are in (RFC 1035, section 3.5 and RFC 3596,
// section 2.5).
var (
	ReverseIPv4 = MustParse("in-addr.arpa")
	ReverseIPv6 = MustParse("ip6.arpa")
)

// Reverse is the name that holds addr's PTR records. The zone of a scoped
// address is ignored; an address that is not valid has the root.
func Reverse(addr netip.Addr) Name {
	switch {
	case addr.Is4():
		return reversePrefix(addr, 32)
	case addr.IsValid():
		return reversePrefix(addr, 128)
	}
	return Root
}

// reversePrefix is the reverse name of addr's first bits, which must be whole
// octets (IPv4) or nibbles (IPv6).
func reversePrefix(addr netip.Addr, bits int) Name {
	raw := addr.AsSlice()
	var b []byte
	if addr.Is4() {
		for i := bits/8 - 1; i >= 0; i-- {
			text := strconv.Itoa(int(raw[i]))
			b = append(append(b, byte(len(text))), text...)
		}
		return Name{string(b) + ReverseIPv4.labels}
	}
	const hex = "0123456789abcdef"
	for i := bits/4 - 1; i >= 0; i-- {
		nibble := raw[i/2] >> (4 * (1 - i%2)) & 0xf
		b = append(b, 1, hex[nibble])
	}
	return Name{string(b) + ReverseIPv6.labels}
}

// ErrPrefix is wrapped by ReverseZones for a prefix that it can't cover.
var ErrPrefix = errors.New("prefix too short")

// ReverseZones lists the octet zones (IPv4) or nibble zones (IPv6) that cover
// prefix, in order. An IPv4 prefix longer than 24 bits, or an IPv6 one longer
// than 124, is covered by the zone around it. A prefix of no bits is an error:
// that zone is the whole reverse tree.
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
	last := bits/8 - 1 // the octet that numbers the zones
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

// ReverseAddr is the address whose reverse name n is; ok is false for any
// other name, also one of fewer or more labels.
func ReverseAddr(n Name) (addr netip.Addr, ok bool) {
	switch {
	case n.IsSubdomainOf(ReverseIPv4):
		return reverseAddr4(n)
	case n.IsSubdomainOf(ReverseIPv6):
		return reverseAddr6(n)
	}
	return netip.Addr{}, false
}

func reverseAddr4(n Name) (netip.Addr, bool) {
	var raw [4]byte
	for i := 3; i >= 0; i-- {
		label := n.Label()
		v, err := strconv.ParseUint(label, 10, 8)
		if err != nil || label != strconv.FormatUint(v, 10) {
			return netip.Addr{}, false
		}
		raw[i] = byte(v)
		n = n.Parent()
	}
	return netip.AddrFrom4(raw), n == ReverseIPv4
}

func reverseAddr6(n Name) (netip.Addr, bool) {
	var raw [16]byte
	for i := 31; i >= 0; i-- {
		label := n.Label()
		if len(label) != 1 || hexDigit(label[0]) < 0 {
			return netip.Addr{}, false
		}
		raw[i/2] |= byte(hexDigit(label[0])) << (4 * (1 - i%2))
		n = n.Parent()
	}
	return netip.AddrFrom16(raw), n == ReverseIPv6
}

// DashedAddr is addr as one label: its canonical text with dashes for dots or
// colons, and a 0 before a leading and after a trailing dash, so that the
// label is a host name's. An IPv4-mapped address is written as IPv6 groups
// throughout, for with dashes the mixed form would spell another address. The
// zone of a scoped address is ignored; an address that is not valid has no
// text.
func DashedAddr(addr netip.Addr) string {
	var buf [dashedMax]byte
	return string(AppendDashedAddr(buf[:0], addr))
}

// AppendDashedAddr appends addr as DashedAddr spells it.
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
	var text [dashedMax]byte
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

// dashedMax is the length of the longest label of an address.
const dashedMax = len("ffff-ffff-ffff-ffff-ffff-ffff-ffff-ffff")

// ParseDashedAddr reads a label that spells an address with dashes, in any
// form that netip reads: four decimal octets, or an IPv6 address, shortened
// anywhere, with leading zeros, in any case. It allocates nothing.
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

// parseDashedAddr6 reads up to eight groups; one empty group stands for as
// many zero groups as are missing.
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
