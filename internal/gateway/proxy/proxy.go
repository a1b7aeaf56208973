// Package proxy serves requests by a table: it finds the rule of each, applies its filters, and sends it
// to an endpoint (RFC 9110, section 7.6; Gateway API v1, HTTPRoute).
//
//	h1.Server   ──► proxy.go:    the route of a request, or why there is none
//	                guard.go:    what the rule demands of a request
//	                authorize.go, envoy.go: what another service says of it
//	                filter.go:   redirects, CORS, changes of heads
//	                mirror.go:   copies
//	                request.go:  the request that the upstream gets
//	                persistence.go: the endpoint of a session
//	                attempt.go:  endpoints, one after the other until one answers
//	                response.go: the response that the client gets
//	                tunnel.go:   what becomes another protocol's connection
//	            ──► upstream.Client
//
// All of it runs in the goroutine of the request, whatever server has read that.
package proxy

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/limiter"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/upstream"
	"portolan.dev/portolan/internal/gateway/wire"
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
	// Tracer has spans of requests; nil for none. Then fields of traces pass as they are.
	Tracer Tracer
	// Drain is how long requests may go on at an endpoint that was removed, and DrainUpgraded how long connections may
	// that became another protocol's. Zero is 30 s and 1 h.
	Drain, DrainUpgraded time.Duration
	// Clients is how many clients of rate limits are known at once, of which each takes some 100 octets. Zero is 65,536.
	Clients int
}

// Tracer follows requests through programs.
type Tracer interface {
	// Begin begins the span of a request.
	Begin(r *http.Request) Span
}

// Span is the part of a trace that is in this program.
type Span interface {
	// Fields are those of the request that the upstream gets: traceparent and tracestate, which may be empty (W3C
	// Trace Context, section 3).
	Fields() (parent, state string)
	// End is called after the request.
	End(*Record)
}

// Record is what became of a request.
type Record struct {
	// Request is as it came. It must not be changed, nor kept.
	Request *http.Request
	// Listener is empty if none served the host. Host is in lower case and without a port; Path is percent-decoded.
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
	BadRequest  table.Reason = "bad request"
	Redirected  table.Reason = "redirect"
	Preflight   table.Reason = "cors preflight"

	AddressDenied   table.Reason = "address denied"
	RateLimited     table.Reason = "rate limit"
	TooManyAtOnce   table.Reason = "too many requests at once"
	Unauthenticated table.Reason = "no valid password"
	TooManyLogins   table.Reason = "too many logins"
	BodyTooLarge    table.Reason = "body too large"
	Refused         table.Reason = "refused by the authorization service"
	SignIn          table.Reason = "redirect to sign in"
	NoAuthorization table.Reason = "no answer of the authorization service"

	ClientGone table.Reason = "client gone"
	Stopped    table.Reason = "gateway stopped" // set by who stops it

	NoBackend   = table.NoBackend
	NoEndpoint  = table.NoEndpoint
	Unreachable = table.Unreachable
	RetryLimit  = table.RetryLimit
	Invalid     = table.Invalid
	BrokenOff   = table.BrokenOff
	TimedOut    = table.TimedOut
)

// Known reports whether a reason is one of those above; others are of rules.
func Known(r table.Reason) bool {
	switch r {
	case NoTable, NoListener, NoRoute, Misdirected, BadPath, BadRequest, NoBackend, NoEndpoint, Unreachable, Invalid,
		RetryLimit, BrokenOff, TimedOut, Redirected, Preflight, ClientGone, Stopped,
		AddressDenied, RateLimited, TooManyAtOnce, Unauthenticated, TooManyLogins, BodyTooLarge,
		Refused, SignIn, NoAuthorization:
		return true
	}
	return false
}

// Proxy serves the requests of all listeners.
type Proxy struct {
	cfg       Config
	table     atomic.Pointer[table.Table]
	upstreams *upstream.Client
	retries   ownBudget
	budgets   serviceBudgets
	mirrors   chan struct{} // has one for each copy under way
	rates     *limiter.Rates
	counts    *limiter.Counts
	passwords *passwords
	outside   *http.Transport // to authorization services outside the cluster
	held      atomic.Int64    // octets of bodies
}

// New returns a Proxy without a Table: it answers 503.
func New(cfg Config) *Proxy {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	upstreams := upstream.New(upstream.Config{Drain: cfg.Drain, DrainUpgraded: cfg.DrainUpgraded})
	return &Proxy{
		cfg: cfg, upstreams: upstreams, mirrors: make(chan struct{}, maxMirrors),
		rates: limiter.NewRates(cmp.Or(cfg.Clients, defaultClients)), counts: limiter.NewCounts(), passwords: newPasswords(),
		outside: newOutside(),
	}
}

// SetTable has requests from now on be served by t.
func (p *Proxy) SetTable(t *table.Table) { p.table.Store(t) }

// Table returns the table that requests are served by; nil before the first.
func (p *Proxy) Table() *table.Table { return p.table.Load() }

// Close closes the connections to endpoints that have nothing to do.
func (p *Proxy) Close() {
	p.upstreams.Close()
	p.outside.CloseIdleConnections()
}

// InUse returns the connections to endpoints that are in use. Closing one breaks off what it is used for.
func (p *Proxy) InUse() []net.Conn { return p.upstreams.InUse() }

// exchange is a request on its way.
type exchange struct {
	Record
	route *table.Route
	// certificate is that of the gateway for backends with TLS; nil for none.
	certificate *tls.Certificate
	backend     *table.Backend
	path        string // of the request, normal and percent-encoded
	at          table.Socket
	client      recorder
	fields      upstream.Fields // that the upstream gets without filters
	out         upstream.Request
	span        Span // nil without a Tracer
	// admitted is what the request counts in, and maxBody how many octets its body may have; 0 for any number.
	admitted admission
	maxBody  int64
	// content is the body of the request if it was read, see hold, and session what it is part of.
	content []byte
	held    bool
	session session
	granted *granted // what an authorization service has the backend and the client get; nil for nothing
	// answered: the answer was not broken off.
	answered bool
}

// At returns the handler of the requests that come to a socket.
func (p *Proxy) At(at table.Socket) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchanges.Get().(*exchange)
		x.Record = Record{Request: r, Host: hostname(r.Host), Path: r.URL.Path, Began: time.Now()}
		x.at, x.client = at, recorder{w, &x.Record}
		if p.cfg.Tracer != nil {
			x.span = p.cfg.Tracer.Begin(r)
		}
		defer p.end(x) // also if the answer is broken off, which is a panic
		p.exchange(&x.client, r, x)
		x.answered = true
	})
}

// exchanges are those that were used.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// end ends an exchange.
func (p *Proxy) end(x *exchange) {
	p.leave(x)
	if n := len(x.content); n > 0 {
		p.held.Add(-int64(n))
	}
	if x.Duration = time.Since(x.Began); p.cfg.Done != nil {
		p.cfg.Done(&x.Record)
	}
	if x.span != nil {
		x.span.End(&x.Record)
	}
	if x.answered && x.out.Body == nil { // else the body may still be read
		clear(x.fields)
		*x = exchange{fields: x.fields[:0]}
		exchanges.Put(x)
	}
}

// exchange answers a request.
func (p *Proxy) exchange(w *recorder, r *http.Request, x *exchange) {
	if r.ProtoMajor > 1 && !translatable(r) {
		p.answer(w, x, http.StatusBadRequest, BadRequest)
	} else if status, reason := p.find(x, r); status != 0 {
		p.answer(w, x, status, reason)
	} else {
		p.serve(w, r, x)
	}
}

// translatable reports whether a request that came by HTTP/2 is the same one in HTTP/1.1, as package h1 would take it.
func translatable(r *http.Request) bool {
	_, length := r.Header["Content_length"]
	_, coding := r.Header["Transfer_encoding"]
	return !length && !coding && upstream.Valid(r.Method, cmp.Or(r.URL.RawQuery, "-"), r.Host)
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

// flush sends what was written.
func (w *recorder) flush() error {
	if f, ok := w.ResponseWriter.(interface{ FlushError() error }); ok { // that of net/http has it, too
		return f.FlushError()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

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
	if r.TLS != nil && !listener.Admits(r.TLS) {
		x.client.Header()["Connection"] = []string{"close"}
		return http.StatusMisdirectedRequest, Misdirected
	}
	x.certificate = listener.ClientCertificate()
	if x.Listener = listener.Name; route == nil {
		return http.StatusNotFound, NoRoute
	}
	x.route, x.Rule = route, route.Rule
	return route.Rule.Status, route.Rule.Reason
}

// hostname returns the name in a Host field, in lower case and without a port.
func hostname(field string) string {
	if colon := strings.LastIndexByte(field, ':'); colon >= 0 {
		if name, _, err := net.SplitHostPort(field); err == nil {
			field = name
		}
	}
	return strings.TrimSuffix(strings.ToLower(field), ".")
}

// serve serves a request that has a rule.
func (p *Proxy) serve(w *recorder, r *http.Request, x *exchange) {
	rule := x.Rule
	if rule.Secure != nil && rule.Redirect == nil && p.secure(w, r, x) {
		return
	}
	if rule.Guard != nil && !p.admit(w, r, x) {
		return
	}
	if rule.CORS != nil && preflight(w, r, rule.CORS) {
		x.Reason = Preflight
		return
	}
	if rule.Guard != nil && !p.authorize(w, r, x) {
		return
	}
	if rule.Redirect != nil {
		x.Reason = Redirected
		w.Header().Set("Location", location(r, x, rule.Redirect))
		changeResponse(w.Header(), x)
		w.WriteHeader(rule.Redirect.Status)
		return
	}
	if rule.Persistence != nil {
		p.resume(r, x)
	}
	if x.backend == nil {
		x.backend = table.ChooseBackend(rule.Backends)
	}
	if x.backend == nil {
		p.answer(w, x, http.StatusInternalServerError, NoBackend)
		return
	}
	if x.backend.Upstream == (table.Upstream{}) {
		p.answer(w, x, http.StatusInternalServerError, x.backend.Reason)
		return
	}
	x.Upstream = x.backend.Upstream
	p.forward(w, r, x)
}

// forward sends a request to its upstream, and the response to the client.
func (p *Proxy) forward(w *recorder, r *http.Request, x *exchange) {
	x.fields = p.fields(x.fields, r, x.span)
	if x.granted != nil {
		x.granted.apply(&x.fields)
	}
	if err := p.mirror(r, x); err != nil {
		p.fail(w, r, x, err)
		return
	}
	if x.Rule.Retry != nil && x.Rule.Retry.Attempts > 0 {
		if _, err := p.hold(r, x, maxHeld); err != nil {
			p.fail(w, r, x, err)
			return
		}
	}
	if !x.request(r, w.Header()) {
		p.answer(w, x, http.StatusBadRequest, BadRequest)
		return
	}
	x.out.Informational, x.out.Certificate = w, x.certificate
	res, endpoint, err := p.attempt(r.Context(), x)
	if err != nil {
		p.fail(w, r, x, err)
		return
	}
	defer endpoint.Done()
	defer res.Close()
	if x.Rule.Persistence != nil {
		x.persist(w.Header(), endpoint)
	}
	if res.Status == http.StatusSwitchingProtocols {
		p.tunnel(w, x, res)
	} else {
		p.respond(w, r, x, res)
	}
}

// answer answers for the proxy itself.
func (p *Proxy) answer(w http.ResponseWriter, x *exchange, status int, reason table.Reason) {
	x.Reason = reason
	if isGRPC(x.Request) {
		answerGRPC(w, status, reason)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	if x.Request.Method != http.MethodHead {
		_, _ = w.Write([]byte(http.StatusText(status) + ": " + string(reason) + "\n"))
	}
}

// fail answers a request that no endpoint answered.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, x *exchange, err error) {
	failed, _ := errors.AsType[*upstream.Error](err)
	switch {
	case errors.Is(err, errNoEndpoint):
		p.answer(w, x, http.StatusServiceUnavailable, NoEndpoint)
	case errors.Is(err, errRetryBudget):
		p.answer(w, x, http.StatusServiceUnavailable, RetryLimit)
	case errors.Is(err, errBodyTooLarge):
		p.answer(w, x, http.StatusRequestEntityTooLarge, BodyTooLarge)
	case failed != nil && failed.Failure == upstream.BadBody: // the server knows what to answer, and whether it can
		p.abort(x, bodyReason(failed))
	case r.Context().Err() != nil: // nobody is there to be answered
		p.abort(x, ClientGone)
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.answer(w, x, http.StatusGatewayTimeout, TimedOut)
	case failed != nil && failed.Failure == upstream.Malformed:
		p.answer(w, x, http.StatusBadGateway, Invalid)
	default:
		p.answer(w, x, http.StatusBadGateway, Unreachable)
	}
}

// bodyReason returns why the body of a request could not be read.
func bodyReason(err error) table.Reason {
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return BadRequest
	}
	return ClientGone
}

// abort breaks off an exchange.
func (p *Proxy) abort(x *exchange, reason table.Reason) {
	x.Reason = reason
	panic(http.ErrAbortHandler)
}
