package table

import (
	"regexp"
	"time"
	"unique"
)

// DialTimeout is how long a connection to an endpoint may take to be made, and MaxAttempts how often a request is sent
// at most, where a rule says nothing else.
const (
	DialTimeout = 3 * time.Second
	MaxAttempts = 3
)

// Rule is what happens to a request.
type Rule struct {
	// Object, Index and Name say whose rule it is: "HTTPRoute shop/web", the position of the rule in
	// it, and the rule's name, which may be empty.
	Object string
	Index  int
	Name   string
	// Status, if it is not 0, answers at once, with Reason.
	Status int
	Reason Reason
	Actions
	// Backends are where a request may go, by Weight. Without any the answer is 500, unless Redirect
	// answers.
	Backends []Backend
	// Request and BackendRequest limit a request, and one attempt of it; 0 is no limit
	// (HTTPRouteTimeouts).
	Request, BackendRequest time.Duration
	// Connect is how long a connection over HTTP/1.1 may take to be made; 0 is DialTimeout.
	Connect time.Duration
	// Guard is what the rule demands of requests, Retry when they are sent again, and Persistence which go to the same
	// endpoint. They are nil if the rule has none.
	Guard       *Guard
	Retry       *Retry
	Persistence *Persistence
	// Secure has requests that came without TLS be redirected, before the Guard is looked at; nil for none.
	Secure *SecureRedirect
}

// SecureRedirect redirects requests over HTTP to HTTPS, with 308 (ingress-nginx, annotations ssl-redirect and
// preserve-trailing-slash). A trusted client's X-Forwarded-Proto counts.
type SecureRedirect struct {
	// KeepSlash keeps a slash at the end of the target.
	KeepSlash bool
}

// Reason is why a request is not served, for logs and metrics.
type Reason string

// Reasons about backends, which all that serves has in common, and which explanations predict.
const (
	NoBackend   Reason = "no backend"
	NoEndpoint  Reason = "no ready endpoint"
	Unreachable Reason = "no endpoint answered"
	RetryLimit  Reason = "retry budget used up"
	Invalid     Reason = "invalid answer of an endpoint"
	BrokenOff   Reason = "answer broken off"
	TimedOut    Reason = "timeout"
)

// Backend is a share of a Rule's requests.
type Backend struct {
	// Upstream is the Service port that gets them; empty if the backend is invalid, and its share is
	// answered with 500 (HTTPRouteRule.backendRefs).
	Upstream Upstream
	// Reason is why it is invalid.
	Reason Reason
	Weight uint32
	// Retries limits the requests to the Service that are sent again; nil for what Proxy does of its own accord.
	Retries *RetryBudget
	Actions
}

// Upstream names a port of a Service, and what is spoken there.
type Upstream struct {
	Namespace, Service string
	Port               uint16
	Protocol           Protocol
	// TLS is the zero Handle without TLS.
	TLS unique.Handle[TLS]
}

// Protocol is what is spoken with an upstream.
type Protocol uint8

// The protocols.
const (
	HTTP1 Protocol = iota
	// H2C is HTTP/2: without TLS the client knows of it before (RFC 9113, section 3.3), with TLS it asks for it.
	H2C
	// RawTCP and RawUDP are whatever clients speak, over TCP and UDP.
	RawTCP
	RawUDP
)

// Transport returns what carries the protocol.
func (p Protocol) Transport() Transport {
	if p == RawUDP {
		return UDP
	}
	return TCP
}

// Actions are what filters do, in the order in which the fields are listed.
type Actions struct {
	CORS     *CORS
	Request  *HeaderChange
	Response *HeaderChange
	Mirrors  []Mirror
	Rewrite  *Rewrite
	Redirect *Redirect
}

// HeaderChange changes fields of a head: removes, sets, then adds (HTTPHeaderFilter). Names are in
// canonical form.
type HeaderChange struct {
	Set, Add []Field
	Remove   []string
}

// Field is a field of a head.
type Field struct{ Name, Value string }

// Mirror sends a copy of a share of the requests to an Upstream, and ignores its answers
// (HTTPRequestMirrorFilter): Numerator of Denominator.
type Mirror struct {
	Upstream               Upstream
	Numerator, Denominator uint32
}

// Rewrite changes what an upstream is asked for (HTTPURLRewriteFilter). An empty Host stays.
type Rewrite struct {
	Host string
	Path *PathChange
}

// Redirect answers with a Location (HTTPRequestRedirectFilter). Empty fields stay as they are in the
// request; Port 0 is that which the scheme says.
type Redirect struct {
	Scheme, Host string
	Port         uint16
	Path         *PathChange
	Status       int
	// URL, if it is not empty, is where it leads, and of the other fields Status alone counts.
	URL string
	// NoQuery leaves the query of the request out.
	NoQuery bool
}

// PathChange replaces the path (HTTPPathModifier).
type PathChange struct {
	// Prefix: only the prefix that matched is replaced.
	Prefix bool
	To     string
	// Expression, if it is not nil, is searched for in the path. To replaces all of the path, with $1 to $9 for the
	// groups.
	Expression *regexp.Regexp
}

// CORS answers preflight requests and adds fields to responses (HTTPCORSFilter).
type CORS struct {
	Origins                  []string
	Credentials              bool
	Methods, Headers, Expose []string
	MaxAge                   time.Duration
}

// PathKind is how a path is matched.
type PathKind uint8

// The kinds, in the order in which they are tried.
const (
	// Exact is equal to the path of the request.
	Exact PathKind = iota
	// Expression matches the whole path (RE2).
	Expression
	// Prefix matches the elements that the path begins with; a slash at the end does not count.
	Prefix
)

// Match is what a request must be like. All that it has must match.
type Match struct {
	Kind PathKind
	// Path is a normal one, see Normalize; for Expression it is the text of Whole.
	Path string
	// Whole matches whole paths, see CompileWhole; nil unless Kind is Expression.
	Whole *regexp.Regexp
	// AnyService: it is one of gRPC for the methods of all services, and comes after those for one
	// (GRPCRouteRule.matches).
	AnyService bool
	// Method is empty for all.
	Method string
	// Headers have canonical names, Query exact ones; each name once.
	Headers, Query []Value
}

// Value is the value that a field of the head or a parameter of the query must have: Text, or what
// Expression matches as a whole.
type Value struct {
	Name       string
	Text       string
	Expression *regexp.Regexp // nil for Text
}

// Route is a Match and the Rule of the requests that it matches.
type Route struct {
	Match
	Rule *Rule
}
