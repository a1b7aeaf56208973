// Package h1 serves HTTP/1.1 to an http.Handler (RFC 9112). It is strict where recipients that read a
// message differently could be made to see requests that others do not: what is not in the grammar is
// refused, and the connection closed.
//
//	accept ──► tls.go: handshake, if there is TLS
//	             └► conn.go: waits ──► head.go: *http.Request ──► Handler ──► response.go ──► client
//	                                       body.go: its body ◄─┘
//	           handover.go: connections that become another protocol's
//
// It differs from package net/http where a gateway must: a request that must be refused is never given to
// the Handler; the context ends when the body of a request breaks off or is malformed; and no Content-Type
// is guessed. A connection that waits holds no buffer.
package h1

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/wire"
	"portolan.dev/portolan/internal/support/budget"
)

// Limits bound what a client can make the server hold. Of fields that are zero the default holds.
type Limits struct {
	// Head is how many octets the request line and the fields may have; with more the answer is 431.
	// The default is 16 KiB.
	Head int
	// Target is how many octets the request-target may have; with more the answer is 414. The default is
	// 8 KiB.
	Target int
	// Fields is how many field lines a head may have; with more the answer is 431. The default is 128.
	Fields int
	// HeadTimeout is how long a head may take from its first octet; then the answer is 408. The default
	// is 10 s.
	HeadTimeout time.Duration
	// HandshakeTimeout is how long a TLS handshake may take. The default is 10 s.
	HandshakeTimeout time.Duration
	// IdleTimeout is how long a connection may wait for a request. The default is 2 min.
	IdleTimeout time.Duration
	// Rate is the least octets per second at which a client must send a body and take a response, after
	// Grace. Only the time counts that the server waits for the client. The defaults are 240 and 20 s.
	Rate  int
	Grace time.Duration
	// Discard is how many octets of a body that the Handler has not read are read, so that the connection
	// can be used for another request. The default is 64 KiB.
	Discard int64
}

// withDefaults returns the limits with the defaults for fields that are zero.
func (l Limits) withDefaults() Limits {
	return Limits{
		Head:             cmp.Or(l.Head, 16<<10),
		Target:           cmp.Or(l.Target, 8<<10),
		Fields:           cmp.Or(l.Fields, 128),
		HeadTimeout:      cmp.Or(l.HeadTimeout, 10*time.Second),
		HandshakeTimeout: cmp.Or(l.HandshakeTimeout, 10*time.Second),
		IdleTimeout:      cmp.Or(l.IdleTimeout, 2*time.Minute),
		Rate:             cmp.Or(l.Rate, 240),
		Grace:            cmp.Or(l.Grace, 20*time.Second),
		Discard:          cmp.Or(l.Discard, 64<<10),
	}
}

// fields returns the limits of a section of fields.
func (l *Limits) fields() wire.Limits { return wire.Limits{Size: l.Head, Fields: l.Fields} }

// within returns how long a client may take for n octets.
func (l *Limits) within(n int64) time.Duration {
	const longest = float64(100 * 365 * 24 * time.Hour)
	return l.Grace + time.Duration(min(float64(n)/float64(l.Rate)*float64(time.Second), longest))
}

// Refusal is a request that is refused, or a TLS handshake that failed.
type Refusal struct {
	Local  net.Addr
	Remote string // address and port
	Status int    // of the answer; 0 for a handshake
	Reason string
}

// Server serves connections. Its fields must not change after Serve is called.
type Server struct {
	// Handler gets the requests. As with http.Server the body of a request is never nil, the context has
	// http.LocalAddrContextKey, and the ResponseWriter is an http.Flusher and http.Hijacker. A Handler that
	// panics with http.ErrAbortHandler closes the connection. A body that is not empty has the method
	// ReadReceived, too: it reads what was received already, and does not wait for the client.
	Handler http.Handler
	Limits  Limits
	// Connections accounts the connections; nil for no limit. One is busy in it (budget.Use) while it has a
	// request.
	Connections *budget.Account
	// TLS returns the configuration of a connection that was accepted, which begins with a handshake then; nil
	// for one without TLS. It must not block. NextProtos must have "http/1.1", and may have "h2" with HTTP2. A
	// nil TLS is none for all.
	TLS func() *tls.Config
	// HTTP2 serves connections that begin with the preface of HTTP/2 (RFC 9113, section 3.3), and those on
	// which client and server agreed on it by ALPN; its Protocols must have UnencryptedHTTP2 and HTTP2. Its Handler
	// is wrapped, and its ConnContext set. If it is nil such connections are refused.
	HTTP2 *http.Server
	// Refused is called for each request and handshake that is refused; nil for none. The Handler gets requests
	// of which only the body is invalid, with an error of Read.
	Refused func(Refusal)
	Log     *slog.Logger // nil for none

	begin    sync.Once
	limits   Limits // with the defaults
	log      *slog.Logger
	http2    *handover // nil without HTTP2
	draining atomic.Bool
	date     atomic.Pointer[stamp]

	mu        sync.Mutex
	listeners map[net.Listener]struct{} // of which Serve has not returned
	conns     map[*conn]struct{}
	ended     chan struct{} // closed when draining and without listeners and connections; nil before Shutdown
}

// Serve accepts connections until Shutdown or Close is called, and then returns nil. It returns an error
// if the listener fails for good. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	s.begin.Do(s.start)
	if s.Connections != nil {
		l = s.Connections.Listener(l)
	}
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		return l.Close()
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		l.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
		s.end()
	}()
	var pause time.Duration
	for {
		rwc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.open(rwc)
		case s.draining.Load():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // no descriptors or no memory are left, or the client is gone already
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("accept a connection", "error", err, "pause", pause)
			time.Sleep(pause)
		}
	}
}

// ServeConn begins to serve a connection that was accepted otherwise. It returns at once.
func (s *Server) ServeConn(c net.Conn) {
	s.begin.Do(s.start)
	s.open(c)
}

// start prepares the server before its first listener.
func (s *Server) start() {
	s.limits = s.Limits.withDefaults()
	if s.log = s.Log; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = make(map[net.Listener]struct{})
	s.conns = make(map[*conn]struct{})
	if s.HTTP2 != nil {
		s.http2 = newHandover()
		asHTTP1(s.HTTP2, &s.limits)
		go func() { // ends with the Server
			_ = s.HTTP2.Serve(s.http2)
			s.http2.end()
		}()
	}
}

// open begins to serve a connection.
func (s *Server) open(rwc net.Conn) {
	c := newConn(s, rwc)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	if c.tls != nil {
		go c.shakeHands()
	} else {
		go c.park()
	}
}

// forget removes a connection that has ended, or become another protocol's.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.end()
}

// end ends the wait of Shutdown if no connection is left and none can come. The caller holds the lock.
func (s *Server) end() {
	if s.ended != nil && len(s.conns)+len(s.listeners) == 0 {
		close(s.ended)
		s.ended = nil
	}
}

// Shutdown closes the listeners and the connections that have waited for a request for a second. On others
// it lets the requests end, with "Connection: close" or GOAWAY. Connections that are new have a second to begin a
// request. It returns when there are none, or ctx's error when that is done. Hijacked connections are their owners'.
func (s *Server) Shutdown(ctx context.Context) error {
	s.begin.Do(s.start)
	ended := s.drain()
	over := make(chan error, 1)
	go func() { over <- s.shutdownHTTP2(ctx) }()
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return cmp.Or(err, s.endHTTP2(ctx, over))
}

// drain begins to end the server. The channel that it returns is closed when no connection is left but those that were
// hijacked or went over to HTTP/2, and none can come.
func (s *Server) drain() (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(true)
	for l := range s.listeners {
		l.Close()
	}
	if s.ended == nil {
		s.ended = make(chan struct{})
	}
	ended = s.ended
	s.end()
	for c := range s.conns {
		c.wake()
	}
	return ended
}

// shutdownHTTP2 has the connections of HTTP/2 be sent GOAWAY, and waits for their end and for endHTTP2.
func (s *Server) shutdownHTTP2(ctx context.Context) error {
	if s.HTTP2 == nil {
		return nil
	}
	return s.HTTP2.Shutdown(ctx)
}

// endHTTP2 has no connection come over any more, and waits for those that have. over gets the result of shutdownHTTP2.
func (s *Server) endHTTP2(ctx context.Context, over <-chan error) error {
	if s.HTTP2 != nil {
		s.http2.end()
	}
	select {
	case err := <-over:
		return err
	case <-time.After(holdFor):
		return s.shutdownHTTP2(ctx) // again, for connections that came over since
	}
}

// stamp is a time as the field Date has it.
type stamp struct {
	second int64 // since 1970
	text   string
}

// now returns the present time for the field Date.
func (s *Server) now() string {
	now := time.Now()
	if d := s.date.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &stamp{now.Unix(), now.UTC().Format(http.TimeFormat)}
	s.date.Store(d)
	return d.text
}

// Close closes the listeners and all connections but the hijacked ones.
func (s *Server) Close() error {
	s.begin.Do(s.start)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(true)
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.raw.Close()
	}
	if s.HTTP2 != nil {
		s.http2.end()
		return s.HTTP2.Close()
	}
	return nil
}
