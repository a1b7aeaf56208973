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
	"strconv"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/budget"
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
}

func newHTTPSServer(s *Server) *httpsServer {
	h := &httpsServer{Server: s}
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
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: h.streams()},
		ConnContext:    withConn,
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
	err := server.ServeTLS(h.webConnections.Listener(l), "", "")
	if !stop() {
		<-drained
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// streams returns the number of requests at once on one connection. HTTP/2 starts all of
// them before they take their places, so there are fewer with less memory.
func (h *httpsServer) streams() int {
	const least, connections = 20, 64
	return min(h.cfg.MaxInFlight, max(least, h.webRequests.Stats().Limit/connections))
}

// connKey is the context key of a request's connection below TLS.
type connKey struct{}

// withConn is http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// mediaType is the media type of DNS messages (RFC 8484, section 6).
const mediaType = "application/dns-message"

// ServeHTTP answers one DoH request.
func (h *httpsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, "no address", http.StatusInternalServerError)
		return
	}
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		http.Error(w, "no connection", http.StatusInternalServerError)
		return
	}
	// A client that does not end its requests, or does not read its answers, loses one of
	// them when others need its place.
	ctx, request := newWebRequest(r.Context(), w)
	defer request.end()
	place := h.webRequests.Enter(remote.Addr(), func(error) { request.reset() })
	defer place.Leave()
	defer budget.Use(conn)()
	query, status := readQuery(r)
	if status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
		return
	}
	answer := h.answer(ctx, query, newClient(remote, respond.HTTPS))
	if answer == nil { // the query is a response or shorter than a header
		http.Error(w, "not a query", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", fmt.Sprintf("max-age=%d", maxAge(answer)))
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer)      // the client may be gone
	_ = request.control.Flush() // the request has its place until the answer is sent
}

// webRequest is a request that can be reset while its handler runs.
type webRequest struct {
	control *http.ResponseController
	cancel  context.CancelFunc

	mu    sync.Mutex
	ended bool
}

// newWebRequest returns the request that w answers, and the context for its answer.
func newWebRequest(ctx context.Context, w http.ResponseWriter) (context.Context, *webRequest) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, &webRequest{control: http.NewResponseController(w), cancel: cancel}
}

// reset makes the handler's reads and writes fail. Over HTTP/2 that resets the stream, over
// HTTP/1.1 it closes the connection.
func (r *webRequest) reset() {
	defer r.cancel() // no answer can be written then
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended { // the response writer is invalid
		return
	}
	past := time.Unix(1, 0)
	_, _ = r.control.SetReadDeadline(past), r.control.SetWriteDeadline(past) // both are supported
}

// end must be called before the handler returns.
func (r *webRequest) end() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
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
