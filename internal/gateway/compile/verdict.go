package compile

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// Verdicts are what Gateway API has a controller say of its objects, but for what only the running
// proxy knows (that the condition Programmed is true), and of Ingresses what users must know.
type Verdicts struct {
	Classes   map[cluster.Key]ClassVerdict
	Gateways  map[cluster.Key]*GatewayVerdict
	Sets      map[cluster.Key]*GatewayVerdict // of ListenerSets
	Routes    map[cluster.Ref][]ParentVerdict
	Ingresses map[cluster.Key]IngressVerdict
	Policies  map[cluster.Key][]ParentVerdict // of BackendTLSPolicies
	// RoutePolicies are their ancestors, see Compiler.RoutePolicy.
	RoutePolicies map[cluster.Key][]ParentVerdict
	// TrafficPolicies are the ancestors of XBackendTrafficPolicies.
	TrafficPolicies map[cluster.Key][]ParentVerdict
	Shadows         []Shadow // in order
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
	// Named are the addresses that it names of those that the process shares; nil if it has all of them, or none.
	Named []netip.Addr
	// Unprogrammed is the condition Programmed, if the table cannot serve all as it is requested; nil if that is
	// up to the proxy.
	Unprogrammed *cluster.Condition
	// ListenerSets are how many a Gateway has accepted.
	ListenerSets int32
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
	// Sockets are where it is served; none if it is not.
	Sockets []table.Socket
	// Expires is when the first of its certificates expires; zero without any.
	Expires time.Time
}

// ParentVerdict is what is said of a route at one of its parents.
type ParentVerdict struct {
	Parent     cluster.ParentRef
	Conditions []cluster.Condition
}

// IngressVerdict is what is said of an Ingress that is ours.
type IngressVerdict struct {
	// Unclear: several IngressClasses are the default, and the Ingress names none. It is not served.
	Unclear bool
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
		s.Route.Key.Compare(o.Route.Key), cmp.Compare(s.Route.Kind, o.Route.Kind), cmp.Compare(s.Index, o.Index),
		cmp.Compare(s.Hostname, o.Hostname), s.By.Key.Compare(o.By.Key),
	)
}

// Class returns what is said of a GatewayClass; ok is false if it is not ours.
func (c *Compiler) Class(key cluster.Key) (verdict ClassVerdict, ok bool) {
	verdict, ok = c.gateways.classes[key]
	return verdict, ok
}

// Gateway returns what is said of a Gateway or ListenerSet; nil if it is not ours.
func (c *Compiler) Gateway(ref cluster.Ref) *GatewayVerdict {
	h := c.gateways.holders[ref]
	if h == nil {
		return nil
	}
	verdict := h.verdict(c.attached, c.certificates.of)
	if ref.Kind == cluster.KindGateway {
		verdict.Conditions = append(verdict.Conditions, c.certificates.clients[ref.Key].condition()...)
		if gw, ok := h.from.(*cluster.Frontend); ok {
			verdict.Conditions = append(verdict.Conditions, insecure(gw.Gateway)...)
		}
		for _, set := range c.gateways.sets[ref.Key] {
			if set.acceptance(c.certificates.of).Status == "True" {
				verdict.ListenerSets++
			}
		}
	}
	return verdict
}

// Route returns what is said of a route; nil if no parent is ours.
func (c *Compiler) Route(ref cluster.Ref) []ParentVerdict {
	if r := c.routes[ref]; r != nil {
		return r.verdicts
	}
	return nil
}

// Ingress returns what is said of an Ingress; ok is false if it is not ours.
func (c *Compiler) Ingress(key cluster.Key) (verdict IngressVerdict, ok bool) {
	i := c.ingresses[key]
	if i == nil {
		return IngressVerdict{}, false
	}
	verdict = i.IngressVerdict
	verdict.Problems = append(slices.Clip(verdict.Problems), c.unserved(i)...)
	return verdict, true
}

// Verdicts returns what is said of all objects.
func (c *Compiler) Verdicts() *Verdicts {
	made := &Verdicts{
		Classes: c.gateways.classes, Gateways: make(map[cluster.Key]*GatewayVerdict),
		Sets: make(map[cluster.Key]*GatewayVerdict), Routes: make(map[cluster.Ref][]ParentVerdict),
		Ingresses: make(map[cluster.Key]IngressVerdict),
		Policies:  make(map[cluster.Key][]ParentVerdict), RoutePolicies: make(map[cluster.Key][]ParentVerdict),
		TrafficPolicies: make(map[cluster.Key][]ParentVerdict),
	}
	for ref := range c.gateways.holders {
		of := made.Gateways
		if ref.Kind == cluster.KindListenerSet {
			of = made.Sets
		}
		of[ref.Key] = c.Gateway(ref)
	}
	for ref, r := range c.routes {
		made.Routes[ref] = r.verdicts
	}
	for key, p := range c.policies {
		made.Policies[key] = p.verdicts
	}
	for key, p := range c.routePolicies {
		made.RoutePolicies[key] = p.verdicts
	}
	for key, p := range c.trafficPolicies {
		made.TrafficPolicies[key] = p.verdicts
	}
	for key := range c.ingresses {
		made.Ingresses[key], _ = c.Ingress(key)
	}
	for _, hosts := range c.hosts {
		for _, h := range hosts {
			made.Shadows = append(made.Shadows, h.shadows...)
		}
	}
	slices.SortFunc(made.Shadows, Shadow.compare)
	return made
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
