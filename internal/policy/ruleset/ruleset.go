// Package ruleset is what policies are compiled into for one node: which packets of the node's own Pods
// pass. It knows nothing of Kubernetes, so that the kernel can be programmed from it, and flows that
// exist can be judged by it.
//
//	Ruleset
//	  Pods    10.244.1.7 ──► chains "in-5f2a…", "out-91cc…"   the node's Pods; "" accepts all
//	  Chains  in-5f2a…: Rules in order, the first that matches decides
//	  Sets    pods-kz5mq3ba: 10.244.1.9, 10.244.2.14          the peers that Rules name
//
// A packet is judged at its destination's address and port after translation, and at its source's
// address before it is masqueraded. It needs the egress of a Pod of the node that sends it, and the
// ingress of a Pod of the node that receives it. If it comes by a Pod's device, its source must be an address
// of that Pod.
package ruleset

import (
	"iter"
	"net/netip"
	"slices"
	"time"
)

// Direction is the direction of packets that a Chain judges, seen from its Pod.
type Direction uint8

// The directions. The peer is the source for Ingress, the destination for Egress.
const (
	Ingress Direction = iota
	Egress
)

// String returns the word for metrics and logs.
func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}

// Protocol is the number of a transport protocol (IANA, Protocol Numbers).
type Protocol uint8

// The protocols that policies name.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// Kind is what the elements of a Set are.
type Kind uint8

// The kinds.
const (
	// Hosts has addresses.
	Hosts Kind = iota
	// Blocks has prefixes that do not overlap.
	Blocks
	// HostPorts has addresses, each with a protocol and a port.
	HostPorts
	// Resolved has addresses of domain names, which expire. Whoever resolves names fills it in the
	// kernel; a Ruleset gives it no elements.
	Resolved
)

// Set is the peers that a Rule can name, of both families. A set has a name by which it is known, of at most 31
// octets. That of a set of kind Resolved is the same on each start, and no other set ever has it; that of another one
// almost always.
type Set struct {
	Kind Kind
	// Comment says what is in it, for people; at most 120 octets of printable ASCII.
	Comment string
	// Domains are what a set of kind Resolved is for: names in lower case without a dot at the end, or
	// "*." and a name for all names under it.
	Domains []string
}

// Resolution is a change of a Set of kind Resolved.
type Resolution struct {
	Set string
	// Addrs are addresses of both families. They are in the set for TTL from now on, also those that were in it
	// before; with TTL 0 they leave it.
	Addrs []netip.Addr
	TTL   time.Duration
}

// Element is an element of a Set. For Hosts and HostPorts, Prefix is a whole address. Protocol and Port
// are set for HostPorts only.
type Element struct {
	Prefix   netip.Prefix
	Protocol Protocol
	Port     uint16
}

// Chain is a list of Rules. Its name depends on its content, so that it never changes.
type Chain struct {
	Direction Direction
	Comment   string // as of a Set
	Rules     []Rule
}

// Rule matches packets by all that it has. A chain whose rules all fail to match accepts.
type Rule struct {
	// Peers is the Set with the peer's address, or for HostPorts, which only chains for Egress have,
	// with the destination's address, protocol and port; empty matches all.
	Peers string
	// Ports are those of the destination; none matches all packets, also of other protocols.
	Ports []Ports
	Where Where
	// Action is what happens to what it matches.
	Action Action
	// Chain is where Goto goes on.
	Chain string
	// Reason is why, for the log of Deny and Report; at most 80 octets of printable ASCII without
	// quotes.
	Reason string
}

// Ports are the ports of a protocol from First to Last; 0 to 65535 is the whole protocol.
type Ports struct {
	Protocol    Protocol
	First, Last uint16
}

// Where is what a Rule matches of the way of a packet.
type Where uint8

// The ways.
const (
	Anywhere Where = iota
	// ToNode is packets from a Pod to its own node.
	ToNode
	// ToSelf is packets of a Pod to its own address.
	ToSelf
)

// Action is what a Rule does.
type Action uint8

// The actions. All but Report end the chain.
const (
	Accept Action = iota
	// Deny logs and drops.
	Deny
	// Report logs what a policy in audit mode would drop, and goes on with the next rule.
	Report
	// Goto goes on in another chain, and does not return.
	Goto
)

// Pod has the chains that judge packets to and from an address of a Pod on the node; an empty name
// accepts all.
type Pod struct{ Ingress, Egress string }

// Device is the device of the node that a Pod is behind: packets come by it from this Pod alone.
type Device struct {
	// Addrs are what packets that come by it may have as their source, besides addresses of the link
	// (RFC 4291, section 2.5.6).
	Addrs []netip.Addr
	// Egress is the chain that judges packets with an address of the link; empty accepts all.
	Egress string
}

// Equal reports whether devices have equal chains, and the same addresses in the same order.
func (d *Device) Equal(o *Device) bool { return d.Egress == o.Egress && slices.Equal(d.Addrs, o.Addrs) }

// Ruleset is all that a node's policies are compiled into. Its methods are not safe for concurrent use
// with changes of it.
type Ruleset interface {
	// Sets are in no order; so are all others.
	Sets() iter.Seq2[string, Set]
	// Set returns a set, and whether there is one.
	Set(name string) (Set, bool)
	// Elements returns the elements of a set; none if there is no such set.
	Elements(set string) iter.Seq[Element]
	// Contains reports whether an address is in a set, for HostPorts with the protocol and the port;
	// false if there is no such set, or if it is of kind Resolved.
	Contains(set string, addr netip.Addr, protocol Protocol, port uint16) bool
	Chains() iter.Seq2[string, *Chain]
	// Chain returns a chain, or nil.
	Chain(name string) *Chain
	// Pods are the addresses of Pods on the node.
	Pods() iter.Seq2[netip.Addr, Pod]
	// Pod returns the chains of an address, and whether a Pod on the node has it.
	Pod(netip.Addr) (Pod, bool)
	// Devices are those of Pods on the node that are known, by index.
	Devices() iter.Seq2[uint32, Device]
	// Device returns what comes by a device, and whether it is known to be a Pod's.
	Device(index uint32) (Device, bool)
	// Ranges are what the node's Pods get addresses of, and do not overlap. Packets from or to an
	// address in them that no Pod has are dropped.
	Ranges() []netip.Prefix
}

// Delta is how a Ruleset changed. What is new is described by the Ruleset itself.
type Delta struct {
	// NewSets come with the elements that Elements of the Ruleset returns.
	NewSets, GoneSets     []string
	NewChains, GoneChains []string
	// Elements are the changes of sets that were there before and still are.
	Elements map[string]Change
	// Pods are the addresses whose chains changed, came or went.
	Pods []netip.Addr
	// Devices are the indexes of those that changed, came or went.
	Devices []uint32
	// Ranges: they changed.
	Ranges bool
}

// Change is how the elements of a Set changed.
type Change struct{ Add, Remove []Element }

// Empty reports whether nothing changed.
func (d *Delta) Empty() bool {
	return len(d.NewSets)+len(d.GoneSets)+len(d.NewChains)+len(d.GoneChains)+len(d.Elements)+len(d.Pods)+
		len(d.Devices) == 0 && !d.Ranges
}
