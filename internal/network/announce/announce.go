// Package announce makes the addresses of load balancers reachable on the links of a node, with no load balancer: the
// agent answers for them, as if they were on the node's interface, and the service proxy of the node passes the packets
// on. The addresses themselves are on no interface.
//
//	cluster.Store ──feed──► plan.Compiler ──► failover.Machine ──► port: ARP, Neighbor Discovery, other agents
//	                        candidates   │    for each link        sockets of each link
//	                                     └──► bgp.Speaker: routers
//
// An address is announced on the links whose prefix contains it, or on the interfaces of a list. On each of these one
// node answers for it, see package failover. Routers are told of all addresses that the node serves.
package announce

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/announce/bgp"
	"portolan.dev/portolan/internal/network/announce/plan"
)

// Config configures an Announcer.
type Config struct {
	// Node is the name of the node.
	Node  string
	Store *cluster.Store
	// Interfaces are the names of the interfaces on which all addresses are announced. If there are none, each address
	// is announced on those whose prefix contains it.
	Interfaces []string
	// NodeSelector are labels of the nodes that announce addresses; all if there are none.
	NodeSelector map[string]string
	// Ours reports whether the addresses of a Service are announced; nil is all.
	Ours func(*cluster.Service) bool
	// Serving reports whether the node passes packets to the Services of an address; nil is always. ServingChanged
	// receives a token when that may have changed.
	Serving        func(netip.Addr) bool
	ServingChanged <-chan struct{}
	// BGP is the routers that are told of all addresses that the node serves; nil is none.
	BGP *bgp.Config
	Log *slog.Logger
}

// Announcer announces addresses.
type Announcer struct {
	cfg      Config
	network  network
	counters counters
	speaker  *bgp.Speaker // nil without Config.BGP
}

// network is the host's interfaces.
type network interface {
	// interfaces returns those that are up and can have addresses of a link.
	interfaces() ([]iface, error)
	// watch sends a token for each change, until ctx is done.
	watch(ctx context.Context, changed chan<- struct{}) error
	open(i iface, c *counters, received chan<- received) (port, error)
	// formerNodes returns what sends connections to the nodes that had addresses before.
	formerNodes() formerNodes
}

// formerNodes is the nodes that announced addresses before, and have connections of them, by their addresses.
type formerNodes interface {
	Set(former map[netip.Addr]netip.Addr) error
	Close()
}

// New returns an Announcer. It starts nothing.
func New(cfg Config) *Announcer {
	if cfg.Serving == nil {
		cfg.Serving = func(netip.Addr) bool { return true }
	}
	a := &Announcer{cfg: cfg, network: host{}}
	if cfg.BGP != nil {
		a.speaker = bgp.New(*cfg.BGP)
	}
	return a
}

// Needs returns the kinds that addresses and candidates are compiled from.
func (a *Announcer) Needs() []cluster.Kind { return plan.Needs() }

// Run announces addresses until ctx is done. Then it hands them over to other nodes, for which it takes up to stopTime,
// and returns nil.
func (a *Announcer) Run(ctx context.Context) error { return newLoop(a).run(ctx) }

// Stats are the figures of an Announcer.
type Stats struct {
	// Addresses are those of all Services, and Unlinked those of them that are on no link of the node.
	Addresses, Unlinked int
	// Unclaimed are those that no node can serve, and Unshown those that are on a link of the node where no Node has an
	// address, as far as their status says, so that the candidates may not be on the link.
	Unclaimed, Unshown int
	// Owned are those that the node answers for, counted for each link.
	Owned int
	// Taken and Given are how often the node began to answer for an address, and stopped.
	Taken, Given uint64
	// Replies are answers to ARP requests and Neighbor Solicitations; Limited are questions without an answer, because of
	// the limits.
	Replies, Limited uint64
	// Announced are frames that told all hosts of an address.
	Announced uint64
	// Conflicts are frames in which a host that is no agent of the cluster says that it has an address of ours, and
	// Conflict is the last one within five minutes, or nil.
	Conflicts uint64
	Conflict  *Conflict
	// Malformed are frames that could not be read, and Unsent those that could not be sent.
	Malformed, Unsent uint64
	// Routers are the peers of BGP.
	Routers []bgp.PeerStats
}

// Conflict is a host that has an address of the node's.
type Conflict struct {
	Addr      netip.Addr
	MAC       net.HardwareAddr
	Interface string
	Seen      time.Time
}

// counters are the figures while they change.
type counters struct {
	addresses, unlinked, unclaimed, unshown, owned                          atomic.Int64
	taken, given, replies, limited, announced, conflicts, malformed, unsent atomic.Uint64
	conflict                                                                atomic.Pointer[Conflict]
}

// Stats returns the present figures. It is safe for concurrent use.
func (a *Announcer) Stats() Stats {
	c := &a.counters
	s := Stats{
		Addresses: int(c.addresses.Load()), Unlinked: int(c.unlinked.Load()),
		Unclaimed: int(c.unclaimed.Load()), Unshown: int(c.unshown.Load()), Owned: int(c.owned.Load()),
		Taken: c.taken.Load(), Given: c.given.Load(), Replies: c.replies.Load(), Limited: c.limited.Load(),
		Announced: c.announced.Load(), Conflicts: c.conflicts.Load(), Malformed: c.malformed.Load(), Unsent: c.unsent.Load(),
	}
	if last := c.conflict.Load(); last != nil && time.Since(last.Seen) < conflictTime {
		s.Conflict = last
	}
	if a.speaker != nil {
		s.Routers = a.speaker.Stats()
	}
	return s
}
