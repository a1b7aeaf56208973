package bgp

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// Speaker tells routers of addresses.
type Speaker struct {
	cfg   Config
	peers []*peer

	mu    sync.Mutex
	state State
}

// New returns a Speaker, which starts nothing.
func New(cfg Config) *Speaker {
	if cfg.HoldTime == 0 {
		cfg.HoldTime = DefaultHoldTime
	}
	s := &Speaker{cfg: cfg}
	for i := range cfg.Peers {
		s.peers = append(s.peers, &peer{
			Peer: &s.cfg.Peers[i], speaker: s, changed: make(chan struct{}, 1),
			log: cfg.Log.With("router", cfg.Peers[i].Address),
		})
	}
	return s
}

// Update has routers be told something else. It does not wait, and keeps the state.
func (s *Speaker) Update(state State) {
	s.mu.Lock()
	s.state = state
	s.mu.Unlock()
	for _, p := range s.peers {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

func (s *Speaker) now() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Run keeps connections to all routers that the node's labels select until ctx is done, and returns nil.
func (s *Speaker) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, p := range s.peers {
		all.Go(func() { p.run(ctx) })
	}
	all.Wait()
	return nil
}

// PeerStats are the figures of the connections to a router.
type PeerStats struct {
	Address netip.Addr
	// Established: the router is told of addresses.
	Established bool
	// Connections are those that were established.
	Connections uint64
}

// Stats returns the present figures of each peer, in the order of the configuration.
func (s *Speaker) Stats() (all []PeerStats) {
	for _, p := range s.peers {
		all = append(all, PeerStats{p.Address, p.established.Load(), p.connections.Load()})
	}
	return all
}

// routerID returns the node's ID, or an invalid address if it has no address of IPv4.
func (s *Speaker) routerID(state *State) netip.Addr {
	if s.cfg.RouterID.IsValid() {
		return s.cfg.RouterID
	}
	if i := slices.IndexFunc(state.NextHops, netip.Addr.Is4); i >= 0 {
		return state.NextHops[i]
	}
	return netip.Addr{}
}

// figures are those of PeerStats while they change.
type figures struct {
	established atomic.Bool
	connections atomic.Uint64
}
