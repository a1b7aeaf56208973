package healthcheck

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/plan"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/httpserver"
)

// Config configures Servers.
type Config struct {
	// Healthy reports whether the kernel has what the cluster wants: Health.Healthy.
	Healthy func() bool
	// Report is called once with a *ListenError if the health check of a Service cannot be
	// served, and with nil if it can after that. It is not called for a Service that is gone.
	Report func(service cluster.Key, err error)
	// Retry is how long a port is left alone that could not be opened; 0 is 5 s.
	Retry time.Duration
	Log   *slog.Logger
}

// State is what Servers serve. It is not changed after it is given to Update.
type State struct {
	Checks map[cluster.Key]plan.HealthCheck
	// Addresses are the node's, of both families, at which load balancers ask; an unspecified
	// address is all of its family.
	Addresses []netip.Addr
}

// Servers answer load balancers about Services with a healthCheckNodePort, one server each. Their
// methods are safe for concurrent use.
type Servers struct {
	cfg         Config
	connections *budget.Account
	listener    func(ctx context.Context, network, address string) (net.Listener, error)
	changed     chan struct{} // has a token if mu's fields have news for Run

	mu       sync.Mutex
	wanted   State
	lost     []lost
	problems map[cluster.Key]*ListenError

	// Of Run alone.
	servers  map[cluster.Key]*server
	ports    map[uint16]*server // who has the port
	draining sync.WaitGroup     // servers that were removed
}

// lost is a listener that ended by an error.
type lost struct {
	of       *server
	addr     netip.Addr
	listener net.Listener
	err      error
}

// Bounds of what clients hold: the share of the memory limit for connections, the memory of one
// in octets, the highest number in total and of one server. A load balancer keeps a few for each
// of its own instances.
const (
	connectionShare      = 0.1
	connectionCost       = 32 << 10
	maxConnections       = 4096
	maxServerConnections = 64
)

// timeout is for receiving a request, and for its response.
const timeout = 5 * time.Second

const defaultRetry = 5 * time.Second

// New returns Servers that serve nothing. It starts nothing.
func New(cfg Config) *Servers {
	if cfg.Retry == 0 {
		cfg.Retry = defaultRetry
	}
	most := budget.Within(connectionShare, connectionCost, maxConnections)
	return &Servers{
		cfg:         cfg,
		connections: budget.NewAccount("health-check", budget.Limits{Total: most, PerSource: most}),
		listener:    new(net.ListenConfig).Listen,
		changed:     make(chan struct{}, 1),
		servers:     make(map[cluster.Key]*server),
		ports:       make(map[uint16]*server),
	}
}

// Accounts returns the figures of the connections.
func (s *Servers) Accounts() []budget.Stats { return []budget.Stats{s.connections.Stats()} }

// Update has Run serve a state from now on. It does not wait for that.
func (s *Servers) Update(state State) {
	state.Addresses = slices.Clone(state.Addresses)
	slices.SortFunc(state.Addresses, netip.Addr.Compare)
	state.Addresses = slices.Compact(state.Addresses)
	s.mu.Lock()
	s.wanted = state
	s.mu.Unlock()
	s.wake()
}

// Problems returns why health checks are not served, by Service.
func (s *Servers) Problems() map[cluster.Key]*ListenError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.problems)
}

func (s *Servers) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run serves until ctx is done, closes everything and returns nil. Servers that do not change
// keep their connections when others come and go.
func (s *Servers) Run(ctx context.Context) error {
	defer s.draining.Wait()
	defer func() {
		for _, srv := range s.servers {
			s.remove(srv)
		}
	}()
	var retry <-chan time.Time
	for ctx.Err() == nil {
		if s.apply(ctx) == 0 {
			retry = nil
		} else if retry == nil {
			retry = time.After(s.cfg.Retry)
		}
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-retry:
			retry = nil
			for _, srv := range s.servers {
				clear(srv.failed)
			}
		}
	}
	return nil
}

// apply serves what is wanted, and returns the number of Services for which that failed. Where
// several Services want a port, the one that has it keeps it, and a free one goes to the first in
// the order of keys.
func (s *Servers) apply(ctx context.Context) (failed int) {
	state := s.next()
	for key, srv := range s.servers {
		if check, wanted := state.Checks[key]; !wanted || check.Port != srv.port {
			s.remove(srv)
		}
	}
	var open []*server
	for key, check := range state.Checks {
		srv := s.servers[key]
		if srv == nil {
			srv = s.newServer(key, check.Port)
			s.servers[key] = srv
		}
		srv.endpoints.Store(&check.Endpoints)
		if !srv.current(ofFamilies(check, state.Addresses)) {
			open = append(open, srv)
		}
	}
	slices.SortFunc(open, func(a, b *server) int { return a.service.Compare(b.service) })
	var news []*server
	for _, srv := range open {
		had := srv.problem != nil
		srv.problem = s.open(ctx, srv, ofFamilies(state.Checks[srv.service], state.Addresses))
		if had != (srv.problem != nil) {
			news = append(news, srv)
		}
	}
	problems := make(map[cluster.Key]*ListenError)
	for key, srv := range s.servers {
		if srv.problem != nil {
			problems[key] = srv.problem
		}
	}
	s.mu.Lock()
	s.problems = problems
	s.mu.Unlock()
	for _, srv := range news {
		s.report(srv)
	}
	return len(problems)
}

// ofFamilies returns the addresses of the families that a check is for.
func ofFamilies(check plan.HealthCheck, addrs []netip.Addr) (all []netip.Addr) {
	for _, a := range addrs {
		if _, ok := check.Endpoints[cluster.FamilyOf(a)]; ok {
			all = append(all, a)
		}
	}
	return all
}

// next returns what is wanted, after it has noted which listeners were lost.
func (s *Servers) next() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lost {
		if l.of.listeners[l.addr] == l.listener {
			delete(l.of.listeners, l.addr)
			l.of.failed[l.addr] = l.err
		}
	}
	s.lost = nil
	return s.wanted
}

func (s *Servers) newServer(key cluster.Key, port uint16) *server {
	srv := &server{
		service: key, port: port, healthy: s.cfg.Healthy,
		listeners: make(map[netip.Addr]net.Listener), failed: make(map[netip.Addr]error),
	}
	srv.http = httpserver.New(httpserver.Config{Handler: srv, Timeout: timeout, Log: s.cfg.Log})
	srv.connections = budget.NewAccount("", budget.Limits{Total: maxServerConnections, PerSource: maxServerConnections})
	return srv
}

// open has a server listen at the addresses. It returns why it does not at one of them.
func (s *Servers) open(ctx context.Context, srv *server, addrs []netip.Addr) *ListenError {
	if holder := s.ports[srv.port]; holder != nil && holder != srv {
		return &ListenError{Service: srv.service, Port: srv.port, Other: holder.service}
	}
	s.ports[srv.port] = srv
	srv.closeOthers(func(a netip.Addr) bool { return slices.Contains(addrs, a) })
	var first *ListenError
	for _, a := range addrs {
		if srv.listeners[a] == nil && srv.failed[a] == nil {
			s.listen(ctx, srv, a)
		}
		if err := srv.failed[a]; err != nil && first == nil {
			first = &ListenError{Service: srv.service, Port: srv.port, Addr: a, Err: err}
		}
	}
	return first
}

// listen has a server listen at one address. A socket for IPv6 takes no connections of IPv4, for
// which there are addresses of their own.
func (s *Servers) listen(ctx context.Context, srv *server, addr netip.Addr) {
	network := "tcp6"
	if addr.Is4() {
		network = "tcp4"
	}
	l, err := s.listener(ctx, network, netip.AddrPortFrom(addr, srv.port).String())
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // ListenError names the address
		}
		srv.failed[addr] = err
		return
	}
	srv.listeners[addr] = l
	srv.serving.Go(func() {
		err := srv.http.Serve(s.connections.Listener(srv.connections.Listener(l)))
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.mu.Lock() // the kernel was out of memory, say: accept(2)
		s.lost = append(s.lost, lost{srv, addr, l, err})
		s.mu.Unlock()
		s.wake()
	})
}

// report reports a server's new problem, or that it has none any more.
func (s *Servers) report(srv *server) {
	if srv.problem == nil { // a nil *ListenError is no nil error
		s.cfg.Report(srv.service, nil)
		return
	}
	s.cfg.Report(srv.service, srv.problem)
}

// remove closes a server's sockets at once, and its connections when the requests in progress
// are complete.
func (s *Servers) remove(srv *server) {
	delete(s.servers, srv.service)
	if s.ports[srv.port] == srv {
		delete(s.ports, srv.port)
	}
	for _, l := range srv.listeners {
		l.Close()
	}
	clear(srv.listeners)
	s.draining.Go(func() {
		srv.serving.Wait() // no connection is accepted any more
		httpserver.Drain(srv.http)
	})
}
