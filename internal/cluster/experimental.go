package cluster

// RouteRetry is when a request of a rule is sent again (HTTPRouteRetry, experimental channel).
type RouteRetry struct {
	Codes    []int
	Attempts int // 0 without
	Backoff  Timeout
}

// RouteSession is which requests of a rule go to the same endpoint (SessionPersistence, experimental channel).
type RouteSession struct {
	Name   string // empty without one
	Header bool   // the session is in a header, otherwise in a cookie
	// Absolute is how long it lasts; Permanent has the cookie outlast the client's process.
	Absolute  Timeout
	Permanent bool
	// UID is that of the object, which no client knows; empty in manifests.
	UID string
}

// ExternalAuthFilter is the type of a Filter that has another service decide (experimental channel).
const ExternalAuthFilter FilterType = "ExternalAuth"

// ExternalAuth has another service decide on requests (HTTPExternalAuthFilter).
type ExternalAuth struct {
	GRPC    bool // Envoy's protocol, otherwise HTTP
	Backend BackendRef
	// Path is put before that of the request.
	Path string
	// RequestHeaders and ResponseHeaders are those that the service gets, and that it sets.
	RequestHeaders, ResponseHeaders []string
	// MaxBody is how much of the body the service gets.
	MaxBody int
}
