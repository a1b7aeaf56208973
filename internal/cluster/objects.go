package cluster

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
)

// Protocol is a transport protocol as the API spells it.
type Protocol string

// The protocols that a port may have.
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// Port is a port of a Service, or of the endpoints of a slice. Name may be
// empty. Number is 0 in a slice's port that stands for every port.
type Port struct {
	Name     string
	Protocol Protocol
	Number   uint16
}

// Namespace is a Namespace.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// Service is a Service.
type Service struct {
	Key
	// Headless: clusterIP is None.
	Headless bool
	// PublishNotReady: endpoints that are not ready count as ready.
	PublishNotReady bool
	// Created is its creationTimestamp, in seconds since 1970; 0 when unknown, and where the
	// source leaves it out.
	Created int64
	// ClusterIPs are the assigned addresses; none when headless, when of type
	// ExternalName, or when none was assigned yet.
	ClusterIPs []netip.Addr
	// ExternalName is the target of a Service of that type, else empty.
	ExternalName string
	Ports        []Port
	// Targets are the target ports, number or name, one for each of Ports; empty
	// where it is the port's own number, and nil when all are.
	Targets  []string
	Selector map[string]string
	// External is nil for a Service that is not reached from outside, and where the
	// source leaves it out.
	External *External
	// Spec is nil where the source reads only what DNS answers need.
	Spec *ServiceSpec
}

// AddressType is what the addresses of an EndpointSlice are.
type AddressType string

// The address types. FQDN slices have no addresses for DNS.
const (
	IPv4 AddressType = "IPv4"
	IPv6 AddressType = "IPv6"
	FQDN AddressType = "FQDN"
)

// FamilyOf returns the address type of an address.
func FamilyOf(addr netip.Addr) AddressType {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// EndpointSlice is an EndpointSlice. Service names the Service it belongs to,
// in its own namespace; it is empty when the slice belongs to none.
type EndpointSlice struct {
	Key
	Service string
	// Import names the ServiceImport that the slice belongs to, likewise, and
	// Cluster the cluster that its endpoints are in.
	Import, Cluster string
	AddressType     AddressType
	Ports           []Port
	Endpoints       []Endpoint
	// Spec is nil when it would be zero, and where the source reads only what DNS
	// answers need.
	Spec *SliceSpec
}

// SliceSpec is what DNS answers do not depend on.
type SliceSpec struct {
	// ManagedBy is the label endpointslice.kubernetes.io/managed-by; empty without it.
	ManagedBy string
	// Places are one for each of the slice's Endpoints; nil when all are zero.
	Places []Place
	// EndpointWeight is the value of the annotation AnnotationEndpointWeight; empty without it.
	EndpointWeight string
}

// AnnotationEndpointWeight is the weight of each endpoint of a slice in a service proxy's choice,
// a number up to 1000; 100 without it. Endpoints of weight 0 get connections only if there are no
// others.
const AnnotationEndpointWeight = "portolan.dev/endpoint-weight"

// ManagedBy returns the label endpointslice.kubernetes.io/managed-by; empty without it, and
// without Spec.
func (s *EndpointSlice) ManagedBy() string {
	if s.Spec == nil {
		return ""
	}
	return s.Spec.ManagedBy
}

// Places returns the places of Endpoints; nil when all are zero, and without Spec.
func (s *EndpointSlice) Places() []Place {
	if s.Spec == nil {
		return nil
	}
	return s.Spec.Places
}

// EndpointWeight returns the value of the annotation AnnotationEndpointWeight; empty without it,
// and without Spec.
func (s *EndpointSlice) EndpointWeight() string {
	if s.Spec == nil {
		return ""
	}
	return s.Spec.EndpointWeight
}

// Place is where an endpoint is, and which clients it is for.
type Place struct {
	Node string
	// Hints is nil without hints.
	Hints *Hints
	// Additional: the address is not the first of its endpoint. Service proxies use the
	// first only.
	Additional bool
}

// Hints are the zones and nodes whose clients should use an endpoint (hints.forZones,
// hints.forNodes).
type Hints struct{ Zones, Nodes []string }

// HintZones returns the zones whose clients should use the endpoint; none without hints.
func (p *Place) HintZones() []string {
	if p.Hints == nil {
		return nil
	}
	return p.Hints.Zones
}

// HintNodes returns the nodes whose clients should use the endpoint; none without hints.
func (p *Place) HintNodes() []string {
	if p.Hints == nil {
		return nil
	}
	return p.Hints.Nodes
}

// Endpoint is one address of an endpoint of a slice. In the API an endpoint may
// have several equivalent addresses; each becomes an Endpoint.
type Endpoint struct {
	Addr     netip.Addr
	Hostname string
	// Pod is the name of its Pod; empty when its targetRef is no Pod.
	Pod string
	// Ready: the condition ready is true or absent.
	Ready bool
	// Serving: the condition serving is true or absent. An endpoint that terminates may
	// still serve.
	Serving bool
	// Terminating: the condition terminating is true.
	Terminating bool
}

// Node is a Node. Where the source reads only what DNS answers need, it has only
// a name and addresses.
type Node struct {
	Name      string
	Addresses []netip.Addr
	// Zone is the label topology.kubernetes.io/zone; empty without it.
	Zone string
	// Ready: the condition Ready is True.
	Ready bool
	// ControlPlane: it has a control plane's label. Its CPUs do not count for
	// topology hints.
	ControlPlane bool
	// MilliCPU is its allocatable CPU, in thousandths; 0 when unknown.
	MilliCPU int64
	// InternalIPs are those of Addresses that have the type InternalIP.
	InternalIPs []netip.Addr
	// PodCIDRs are the ranges that its Pods have addresses of.
	PodCIDRs []netip.Prefix
	// WireGuardKey is the public key of its end of encrypted tunnels; the zero key is none.
	WireGuardKey [32]byte
	// Leaving: it is being deleted, or the cluster autoscaler is about to remove it.
	Leaving bool
	// Cordoned: it takes no new Pods (spec.unschedulable), as `kubectl cordon` and `kubectl drain` set it.
	Cordoned bool
	// Labels are nil where the source leaves them out.
	Labels map[string]string
	// Created is the creationTimestamp, in seconds since 1970; 0 without one. Of two Nodes that claim the same
	// range for their Pods, the older one has it.
	Created int64
}

// ServiceCIDR is a ServiceCIDR: ranges that cluster IPs are allocated from.
type ServiceCIDR struct {
	Name  string
	CIDRs []netip.Prefix
}

// Ref returns the Namespace's kind and key; Ref of each type below likewise.
func (n *Namespace) Ref() Ref { return Ref{KindNamespace, Key{Name: n.Name}} }

// Ref returns kind and key.
func (s *Service) Ref() Ref { return Ref{KindService, s.Key} }

// Ref returns kind and key.
func (s *EndpointSlice) Ref() Ref { return Ref{KindEndpointSlice, s.Key} }

// Ref returns kind and key.
func (n *Node) Ref() Ref { return Ref{KindNode, Key{Name: n.Name}} }

// Ref returns kind and key.
func (c *ServiceCIDR) Ref() Ref { return Ref{KindServiceCIDR, Key{Name: c.Name}} }

// serviceRef returns the Service that the slice belongs to; ok is false when it
// belongs to none.
func (s *EndpointSlice) serviceRef() (service Ref, ok bool) {
	return Ref{KindService, Key{s.Namespace, s.Service}}, s.Service != ""
}

// reportAs yields the objects whose compiled form depends on the slice.
func (s *EndpointSlice) reportAs(yield func(Ref)) {
	if service, ok := s.serviceRef(); ok {
		yield(service)
	}
	if s.Import != "" {
		yield(Ref{KindServiceImport, Key{s.Namespace, s.Import}})
	}
}

// Selects reports whether the Service selects a Pod. A Service without selector
// selects none.
func (s *Service) Selects(p *Pod) bool { return s.SelectsLabels(p.Namespace, p.Labels) }

// SelectsLabels is Selects for the namespace and labels of a Pod or a template.
func (s *Service) SelectsLabels(namespace string, labels map[string]string) bool {
	return len(s.Selector) > 0 && s.Namespace == namespace && (&Selector{Labels: s.Selector}).Selects(labels)
}

func (s *Service) equal(o *Service) bool {
	return s.Key == o.Key && s.Headless == o.Headless && s.ExternalName == o.ExternalName &&
		s.PublishNotReady == o.PublishNotReady && s.Created == o.Created && slices.Equal(s.ClusterIPs, o.ClusterIPs) &&
		slices.Equal(s.Ports, o.Ports) && slices.Equal(s.Targets, o.Targets) &&
		maps.Equal(s.Selector, o.Selector) && s.External.equal(o.External) &&
		(s.Spec == o.Spec || reflect.DeepEqual(s.Spec, o.Spec))
}

func (s *EndpointSlice) equal(o *EndpointSlice) bool {
	return s.Key == o.Key && s.Service == o.Service && s.Import == o.Import && s.Cluster == o.Cluster &&
		s.AddressType == o.AddressType && slices.Equal(s.Ports, o.Ports) &&
		slices.Equal(s.Endpoints, o.Endpoints) && s.Spec.equal(o.Spec)
}

func (s *SliceSpec) equal(o *SliceSpec) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.ManagedBy == o.ManagedBy && s.EndpointWeight == o.EndpointWeight &&
		slices.EqualFunc(s.Places, o.Places, Place.equal)
}

func (p Place) equal(o Place) bool {
	return p.Node == o.Node && p.Additional == o.Additional && p.Hints.equal(o.Hints)
}

func (h *Hints) equal(o *Hints) bool {
	return h == o || h != nil && o != nil && slices.Equal(h.Zones, o.Zones) && slices.Equal(h.Nodes, o.Nodes)
}

func (n *Namespace) equal(o *Namespace) bool {
	return n.Name == o.Name && maps.Equal(n.Labels, o.Labels)
}

func (n *Node) equal(o *Node) bool {
	return n.Name == o.Name && slices.Equal(n.Addresses, o.Addresses) &&
		n.Zone == o.Zone && n.Ready == o.Ready && n.ControlPlane == o.ControlPlane && n.MilliCPU == o.MilliCPU &&
		slices.Equal(n.InternalIPs, o.InternalIPs) && slices.Equal(n.PodCIDRs, o.PodCIDRs) && n.Leaving == o.Leaving &&
		n.Cordoned == o.Cordoned && n.Created == o.Created && n.WireGuardKey == o.WireGuardKey &&
		maps.Equal(n.Labels, o.Labels)
}
