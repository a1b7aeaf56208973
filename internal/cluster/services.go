package cluster

// ServiceSpec is what matters of a Service for its addresses, its ports on nodes
// and its EndpointSlices. Fields that are not given are empty, as in the API.
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
	// NoNodePorts is set when allocateLoadBalancerNodePorts is false.
	NoNodePorts bool
	// ExternalLocal and InternalLocal are set when the traffic policy from
	// outside, or from inside the cluster, is Local.
	ExternalLocal, InternalLocal bool
	// HealthCheckNodePort is where a load balancer asks a node whether it has
	// endpoints; 0 for none.
	HealthCheckNodePort uint16
	// AppProtocols are one for each of the Service's Ports, nil where there is
	// none; nil when there are none at all.
	AppProtocols []*string
	// TrafficDistribution is the field of that name.
	TrafficDistribution string
	// TopologyMode is the value of the annotation
	// service.kubernetes.io/topology-mode, or of the one before it.
	TopologyMode string
	// Deleting is set when it is told to end.
	Deleting bool
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

// Refusal is an object that is not taken in as it is, in the words of the API:
// the field that is to blame, where one is, and why.
type Refusal struct {
	Kind  Kind
	Key   Key
	Field string
	Err   error
}
