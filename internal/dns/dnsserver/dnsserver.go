// Package dnsserver serves DNS over UDP and TCP (RFC 1035, section 4.2; RFC
// 7766), TLS (RFC 7858) and HTTPS (RFC 8484). It owns the sockets: it reads
// queries, passes them to an Answerer and sends the answers.
//
//	UDP socket  ─► udp, udpbatch  ─┐                ┌─► answer ──────────┐
//	TCP, TLS    ─► tcp, tcpconn   ─┼─► Answerer ────┤                    ├─► client
//	HTTPS       ─► https          ─┘                └─► Deferred (waits) ┘
package dnsserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/bind"
	"portolan.dev/portolan/internal/support/budget"
)

// Answerer answers queries, one at a time.
type Answerer interface {
	// Respond appends the answer to packet to buf, whose capacity is at least 65,535
	// octets. It retains neither. If the answer takes time, Respond returns a Deferred.
	// It returns nil for both if packet gets no answer.
	Respond(packet []byte, client respond.Client, buf []byte) (answer []byte, deferred Deferred)
}

// Deferred is an answer that takes time or has several messages. The server calls
// Answers once, in a separate goroutine, and reads messages until ctx is done or a
// message cannot be sent. Over UDP and HTTPS it sends only the first message.
type Deferred interface {
	Answers(ctx context.Context) iter.Seq[[]byte]
}

// first returns the first message of an answer; nil if there is none.
func first(ctx context.Context, deferred Deferred) []byte {
	for answer := range deferred.Answers(ctx) {
		return slices.Clone(answer)
	}
	return nil
}

// Config configures a Server.
type Config struct {
	// Listen lists addresses and ports for both UDP and TCP. Port 0 is any free port,
	// the same for both. An IPv6 address accepts IPv6 only.
	Listen []netip.AddrPort
	// ListenTLS and ListenHTTPS list addresses and ports for DNS over TLS and over
	// HTTPS. Certificate returns the server's certificate. It is called for each
	// connection.
	ListenTLS, ListenHTTPS []netip.AddrPort
	Certificate            func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs are the CAs of client certificates over TLS, which are optional. Nil
	// means that clients are not asked for one.
	ClientCAs *x509.CertPool
	// HTTPSPath is the path of the URL for queries over HTTPS.
	HTTPSPath string
	// NewAnswerer returns an Answerer, which is used by one goroutine at a time.
	// NewAnswerer is called concurrently. Answerers of different seats, from 0 to
	// Seats-1, work at the same time.
	NewAnswerer func(seat int) Answerer
	// MaxConnections is the highest number of connections over TCP and TLS together,
	// and over HTTPS, at least 1; the memory limit of the process may allow fewer. A
	// further connection closes the one that was idle longest of the client with the
	// most.
	MaxConnections int
	// MaxInFlight is the highest number of queries of a connection that are answered
	// before the answers are sent, and of its deferred answers, at least 1.
	MaxInFlight int
	// MaxQueries is the highest number of queries per connection; 0 is no limit.
	MaxQueries int
	// Idle is the longest time, above 0, for which a connection may be idle, take to
	// send one message, or take to accept answers that are sent together.
	Idle time.Duration
	// Steering selects how UDP packets are distributed.
	Steering Steering
	// SharePorts lets another process of the same user listen on the same ports.
	// When this process stops, the other one receives the packets.
	SharePorts bool
	Log        *slog.Logger
}

// Steering is how UDP packets are distributed over the sockets that share a port, and
// so over the processors that serve them.
type Steering string

// There is one socket for each processor, if the system lets sockets share a port.
const (
	// SteerByCPU prefers the socket for the processor that received the packet. If
	// GOMAXPROCS differs from the number of processors that the process may run on, it
	// is the same as SteerByHash.
	SteerByCPU Steering = "cpu"
	// SteerByHash makes the system choose the socket by a hash of addresses and ports.
	// The load is even also if one processor receives all packets.
	SteerByHash Steering = "hash"
)

// Server serves DNS on bound sockets.
type Server struct {
	cfg        Config
	maxHeld    int
	drainTime  time.Duration
	lingerTime time.Duration
	waiting    waitingSockets
	udp        []*net.UDPConn
	tcp        []*net.TCPListener
	tls, https []*net.TCPListener
	web        []*httpsServer // one for each of https

	connections    *budget.Account // over TCP and TLS
	webConnections *budget.Account // over HTTPS
	webRequests    *budget.Account
}

// Shares of the memory limit for connections and for requests over HTTPS, and the memory
// of one in octets: its goroutine, its buffers and the state of TLS and HTTP/2.
const (
	connectionShare, connectionCost       = 0.125, 40 << 10
	webConnectionShare, webConnectionCost = 0.125, 160 << 10
	webRequestShare, webRequestCost       = 0.125, 32 << 10
	maxWebRequests                        = 4096
)

// newAccount returns an account of up to most entries, or as many as fit into the share of
// the memory limit.
func newAccount(name string, share float64, cost, most int) *budget.Account {
	n := budget.Within(share, cost, most)
	return budget.NewAccount(name, budget.Limits{Total: n, PerSource: n})
}

// Accounts returns the figures of the connections and requests.
func (s *Server) Accounts() []budget.Stats {
	return []budget.Stats{s.connections.Stats(), s.webConnections.Stats(), s.webRequests.Stats()}
}

// Listen binds the sockets. It serves nothing yet. Its error names the address.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{
		cfg:        cfg,
		maxHeld:    budget.Within(heldShare, 1, maxHeld),
		drainTime:  drainTime,
		lingerTime: lingerTime,
		waiting:    waitingSockets{start: time.Now()},

		connections:    newAccount("tcp", connectionShare, connectionCost, cfg.MaxConnections),
		webConnections: newAccount("https", webConnectionShare, webConnectionCost, cfg.MaxConnections),
		webRequests:    newAccount("https-requests", webRequestShare, webRequestCost, maxWebRequests),
	}
	for _, addr := range cfg.Listen {
		if err := s.bind(ctx, addr); err != nil {
			s.Close()
			return nil, err
		}
	}
	for _, to := range []struct {
		addrs     []netip.AddrPort
		listeners *[]*net.TCPListener
	}{{cfg.ListenTLS, &s.tls}, {cfg.ListenHTTPS, &s.https}} {
		for _, addr := range to.addrs {
			l, err := s.listenTCP(ctx, addr)
			if err != nil {
				s.Close()
				return nil, err
			}
			*to.listeners = append(*to.listeners, l)
		}
	}
	for range s.https {
		s.web = append(s.web, newHTTPSServer(s))
	}
	return s, nil
}

// bind binds addr. It retries if a free port for TCP is in use for UDP.
func (s *Server) bind(ctx context.Context, addr netip.AddrPort) error {
	const tries = 10
	var err error
	for range tries {
		if err = s.bindOnce(ctx, addr); err == nil || addr.Port() != 0 {
			break
		}
	}
	return err
}

// bindOnce binds TCP first: that fails if another server has the port, while UDP
// sockets may share it.
func (s *Server) bindOnce(ctx context.Context, addr netip.AddrPort) error {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	listener, err := s.listenTCP(ctx, addr)
	if err != nil {
		return err
	}
	addr = netip.AddrPortFrom(addr.Addr(), listener.Addr().(*net.TCPAddr).AddrPort().Port())
	var conns []*net.UDPConn
	for _, cpu := range s.udpSockets() {
		lc := net.ListenConfig{Control: controlUDP(cpu, addr.Addr())}
		p, err := lc.ListenPacket(ctx, "udp"+family(addr), addr.String())
		if err != nil {
			listener.Close()
			for _, c := range conns {
				c.Close()
			}
			return plainBindError("udp", addr, err)
		}
		conns = append(conns, p.(*net.UDPConn))
	}
	s.tcp, s.udp = append(s.tcp, listener), append(s.udp, conns...)
	return nil
}

func (s *Server) listenTCP(ctx context.Context, addr netip.AddrPort) (*net.TCPListener, error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	var lc net.ListenConfig
	if s.cfg.SharePorts {
		lc.Control = bind.SharePort
	}
	l, err := lc.Listen(ctx, "tcp"+family(addr), addr.String())
	if err != nil {
		return nil, plainBindError("tcp", addr, err)
	}
	return l.(*net.TCPListener), nil
}

// family returns the suffix of the net package's network names for the family of addr.
func family(addr netip.AddrPort) string {
	if addr.Addr().Unmap().Is4() {
		return "4"
	}
	return "6"
}

// newClient returns the client at an address. Without a zone: no prefix contains an address
// with one.
func newClient(remote netip.AddrPort, transport respond.Transport) respond.Client {
	return respond.Client{Addr: remote.Addr().Unmap().WithZone(""), Port: remote.Port(), Transport: transport}
}

// anyCPU means no particular processor.
const anyCPU = -1

// udpSockets returns the processor of each socket that shares a UDP port. There is one
// socket for each processor that the process may use at once, if sockets can share a
// port.
func (s *Server) udpSockets() (cpus []int) {
	if !sharesPorts {
		return []int{anyCPU}
	}
	n := runtime.GOMAXPROCS(0)
	if s.cfg.Steering == SteerByCPU {
		if cpus = processors(); len(cpus) == n {
			return cpus
		}
	}
	return slices.Repeat([]int{anyCPU}, n)
}

// Seats returns the number of seats for so many listen addresses: one for each UDP
// socket, and one per processor for connections.
func Seats(addresses int) int {
	n := runtime.GOMAXPROCS(0)
	return addresses*n + n
}

func plainBindError(proto string, addr netip.AddrPort, err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return fmt.Errorf("listen on %s (%s): %w", addr, proto, err)
}

// Addrs returns the addresses of UDP and TCP, in the order of Config.Listen.
func (s *Server) Addrs() []netip.AddrPort { return addrsOf(s.tcp) }

// TLSAddrs returns the addresses of TLS.
func (s *Server) TLSAddrs() []netip.AddrPort { return addrsOf(s.tls) }

// HTTPSAddrs returns the addresses of HTTPS.
func (s *Server) HTTPSAddrs() []netip.AddrPort { return addrsOf(s.https) }

func addrsOf(listeners []*net.TCPListener) []netip.AddrPort {
	addrs := make([]netip.AddrPort, 0, len(listeners))
	for _, l := range listeners {
		addrs = append(addrs, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return addrs
}

// Run serves until ctx is done, answers the queries that it has read, closes the
// sockets and returns nil, or the error that stopped it. Clients have 5 s to receive
// their answers. Run waits for Answerers.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	group, ctx := errgroup.WithContext(ctx)
	for seat, conn := range s.udp {
		group.Go(func() error { return s.serveUDP(ctx, conn, seat) })
	}
	group.Go(func() error { return newTCPServer(s).run(ctx) })
	for i, l := range s.https {
		group.Go(func() error { return s.web[i].run(ctx, l) })
	}
	return group.Wait()
}

// Close closes the sockets. Run closes them, too.
func (s *Server) Close() {
	for _, c := range s.udp {
		c.Close()
	}
	for _, l := range slices.Concat(s.tcp, s.tls, s.https) {
		l.Close()
	}
}
