package cluster

import "time"

// RouteSpec is what a gateway needs of a Route (gateway.networking.k8s.io/v1), with the defaults of the
// API. Its hostnames are Route.Hosts.
type RouteSpec struct {
	Meta
	Parents []ParentRef
	Rules   []RouteRule
	// Statuses are the parents of the status, of all controllers.
	Statuses []ParentStatus
}

// ParentRef is a Gateway or ListenerSet that a route attaches to.
type ParentRef struct {
	ObjectRef
	Section string // the name of a listener; empty for all
	Port    uint16 // of listeners; 0 for all
}

// ParentStatus is what a controller says of a route at a parent.
type ParentStatus struct {
	Parent     ParentRef
	Controller string
	Conditions []StatusCondition
}

// RouteRule is a rule of a Route. TLSRoutes, TCPRoutes and UDPRoutes have Name and Backends alone.
type RouteRule struct {
	Name string // empty without one
	// Matches are ORed. There is at least one.
	Matches  []RouteMatch
	Filters  []Filter
	Backends []RouteBackend
	// Request and BackendRequest are timeouts.
	Request, BackendRequest Timeout
	// Retry and Session are of the experimental channel; nil without.
	Retry   *RouteRetry
	Session *RouteSession
	// Unknown are values of a later version of the API. A rule with any must not be used: what it does
	// without them is not what it says.
	Unknown []UnknownValue
}

// Timeout is a limit of time; none if Set and Limit is 0. Without Set the route says nothing.
type Timeout struct {
	Set   bool
	Limit time.Duration
}

// UnknownValue is a value that is not known here. Field is its path in the object.
type UnknownValue struct{ Field, Value string }

// RouteMatch is conditions that all must hold: for Path, Query and Method of an HTTPRoute, for RPC of a
// GRPCRoute.
type RouteMatch struct {
	Path           PathMatch
	Headers, Query []ValueMatch
	Method         string // empty for all
	RPC            RPCMatch
}

// RPCMatch is a condition for the method that a request of gRPC calls, and for the service that has it. An
// empty one is for all.
type RPCMatch struct {
	Regex           bool // they are regular expressions
	Service, Method string
}

// PathMatch is a condition for the path: PathExact, PathPathPrefix or PathRegularExpression.
type PathMatch struct {
	Type  PathType
	Value string
}

// ValueMatch is a condition for a header or a query parameter. Only the first condition of a name
// counts; names of headers are compared without case.
type ValueMatch struct {
	Name  string
	Regex bool // Value is a regular expression; otherwise it is the value itself
	Value string
}

// Filter changes or answers requests. The field that its type uses is set.
type Filter struct {
	Type      FilterType
	Headers   *HeaderModifier // RequestHeaderModifier, ResponseHeaderModifier
	Redirect  *Redirect       // RequestRedirect
	Rewrite   *Rewrite        // URLRewrite
	Mirror    *Mirror         // RequestMirror
	CORS      *CORS           // CORS
	External  *ExternalAuth   // ExternalAuth
	Extension *ObjectRef      // ExtensionRef
}

// FilterType is the type of a Filter, as the API spells it.
type FilterType string

// The types of filters.
const (
	RequestHeaderModifier  FilterType = "RequestHeaderModifier"
	ResponseHeaderModifier FilterType = "ResponseHeaderModifier"
	RequestRedirect        FilterType = "RequestRedirect"
	URLRewrite             FilterType = "URLRewrite"
	RequestMirror          FilterType = "RequestMirror"
	CORSFilter             FilterType = "CORS"
	ExtensionRef           FilterType = "ExtensionRef"
)

// Header is a header of HTTP.
type Header struct{ Name, Value string }

// HeaderModifier sets, adds and removes headers.
type HeaderModifier struct {
	Set, Add []Header
	Remove   []string
}

// PathModifier replaces a path, or the prefix of it that matched.
type PathModifier struct {
	Prefix bool
	Value  string
}

// Redirect answers requests with a redirection. What is empty, nil or 0 is as in the request, but for
// Port: see HTTPRequestRedirectFilter.
type Redirect struct {
	Scheme, Hostname string
	Path             *PathModifier
	Port             uint16
	Status           int
}

// Rewrite changes a request for its backend. What is empty or nil stays.
type Rewrite struct {
	Hostname string
	Path     *PathModifier
}

// Mirror sends copies of Numerator of each Denominator requests to another backend.
type Mirror struct {
	Backend                BackendRef
	Numerator, Denominator int32
}

// CORS answers preflight requests and sets headers for cross-origin requests (Fetch, "HTTP CORS
// protocol").
type CORS struct {
	// Origins are scheme, host and port; "*" is all, and a host may begin with it.
	Origins     []string
	Credentials bool
	// Methods and Headers are what is allowed; "*" is all. Expose are headers of responses.
	Methods, Headers, Expose []string
	MaxAge                   time.Duration
}

// BackendRef is a backend; Port is 0 without one.
type BackendRef struct {
	ObjectRef
	Port uint16
}

// RouteBackend is a backend of a RouteRule, which gets its Weight of the sum of all weights.
type RouteBackend struct {
	BackendRef
	Weight  int32
	Filters []Filter
}
