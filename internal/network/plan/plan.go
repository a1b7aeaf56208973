// Package plan compiles Nodes, ServiceCIDRs and the own host's interfaces into what lies between a node and the
// others, and into the ranges whose packets keep their source address (Kubernetes, "The Kubernetes network model").
//
//	cluster.View, route.Host ──► claims.go:   which Node has a range, an address or a MAC that several claim
//	                             peer.go:     how another node and its Pods are reached
//	                             encrypt.go:  the encrypted tunnel to it
//	                             local.go:    what the own node has: tunnels, MTU, source addresses
//	                             cover.go:    the ranges of the cluster
//	                             compiler.go: what changed
//	                         ──► route.Plan, nft.Ranges, wireguard.Peers, verdicts
package plan

import (
	"fmt"
	"net/netip"

	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/wireguard"
)

// Encapsulation is when packets to another node's Pods go through a tunnel.
type Encapsulation string

// The ways.
const (
	// CrossSubnet: unless the own host shares a link with the other node.
	CrossSubnet Encapsulation = "crossSubnet"
	Always      Encapsulation = "always"
	// Never: nodes that share no link are not reached.
	Never Encapsulation = "never"
)

// Config configures a Compiler.
type Config struct {
	// Node is the name of the own Node.
	Node          string
	Encapsulation Encapsulation
	// VNI and Port are those of VXLAN.
	VNI  uint32
	Port uint16
	// NodesOutside: Pods reach the addresses of nodes outside of tunnels, also of those behind one.
	NodesOutside bool
	Encryption   Encryption
	// Keyless is what becomes of packets to a Node without a key.
	Keyless Keyless
	// WireGuardPort is the UDP port of encrypted tunnels.
	WireGuardPort uint16
	// MTU is that of Pods; 0 is the uplink's less what encapsulation takes.
	MTU int
	// NonMasquerade are further ranges to which Pods keep their address.
	NonMasquerade []netip.Prefix

	mac func(node string) route.MAC // route.MACOf, unless it is set
}

// State is what everything compiles into.
type State struct {
	Routes route.Plan
	Ranges nft.Ranges
	// Tunnels are the encrypted ones, sorted by name.
	Tunnels []wireguard.Peer
}

// Changes are those of a State.
type Changes struct {
	Routes  route.Changes
	Ranges  nft.RangeChanges
	Tunnels wireguard.Changes
}

// Reason is why a part of a Node has no effect.
type Reason string

// The reasons.
const (
	// OwnMissing: the own Node is not in the cluster, so that nothing is compiled.
	OwnMissing Reason = "own-node-missing"
	// NotLocal: the own host does not have the own Node's address.
	NotLocal Reason = "address-not-local"
	// NoRange: nobody gave the Node a range for its Pods.
	NoRange Reason = "no-pod-cidr"
	// NoAddress: the Node has no usable InternalIP.
	NoAddress Reason = "no-internal-ip"
	// RangeTooWide: a range is wider than any node's, and would take what is not of the cluster.
	RangeTooWide Reason = "pod-cidr-too-wide"
	// RangeOfHost: a range has an address of the own host, which a route to it would cut off, and a Pod could get.
	RangeOfHost Reason = "pod-cidr-of-host"
	// RangeTaken: a range overlaps one of an older Node, which has it.
	RangeTaken Reason = "pod-cidr-taken"
	// AddressTaken: an older Node has the same InternalIP.
	AddressTaken Reason = "internal-ip-taken"
	// MACTaken: another Node's name leads to the same MAC in tunnels.
	MACTaken Reason = "mac-taken"
	// NoCommonFamily: the Node has no InternalIP of a family of the own Node's, for a tunnel.
	NoCommonFamily Reason = "no-common-family"
	// NoKey: the Node has no key for an encrypted tunnel.
	NoKey Reason = "no-wireguard-key"
	// KeyTaken: an older Node has the same key.
	KeyTaken Reason = "wireguard-key-taken"
	// OffLink: the Node shares no link with the own host, and tunnels are switched off.
	OffLink Reason = "off-link"
)

// Verdict says what of a Node has no effect, and why.
type Verdict struct {
	Reason Reason
	// Range is the range that is concerned; the zero Prefix for those that concern all of the Node: OwnMissing, NotLocal,
	// NoRange, NoAddress and AddressTaken.
	Range netip.Prefix
	// Addr is the address that is concerned, for NotLocal, RangeOfHost and AddressTaken.
	Addr netip.Addr
	// Other is the Node that has what is claimed.
	Other string
}

// String says it in words.
func (v Verdict) String() string {
	switch v.Reason {
	case OwnMissing:
		return "the own Node is not in the cluster"
	case NotLocal:
		return fmt.Sprintf("no interface of the host has the InternalIP %s", v.Addr)
	case NoRange:
		return "no podCIDR"
	case NoAddress:
		return "no usable InternalIP"
	case RangeTooWide:
		return fmt.Sprintf("podCIDR %s is no range of a node: it has less than %d bits", v.Range, minBits(v.Range))
	case RangeOfHost:
		return fmt.Sprintf("podCIDR %s has %s, an address of the host", v.Range, v.Addr)
	case RangeTaken:
		return fmt.Sprintf("podCIDR %s overlaps one of Node %s, which has it", v.Range, v.Other)
	case AddressTaken:
		return fmt.Sprintf("Node %s has the InternalIP %s", v.Other, v.Addr)
	case MACTaken:
		return fmt.Sprintf("podCIDR %s: Node %s has the same MAC in tunnels", v.Range, v.Other)
	case NoKey:
		return fmt.Sprintf("podCIDR %s: the node has no key for an encrypted tunnel", v.Range)
	case KeyTaken:
		return fmt.Sprintf("podCIDR %s: Node %s has the same key for encrypted tunnels", v.Range, v.Other)
	case NoCommonFamily:
		return fmt.Sprintf("podCIDR %s: both nodes have InternalIPs, but none of the same family", v.Range)
	case OffLink:
		return fmt.Sprintf("podCIDR %s: the node is on no link of the host, and network.encapsulation is never", v.Range)
	}
	return string(v.Reason)
}
