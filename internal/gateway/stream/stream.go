// Package stream passes on connections whole, whatever is spoken on them (Gateway API v1: TCPRoute, and TLSRoute with
// TLSModePassthrough or TLSModeTerminate).
//
//	accept ──► Listener: HTTP? ──► h1.Server
//	             └► hello.go:  the server name of a ClientHello, where it decides (RFC 6066, section 3)
//	                 └► serve: table.Port.Stream ──► TLS handshake, if it is terminated here
//	                     └► connect.go: endpoints, one after the other until one accepts
//	                         └► pass.go, splice_linux.go: both directions, each until its end
//
// Where nothing is encrypted or decrypted here, the kernel moves the octets between the sockets (splice(2)), and a
// connection that waits holds no buffer.
package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/budget"
)

// Config is what a Server needs.
type Config struct {
	// Table returns the current table, nil before the first.
	Table func() *table.Table
	// Endpoints are where the upstreams of the Table are.
	Endpoints *balance.Set[table.Upstream]
	// TLS returns the configuration of handshakes at a socket; nil without one.
	TLS func(table.Socket) func() *tls.Config
	// Idle is after how long without an octet in either direction a connection ends. Zero is 1 h.
	Idle time.Duration
	// Handshake is how long a ClientHello, and a TLS handshake, may take. Zero is 10 s.
	Handshake time.Duration
	// Connect is how long an endpoint may take to accept a connection. Zero is 5 s.
	Connect time.Duration
	// Drain is how long connections may go on at an endpoint that was removed. Zero is 1 h.
	Drain time.Duration
	// Began and Done are called for each connection that is to be passed on; nil for none.
	Began func()
	Done  func(*Record)
	Log   *slog.Logger // nil for none
}

// Record is what became of a connection.
type Record struct {
	Client string // address and port
	// Listener is empty if none has the server name.
	Listener, ServerName string
	// Rule is nil if no route matched.
	Rule *table.Rule
	// Reason is why the connection was not passed on, or broken off; empty if both ends ended it.
	Reason   table.Reason
	Upstream table.Upstream
	Endpoint netip.AddrPort
	Attempts int
	// Sent and Received are octets that went to the client, and came from it.
	Sent, Received int64
	Began          time.Time
	Duration       time.Duration
}

// Reasons of a Record; there are also those of the backends of rules.
const (
	NoTable     table.Reason = "not ready"
	NoHello     table.Reason = "no TLS handshake"
	NoHandshake table.Reason = "TLS handshake failed"
	NoListener  table.Reason = "no listener for the server name"
	NoRoute     table.Reason = "no route"
	Idle        table.Reason = "idle"
	BrokenOff   table.Reason = "broken off"
	Insecure    table.Reason = "invalid BackendTLSPolicy"

	NoBackend   = table.NoBackend
	NoEndpoint  = table.NoEndpoint
	Unreachable = table.Unreachable
)

// Known reports whether a reason is one of those above; others are of rules.
func Known(r table.Reason) bool {
	switch r {
	case NoTable, NoHello, NoHandshake, NoListener, NoRoute, NoBackend, NoEndpoint, Unreachable, Idle, BrokenOff, Insecure:
		return true
	}
	return false
}

// Server passes on connections.
type Server struct {
	cfg   Config
	pipes *pipes

	secures secures

	mu     sync.Mutex
	groups map[*balance.Endpoint]*group
	count  int // of connections to endpoints
}

// New returns a Server.
func New(cfg Config) *Server {
	defaults := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	defaults(&cfg.Idle, time.Hour)
	defaults(&cfg.Handshake, 10*time.Second)
	defaults(&cfg.Connect, 5*time.Second)
	defaults(&cfg.Drain, time.Hour)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Began == nil {
		cfg.Began = func() {}
	}
	if cfg.Done == nil {
		cfg.Done = func(*Record) {}
	}
	return &Server{cfg: cfg, pipes: newPipes(), groups: make(map[*balance.Endpoint]*group)}
}

// Listener returns l without the connections that are to be passed on: the Server does that. Connections of requests
// of which the beginning was read to find that out are given to requests.
func (s *Server) Listener(at table.Socket, l net.Listener, requests func(net.Conn)) net.Listener {
	made := &listener{Listener: l, server: s, at: at, requests: requests}
	if s.cfg.TLS != nil {
		made.tls = s.cfg.TLS(at)
	}
	return made
}

type listener struct {
	net.Listener
	server   *Server
	at       table.Socket
	requests func(net.Conn)
	tls      func() *tls.Config
	hellos   sync.WaitGroup // connections whose beginning is read
}

// Accept implements net.Listener. When the listener is closed, it waits for connections that may be given to requests.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			l.hellos.Wait()
		}
		if err != nil {
			return nil, err
		}
		p := l.port()
		if p == nil || p.Opening() != table.Raw && !p.Mixed() {
			return c, nil
		}
		if p.Mixed() {
			l.hellos.Add(1) // until greet
		}
		go l.serve(p, c)
	}
}

// port returns what is served at the socket; nil if nothing is.
func (l *listener) port() *table.Port {
	t := l.server.cfg.Table()
	if t == nil {
		return nil
	}
	return t.Port(l.at)
}

// serve serves a connection.
func (l *listener) serve(p *table.Port, c net.Conn) {
	log := l.server.cfg.Log
	defer func() {
		if v := recover(); v != nil { // a fault of this package must end no other connection
			log.Error("passing on a connection panicked", "panic", v, "stack", string(debug.Stack()))
			c.Close()
		}
	}()
	r := &Record{Client: c.RemoteAddr().String(), Began: time.Now()}
	if p.Mixed() {
		if c = l.greet(p, c, r); c == nil {
			return
		}
	}
	defer budget.Use(c)()
	l.server.cfg.Began()
	l.server.end(r, l.pass(p, c, r))
}

// greet reads the ClientHello of a connection, and returns the connection, with the server name in its Record; nil if
// it was given to requests, or has none.
func (l *listener) greet(p *table.Port, c net.Conn, r *Record) net.Conn {
	defer l.hellos.Done()
	client, name, err := hello(c, l.server.cfg.Handshake)
	switch owner, _ := p.Host(name); {
	case errors.Is(err, errNoTLS) || err == nil && owner != nil && owner.Mode == table.Requests:
		l.requests(client)
		return nil
	case err != nil:
		l.server.cfg.Log.Debug("no ClientHello", "client", r.Client, "err", err)
		c.Close()
		l.server.cfg.Began()
		l.server.end(r, NoHello)
		return nil
	}
	r.ServerName = name
	return client
}

// end completes a Record.
func (s *Server) end(r *Record, reason table.Reason) {
	r.Reason, r.Duration = reason, time.Since(r.Began)
	s.cfg.Done(r)
}

// pass passes on a connection, and closes it. It returns why it was not, or was broken off.
func (l *listener) pass(p *table.Port, c net.Conn, r *Record) table.Reason {
	owner, rule := p.Stream(r.ServerName)
	reason := NoListener
	if owner != nil {
		r.Listener, r.Rule, reason = owner.Name, rule, NoRoute
	}
	if rule == nil { // no alert of TLS says so (conformance, TLSRouteHostnameIntersection)
		abort(c)
		return reason
	}
	client := c
	if owner.Mode == table.Stream && p.Opening() == table.Handshake {
		var err error
		if client, err = l.shakeHands(c); err != nil {
			l.server.cfg.Log.Debug("TLS handshake failed", "client", r.Client, "err", err)
			c.Close()
			return NoHandshake
		}
	}
	endpoint, leave, reason := l.server.connect(r, client != c, owner.ClientCertificate())
	if endpoint == nil {
		abort(client)
		return reason
	}
	defer leave()
	return l.server.both(client, endpoint, r)
}

// shakeHands returns a connection after its TLS handshake.
func (l *listener) shakeHands(c net.Conn) (net.Conn, error) {
	var config *tls.Config
	if l.tls != nil {
		config = l.tls()
	}
	if config == nil {
		return nil, errors.New("the socket has no TLS any more")
	}
	_ = c.SetDeadline(time.Now().Add(l.server.cfg.Handshake))
	made := tls.Server(c, config)
	if err := made.HandshakeContext(context.Background()); err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return made, nil
}

// InUse returns the connections to endpoints. Closing one ends what is passed on there.
func (s *Server) InUse() (all []net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		for c := range g.conns {
			all = append(all, c)
		}
	}
	return all
}
