package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/announce"
	"portolan.dev/portolan/internal/network/announce/settings"
	"portolan.dev/portolan/internal/ops/metrics"
)

// AnnouncerConfig configures an Announcer.
type AnnouncerConfig struct {
	Settings settings.Compiled
	Store    *cluster.Store
	// Node is the name of the Node.
	Node string
	// Ours reports whether the addresses of a Service are announced.
	Ours func(*cluster.Service) bool
	// Served is nil if another process is the service proxy of the node.
	Served *Served
	Log    *slog.Logger
}

// Served is whether the kernel of the node has the Services of the cluster: before, it would not pass on what other
// nodes have passed on until then.
type Served struct {
	is      atomic.Bool
	changed chan struct{}
}

// NewServed returns one that says no.
func NewServed() *Served { return &Served{changed: make(chan struct{}, 1)} }

// Set has it say yes.
func (s *Served) Set() {
	s.is.Store(true)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Announcer is the part of a node that announces the addresses of load balancers.
type Announcer struct {
	announcer *announce.Announcer
	served    *Served
}

// NewAnnouncer returns an Announcer. It starts nothing.
func NewAnnouncer(cfg AnnouncerConfig) *Announcer {
	of := announce.Config{
		Node: cfg.Node, Store: cfg.Store, Interfaces: cfg.Settings.Interfaces,
		NodeSelector: cfg.Settings.NodeSelector, Ours: cfg.Ours, BGP: cfg.Settings.BGP, Log: cfg.Log,
	}
	if of.BGP != nil {
		of.BGP.Log = cfg.Log
	}
	if s := cfg.Served; s != nil {
		of.Serving, of.ServingChanged = func(netip.Addr) bool { return s.is.Load() }, s.changed
	}
	return &Announcer{announce.New(of), cfg.Served}
}

// Name returns the part's name.
func (a *Announcer) Name() string { return "announce" }

// Needs returns the kinds that candidates are compiled from.
func (a *Announcer) Needs() []cluster.Kind { return a.announcer.Needs() }

// Bind does nothing: links come and go while the part runs.
func (a *Announcer) Bind(context.Context) (serving []any, err error) { return nil, nil }

// Close does nothing.
func (a *Announcer) Close() {}

// Ready describes what other problems there are. Nothing is missing: other nodes announce what this one does not.
func (a *Announcer) Ready() (missing, remarks []string) {
	s := a.announcer.Stats()
	if a.served == nil {
		remarks = append(remarks, "the agent has no part proxy, and announces addresses of load balancers: "+
			"packets to them are lost unless another service proxy runs on the node")
	}
	if s.Unlinked > 0 && len(s.Routers) == 0 {
		remarks = append(remarks, fmt.Sprintf(
			"%d of %d addresses of load balancers are on no link of this node; network.announce.interfaces names those to use",
			s.Unlinked, s.Addresses,
		))
	}
	if s.Unshown > 0 {
		remarks = append(remarks, fmt.Sprintf(
			"%d of %d addresses of load balancers are on a link where no Node has an address in its status; "+
				"network.announce.nodeSelector names the nodes that are on it", s.Unshown, s.Addresses,
		))
	}
	if c := s.Conflict; c != nil {
		remarks = append(remarks, fmt.Sprintf(
			"another host, %s on %s, has the address %s of a load balancer", c.MAC, c.Interface, c.Addr,
		))
	}
	for _, r := range s.Routers {
		if !r.Established {
			remarks = append(remarks, fmt.Sprintf("there is no BGP session with the router %s", r.Address))
		}
	}
	return nil, remarks
}

// Run announces addresses until ctx is done, and returns nil.
func (a *Announcer) Run(ctx context.Context) error { return a.announcer.Run(ctx) }

// Metrics returns the collector of the part's metrics.
func (a *Announcer) Metrics() prometheus.Collector { return announceMetrics{a.announcer} }

type announceMetrics struct{ *announce.Announcer }

var (
	announceAddresses = metrics.Desc("announce_addresses", "Addresses of load balancers, counted once.")
	announceUnclaimed = metrics.Desc(
		"announce_addresses_unclaimed",
		"Addresses of load balancers that no node can serve.",
	)
	announceUnshown = metrics.Desc(
		"announce_addresses_unshown",
		"Addresses on a link of the node where no Node has an address in its status: the candidates may not be on it.",
	)
	announceOwned = metrics.Desc(
		"announce_addresses_owned",
		"Addresses that the node answers for, counted for each link.",
	)
	announceTaken   = metrics.Desc("announce_taken_total", "How often the node began to answer for an address.")
	announceGiven   = metrics.Desc("announce_given_total", "How often the node stopped to answer for an address.")
	announceReplies = metrics.Desc("announce_replies_total", "Answers to ARP requests and Neighbor Solicitations.")
	announceLimited = metrics.Desc(
		"announce_limited_total",
		"ARP requests and Neighbor Solicitations without an answer, by the limits.",
	)
	announceConflicts = metrics.Desc(
		"announce_conflicts_total",
		"Frames in which a host that is no agent of the cluster says that it has an address of the node.",
	)
	announceMalformed = metrics.Desc("announce_malformed_total", "Frames that could not be read.")
	announceUnsent    = metrics.Desc("announce_unsent_total", "Frames that could not be sent.")
	announceRouters   = metrics.Desc(
		"announce_bgp_established",
		"1 if the router has a BGP session with the node, otherwise 0.",
		"peer",
	)
)

// Describe sends the descriptions of all metrics.
func (m announceMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		announceAddresses, announceUnclaimed, announceUnshown, announceOwned, announceTaken, announceGiven, announceReplies,
		announceLimited, announceConflicts, announceMalformed, announceUnsent, announceRouters,
	} {
		ch <- d
	}
}

// Collect sends the current metrics.
func (m announceMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.Stats()
	metrics.Gauge(ch, announceAddresses, float64(s.Addresses))
	metrics.Gauge(ch, announceUnclaimed, float64(s.Unclaimed))
	metrics.Gauge(ch, announceUnshown, float64(s.Unshown))
	metrics.Gauge(ch, announceOwned, float64(s.Owned))
	for d, n := range map[*prometheus.Desc]uint64{
		announceTaken: s.Taken, announceGiven: s.Given, announceReplies: s.Replies, announceLimited: s.Limited,
		announceConflicts: s.Conflicts, announceMalformed: s.Malformed, announceUnsent: s.Unsent,
	} {
		metrics.Counter(ch, d, n)
	}
	for _, r := range s.Routers {
		metrics.Gauge(ch, announceRouters, metrics.Truth(r.Established), r.Address.String())
	}
}
