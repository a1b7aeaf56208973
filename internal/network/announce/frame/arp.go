package frame

import (
	"encoding/binary"
	"net/netip"
)

const (
	arpLen = 28
	// Operations of ARP.
	opRequest, opReply = 1, 2
	// OpAgents is the operation of messages between agents, OP_EXP1 (RFC 5494). Hosts ignore it.
	OpAgents = 24
)

// Request is an ARP request, for IPv4 on Ethernet.
type Request struct {
	SenderMAC MAC
	// Sender is 0.0.0.0 in a probe for a conflict (RFC 5227, section 1.1).
	Sender, Target netip.Addr
}

// ParseRequest reads a frame with an ARP request.
func ParseRequest(b []byte) (r Request, ok bool) {
	p, ok := parseARP(b, opRequest)
	if !ok {
		return r, false
	}
	return Request{SenderMAC: macOf(p[8:]), Sender: addr4(p[14:]), Target: addr4(p[24:])}, true
}

// ParseARPClaim reads what the sender of an ARP packet says of itself: the address that it asks or answers with is its
// own (RFC 826; RFC 5227, section 2.4). ok is false for a probe, which has none.
func ParseARPClaim(b []byte) (c Claim, ok bool) {
	p, ok := parseARP(b, opRequest)
	if !ok {
		p, ok = parseARP(b, opReply)
	}
	if !ok {
		return c, false
	}
	c = Claim{macOf(p[8:]), addr4(p[14:])}
	return c, !c.Addr.IsUnspecified()
}

// parseARP returns the ARP packet in a frame, for IPv4 on Ethernet, with an operation, from a sender with an address
// of its own.
func parseARP(b []byte, op uint16) (packet []byte, ok bool) {
	if len(b) < etherLen+arpLen || binary.BigEndian.Uint16(b[12:]) != etherARP {
		return nil, false
	}
	p := b[etherLen:]
	if binary.BigEndian.Uint64(p) != arpHead(op) {
		return nil, false
	}
	if sender := macOf(p[8:]); sender[0]&1 != 0 || sender == (MAC{}) { // a group, or none
		return nil, false
	}
	return p, true
}

// arpHead is the first 8 octets of an ARP packet for IPv4 on Ethernet.
func arpHead(op uint16) uint64 { return 0x0001_0800_0604_0000 | uint64(op) }

// arp is an ARP packet to be sent.
type arp struct {
	op                   uint16
	senderMAC, targetMAC MAC
	sender, target       netip.Addr
}

func (a *arp) append(b []byte) []byte {
	sender, target := a.sender.As4(), a.target.As4()
	b = binary.BigEndian.AppendUint64(b, arpHead(a.op))
	b = append(append(b, a.senderMAC[:]...), sender[:]...)
	return append(append(b, a.targetMAC[:]...), target[:]...)
}

// AppendReply appends the frame that answers a request: its target is at a MAC.
func AppendReply(b []byte, r *Request, at MAC) []byte {
	reply := arp{op: opReply, senderMAC: at, sender: r.Target, targetMAC: r.SenderMAC, target: r.Sender}
	return pad(reply.append(appendEther(b, r.SenderMAC, at, etherARP)))
}

// Announcements returns the frames that tell all hosts on a link that an address of IPv4 is at a MAC: the request that
// RFC 5227 specifies in section 3, and a reply, since some hosts take only those. Linux takes the reply for an
// announcement if the MACs of sender and target are the same (net/ipv4/arp.c, arp_is_garp).
func Announcements(a netip.Addr, at MAC) [][]byte {
	request := arp{op: opRequest, senderMAC: at, sender: a, target: a}
	reply := arp{op: opReply, senderMAC: at, sender: a, targetMAC: at, target: a}
	return [][]byte{
		pad(request.append(appendEther(nil, Broadcast, at, etherARP))),
		pad(reply.append(appendEther(nil, Broadcast, at, etherARP))),
	}
}
