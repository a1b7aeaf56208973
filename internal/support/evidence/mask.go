package evidence

import "net/netip"

// Mask is what is kept of the addresses of clients.
type Mask string

// The masks.
const (
	MaskNone   Mask = "none"   // whole addresses, and the names of Pods
	MaskPrefix Mask = "prefix" // the first 24 bits of IPv4 addresses and 56 of IPv6 addresses
	MaskAll    Mask = "all"    // nothing
)

// The bits that MaskPrefix keeps: IPv6 sites commonly have 56 (RFC 6177).
const (
	maskedIPv4 = 24
	maskedIPv6 = 56
)

// client returns what is kept of an address; the invalid Prefix if that is nothing.
func (m Mask) client(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	switch m {
	case MaskAll:
		return netip.Prefix{}
	case MaskPrefix:
		bits = maskedIPv6
		if addr.Is4() {
			bits = maskedIPv4
		}
	case MaskNone:
	}
	prefix, _ := addr.Prefix(bits) // invalid without an address
	return prefix
}

// ClientText returns the text of the client: an address, a prefix if clients are masked, or nothing.
func (e *Event) ClientText() string {
	switch p := e.Client; {
	case !p.IsValid():
		return ""
	case p.IsSingleIP():
		return p.Addr().String()
	default:
		return p.String()
	}
}
