// Package frame reads and writes the Ethernet frames by which hosts on a link learn who has an address, and by which
// the agents that announce addresses speak to each other.
//
//	arp.go:      ARP (RFC 826, RFC 5227)
//	neighbor.go: Neighbor Discovery (RFC 4861)
//	message.go:  messages between agents, in ARP packets with an operation for experiments (RFC 5494)
//
// Octets from a link may be anything: the functions that read a frame report false if it is malformed.
package frame

import (
	"encoding/binary"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the address of all hosts on a link.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

const (
	etherLen  = 14
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
	// minLen is the length of the shortest frame, without its checksum.
	minLen = 60
)

// appendEther appends the header of an Ethernet frame.
func appendEther(b []byte, to, from MAC, kind uint16) []byte {
	b = append(append(b, to[:]...), from[:]...)
	return binary.BigEndian.AppendUint16(b, kind)
}

// pad fills a frame up to the shortest length.
func pad(b []byte) []byte {
	if len(b) < minLen {
		b = append(b, make([]byte, minLen-len(b))...)
	}
	return b
}

// Claim is what a host says in a frame: it has an address.
type Claim struct {
	MAC  MAC
	Addr netip.Addr
}

func macOf(b []byte) MAC { return MAC(b[:6]) }

func addr4(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b[:4])) }

func addr6(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b[:16])) }
