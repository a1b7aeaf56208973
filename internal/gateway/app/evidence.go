package app

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/gateway/datagram"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/stream"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/evidence"
)

// EvidenceKind is the kind of events that are requests, connections and sessions.
const EvidenceKind = "request"

// requestReason is a reason of evidence, and that of records which it stands for.
type requestReason struct {
	of table.Reason
	evidence.Reason
}

// The first reasons, which are not those of records.
const (
	reasonOK = iota
	reasonUpstream4xx
	reasonUpstream5xx
	reasonRule
	reasonMalformed
)

var requestReasons = []requestReason{
	reasonOK: {"", evidence.Reason{
		Word: "ok", Usual: true, Meaning: "An endpoint answered with a status below 400, or a connection ended as usual.",
	}},
	reasonUpstream4xx: {
		"",
		evidence.Reason{Word: "upstream-4xx", Meaning: "An endpoint answered with a status from 400 to 499."},
	},
	reasonUpstream5xx: {
		"",
		evidence.Reason{Word: "upstream-5xx", Meaning: "An endpoint answered with a status from 500."},
	},
	reasonRule: {"", evidence.Reason{
		Word: "rule", Meaning: "The rule of the route says so, such as one with a backend that does not exist.",
	}},
	reasonMalformed: {"", evidence.Reason{
		Word: "malformed", Meaning: "The request, or the TLS handshake, was refused before a route was looked for.",
	}},

	{proxy.NoTable, evidence.Reason{Word: "not-ready", Meaning: "The gateway does not know the routes yet."}},
	{proxy.NoListener, evidence.Reason{Word: "no-listener", Meaning: "No listener has the host name."}},
	{proxy.NoRoute, evidence.Reason{Word: "no-route", Meaning: "The listener has no route for the request."}},
	{proxy.Misdirected, evidence.Reason{Word: "misdirected", Meaning: "The host name is not that of the TLS connection."}},
	{proxy.BadPath, evidence.Reason{Word: "bad-path", Meaning: "The path is not one that can be matched safely."}},
	{proxy.BadRequest, evidence.Reason{Word: "bad-request", Meaning: "The request cannot be passed on."}},
	{proxy.NoBackend, evidence.Reason{Word: "no-backend", Meaning: "The rule has no backend."}},
	{proxy.NoEndpoint, evidence.Reason{Word: "no-endpoint", Meaning: "The Service has no ready endpoint."}},
	{
		proxy.Unreachable,
		evidence.Reason{Word: "unreachable", Meaning: "No endpoint accepted a connection, or the request."},
	},
	{proxy.RetryLimit, evidence.Reason{Word: "retry-limit", Meaning: "The retry budget of the Service is used up."}},
	{proxy.Invalid, evidence.Reason{Word: "invalid-answer", Meaning: "The answer of the endpoint is not HTTP."}},
	{proxy.BrokenOff, evidence.Reason{Word: "broken-off", Meaning: "The endpoint broke its answer off."}},
	{
		proxy.TimedOut,
		evidence.Reason{Word: "upstream-timeout", Meaning: "The endpoint did not answer in the time of the route."},
	},
	{proxy.Redirected, evidence.Reason{Word: "redirect", Usual: true, Meaning: "The rule redirects."}},
	{proxy.Preflight, evidence.Reason{Word: "preflight", Usual: true, Meaning: "A CORS preflight was answered."}},
	{
		proxy.AddressDenied,
		evidence.Reason{Word: "address-denied", Meaning: "The route does not allow the client's address."},
	},
	{proxy.RateLimited, evidence.Reason{Word: "rate-limited", Meaning: "The client is over the rate limit of the route."}},
	{
		proxy.TooManyAtOnce,
		evidence.Reason{Word: "too-many-at-once", Meaning: "The client has too many requests under way."},
	},
	{proxy.Unauthenticated, evidence.Reason{Word: "unauthenticated", Meaning: "The request has no valid password."}},
	{proxy.TooManyLogins, evidence.Reason{Word: "too-many-logins", Meaning: "Too many passwords are being checked."}},
	{proxy.BodyTooLarge, evidence.Reason{Word: "body-too-large", Meaning: "The body is larger than the route allows."}},
	{proxy.Refused, evidence.Reason{Word: "refused", Meaning: "The authorization service refused the request."}},
	{proxy.SignIn, evidence.Reason{Word: "sign-in", Usual: true, Meaning: "The client is sent to the sign-in page."}},
	{
		proxy.NoAuthorization,
		evidence.Reason{Word: "no-authorization", Meaning: "The authorization service did not answer."},
	},
	{
		proxy.ClientGone,
		evidence.Reason{Word: "client-gone", Meaning: "The client closed the connection before the answer."},
	},
	{proxy.Stopped, evidence.Reason{Word: "stopped", Meaning: "The gateway stopped before the request ended."}},

	{stream.NoHello, evidence.Reason{Word: "no-tls", Meaning: "The connection began with something other than TLS."}},
	{stream.NoHandshake, evidence.Reason{Word: "handshake-failed", Meaning: "The TLS handshake failed."}},
	{stream.Idle, evidence.Reason{Word: "idle", Meaning: "Nothing came over the connection for too long."}},
	{
		stream.Insecure,
		evidence.Reason{Word: "invalid-backend-tls", Meaning: "The BackendTLSPolicy of the Service is invalid."},
	},
	{datagram.NoRoom, evidence.Reason{Word: "too-many-sessions", Meaning: "There are too many sessions of UDP."}},
	{datagram.Removed, evidence.Reason{Word: "endpoint-removed", Meaning: "The endpoint of the session was removed."}},
}

// sameReasons are reasons of records with another text for what is the same to users.
var sameReasons = map[table.Reason]table.Reason{
	stream.NoListener: proxy.NoListener,
	stream.BrokenOff:  proxy.BrokenOff,
}

// EvidenceReasons returns the reasons of requests, connections and sessions.
func EvidenceReasons() []evidence.Reason {
	all := make([]evidence.Reason, 0, len(requestReasons))
	for _, r := range requestReasons {
		all = append(all, r.Reason)
	}
	return all
}

// evidenceOf tells of requests.
type evidenceOf struct {
	source  *evidence.Source // nil if nothing is told
	trusted []netip.Prefix   // see proxy.Client
	reasons map[table.Reason]int
}

func newEvidence(ring *evidence.Ring, sockets int, trusted []netip.Prefix) evidenceOf {
	e := evidenceOf{trusted: trusted, reasons: make(map[table.Reason]int)}
	e.source = ring.Source(evidence.SourceConfig{Kind: EvidenceKind, Reasons: EvidenceReasons(), Seats: sockets})
	for i, r := range requestReasons {
		if r.of != "" {
			e.reasons[r.of] = i
		}
	}
	for text, same := range sameReasons {
		e.reasons[text] = e.reasons[same]
	}
	return e
}

// reason returns the index of a record's reason. Those of rules have one together, and none stands for what is usual.
func (e *evidenceOf) reason(of table.Reason) int {
	if of == "" {
		return reasonOK
	}
	if i, known := e.reasons[of]; known {
		return i
	}
	return reasonRule
}

// request tells of a request.
func (e *evidenceOf) request(r *proxy.Record) {
	reason := e.reason(r.Reason)
	switch {
	case reason != reasonOK:
	case r.Status >= http.StatusInternalServerError:
		reason = reasonUpstream5xx
	case r.Status >= http.StatusBadRequest:
		reason = reasonUpstream4xx
	}
	e.source.Observe(reason, r.Began, func(s *evidence.Sample) {
		s.Client = clientOf(r.Request, e.trusted)
		s.Subject = append([]byte(r.Host), r.Request.URL.EscapedPath()...)
		s.Scheme = "http"
		if r.Request.TLS != nil {
			s.Scheme = "https"
		}
		s.Route = routeOf(r.Rule)
		s.Detail = detail(r.Request.Method, strconv.Itoa(r.Status), s.Route)
	})
}

// refused tells of a request, or a handshake, that was refused.
func (e *evidenceOf) refused(r h1.Refusal) {
	e.source.Observe(reasonMalformed, time.Now(), func(s *evidence.Sample) {
		s.Client = addrOf(r.Remote)
		s.Detail = []byte(r.Reason)
	})
}

// passed tells of a connection that was passed on.
func (e *evidenceOf) passed(r *stream.Record) {
	e.source.Observe(e.reason(r.Reason), r.Began, func(s *evidence.Sample) {
		s.Client = addrOf(r.Client)
		s.Subject = []byte(r.ServerName)
		if r.ServerName == "" {
			s.Subject = []byte(r.Listener)
		}
		s.Route = routeOf(r.Rule)
		s.Detail = detail("TCP", s.Route)
	})
}

// session tells of a session of UDP.
func (e *evidenceOf) session(r *datagram.Record) {
	e.source.Observe(e.reason(r.Reason), r.Began, func(s *evidence.Sample) {
		s.Client = r.Client.Addr()
		s.Subject = []byte(r.Listener)
		s.Route = routeOf(r.Rule)
		s.Detail = detail("UDP", s.Route)
	})
}

// detail joins the words that are not empty.
func detail(words ...string) []byte {
	var b []byte
	for _, word := range words {
		if word == "" {
			continue
		}
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = append(b, word...)
	}
	return b
}

// routeOf returns the object of a rule as kubectl names it, such as httproute/shop/web; empty without a
// rule.
func routeOf(rule *table.Rule) string {
	if rule == nil {
		return ""
	}
	return strings.Replace(rule.Object, " ", "/", 1)
}

// clientOf returns the address of a request's client.
func clientOf(r *http.Request, trusted []netip.Prefix) netip.Addr {
	if addr := proxy.Client(r, trusted); addr.IsValid() {
		return addr
	}
	return addrOf(r.RemoteAddr)
}

// addrOf returns the address of one with a port; invalid if it is none.
func addrOf(text string) netip.Addr {
	addr, _ := netip.ParseAddrPort(text) // invalid on error
	return addr.Addr()
}
