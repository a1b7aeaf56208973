// Package wireguard programs the device of encrypted tunnels between nodes: the node's private key, and for each other
// node its public key, where it is, and which addresses it may send from ("WireGuard: Next Generation Kernel Network
// Tunnel", NDSS 2017, section 2). Package route makes the device, and the routes through it.
//
//	Peers, Changes ──► tunnels.go: what the device should have ──► kernel, or a userspace implementation
//
// The private key is only in the device and in the memory of the process: one that finds a device takes its key over.
package wireguard

import (
	"encoding/base64"
	"net/netip"
	"slices"
)

// Key is a public key (RFC 7748, section 5). The zero Key is none.
type Key [32]byte

// String returns the key in base64, as wg(8) shows it.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Peer is another node.
type Peer struct {
	Name string
	Key  Key
	// Endpoint is where its tunnels are.
	Endpoint netip.AddrPort
	// Allowed are the ranges of its packets' inner addresses. No two Peers have the same.
	Allowed []netip.Prefix
}

// Equal reports whether both are the same.
func (p *Peer) Equal(o *Peer) bool {
	return p.Name == o.Name && p.Key == o.Key && p.Endpoint == o.Endpoint && slices.Equal(p.Allowed, o.Allowed)
}

// Changes are those of Peers.
type Changes struct {
	// Put are peers that are new or changed, and Delete the names of those that are gone, both sorted.
	Put    []Peer
	Delete []string
}

// Empty reports whether nothing changed.
func (c *Changes) Empty() bool { return len(c.Put) == 0 && len(c.Delete) == 0 }
