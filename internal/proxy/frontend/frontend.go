// Package frontend describes what a node does with packets to Services: the addresses at
// which clients reach them, and where their packets go. It is what package plan compiles
// the model into and what package nft programs into the kernel; it knows nothing of either.
//
// An Evaluator evaluates connections as the kernel does. Tests compare the kernel with it, and
// explanations are made of its verdicts.
//
//	plan ──► Frontend ──► nft ──► kernel
//	             │
//	             └─► Evaluator ──► Verdict ──► explain, tests
package frontend

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Protocol is a transport protocol by its number (IANA, "Protocol Numbers").
type Protocol uint8

// The protocols of Services.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the protocol's name in lower case, or its number.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// Address is a destination of packets.
type Address struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// String returns the address as in "10.96.0.10:53/udp".
func (a Address) String() string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(a.Addr, a.Port), a.Protocol)
}

// Compare orders addresses by IP address, protocol and port.
func (a Address) Compare(o Address) int {
	if c := a.Addr.Compare(o.Addr); c != 0 {
		return c
	}
	if c := int(a.Protocol) - int(o.Protocol); c != 0 {
		return c
	}
	return int(a.Port) - int(o.Port)
}

// Policy is which clients may use which endpoints of a Frontend.
type Policy uint8

const (
	// Plain uses Endpoints for all clients: cluster IPs.
	Plain Policy = iota
	// External uses Endpoints for all clients and masquerades them, so that replies return
	// through the node: externalTrafficPolicy Cluster.
	External
	// ExternalLocal uses Local for clients outside, whose address endpoints see. Pods and
	// the node itself use Endpoints: externalTrafficPolicy Local.
	ExternalLocal
)

// Empty is what happens to connections for which a list of endpoints is empty.
type Empty uint8

const (
	// Reject answers with a TCP reset or ICMP port unreachable.
	Reject Empty = iota
	// Drop is silent: another node may have an endpoint.
	Drop
)

// Frontend is an address at which clients reach a port of a Service, and where their
// connections go. A Frontend is not changed once it is made.
type Frontend struct {
	Address
	Policy Policy
	// Endpoints are sorted and unique, and so are Local.
	Endpoints []netip.AddrPort
	// Shares are how many slots each of Endpoints has of those that connections are spread over
	// evenly, and LocalShares likewise of Local; nil is one each.
	Shares, LocalShares []uint8
	// Local are the endpoints on the node for clients outside, with policy ExternalLocal.
	Local []netip.AddrPort
	// Serving are the endpoints at which flows that began may go on, sorted and unique: all that
	// serve, whatever new ones use.
	Serving []netip.AddrPort
	// Empty is for connections that find Endpoints empty. An empty Local list drops, unless
	// Endpoints are empty and Empty is Reject.
	Empty Empty
	// Sources are the only clients that may connect (loadBalancerSourceRanges), sorted and
	// disjoint; nil is all.
	Sources []netip.Prefix
	// Affinity has a client's connections go to one endpoint; nil is no affinity.
	Affinity *Affinity
	// Choice is how an endpoint is chosen. With Affinity it is random.
	Choice Choice
}

// Affinity is ClientIP session affinity.
type Affinity struct {
	// Group is equal for the Frontends of one port of a Service, which share what they
	// remember of clients.
	Group string
	// Timeout is how long a client is remembered after its last new connection.
	Timeout time.Duration
}

// MaxSlots is how many slots a list of endpoints has at most; further ones are not used.
const MaxSlots = 1<<15 - 1

// MaxAffinitySlots is MaxSlots with Affinity. The kernel remembers an endpoint by a number of 16
// bits. The Frontends of a group have up to three lists that differ: for all clients, for clients
// inside and for clients outside of policies Local. All of them may be replaced at once.
const MaxAffinitySlots = 10000

// Slots returns Endpoints with each as often as it has slots, and LocalSlots likewise Local. An
// endpoint with more slots comes again after all that have as many.
func (f *Frontend) Slots() []netip.AddrPort { return f.repeated(f.Endpoints, f.Shares) }

// LocalSlots returns Local with each endpoint as often as it has slots.
func (f *Frontend) LocalSlots() []netip.AddrPort { return f.repeated(f.Local, f.LocalShares) }

func (f *Frontend) repeated(endpoints []netip.AddrPort, shares []uint8) (slots []netip.AddrPort) {
	most := MaxSlots
	if f.Affinity != nil {
		most = MaxAffinitySlots
	}
	if shares == nil {
		return endpoints[:min(len(endpoints), most)]
	}
	for round := range slices.Max(shares) {
		for i, to := range endpoints {
			if shares[i] > round && len(slots) < most {
				slots = append(slots, to)
			}
		}
	}
	return slots
}

// SameFlows reports whether flows may go on at the same endpoints, and new ones use the same.
func (f *Frontend) SameFlows(o *Frontend) bool {
	return slices.Equal(f.Serving, o.Serving) && slices.Equal(f.Endpoints, o.Endpoints) && slices.Equal(f.Local, o.Local)
}

// Equal reports whether the kernel treats the first packets of flows to f and o alike.
func (f *Frontend) Equal(o *Frontend) bool {
	return f.Address == o.Address && f.Policy == o.Policy && f.Empty == o.Empty && f.Choice == o.Choice &&
		slices.Equal(f.Endpoints, o.Endpoints) && slices.Equal(f.Local, o.Local) &&
		slices.Equal(f.Shares, o.Shares) && slices.Equal(f.LocalShares, o.LocalShares) &&
		slices.Equal(f.Sources, o.Sources) && (f.Sources == nil) == (o.Sources == nil) &&
		(f.Affinity == o.Affinity || f.Affinity != nil && o.Affinity != nil && *f.Affinity == *o.Affinity)
}

// State is everything that a node does.
type State struct {
	Frontends []*Frontend
	// Hairpins are the addresses of endpoints on the node: a connection of one to itself is
	// masqueraded.
	Hairpins []netip.Addr
	// ServiceCIDRs are the ranges of cluster IPs; packets to their other addresses are
	// dropped.
	ServiceCIDRs []netip.Prefix
}

// Changes are changes of a State.
type Changes struct {
	Put    []*Frontend
	Delete []Address
	// Serving are the frontends with other Endpoints or Serving than before.
	Serving  []*Frontend
	Hairpins map[netip.Addr]bool // whether it is there now
	// ServiceCIDRs replaces the ranges unless nil.
	ServiceCIDRs []netip.Prefix
}
