// Package proxy serves requests by a table: it finds the rule of each, applies its filters, and sends it
// to an endpoint (RFC 9110, section 7.6; Gateway API v1, HTTPRoute).
//
//	h1.Server   ──► proxy.go:    the route of a request, or why there is none
//	                filter.go:   redirects, CORS, changes of heads and paths
//	                attempt.go:  endpoints, one after the other until one answers
//	                mirror.go:   copies
//	            ──► upstream
package proxy

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
)

// Config is what a Proxy needs.
type Config struct {
	// Endpoints are where the upstreams of the Table are.
	Endpoints *balance.Set[table.Upstream]
	// Trusted are clients whose X-Forwarded-For, -Proto and -Host are kept.
	Trusted []netip.Prefix
	Log     *slog.Logger // nil for none
	// Done is called after each request; nil for none.
	Done func(*Record)
}

// Record is what became of a request.
type Record struct {
	// Request is as it came. It must not be changed, nor kept.
	Request *http.Request
	// Listener is empty if none served the host. Host and Path are normal.
	Listener, Host, Path string
	// Rule is nil if no route matched.
	Rule *table.Rule
	// Reason says why the proxy itself answered; empty if an upstream did.
	Reason   table.Reason
	Upstream table.Upstream
	Endpoint netip.AddrPort
	Attempts int
	// Status is that of the answer, 0 if there was none, and Sent how many octets of its body were sent.
	Status   int
	Sent     int64
	Began    time.Time
	Duration time.Duration
}

// Reasons of answers that the proxy gives itself.
const (
	NoTable     table.Reason = "not ready"
	NoListener  table.Reason = "no listener for the host"
	NoRoute     table.Reason = "no route"
	Misdirected table.Reason = "misdirected"
	BadPath     table.Reason = "bad path"
	NoBackend   table.Reason = "no backend"
	NoEndpoint  table.Reason = "no ready endpoint"
	Unreachable table.Reason = "no endpoint answered"
	TimedOut    table.Reason = "timeout"
	Redirected  table.Reason = "redirect"
	Preflight   table.Reason = "cors preflight"
	ClientGone  table.Reason = "client gone"
)

// Known reports whether a reason is one of those above; others are of rules.
func Known(r table.Reason) bool {
	switch r {
	case NoTable, NoListener, NoRoute, Misdirected, BadPath, NoBackend, NoEndpoint, Unreachable, TimedOut, Redirected,
		Preflight, ClientGone:
		return true
	}
	return false
}

// Proxy serves the requests of all listeners.
type Proxy struct {
	cfg     Config
	table   atomic.Pointer[table.Table]
	reverse httputil.ReverseProxy
	h1, h2c *http.Transport
	retries budget
	mirrors chan struct{} // has one for each copy under way
}

// idleTimeout is for how long connections to upstreams are kept that have nothing to do. It is shorter
// than what servers have by default.
const idleTimeout = 50 * time.Second

// dialTimeout is how long a connection to an endpoint may take to be made.
const dialTimeout = 3 * time.Second

// pingAfter is how long a connection with requests under way may be silent before it is tested (HTTP/2).
const pingAfter = 15 * time.Second

// New returns a Proxy without a Table: it answers 503.
func New(cfg Config) *Proxy {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{cfg: cfg, mirrors: make(chan struct{}, maxMirrors)}
	dialer := &net.Dialer{Timeout: dialTimeout}
	p.h1 = &http.Transport{
		DialContext: dialer.DialContext, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 64,
		DisableCompression: true, // so that bodies pass as they are
	}
	p.h2c = p.h1.Clone()
	p.h2c.Protocols, p.h2c.HTTP2 = new(http.Protocols), &http.HTTP2Config{SendPingTimeout: pingAfter}
	p.h2c.Protocols.SetUnencryptedHTTP2(true)
	p.reverse = httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: attempts{p}, ModifyResponse: p.modifyResponse, ErrorHandler: p.fail,
		FlushInterval: -1, ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return p
}

// SetTable has requests from now on be served by t.
func (p *Proxy) SetTable(t *table.Table) { p.table.Store(t) }

// Table returns the table that requests are served by; nil before the first.
func (p *Proxy) Table() *table.Table { return p.table.Load() }

// Close closes the connections that have nothing to do.
func (p *Proxy) Close() {
	p.h1.CloseIdleConnections()
	p.h2c.CloseIdleConnections()
}

// transport returns what sends requests to an upstream.
func (p *Proxy) transport(to table.Upstream) *http.Transport {
	if to.Protocol == table.H2C {
		return p.h2c
	}
	return p.h1
}

// exchange is a request on its way.
type exchange struct {
	Record
	route   *table.Route
	backend *table.Backend
	path    string // of the request, normal and percent-encoded
	at      table.Socket
}

// exchangeKey is the key of an exchange in a request's context.
type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange) // ServeHTTP put it there
	return x
}

// At returns the handler of the requests that come to a socket.
func (p *Proxy) At(at table.Socket) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{Record: Record{Request: r, Host: hostname(r.Host), Path: r.URL.Path, Began: time.Now()}, at: at}
		defer func() { // also if the answer is broken off, which is a panic
			if x.Duration = time.Since(x.Began); p.cfg.Done != nil {
				p.cfg.Done(&x.Record)
			}
		}()
		p.exchange(&recorder{w, &x.Record}, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)), x)
	})
}

// exchange answers a request.
func (p *Proxy) exchange(w http.ResponseWriter, r *http.Request, x *exchange) {
	if status, reason := p.find(x, r); status != 0 {
		p.answer(w, x, status, reason)
	} else {
		p.serve(w, r, x)
	}
}

// recorder notes what is answered.
type recorder struct {
	http.ResponseWriter
	record *Record
}

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.record.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.record.Sent += int64(n)
	return n, err
}

// Unwrap returns the ResponseWriter for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// find finds the route of a request. If there is none it returns the status to answer with, and why.
func (p *Proxy) find(x *exchange, r *http.Request) (status int, reason table.Reason) {
	t := p.table.Load()
	if t == nil {
		return http.StatusServiceUnavailable, NoTable
	}
	var err error
	if x.path, err = table.Normalize(r.URL.EscapedPath()); err != nil {
		return http.StatusBadRequest, BadPath
	}
	port := t.Port(x.at)
	if port == nil {
		return http.StatusNotFound, NoListener
	}
	if port.TLS() != (r.TLS != nil) || r.TLS != nil && port.Misdirected(r.TLS.ServerName, x.Host) {
		return http.StatusMisdirectedRequest, Misdirected
	}
	request := table.Request{Method: r.Method, Path: x.path, Query: r.URL.RawQuery, Header: r.Header}
	listener, route := port.Find(x.Host, &request)
	if listener == nil {
		return http.StatusNotFound, NoListener
	}
	if x.Listener = listener.Name; route == nil {
		return http.StatusNotFound, NoRoute
	}
	x.route, x.Rule = route, route.Rule
	return route.Rule.Status, route.Rule.Reason
}

// hostname returns the name in a Host field, in lower case and without a port.
func hostname(field string) string {
	if name, _, err := net.SplitHostPort(field); err == nil {
		field = name
	}
	return strings.TrimSuffix(strings.ToLower(field), ".")
}

// serve serves a request that has a rule.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, x *exchange) {
	rule := x.Rule
	if rule.CORS != nil && preflight(w, r, rule.CORS) {
		x.Reason = Preflight
		return
	}
	if rule.Redirect != nil {
		x.Reason = Redirected
		w.Header().Set("Location", location(r, x, rule.Redirect))
		w.WriteHeader(rule.Redirect.Status)
		return
	}
	if x.backend = choose(rule.Backends); x.backend == nil {
		p.answer(w, x, http.StatusInternalServerError, NoBackend)
		return
	}
	if x.backend.Upstream == (table.Upstream{}) {
		p.answer(w, x, http.StatusInternalServerError, x.backend.Reason)
		return
	}
	x.Upstream = x.backend.Upstream
	if rule.Request > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), rule.Request)
		defer cancel()
		r = r.WithContext(ctx)
	}
	p.mirror(r, x)
	p.reverse.ServeHTTP(w, r)
}

// choose chooses a backend by weight; nil if none has any.
func choose(all []table.Backend) *table.Backend {
	total := uint64(0)
	for i := range all {
		total += uint64(all[i].Weight)
	}
	if total == 0 {
		return nil
	}
	n := rand.Uint64N(total)
	for i := range all {
		if n < uint64(all[i].Weight) {
			return &all[i]
		}
		n -= uint64(all[i].Weight)
	}
	return nil
}

// answer answers for the proxy itself.
func (p *Proxy) answer(w http.ResponseWriter, x *exchange, status int, reason table.Reason) {
	x.Reason = reason
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(http.StatusText(status) + ": " + string(reason) + "\n"))
}

// fail answers a request that no endpoint answered.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	switch {
	case errors.Is(err, errNoEndpoint):
		p.answer(w, x, http.StatusServiceUnavailable, NoEndpoint)
	case errors.Is(err, context.DeadlineExceeded):
		p.answer(w, x, http.StatusGatewayTimeout, TimedOut)
	case r.Context().Err() != nil:
		x.Reason = ClientGone
		panic(http.ErrAbortHandler) // nobody is there to be answered
	default:
		p.answer(w, x, http.StatusBadGateway, Unreachable)
	}
}
