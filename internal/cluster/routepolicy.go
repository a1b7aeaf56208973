package cluster

import (
	"net/netip"
	"time"
)

// RoutePolicy is a RoutePolicy (portolan.dev/v1alpha1): what rules of routes demand of requests.
type RoutePolicy struct {
	Key
	Meta
	Targets []PolicyTarget // Section is the name of a rule
	// Allow and Deny are ranges of clients. Without Allow all are allowed; those in Deny are not.
	Allow, Deny []netip.Prefix
	Limits      []RequestLimit
	Concurrent  *ConcurrencyLimit // nil for any number
	MaxBody     int64             // octets; 0 for any number
	Passwords   *Passwords        // nil if none is demanded
	// Invalid says why the policy cannot be obeyed: no request is served then. It is empty if the policy is valid.
	Invalid string
	// Ancestors are those of the status, of all controllers.
	Ancestors []ParentStatus
}

// RequestLimit is how many requests a client may send in a period, but for those of Except.
type RequestLimit struct {
	Requests uint32
	Per      time.Duration
	Burst    uint32 // at once; 0 is Requests
	Except   []netip.Prefix
}

// ConcurrencyLimit is how many requests of a client may be under way at once, but for those of Except.
type ConcurrencyLimit struct {
	Max    uint32
	Except []netip.Prefix
}

// Passwords are users and their passwords (RFC 7617).
type Passwords struct {
	Secret ObjectRef
	// Map: the keys of the Secret are users, and its values hashes. Otherwise its key auth is a file of htpasswd.
	Map   bool
	Realm string
}

// Ref returns kind and key.
func (p *RoutePolicy) Ref() Ref { return Ref{KindRoutePolicy, p.Key} }
