// Package ctnetlink reads and deletes entries of Linux's connection tracking, as the kernel's
// nf_conntrack_netlink offers it: one at a time, so that large tables take no memory here.
package ctnetlink

import (
	"errors"
	"net/netip"
)

// Family is an IP family.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns the family's name in Kubernetes.
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// Filter is which entries are read. The kernel leaves out others if it can, and returns some of them
// if it cannot: old kernels ignore parts of a Filter.
type Filter struct {
	Family Family
	// Protocol is the number of a transport protocol; 0 is all, and the other fields are zero then.
	Protocol uint8
	// Destination and DestinationPort are where the first packet was sent; zero are all.
	Destination     netip.Addr
	DestinationPort uint16
	// Translated: only entries whose destination was translated.
	Translated bool
}

// Tuple is one direction of a flow. Ports are 0 for protocols without.
type Tuple struct {
	Protocol            uint8
	Source, Destination netip.AddrPort
}

// Entry is an entry of connection tracking. It is valid until the function that it is given to
// returns.
type Entry struct {
	Original, Reply Tuple
	// Zone is not 0 where somebody tracks packets apart from others.
	Zone uint16

	reply, zone, id []byte // parts of the kernel's message
}

// Identity is that by which the kernel finds an entry, and no other.
type Identity []byte

// ErrInterrupted says that the table was rebuilt while it was read: entries may be missing.
var ErrInterrupted = errors.New("the conntrack table changed its size while it was read")
