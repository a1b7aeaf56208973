// Package plan compiles the model into the frontends of one node: at which addresses clients
// reach Services there, and which endpoints their connections may use (Kubernetes, "Virtual
// IPs and Service Proxies"; KEP-1669, terminating endpoints; KEP-2433, topology hints;
// KEP-3015, traffic distribution; KEP-1860, ipMode).
//
//	cluster.View ──► service.go:  which frontends a Service has
//	                 choose.go:   which endpoints each may use
//	                 weight.go:   how many connections each gets
//	                 warmup.go:   which get fewer for a while
//	                 compiler.go: which Service has an address that several want
//	                 room.go:     which are left out because they do not fit
//	             ──► frontend.Frontend, HealthCheck, verdicts
package plan

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// Node is the node that is compiled for.
type Node struct {
	Name string
	Zone string
	// NodePorts are the addresses at which the node takes connections to node ports.
	NodePorts []netip.Addr
	// Addresses are all of the node's own.
	Addresses []netip.Addr
	// Choice is how endpoints are chosen of Services that do not say so.
	Choice frontend.Choice
	// Warmup has the endpoints that are to get fewer connections for a while; nil is none.
	Warmup *Warmup
	// Room is the largest size of all Services, see Service.Size; 0 is DefaultRoom.
	Room int
}

// Primary returns the addresses of a Node's InternalIPs that are for node ports by default: the
// first of each family.
func Primary(internal []netip.Addr) (first []netip.Addr) {
	for _, a := range internal {
		if !slices.ContainsFunc(first, func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			first = append(first, a)
		}
	}
	return first
}

// Service is what a Service is compiled into.
type Service struct {
	// Frontends are sorted by address.
	Frontends []*frontend.Frontend
	// Local are the addresses of its endpoints on the node, sorted and unique.
	Local []netip.Addr
	// Check is nil if load balancers do not ask this node for the Service.
	Check *HealthCheck
	// Verdicts say what was left out.
	Verdicts []Verdict
	// Size is about how many elements the kernel needs for it. It is more than 0 if it has frontends,
	// or would have them if there were room.
	Size int
	// NoLocal has an element for each port that has endpoints, but by its policy none for
	// clients here.
	NoLocal []NoLocal
}

// TrafficPolicy is one of the two policies of a Service that may be Local.
type TrafficPolicy string

// The policies: internalTrafficPolicy and externalTrafficPolicy.
const (
	Internal TrafficPolicy = "internal"
	External TrafficPolicy = "external"
)

// NoLocal is a policy Local, in a family, without an endpoint on the node.
type NoLocal struct {
	Policy TrafficPolicy
	Family cluster.AddressType
}

// HealthCheck is what the node answers on a healthCheckNodePort.
type HealthCheck struct {
	Port uint16
	// Endpoints is the number of ready endpoints on the node, for each family that the
	// Service has: load balancers ask at an address of one family, for that family.
	Endpoints map[cluster.AddressType]int
}

// Verdict says that something of a Service is not served, and why.
type Verdict struct {
	// Address is what is not served; zero for the whole Service.
	Address frontend.Address
	// Reason is short and stable, for metrics.
	Reason Reason
	// Other is the Service that has the address, for reason Taken.
	Other cluster.Key
}

// Reason is why something of a Service is not served.
type Reason string

// The reasons.
const (
	// Headless: clients connect to its endpoints.
	Headless Reason = "headless"
	// ExternalName: clients resolve another name.
	ExternalName Reason = "external-name"
	// NoClusterIP: none is assigned yet.
	NoClusterIP Reason = "no-cluster-ip"
	// OtherProxy: the label service.kubernetes.io/service-proxy-name is set.
	OtherProxy Reason = "other-proxy"
	// Taken: another Service has the same address and port.
	Taken Reason = "address-taken"
	// NoEndpoints: no endpoint of the port can be used; connections are rejected.
	NoEndpoints Reason = "no-endpoints"
	// InvalidChoice: the annotation portolan.dev/endpoint-choice has no known value, and is
	// ignored.
	InvalidChoice Reason = "invalid-endpoint-choice"
	// InvalidSlowStart: the annotation portolan.dev/slow-start is no duration, and is ignored.
	InvalidSlowStart Reason = "invalid-slow-start"
	// InvalidWeight: the annotation portolan.dev/endpoint-weight of one of its EndpointSlices is no
	// weight, and is ignored.
	InvalidWeight Reason = "invalid-endpoint-weight"
	// TooLarge: ports, addresses and endpoints make so many elements that some of the addresses are
	// left out.
	TooLarge Reason = "too-large"
	// NoRoom: the Service is left out, since older ones of the cluster, or of its namespace, have all
	// that the proxy holds.
	NoRoom Reason = "no-room"
	// NoLocalEndpoints: none of its endpoints is on the node, and the traffic policy is Local;
	// connections are dropped.
	NoLocalEndpoints Reason = "no-local-endpoints"
)

// Compile compiles the Service at key for a node. A Service that does not exist is compiled
// into nothing.
func Compile(v *cluster.View, node *Node, key cluster.Key) Service {
	s := v.Service(key)
	if s == nil {
		return Service{}
	}
	if reason := unserved(s); reason != "" {
		return Service{Verdicts: []Verdict{{Reason: reason}}}
	}
	c := compiler{service: s, node: node, slices: v.SlicesOf(key)}
	c.compile()
	slices.SortFunc(c.out.Frontends, func(a, b *frontend.Frontend) int { return a.Compare(b.Address) })
	slices.SortFunc(c.out.Local, netip.Addr.Compare)
	c.out.Local = slices.Compact(c.out.Local)
	return c.out
}

// unserved returns why a Service has no frontends; empty if it has.
func unserved(s *cluster.Service) Reason {
	switch {
	case s.Headless:
		return Headless
	case s.ExternalName != "" || s.Spec != nil && s.Spec.Type == cluster.ExternalName:
		return ExternalName
	case len(s.ClusterIPs) == 0:
		return NoClusterIP
	case s.Spec != nil && s.Spec.ForOtherProxy():
		return OtherProxy
	}
	return ""
}
