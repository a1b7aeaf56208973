package cluster

import "net/netip"

// ServiceSpec is what matters of a Service for its addresses, its node ports and
// its EndpointSlices. Fields that are not given are empty, as in the API.
type ServiceSpec struct {
	UID    string
	Labels map[string]string
	Type   ServiceType
	// Families are ipFamilies; the first is that of the first cluster IP.
	Families     []AddressType
	FamilyPolicy FamilyPolicy
	// NodePorts are one for each of the Service's Ports, 0 for none; nil when
	// there are none at all.
	NodePorts []uint16
	// NoNodePorts: allocateLoadBalancerNodePorts is false.
	NoNodePorts bool
	// ExternalLocal: externalTrafficPolicy is Local; InternalLocal: so is
	// internalTrafficPolicy.
	ExternalLocal, InternalLocal bool
	// Deleting: it has a deletionTimestamp.
	Deleting bool
	// HealthCheckNodePort is the port on which load balancers probe whether a node
	// has endpoints; 0 for none.
	HealthCheckNodePort uint16
	// AffinitySeconds is for how long a client's connections go to the same endpoint, with
	// sessionAffinity ClientIP; 0 without.
	AffinitySeconds int32
	// AppProtocols are one for each of the Service's Ports, nil where there is
	// none; nil when there are none at all.
	AppProtocols []*string
	// TrafficDistribution is the field of that name.
	TrafficDistribution string
	// TopologyMode is the value of the annotation
	// service.kubernetes.io/topology-mode, or of its deprecated predecessor.
	TopologyMode string
	// ExternalIPs are the field of that name.
	ExternalIPs []netip.Addr
	// Ingress are the addresses that its load balancer has. Invalid addresses and names
	// are left out of it and of ExternalIPs.
	Ingress []IngressIP
	// SourceRanges are loadBalancerSourceRanges, without those that are invalid. None is no
	// limit.
	SourceRanges []netip.Prefix
	// EndpointChoice is the value of the annotation AnnotationEndpointChoice; empty without it.
	EndpointChoice string
	// SlowStart is the value of the annotation AnnotationSlowStart; empty without it.
	SlowStart string
	// LoadBalancer is what it asks of an implementation of load balancers; nil if it is not of that
	// type, or asks for nothing.
	LoadBalancer *LoadBalancerSpec
}

// LoadBalancerSpec is what a Service of type LoadBalancer asks for.
type LoadBalancerSpec struct {
	// Class is loadBalancerClass.
	Class string
	// IP is loadBalancerIP. Addresses, Pool and SharingKey are the annotations
	// AnnotationLoadBalancerIPs, AnnotationPool and AnnotationSharingKey. They are as they are
	// written, and empty without.
	IP, Addresses, Pool, SharingKey string
}

// AnnotationLoadBalancerIPs are the addresses that a Service of type LoadBalancer requests, at most
// one of each family, separated by commas.
const AnnotationLoadBalancerIPs = "portolan.dev/load-balancer-ips"

// AnnotationPool is the pool that a Service of type LoadBalancer requests its addresses from.
const AnnotationPool = "portolan.dev/pool"

// AnnotationSharingKey has Services of type LoadBalancer share an address: those with the same value
// may, if their ports differ.
const AnnotationSharingKey = "portolan.dev/sharing-key"

// AnnotationEndpointChoice is how a service proxy chooses endpoints of a Service: one of the
// values of the key proxy.endpointChoice, which holds for Services without it.
const AnnotationEndpointChoice = "portolan.dev/endpoint-choice"

// AnnotationSlowStart is for how long a service proxy gives fewer connections to an endpoint of a
// Service that became ready, such as 30s; Services without it have the value of the key
// proxy.slowStart.
const AnnotationSlowStart = "portolan.dev/slow-start"

// IngressIP is an address of a load balancer.
type IngressIP struct {
	Addr netip.Addr
	// Proxy: the load balancer itself ends connections (ipMode Proxy), so that nodes pass
	// packets to it.
	Proxy bool
}

// LabelProxyName is the label of Services that are for another service proxy than the
// cluster's, whatever its value.
const LabelProxyName = "service.kubernetes.io/service-proxy-name"

// ForOtherProxy reports whether the Service is for another service proxy than the cluster's.
func (s *ServiceSpec) ForOtherProxy() bool {
	_, named := s.Labels[LabelProxyName]
	return named
}

// ServiceType is the type of a Service as the API spells it.
type ServiceType string

// The types of Services.
const (
	ClusterIP    ServiceType = "ClusterIP"
	NodePort     ServiceType = "NodePort"
	LoadBalancer ServiceType = "LoadBalancer"
	ExternalName ServiceType = "ExternalName"
)

// FamilyPolicy is an ipFamilyPolicy as the API spells it.
type FamilyPolicy string

// The policies for the families of a Service's addresses (Services, load
// balancing and networking: "IPv4/IPv6 dual-stack").
const (
	SingleStack      FamilyPolicy = "SingleStack"
	PreferDualStack  FamilyPolicy = "PreferDualStack"
	RequireDualStack FamilyPolicy = "RequireDualStack"
)

// Refusal says that an object is rejected as it is declared: the field, unless
// empty, and the reason in the API server's words.
type Refusal struct {
	Kind  Kind
	Key   Key
	Field string
	Err   error
}

// AppProtocol returns the appProtocol of the port with an index in Ports; empty if it has none.
func (s *Service) AppProtocol(port int) string {
	if s.Spec == nil || s.Spec.AppProtocols == nil || s.Spec.AppProtocols[port] == nil {
		return ""
	}
	return *s.Spec.AppProtocols[port]
}
