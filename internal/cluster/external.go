package cluster

import (
	"net/netip"
	"reflect"
	"slices"
)

// External is how clients outside the cluster reach a Service, an Ingress or a Gateway.
type External struct {
	// Addresses are those of load balancers, and the externalIPs of a Service.
	Addresses []netip.Addr
	// Targets are the names of load balancers that have no address.
	Targets []string
	// Hosts are the names that it is to be reached by, in lower case and without a dot
	// at the end. The first label may be an asterisk.
	Hosts []string
}

// Frontend is an Ingress or a Gateway.
type Frontend struct {
	Kind Kind
	Key
	External
	// Backends are those of an Ingress. They are for checks: where only names are read
	// from the API, there are none.
	Backends []Backend
	// Ingress and Gateway are what a gateway needs of either kind; nil for the other kind, and where
	// the source reads only names.
	Ingress *IngressSpec
	Gateway *GatewaySpec
}

// Backend is a port of a Service, in the same namespace, that an Ingress sends requests to.
type Backend struct {
	Field   string // its path, such as spec.defaultBackend.service
	Service string
	// Port and Number are the port's name or, if Port is empty, its number.
	Port   string
	Number uint16
}

// Matches reports whether a port of the Service is that of the backend.
func (b *Backend) Matches(p Port) bool {
	if b.Port != "" {
		return p.Name == b.Port
	}
	return p.Number == b.Number
}

// Route is an HTTPRoute, a GRPCRoute, a TLSRoute, a TCPRoute or a UDPRoute.
type Route struct {
	Kind Kind
	Key
	Hosts []string // as those of External
	// Gateways are those that accepted the route.
	Gateways []Key
	// Spec is nil where the source reads only names.
	Spec *RouteSpec
}

// Ref returns kind and key.
func (f *Frontend) Ref() Ref { return Ref{f.Kind, f.Key} }

// Ref returns kind and key.
func (r *Route) Ref() Ref { return Ref{r.Kind, r.Key} }

func (e *External) equal(o *External) bool {
	if e == nil || o == nil {
		return e == o
	}
	return slices.Equal(e.Addresses, o.Addresses) && slices.Equal(e.Targets, o.Targets) && slices.Equal(e.Hosts, o.Hosts)
}

func (s *Service) hosts() []string {
	if s.External == nil {
		return nil
	}
	return s.External.Hosts
}

func (f *Frontend) hosts() []string { return f.Hosts }
func (r *Route) hosts() []string    { return r.Hosts }

func (f *Frontend) equal(o *Frontend) bool {
	return f.Kind == o.Kind && f.Key == o.Key && f.External.equal(&o.External) && slices.Equal(f.Backends, o.Backends) &&
		(f.Ingress == o.Ingress || reflect.DeepEqual(f.Ingress, o.Ingress)) &&
		(f.Gateway == o.Gateway || reflect.DeepEqual(f.Gateway, o.Gateway))
}
