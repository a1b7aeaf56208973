package droplog

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// Numbers of protocols and of IPv6 extension headers (IANA, Protocol Numbers).
const (
	hopByHop           = 0
	icmp               = 1
	tcp                = 6
	udp                = 17
	routing            = 43
	fragment           = 44
	authentication     = 51
	icmpv6             = 58
	destinationOptions = 60
	sctp               = 132
)

// packet is what is read of the headers of a packet.
type packet struct {
	from, to         netip.Addr
	protocol         uint8
	fromPort, toPort uint16 // 0 if there are none
}

// subject returns the address of the end that a rule for a direction is about.
func (p *packet) subject(d ruleset.Direction) netip.Addr {
	if d == ruleset.Egress {
		return p.from
	}
	return p.to
}

// parsePacket reads the headers of a packet (RFC 791, RFC 8200). It reports whether the
// addresses and the protocol are there; the ports may be missing.
func parsePacket(b []byte) (p packet, ok bool) {
	if len(b) == 0 {
		return p, false
	}
	var rest []byte
	switch b[0] >> 4 {
	case 4:
		rest, ok = p.parseIPv4(b)
	case 6:
		rest, ok = p.parseIPv6(b)
	}
	switch p.protocol {
	case tcp, udp, sctp:
		if len(rest) >= 4 {
			p.fromPort, p.toPort = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
		}
	}
	return p, ok
}

// parseIPv4 returns what follows the header; nothing for a fragment after the first.
func (p *packet) parseIPv4(b []byte) (rest []byte, ok bool) {
	const least, offsetMask = 20, 0x1fff
	head := int(b[0]&0xf) * 4
	if len(b) < least || head < least {
		return nil, false
	}
	p.from, p.to = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	p.protocol = b[9]
	if binary.BigEndian.Uint16(b[6:])&offsetMask != 0 || len(b) < head {
		return nil, true
	}
	return b[head:], true
}

// parseIPv6 is the same for IPv6, past the extension headers.
func (p *packet) parseIPv6(b []byte) (rest []byte, ok bool) {
	const head, unit, offsetMask = 40, 8, 0xfff8
	if len(b) < head {
		return nil, false
	}
	p.from, p.to = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	p.protocol = b[6]
	for rest = b[head:]; ; {
		if len(rest) < unit {
			return nil, true
		}
		length := unit
		switch p.protocol {
		case hopByHop, routing, destinationOptions:
			length += int(rest[1]) * unit
		case authentication:
			length = (int(rest[1]) + 2) * 4
		case fragment:
			if binary.BigEndian.Uint16(rest[2:])&offsetMask != 0 {
				p.protocol = rest[0]
				return nil, true
			}
		default:
			return rest, true
		}
		p.protocol = rest[0]
		rest = rest[min(length, len(rest)):]
	}
}

var protocolNames = map[uint8]string{icmp: "ICMP", tcp: "TCP", udp: "UDP", icmpv6: "ICMPv6", sctp: "SCTP"}

func protocolName(n uint8) string {
	if name := protocolNames[n]; name != "" {
		return name
	}
	return strconv.Itoa(int(n))
}
