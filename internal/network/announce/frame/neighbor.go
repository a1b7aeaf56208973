package frame

import (
	"encoding/binary"
	"net/netip"
)

const (
	ipv6Len = 40
	// solicitLen is the length of a Neighbor Solicitation or Advertisement without options.
	solicitLen     = 24
	protocolICMPv6 = 58
	typeSolicit    = 135
	typeAdvertise  = 136
	// hopLimit proves that a packet comes from the link: routers count it down (RFC 4861, section 3.1).
	hopLimit = 255

	optionSourceMAC, optionTargetMAC = 1, 2

	// Flags of an advertisement. An address of a load balancer is no router, so that the flag for these is not set.
	flagSolicited, flagOverride = 0x40, 0x20
)

// allNodes is the group of all hosts on a link (RFC 4291, section 2.7.1).
var allNodes = netip.MustParseAddr("ff02::1")

// Solicitation is a Neighbor Solicitation.
type Solicitation struct {
	// SenderMAC is where an advertisement is sent.
	SenderMAC MAC
	// Sender is :: if the host wants to know whether the address is free (RFC 4862, section 5.4).
	Sender, Target netip.Addr
}

// SolicitedGroup returns the group that solicitations for an address are sent to (RFC 4291, section 2.7.1).
func SolicitedGroup(a netip.Addr) netip.Addr {
	octets := a.As16()
	return netip.AddrFrom16([16]byte{
		0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff, 13: octets[13], 14: octets[14], 15: octets[15],
	})
}

// ParseSolicitation reads a frame with a Neighbor Solicitation that is valid by RFC 4861, section 7.1.1. One with
// extension headers is not read: hosts send none.
func ParseSolicitation(b []byte) (s Solicitation, ok bool) {
	p, ok := parseNeighbor(b, typeSolicit)
	if !ok {
		return s, false
	}
	s = Solicitation{SenderMAC: macOf(b[6:]), Sender: p.from, Target: p.target}
	given, found, ok := macIn(p.options, optionSourceMAC)
	switch {
	case !ok || p.from.IsMulticast():
		return s, false
	case p.from.IsUnspecified() && (found || p.to != SolicitedGroup(s.Target)):
		return s, false
	case found:
		s.SenderMAC = given
	}
	return s, s.SenderMAC[0]&1 == 0
}

// ParseNeighborClaim reads a frame with a Neighbor Advertisement that is valid by RFC 4861, section 7.1.2.
func ParseNeighborClaim(b []byte) (c Claim, ok bool) {
	p, ok := parseNeighbor(b, typeAdvertise)
	if !ok {
		return c, false
	}
	c = Claim{macOf(b[6:]), p.target}
	given, found, ok := macIn(p.options, optionTargetMAC)
	if found {
		c.MAC = given
	}
	return c, ok && c.MAC[0]&1 == 0
}

// neighborPacket is what solicitations and advertisements have in common.
type neighborPacket struct {
	from, to, target netip.Addr
	options          []byte
}

// parseNeighbor reads a frame with a message of Neighbor Discovery of a type, without extension headers.
func parseNeighbor(b []byte, kind byte) (p neighborPacket, ok bool) {
	if len(b) < etherLen+ipv6Len+solicitLen || binary.BigEndian.Uint16(b[12:]) != etherIPv6 {
		return p, false
	}
	ip := b[etherLen:]
	length := int(binary.BigEndian.Uint16(ip[4:]))
	if ip[0]>>4 != 6 || ip[6] != protocolICMPv6 || ip[7] != hopLimit || length < solicitLen || len(ip) < ipv6Len+length {
		return p, false
	}
	icmp := ip[ipv6Len : ipv6Len+length]
	if icmp[0] != kind || icmp[1] != 0 || checksum(ip[8:40], icmp) != 0 {
		return p, false
	}
	p = neighborPacket{addr6(ip[8:]), addr6(ip[24:]), addr6(icmp[8:]), icmp[solicitLen:]}
	return p, !p.target.IsMulticast()
}

// macIn returns the MAC in an option of a kind. ok is false if an option is malformed.
func macIn(options []byte, kind byte) (mac MAC, found, ok bool) {
	for len(options) > 0 {
		if len(options) < 2 {
			return mac, found, false
		}
		length := int(options[1]) * 8
		if length == 0 || length > len(options) {
			return mac, found, false
		}
		if options[0] == kind && length == 8 {
			mac, found = macOf(options[2:]), true
		}
		options = options[length:]
	}
	return mac, found, true
}

// AppendAdvertisement appends the frame that answers a solicitation: its target is at a MAC (RFC 4861, section 7.2.4).
func AppendAdvertisement(b []byte, s *Solicitation, at MAC) []byte {
	if s.Sender.IsUnspecified() {
		return appendAdvertisement(b, s.Target, at, advertised{allNodes, groupMAC(allNodes), flagOverride})
	}
	return appendAdvertisement(b, s.Target, at, advertised{s.Sender, s.SenderMAC, flagSolicited | flagOverride})
}

// Advertisement returns the frame that tells all hosts on a link that an address of IPv6 is at a MAC, unsolicited
// (RFC 4861, section 7.2.6).
func Advertisement(a netip.Addr, at MAC) []byte {
	return appendAdvertisement(nil, a, at, advertised{allNodes, groupMAC(allNodes), flagOverride})
}

// advertised is to whom an advertisement goes, and its flags.
type advertised struct {
	to    netip.Addr
	toMAC MAC
	flags byte
}

func appendAdvertisement(b []byte, a netip.Addr, at MAC, to advertised) []byte {
	const length = solicitLen + 8
	from, dst := a.As16(), to.to.As16()
	b = appendEther(b, to.toMAC, at, etherIPv6)
	b = append(b, 0x60, 0, 0, 0, 0, length, protocolICMPv6, hopLimit)
	addrs := len(b)
	b = append(append(b, from[:]...), dst[:]...)
	icmp := len(b)
	b = append(b, typeAdvertise, 0, 0, 0, to.flags, 0, 0, 0)
	b = append(append(b, from[:]...), optionTargetMAC, 1)
	b = append(b, at[:]...)
	binary.BigEndian.PutUint16(b[icmp+2:], checksum(b[addrs:icmp], b[icmp:]))
	return b
}

// groupMAC returns the Ethernet address of a group (RFC 2464, section 7).
func groupMAC(group netip.Addr) MAC {
	o := group.As16()
	return MAC{0x33, 0x33, o[12], o[13], o[14], o[15]}
}

// checksum is that of ICMPv6 (RFC 4443, section 2.3), over the addresses of the packet and its payload. It is 0 over a
// payload that has the right one.
func checksum(addrs, payload []byte) uint16 {
	sum := uint32(len(payload)) + protocolICMPv6
	for _, part := range [][]byte{addrs, payload} {
		for ; len(part) > 1; part = part[2:] {
			sum += uint32(binary.BigEndian.Uint16(part))
		}
		if len(part) == 1 {
			sum += uint32(part[0]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
