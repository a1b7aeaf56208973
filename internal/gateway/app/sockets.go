package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/gateway/datagram"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/stream"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/bind"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/handover"
	"portolan.dev/portolan/internal/support/retry"
)

// socketsConfig is what sockets need.
type socketsConfig struct {
	// Listen are the addresses of sockets without their own; the zero Addr is all.
	Listen     []netip.Addr
	PortOffset uint16
	Limits     h1.Limits
	// Drain is how long requests go on at a socket that is removed.
	Drain       time.Duration
	Connections *budget.Account
	// Streams and Datagrams serve what is passed on as it is.
	Streams   *stream.Server
	Datagrams *datagram.Server
	// Handler returns what serves the requests that come to a socket.
	Handler func(table.Socket) http.Handler
	// TLS returns what h1.Server.TLS is for a socket.
	TLS     func(table.Socket) func() *tls.Config
	Refused func(h1.Refusal)
	// BreakOff is called, once or more, before what is left is broken off at the end of the process.
	BreakOff func()
	Log      *slog.Logger
}

// sockets are where connections are accepted: for each socket of the table a server, with a listener for each
// address.
type sockets struct {
	cfg socketsConfig

	mu       sync.Mutex
	open     map[table.Socket]*socket
	draining bool // no more are opened
	// inherited are those of the process before this one that no socket has yet, by address.
	inherited handover.Taken
	// ending are those that were removed and still have connections, which end when late is closed.
	ending sync.WaitGroup
	late   chan struct{}
}

// socket is a socket of the table.
type socket struct {
	at     table.Socket
	server *h1.Server
	conns  *tracked
	// listeners are those of the addresses; nil for one that cannot be bound.
	listeners map[netip.Addr]*bound
	problems  map[netip.Addr]error
	backoff   retry.Backoff
	next      time.Time // when those that cannot be bound are tried again; zero for never
}

// bound is an address that a socket is bound at.
type bound struct {
	listener net.Listener     // nil for UDP
	tcp      *net.TCPListener // the same, without what the socket adds to it
	packets  *datagram.Socket // nil for TCP
	udp      *net.UDPConn     // of packets
}

// addr returns the address.
func (b *bound) addr() net.Addr {
	if b.packets != nil {
		return b.packets.Addr()
	}
	return b.listener.Addr()
}

// refuse has no further connections be accepted.
func (b *bound) refuse() {
	if b.listener != nil {
		b.listener.Close()
	}
}

// end lets endpoints answer what they were sent by UDP, and closes the socket.
func (b *bound) end(ctx context.Context) {
	if b.packets != nil {
		b.packets.Drain(ctx)
		b.packets.Close()
	}
}

// close ends all.
func (b *bound) close() {
	b.refuse()
	if b.packets != nil {
		b.packets.Close()
	}
}

func newSockets(cfg socketsConfig) *sockets {
	return &sockets{cfg: cfg, open: make(map[table.Socket]*socket), late: make(chan struct{})}
}

// update has these sockets be open, and no others.
func (s *sockets) update(ctx context.Context, want []table.Socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return
	}
	for at, sock := range s.open { // first, as another one may have its port
		if !slices.Contains(want, at) {
			delete(s.open, at)
			s.remove(sock)
		}
	}
	for _, at := range want {
		if s.open[at] == nil {
			s.open[at] = s.newSocket(at)
			s.bind(ctx, s.open[at])
		}
	}
}

// newSocket returns a socket that is not bound.
func (s *sockets) newSocket(at table.Socket) *socket {
	handler := s.cfg.Handler(at)
	return &socket{
		at: at, conns: newTracked(), listeners: make(map[netip.Addr]*bound), problems: make(map[netip.Addr]error),
		server: &h1.Server{
			Handler: handler, Limits: s.cfg.Limits, HTTP2: s.newHTTP2(handler),
			TLS: s.cfg.TLS(at), Refused: s.cfg.Refused, Log: s.cfg.Log,
		},
	}
}

// What a connection of HTTP/2 may hold: 64 KiB that a handler has not read for each of its requests, four times as
// much altogether, and one frame, for which there is room as soon as its head has come. That is of the least length
// that RFC 9113, section 4.2, allows: 16 KiB, where net/http allows 1 MiB.
const (
	maxStreams     = 100
	maxFrame       = 16 << 10
	streamWindow   = 64 << 10
	connWindow     = 4 * streamWindow
	writeStallTime = 30 * time.Second
)

// newHTTP2 returns the server of connections of HTTP/2.
func (s *sockets) newHTTP2(handler http.Handler) *http.Server {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: s.cfg.Limits.Head,
		ReadHeaderTimeout: s.cfg.Limits.HeadTimeout, IdleTimeout: s.cfg.Limits.IdleTimeout,
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug), Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamWindow,
			MaxReceiveBufferPerConnection: connWindow, MaxReadFrameSize: maxFrame, WriteByteTimeout: writeStallTime,
		},
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	server.Protocols.SetHTTP2(true)
	return server
}

// bind binds the addresses of a socket that it has no listener for, and serves them.
func (s *sockets) bind(ctx context.Context, sock *socket) {
	addrs := s.cfg.Listen
	if sock.at.Addr.IsValid() {
		addrs = []netip.Addr{sock.at.Addr}
	}
	sock.next = time.Time{}
	for _, addr := range addrs {
		if sock.listeners[addr] != nil {
			continue
		}
		made, err := s.serve(ctx, sock, addr)
		if err != nil {
			s.failed(sock, addr, err)
			continue
		}
		if sock.problems[addr] != nil {
			s.cfg.Log.Info("a port is bound", "address", made.addr())
			delete(sock.problems, addr)
		}
		sock.listeners[addr] = made
	}
	if len(sock.problems) > 0 {
		sock.next = time.Now().Add(sock.backoff.Next())
	}
}

// serve binds an address of a socket, and serves what comes there.
func (s *sockets) serve(ctx context.Context, sock *socket, addr netip.Addr) (*bound, error) {
	if sock.at.Transport == table.UDP {
		return s.servePackets(ctx, sock.at, addr)
	}
	l, err := s.listen(ctx, sock.at, addr)
	if err != nil {
		return nil, err
	}
	tcp, _ := l.(*net.TCPListener)
	l = s.cfg.Connections.Listener(sock.conns.listener(l))
	l = s.cfg.Streams.Listener(sock.at, l, sock.server.ServeConn)
	go func() { _ = sock.server.Serve(l) }() // ends when the listener is closed
	return &bound{listener: l, tcp: tcp}, nil
}

// servePackets is serve for UDP.
func (s *sockets) servePackets(ctx context.Context, at table.Socket, addr netip.Addr) (*bound, error) {
	udp, err := s.listenPackets(ctx, at, addr)
	if err != nil {
		return nil, err
	}
	made, err := s.cfg.Datagrams.Open(at, udp)
	if err != nil {
		return nil, errors.Join(err, udp.Close())
	}
	go made.Serve() // ends when it is closed
	return &bound{packets: made, udp: udp}, nil
}

// failed records that an address cannot be bound.
func (s *sockets) failed(sock *socket, addr netip.Addr, err error) {
	if was := sock.problems[addr]; was == nil || was.Error() != err.Error() {
		s.cfg.Log.Warn("a port cannot be bound; it is tried again", "port", sock.at.Port, "err", err)
	}
	sock.problems[addr] = err
}

// address returns where a socket is bound. The zero addr is all addresses.
func (s *sockets) address(at table.Socket, addr netip.Addr) (string, error) {
	host := ""
	if addr.IsValid() {
		host = addr.String()
	}
	number := int(at.Port) + int(s.cfg.PortOffset)
	if number > math.MaxUint16 {
		return "", fmt.Errorf("listen on port %d: with gateway.portOffset it is above 65535", at.Port)
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// listen binds an address of a socket, or has the listener of the process before.
func (s *sockets) listen(ctx context.Context, at table.Socket, addr netip.Addr) (l net.Listener, err error) {
	address, err := s.address(at, addr)
	if err != nil {
		return nil, err
	}
	if l := s.inherited.Listeners[address]; l != nil {
		delete(s.inherited.Listeners, address)
		return l, nil
	}
	err = s.privileged(at, address, func(config *net.ListenConfig) (syscall.Conn, error) {
		if l, err = config.Listen(ctx, "tcp", address); err != nil {
			return nil, err
		}
		c, _ := l.(syscall.Conn)
		return c, nil
	})
	return l, err
}

// listenPackets is listen for UDP.
func (s *sockets) listenPackets(ctx context.Context, at table.Socket, addr netip.Addr) (c *net.UDPConn, err error) {
	address, err := s.address(at, addr)
	if err != nil {
		return nil, err
	}
	if c := s.inherited.Packets[packetName(address)]; c != nil {
		delete(s.inherited.Packets, packetName(address))
		return c, nil
	}
	err = s.privileged(at, address, func(config *net.ListenConfig) (syscall.Conn, error) {
		made, err := config.ListenPacket(ctx, "udp", address)
		if err != nil {
			return nil, err
		}
		c, _ = made.(*net.UDPConn)
		return c, nil
	})
	return c, err
}

// privileged calls listen with the privileges that it may need. If a socket of ours has the port at other addresses,
// they share it.
func (s *sockets) privileged(
	at table.Socket, address string, listen func(*net.ListenConfig) (syscall.Conn, error),
) error {
	err := bind.Privileged(func() error {
		c, err := listen(new(net.ListenConfig))
		if errors.Is(err, syscall.EADDRINUSE) && s.ours(at) {
			// One of them is at all addresses. The kernel prefers the one that is not.
			_, err = listen(&net.ListenConfig{Control: bind.SharePort})
		} else if err == nil {
			err = bind.Share(c)
		}
		return err
	})
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if err != nil {
		err = fmt.Errorf("listen on %s: %w", address, err)
		if at.Transport == table.UDP {
			err = fmt.Errorf("listen on %s for UDP: %w", address, errors.Unwrap(err))
		}
		return bind.WithCure(err, "gateway.listen or gateway.portOffset")
	}
	return nil
}

// ours reports whether one of ours has the port.
func (s *sockets) ours(port table.Socket) bool {
	for at, sock := range s.open {
		if at.Port == port.Port && at.Transport == port.Transport && len(sock.listeners) > 0 {
			return true
		}
	}
	return false
}

// retry binds what could not be bound before, if it is time to.
func (s *sockets) retry(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, sock := range s.open {
		if !s.draining && !sock.next.IsZero() && !now.Before(sock.next) {
			s.bind(ctx, sock)
		}
	}
}

// next returns when retry has something to do; zero for never.
func (s *sockets) next() (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sock := range s.open {
		if !sock.next.IsZero() && (next.IsZero() || sock.next.Before(next)) {
			next = sock.next
		}
	}
	return next
}

// errors returns why sockets are not bound, at one of their addresses or more. Those that are bound are not
// in the map.
func (s *sockets) errors() map[table.Socket]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := make(map[table.Socket]error)
	for at, sock := range s.open {
		var all []error
		for _, addr := range slices.SortedFunc(maps.Keys(sock.problems), netip.Addr.Compare) {
			all = append(all, sock.problems[addr])
		}
		if len(all) > 0 {
			made[at] = errors.Join(all...)
		}
	}
	return made
}

// problems returns why sockets are not bound, in words and in order.
func (s *sockets) problems() (made []string) {
	for _, err := range s.errors() {
		made = append(made, strings.Split(err.Error(), "\n")...)
	}
	slices.Sort(made)
	return made
}

// addresses returns those that a socket is bound at.
func (s *sockets) addresses(at table.Socket) (made []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sock := s.open[at]; sock != nil {
		for _, l := range sock.listeners {
			made = append(made, l.addr().String())
		}
	}
	slices.Sort(made)
	return made
}

// bound reports whether one of them is bound at one of its addresses, or none is wanted.
func (s *sockets) bound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sock := range s.open {
		if len(sock.listeners) > 0 {
			return true
		}
	}
	return len(s.open) == 0
}

// count returns how many sockets are open, and how many of them are not bound at one of their addresses or more.
func (s *sockets) count() (open, failing int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sock := range s.open {
		if len(sock.problems) > 0 {
			failing++
		}
	}
	return len(s.open), failing
}

// remove closes the listeners of a socket, and lets what is under way there end.
func (s *sockets) remove(sock *socket) {
	for _, l := range sock.listeners {
		l.refuse()
	}
	s.ending.Go(func() { s.end(sock, s.cfg.Drain) })
}

// end lets what is under way at a socket end, within some time.
func (s *sockets) end(sock *socket, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-s.late:
			cancel()
		}
	}()
	var packets sync.WaitGroup
	for _, l := range sock.listeners {
		packets.Go(func() { l.end(ctx) })
	}
	_ = sock.server.Shutdown(ctx)
	sock.conns.wait(ctx)
	packets.Wait()
	s.mu.Lock()
	late := ctx.Err() != nil && s.draining
	s.mu.Unlock()
	if late {
		s.cfg.BreakOff()
	}
	sock.server.Close()
	sock.conns.close()
}

// drain closes all sockets, and lets what is under way end, within some time.
func (s *sockets) drain(within time.Duration) {
	s.mu.Lock()
	s.draining = true
	for _, sock := range s.open {
		s.ending.Go(func() { s.end(sock, within) })
	}
	s.mu.Unlock()
	late := time.AfterFunc(within, func() { close(s.late) }) // those that were removed before may have had longer
	defer late.Stop()
	s.ending.Wait()
}

// close breaks off what is under way at all sockets.
func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.dropInherited()
	for _, sock := range s.open {
		sock.server.Close()
		for _, l := range sock.listeners {
			l.close()
		}
		sock.conns.close()
	}
}
