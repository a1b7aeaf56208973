package compile

import (
	"cmp"
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
)

// Verdicts are what Gateway API has a controller say of its objects, but for what only the running
// proxy knows (that the condition Programmed is true), and of Ingresses what users must know.
type Verdicts struct {
	Classes   map[cluster.Key]ClassVerdict
	Gateways  map[cluster.Key]*GatewayVerdict
	Sets      map[cluster.Key]*GatewayVerdict // of ListenerSets
	Routes    map[cluster.Key][]ParentVerdict // of HTTPRoutes
	Ingresses map[cluster.Key]IngressVerdict
	Shadows   []Shadow // in order
}

// ClassVerdict is what is said of a GatewayClass of ours.
type ClassVerdict struct{ Conditions []cluster.Condition }

// GatewayVerdict is what is said of a Gateway or ListenerSet.
type GatewayVerdict struct {
	Conditions []cluster.Condition
	Listeners  []ListenerVerdict
	// Addresses are those that it has, of a ListenerSet those of its Gateway. The zero Addr is those that the
	// process shares, as in table.Socket.
	Addresses []netip.Addr
	// Unprogrammed is the condition Programmed, if the table cannot serve all as it is requested; nil if that is
	// up to the proxy.
	Unprogrammed *cluster.Condition
}

// ListenerVerdict is what is said of a listener.
type ListenerVerdict struct {
	Name           string
	SupportedKinds []cluster.GroupKind
	// AttachedRoutes is how many routes it accepted.
	AttachedRoutes int32
	Conditions     []cluster.Condition
	// Unprogrammed is as that of a GatewayVerdict.
	Unprogrammed *cluster.Condition
}

// ParentVerdict is what is said of a route at one of its parents.
type ParentVerdict struct {
	Parent     cluster.ParentRef
	Conditions []cluster.Condition
}

// IngressVerdict is what is said of an Ingress that is ours.
type IngressVerdict struct {
	// Problems are what cannot be served as it is written, in order.
	Problems []Problem
}

// Problem is something of an object that does not work: the field, and a reason in words.
type Problem struct{ Field, Reason string }

// Shadow is a match of a route that never serves a request, since an older one has the same.
type Shadow struct {
	Hostname string
	// Route is whose Index-th rule it is; By is the one that serves.
	Route cluster.Ref
	Index int
	By    cluster.Ref
}

func (s Shadow) compare(o Shadow) int {
	return cmp.Or(
		s.Route.Key.Compare(o.Route.Key), cmp.Compare(s.Index, o.Index), cmp.Compare(s.Hostname, o.Hostname),
		s.By.Key.Compare(o.By.Key),
	)
}

// The types of conditions (Gateway API v1).
const (
	accepted             = "Accepted"
	resolvedRefs         = "ResolvedRefs"
	conflicted           = "Conflicted"
	partiallyInvalid     = "PartiallyInvalid"
	programmed           = "Programmed"
	overlappingTLSConfig = "OverlappingTLSConfig"
)

func yes(condition, reason, message string) cluster.Condition {
	return cluster.Condition{Type: condition, Status: "True", Reason: reason, Message: message}
}

func no(condition, reason, message string) cluster.Condition {
	return cluster.Condition{Type: condition, Status: "False", Reason: reason, Message: message}
}
