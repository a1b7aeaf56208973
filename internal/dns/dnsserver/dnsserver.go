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
)

// Answerer answers queries, one at a time.
type Answerer interface {
	// Respond answers packet into buf, whose capacity is 65,535 octets or
	// more. It keeps neither. An answer that takes time is a Deferred. Both are nil
	// for a packet that gets no answer.
	Respond(packet []byte, client respond.Client, buf []byte) (answer []byte, deferred Deferred)
}

// Deferred is an answer that takes time, or several messages. The server calls
// Answers once and reads the messages in a goroutine of its own until ctx is done
// or one can't be sent. Over UDP and HTTPS only the first message is sent.
type Deferred interface {
	Answers(ctx context.Context) iter.Seq[[]byte]
}

// first returns the first message of an answer; nil when there is none.
func first(ctx context.Context, deferred Deferred) []byte {
	for answer := range deferred.Answers(ctx) {
		return slices.Clone(answer)
	}
	return nil
}

// Config configures a Server.
type Config struct {
	// Listen are addresses and ports, each for UDP and TCP. Port 0 is any free
	// one, the same for both. An IPv6 address takes IPv6 only.
	Listen []netip.AddrPort
	// ListenTLS and ListenHTTPS are addresses and ports for DNS over TLS and over
	// HTTPS. Certificate gives the server's; it is called for each connection.
	ListenTLS, ListenHTTPS []netip.AddrPort
	Certificate            func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs sign the certificates of clients over TLS, which need have none;
	// nil is not to ask for any.
	ClientCAs *x509.CertPool
	// HTTPSPath is that of the URL that queries come to over HTTPS.
	HTTPSPath string
	// NewAnswerer makes an Answerer, which is used by one goroutine at a time.
	// It is itself called from several. Answerers of different seats, from 0
	// and below Seats, work at the same time.
	NewAnswerer func(seat int) Answerer
	// MaxConnections is how many connections there are at once over TCP and TLS,
	// and how many over each of ListenHTTPS, at least 1; one more closes the one
	// that was idle longest.
	MaxConnections int
	// MaxInFlight is how many queries of a connection are answered before their
	// answers are sent, at least 1.
	MaxInFlight int
	// MaxQueries is how many queries a connection may ask; 0 is without limit.
	MaxQueries int
	// Idle is how long a connection may be silent, take to send one message, or
	// to accept the answers that are sent together; more than 0.
	Idle time.Duration
	// Steering is how packets over UDP come to a processor.
	Steering Steering
	// SharePorts lets another process of the same user listen on the same ports.
	// When this process stops, the other one receives the packets.
	SharePorts bool
	Log        *slog.Logger
}

// Steering is how packets over UDP, which several sockets of one port take in,
// come to one of them and to the processor that serves it.
type Steering string

// The ways to steer. There is one socket for each processor, where the system
// lets them share a port.
const (
	// SteerByCPU prefers the socket for the processor on which the system took
	// the packet in. Where the process may not use as many processors at once
	// as it may run on, it is SteerByHash.
	SteerByCPU Steering = "cpu"
	// SteerByHash has the system choose by addresses and ports, evenly, also
	// when one processor takes in everything.
	SteerByHash Steering = "hash"
)

// Server serves on bound sockets.
type Server struct {
	cfg        Config
	maxHeld    int
	drainTime  time.Duration
	lingerTime time.Duration
	waiting    waitingSockets
	udp        []*net.UDPConn
	tcp        []*net.TCPListener
	tls, https []*net.TCPListener
	web        []*httpsServer // of https
}

// Listen binds the sockets and serves nothing yet. Its error names the address.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{
		cfg:        cfg,
		maxHeld:    maxHeld,
		drainTime:  drainTime,
		lingerTime: lingerTime,
		waiting:    waitingSockets{start: time.Now()},
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

// bind tries again when a free port for TCP is taken for UDP.
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

// bindOnce binds TCP first: that fails when another server has the port, while
// UDP sockets may share it.
func (s *Server) bindOnce(ctx context.Context, addr netip.AddrPort) error {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	listener, err := s.listenTCP(ctx, addr)
	if err != nil {
		return err
	}
	addr = netip.AddrPortFrom(addr.Addr(), listener.Addr().(*net.TCPAddr).AddrPort().Port())
	var conns []*net.UDPConn
	for _, cpu := range s.udpSockets() {
		lc := net.ListenConfig{Control: controlUDP(cpu, addr.Addr().IsUnspecified())}
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
		lc.Control = SharePort
	}
	l, err := lc.Listen(ctx, "tcp"+family(addr), addr.String())
	if err != nil {
		return nil, plainBindError("tcp", addr, err)
	}
	return l.(*net.TCPListener), nil
}

// family is what the net package has behind the network's name for a socket of
// one family.
func family(addr netip.AddrPort) string {
	if addr.Addr().Unmap().Is4() {
		return "4"
	}
	return "6"
}

// anyCPU is no processor in particular.
const anyCPU = -1

// udpSockets are the sockets that share a UDP port, as the processor that each
// is for: one for each that the process may use at once, where the system
// spreads packets over them.
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

// Seats is how many there are where so many addresses are listened on: one for
// each UDP socket, and for connections one for each processor.
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

// Run serves until ctx is done, then answers the queries that were read and
// closes the sockets. It returns nil then, or the error that ended it. Clients
// have 5 s to take their answers; Run waits for Answerers.
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

// Close closes the sockets. Run does, too.
func (s *Server) Close() {
	for _, c := range s.udp {
		c.Close()
	}
	for _, l := range slices.Concat(s.tcp, s.tls, s.https) {
		l.Close()
	}
}
