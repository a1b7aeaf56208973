package dnsserver

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// tlsConfig returns the TLS configuration of a listener for the given protocols. It
// accepts clients that name none.
func tlsConfig(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), protocols ...string) *tls.Config {
	return &tls.Config{GetCertificate: certificate, MinVersion: tls.VersionTLS12, NextProtos: protocols}
}

// httpsServer answers queries over HTTP/2 and HTTP/1.1 (RFC 8484).
type httpsServer struct {
	*Server
	workers sync.Pool // of *tcpWorker

	mu    sync.Mutex
	conns map[net.Conn]*httpsConn
	turn  uint64 // counts events on connections
}

// httpsConn is the state of a connection.
type httpsConn struct {
	turn     uint64 // of the last query or answer
	inFlight int    // queries being answered
}

// isIdler reports whether c is to be closed before other. Connections that wait for
// answers are closed last.
func (c *httpsConn) isIdler(other *httpsConn) bool {
	if (c.inFlight == 0) != (other.inFlight == 0) {
		return c.inFlight == 0
	}
	return c.turn < other.turn
}

func newHTTPSServer(s *Server) *httpsServer {
	h := &httpsServer{Server: s, conns: make(map[net.Conn]*httpsConn)}
	h.workers.New = func() any { return &tcpWorker{answerer: s.cfg.NewAnswerer(len(s.udp))} }
	return h
}

// run serves until ctx is done, and then drains the connections.
func (h *httpsServer) run(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle(h.cfg.HTTPSPath, h)
	const maxHeader = 16 << 10
	server := &http.Server{
		Handler:        mux,
		TLSConfig:      tlsConfig(h.cfg.Certificate, "h2", "http/1.1"),
		ReadTimeout:    h.cfg.Idle,
		WriteTimeout:   2 * h.cfg.Idle, // including the time to answer
		IdleTimeout:    h.cfg.Idle,
		MaxHeaderBytes: maxHeader,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: h.cfg.MaxInFlight},
		ConnState:      h.follow,
		ConnContext:    func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		BaseContext:    func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:       slog.NewLogLogger(h.cfg.Log.Handler(), slog.LevelDebug),
	}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.drainTime)
		defer cancel()
		if server.Shutdown(end) != nil {
			server.Close()
		}
	})
	err := server.ServeTLS(l, "", "")
	if !stop() {
		<-drained
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// connKey is the context key of a request's connection.
type connKey struct{}

// follow tracks the open connections. At the limit, a new connection replaces the one
// that was idle longest.
func (h *httpsServer) follow(c net.Conn, state http.ConnState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(h.conns) >= h.cfg.MaxConnections {
			h.cut()
		}
		h.turn++
		h.conns[c] = &httpsConn{turn: h.turn}
	case http.StateClosed:
		delete(h.conns, c)
	}
}

// cut closes the connection that was idle longest, without a TLS close alert, which the
// client might not accept.
func (h *httpsServer) cut() {
	var first net.Conn
	for c, conn := range h.conns {
		if first == nil || conn.isIdler(h.conns[first]) {
			first = c
		}
	}
	delete(h.conns, first)
	if conn, ok := first.(*tls.Conn); ok {
		conn.NetConn().Close()
	}
}

// note adds more to the number of queries in flight on the connection of r.
func (h *httpsServer) note(r *http.Request, more int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	if c := h.conns[conn]; c != nil { // not closed by cut
		h.turn++
		c.turn = h.turn
		c.inFlight += more
	}
}

// mediaType is the media type of DNS messages (RFC 8484, section 6).
const mediaType = "application/dns-message"

// ServeHTTP answers one DoH request.
func (h *httpsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query, status := readQuery(r)
	if status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
		return
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, "no address", http.StatusInternalServerError)
		return
	}
	h.note(r, 1)
	defer h.note(r, -1)
	answer := h.answer(r.Context(), query,
		respond.Client{Addr: remote.Addr().Unmap(), Port: remote.Port(), Transport: respond.HTTPS})
	if answer == nil { // the query is a response or shorter than a header
		http.Error(w, "not a query", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", fmt.Sprintf("max-age=%d", maxAge(answer)))
	_, _ = w.Write(answer) // the client may be gone
}

// answer returns the answer to a query. It does not hold a worker while it waits for a
// deferred answer.
func (h *httpsServer) answer(ctx context.Context, query []byte, client respond.Client) []byte {
	worker := h.workers.Get().(*tcpWorker)
	answer, deferred := worker.answerer.Respond(query, client, worker.answer[:0])
	answer = slices.Clone(answer)
	h.workers.Put(worker)
	if deferred != nil {
		answer = first(ctx, deferred)
	}
	return answer
}

// readQuery returns the query of a request (RFC 8484, section 4.1), or the HTTP status
// of its error.
func readQuery(r *http.Request) (query []byte, status int) {
	var err error
	switch r.Method {
	case http.MethodGet:
		query, err = base64.RawURLEncoding.DecodeString(r.URL.Query().Get("dns"))
	case http.MethodPost:
		if r.Header.Get("Content-Type") != mediaType {
			return nil, http.StatusUnsupportedMediaType
		}
		query, err = io.ReadAll(io.LimitReader(r.Body, dnswire.MaxMessage+1))
	default:
		return nil, http.StatusMethodNotAllowed
	}
	switch {
	case err != nil || len(query) == 0:
		return nil, http.StatusBadRequest
	case len(query) > dnswire.MaxMessage:
		return nil, http.StatusRequestEntityTooLarge
	}
	return query, http.StatusOK
}

// maxAge returns how long HTTP caches may keep an answer, in seconds: the lowest TTL in
// it (RFC 8484, section 5.1).
func maxAge(answer []byte) uint32 {
	reply, err := dnswire.ParseReply(answer)
	if err != nil {
		return 0
	}
	age, found := uint32(0), false
	for rec := range reply.Records {
		if ttl := rec.TTL(); !found || ttl < age {
			age, found = ttl, true
		}
	}
	return age
}
