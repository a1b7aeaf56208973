package frame

import (
	"encoding/binary"
	"net/netip"
)

// Kind is what a Message says.
type Kind uint8

// The kinds of messages.
const (
	// Probe asks the node About which of Addrs it announces. If it went to all hosts, others answer as well, with
	// Vouch.
	Probe Kind = 1 + iota
	// Reply answers a Probe: of its Addrs, From announces these, or would if all before it were dead.
	Reply
	// Vouch answers a Probe for another node: From hears from the node About, which announces Addrs of those in question,
	// or would.
	Vouch
	// Active says that From announces Addrs.
	Active
	// Release says that From does not announce Addrs any more, since the node About does. If that is 0, From would like to
	// stop, and the best of the others takes them over.
	Release
	// Deny says that the node About announces Addrs and is no candidate for them, as far as From, which announces them
	// as well, knows the cluster.
	Deny
)

// MaxAddrs is how many addresses a message has at most: as many as Message.Announced has bits.
const MaxAddrs = 64

// Message is what an agent tells others on a link.
type Message struct {
	Kind Kind
	// Cluster is a number of the cluster: there may be several on a link.
	Cluster uint64
	// From and About are numbers of nodes; About is 0 if the message is about none.
	From, About uint64
	Addrs       []netip.Addr
	// Announced has a bit for each of Addrs, of a Reply or Vouch: whether the node announces it. The lowest is the first.
	Announced uint64
}

// A message follows an ARP packet without addresses of IPv4:
//
//	magic (4) | kind (1) | version (1) | number of addresses (2) | cluster (8) | from (8) | about (8) |
//	announced (8) | addresses (16 each)
const (
	// Magic begins a message, after the ARP packet.
	Magic      = 0x50_54_4c_4e
	version    = 1
	messageLen = 40
)

// ParseMessage reads a frame with a message of an agent, and returns the MAC of its sender.
func ParseMessage(b []byte) (m Message, from MAC, ok bool) {
	p, ok := parseARP(b, OpAgents)
	if !ok {
		return m, from, false
	}
	from, p = macOf(p[8:]), p[arpLen:]
	if len(p) < messageLen || binary.BigEndian.Uint32(p) != Magic || p[5] != version {
		return m, from, false
	}
	m.Kind = Kind(p[4])
	count := int(binary.BigEndian.Uint16(p[6:]))
	m.Cluster, m.From = binary.BigEndian.Uint64(p[8:]), binary.BigEndian.Uint64(p[16:])
	m.About, m.Announced = binary.BigEndian.Uint64(p[24:]), binary.BigEndian.Uint64(p[32:])
	p = p[messageLen:]
	if m.Kind < Probe || m.Kind > Deny || count > MaxAddrs || len(p) < 16*count {
		return m, from, false
	}
	for i := range count {
		m.Addrs = append(m.Addrs, addr6(p[16*i:]).Unmap())
	}
	return m, from, true
}

// AppendMessage appends the frame of a message. It must have at most MaxAddrs addresses.
func AppendMessage(b []byte, m *Message, to, from MAC) []byte {
	none := arp{op: OpAgents, senderMAC: from, sender: netip.IPv4Unspecified(), target: netip.IPv4Unspecified()}
	b = none.append(appendEther(b, to, from, etherARP))
	b = binary.BigEndian.AppendUint32(b, Magic)
	b = append(b, byte(m.Kind), version)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Addrs)))
	b = binary.BigEndian.AppendUint64(b, m.Cluster)
	b = binary.BigEndian.AppendUint64(b, m.From)
	b = binary.BigEndian.AppendUint64(b, m.About)
	b = binary.BigEndian.AppendUint64(b, m.Announced)
	for _, a := range m.Addrs {
		octets := a.As16()
		b = append(b, octets[:]...)
	}
	return b
}
