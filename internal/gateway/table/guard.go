package table

import (
	"net/netip"
	"time"
)

// Guard is what a rule demands of requests, in the order in which it is looked at: a client that is denied gets 403,
// one with too many requests 429, one without a user's password 401, what an external service refuses that service's
// status, and a body that is too large 413. Redirects of the rule come after it, so that a Rule that only redirects
// from HTTP to HTTPS should have no BasicAuth: a browser would send the password in the clear. A preflight request
// (CORS) is answered after the addresses and the limits were looked at: browsers send no credentials with it.
//
// A Guard that cannot be made, such as one whose Secret is missing, must not be left out: set Rule.Status.
type Guard struct {
	// Allow and Deny are addresses of clients. One in Deny is denied, and without Deny one that Allow has not, unless
	// Allow is empty. The client is that of the connection, or that which X-Forwarded-For of a trusted client names, as
	// in the access log.
	Allow, Deny []netip.Prefix
	// Limits are all kept: a request that one of them refuses counts in none.
	Limits []RateLimit
	// Concurrent is how many requests of a client may be under way at once; nil for any number.
	Concurrent *Concurrency
	// BasicAuth and External are nil for none.
	BasicAuth *BasicAuth
	External  *ExternalAuth
	// AnyOf: one of Allow, BasicAuth and External is enough (satisfy any of nginx). Deny holds in any case.
	AnyOf bool
	// MaxBody is how many octets the body of a request may have; 0 for any number.
	MaxBody int64
}

// RateLimit is how many requests a client may send: Requests in each period Per, evenly, and Burst at once after it
// sent none for a while. A client is an IPv4 address, or a /64 of IPv6.
type RateLimit struct {
	// Key names the limit. Guards with the same Key share what their clients sent, also after the table has changed; so
	// it should name the object and, unless all rules of it share the limit, the rule.
	Key      string
	Requests uint32 // at least 1
	Per      time.Duration
	Burst    uint32 // 0 is Requests
	// Exempt are clients without this limit.
	Exempt []netip.Prefix
}

// Concurrency is how many requests of a client may be under way at once. A client is as in RateLimit.
type Concurrency struct {
	Key    string // as in RateLimit
	Max    uint32 // at least 1
	Exempt []netip.Prefix
}

// BasicAuth demands the name and the password of a user (RFC 7617).
type BasicAuth struct {
	Realm string
	// Users are hashes of passwords by the names of users, as package htpasswd reads them.
	Users map[string]string
}

// ExternalAuth has another service decide on each request. If the service cannot be reached, or does not answer as it
// should, the request is refused.
type ExternalAuth struct {
	Kind AuthKind
	// Upstream is the port of a Service. If it is zero the service is the host of URL, which is a name outside the
	// cluster or in its DNS, and which TLS proves if the scheme is https.
	Upstream Upstream
	// Reason, if it is not empty, is why Upstream is invalid: all requests are refused with 500.
	Reason Reason
	// URL is what the service is asked for, of AuthSubrequest; empty for others.
	URL Template
	// Path is put before the path of the request, of AuthHTTP.
	Path string
	// Method is that of the request to the service; empty is that of the client's request for AuthHTTP, and GET for
	// AuthSubrequest.
	Method string
	// RequestHeaders are the fields that the service gets of those that the client sent, nil for those that it gets in
	// any case: Authorization for AuthHTTP, and all for AuthGRPC and AuthSubrequest. ResponseHeaders are the fields of
	// the service's response that the backend gets, in place of the client's; nil for all of AuthHTTP, and none of
	// AuthSubrequest. Names are in canonical form.
	RequestHeaders, ResponseHeaders []string
	// MaxBody is how many octets of the body the service gets; 0 for none. A request with more is refused with 413.
	MaxBody int
	// SetHeaders are fields that the service gets besides.
	SetHeaders []Field
	// SignIn is where a client is sent that the service answered with 401; nil for nowhere.
	SignIn *SignIn
	// Timeout is how long the service may take; 0 is 5 s.
	Timeout time.Duration
}

// AuthKind is how a service is asked, and how it answers.
type AuthKind uint8

// The kinds of services.
const (
	// AuthHTTP is HTTPExternalAuthFilter with the protocol HTTP: it is asked for the path of the request, and allows it
	// with 200 (GEP-1494).
	AuthHTTP AuthKind = iota
	// AuthGRPC is HTTPExternalAuthFilter with the protocol GRPC: Envoy's envoy.service.auth.v3.Authorization.
	AuthGRPC
	// AuthSubrequest is auth_request of nginx as ingress-nginx uses it (annotation auth-url): it is asked for a URL, with
	// the request's own in X-Original-URL, and allows it with 2xx. Its 401 and 403 are answered as they are, with
	// WWW-Authenticate, and other statuses as 500. Cookies that it sets reach the client.
	AuthSubrequest
)

// SignIn redirects to a URL with 302 (annotations auth-signin and auth-signin-redirect-param).
type SignIn struct {
	URL Template
	// Parameter is the name of the query parameter with the URL of the request, which is added unless URL has one of
	// this name; empty is "rd".
	Parameter string
}

// Retry is when a request is sent again (HTTPRouteRetry, GEP-1731): after a response with one of Codes, and if there
// was none. Without a Retry a rule has what Proxy does of its own accord. A request with a body is sent again if the
// body was short enough to be held, and said its length. The limit of a fifth of the requests does not hold for these
// retries; the RetryBudget of a backend does.
type Retry struct {
	Codes []int
	// CodesOnly: it is not if there was no response.
	CodesOnly bool
	// Idempotent: a POST, PATCH or LOCK that an endpoint may have got is not sent again (nginx, "proxy_next_upstream").
	Idempotent bool
	// Attempts is how often it is sent again at most; 0 is never.
	Attempts int
	// Within is how long after its beginning a request may be sent again; 0 is without an end.
	Within time.Duration
	// Backoff is the shortest time between two attempts. It grows with each; 0 is none.
	Backoff time.Duration
}

// RetryBudget limits the requests to a Service that are sent again, whatever rule has them be sent
// (BackendTrafficPolicySpec.retryConstraint, GEP-3388): Percent of those of the last Interval, and Least in each Per in
// any case. If a request may not be sent again the answer is 503.
type RetryBudget struct {
	Percent  uint32
	Interval time.Duration
	Least    uint32
	Per      time.Duration
}

// Persistence sends the requests of a session to the backend and the endpoint that got the first one
// (SessionPersistence, GEP-1619). If the endpoint is gone the session goes on at another one. The token of a session
// says neither the address nor the name of a backend, and one that is made up leads to no endpoint that the rule has
// not.
type Persistence struct {
	// Header: the token is in the header Name of requests and responses; otherwise it is in the cookie Name.
	Header bool
	Name   string
	// Key is what tokens are made with, see PersistenceKey.
	Key [16]byte
	// Absolute is how long a session lasts at most; 0 is without an end.
	Absolute time.Duration
	// MaxAge is the attribute of the cookie; 0 is none: then browsers forget it when they are closed.
	MaxAge time.Duration
	// Path, Domain and SameSite are attributes of the cookie; an empty Path is "/", and others are left out.
	Path, Domain, SameSite string
	// Secure sets the attribute Secure. It is set by itself where the request came over TLS.
	Secure bool
}
