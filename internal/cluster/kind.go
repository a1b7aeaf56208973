package cluster

import (
	"slices"
	"strings"
)

// Kind is a kind of API object.
type Kind uint8

// The kinds that the model holds. Each has a table.
const (
	KindNamespace Kind = iota
	KindService
	KindEndpointSlice
	KindPod
	KindNode
	KindDeployment
	KindStatefulSet
	KindDaemonSet
	KindJob
	KindCronJob
	KindNetworkPolicy
	KindServiceImport
	KindIngress
	KindGateway
	KindHTTPRoute
	KindServiceCIDR
	KindClusterNetworkPolicy
	KindIngressClass
	KindGatewayClass
	KindListenerSet
	KindReferenceGrant
	KindSecret
	KindConfigMap
	KindGRPCRoute
	KindTLSRoute
	KindTCPRoute
	KindUDPRoute
	KindBackendTLSPolicy
	KindRoutePolicy
	KindBackendTrafficPolicy
	kinds // how many there are
)

// The tables of the model, one per kind, each with what the Store has to know
// about the kind. See the package comment for how to add one.
var (
	Namespaces = declare(schema[*Namespace]{
		kind: KindNamespace, name: "Namespace", scope: clusterScoped, equal: (*Namespace).equal,
	})
	Services = declare(schema[*Service]{
		kind: KindService, name: "Service", equal: (*Service).equal, keepRequests: true, hosts: (*Service).hosts,
	})
	// EndpointSlices report a change as a change of their Service and of their
	// ServiceImport: consumers compile these, from all slices of each.
	EndpointSlices = declare(schema[*EndpointSlice]{
		kind: KindEndpointSlice, name: "EndpointSlice", equal: (*EndpointSlice).equal, reportAs: (*EndpointSlice).reportAs,
	})
	Pods = declare(schema[*Pod]{
		kind: KindPod, name: "Pod", equal: (*Pod).equal,
	})
	Nodes = declare(schema[*Node]{
		kind: KindNode, name: "Node", scope: clusterScoped, equal: (*Node).equal,
	})
	Deployments     = declareWorkload(KindDeployment, "Deployment")
	StatefulSets    = declareWorkload(KindStatefulSet, "StatefulSet")
	DaemonSets      = declareWorkload(KindDaemonSet, "DaemonSet")
	Jobs            = declareWorkload(KindJob, "Job")
	CronJobs        = declareWorkload(KindCronJob, "CronJob")
	NetworkPolicies = declare(schema[*NetworkPolicy]{kind: KindNetworkPolicy, name: "NetworkPolicy"})
	ServiceImports  = declare(schema[*ServiceImport]{kind: KindServiceImport, name: "ServiceImport"})
	Ingresses       = declareFrontend(KindIngress, "Ingress")
	Gateways        = declareFrontend(KindGateway, "Gateway")
	HTTPRoutes      = declareRoute(KindHTTPRoute, "HTTPRoute")
	GRPCRoutes      = declareRoute(KindGRPCRoute, "GRPCRoute")
	TLSRoutes       = declareRoute(KindTLSRoute, "TLSRoute")
	TCPRoutes       = declareRoute(KindTCPRoute, "TCPRoute")
	UDPRoutes       = declareRoute(KindUDPRoute, "UDPRoute")
	ServiceCIDRs    = declare(schema[*ServiceCIDR]{kind: KindServiceCIDR, name: "ServiceCIDR", scope: clusterScoped})

	ClusterNetworkPolicies = declare(schema[*ClusterNetworkPolicy]{
		kind: KindClusterNetworkPolicy, name: "ClusterNetworkPolicy", scope: clusterScoped,
	})

	IngressClasses  = declare(schema[*IngressClass]{kind: KindIngressClass, name: "IngressClass", scope: clusterScoped})
	GatewayClasses  = declare(schema[*GatewayClass]{kind: KindGatewayClass, name: "GatewayClass", scope: clusterScoped})
	ListenerSets    = declare(schema[*ListenerSet]{kind: KindListenerSet, name: "ListenerSet"})
	ReferenceGrants = declare(schema[*ReferenceGrant]{kind: KindReferenceGrant, name: "ReferenceGrant"})
	Secrets         = declare(schema[*Secret]{kind: KindSecret, name: "Secret"})
	ConfigMaps      = declare(schema[*ConfigMap]{kind: KindConfigMap, name: "ConfigMap"})

	BackendTLSPolicies = declare(schema[*BackendTLSPolicy]{kind: KindBackendTLSPolicy, name: "BackendTLSPolicy"})
	RoutePolicies      = declare(schema[*RoutePolicy]{kind: KindRoutePolicy, name: "RoutePolicy"})

	BackendTrafficPolicies = declare(schema[*BackendTrafficPolicy]{
		kind: KindBackendTrafficPolicy, name: "XBackendTrafficPolicy",
	})
)

func declareWorkload(k Kind, name string) *Table[*Workload] {
	return declare(schema[*Workload]{kind: k, name: name, newObject: func() *Workload { return &Workload{Kind: k} }})
}

func declareRoute(k Kind, name string) *Table[*Route] {
	return declare(
		schema[*Route]{kind: k, name: name, newObject: func() *Route { return &Route{Kind: k} }, hosts: (*Route).hosts},
	)
}

func declareFrontend(k Kind, name string) *Table[*Frontend] {
	return declare(schema[*Frontend]{
		kind: k, name: name, newObject: func() *Frontend { return &Frontend{Kind: k} },
		equal: (*Frontend).equal, hosts: (*Frontend).hosts,
	})
}

// The secondary indexes.
var (
	// SlicesByService finds the EndpointSlices of a Service.
	SlicesByService = declareIndex(EndpointSlices, func(s *EndpointSlice, keys []Key) []Key {
		if service, ok := s.serviceRef(); ok {
			keys = append(keys, service.Key)
		}
		return keys
	})
	// SlicesByImport finds the EndpointSlices of a ServiceImport.
	SlicesByImport = declareIndex(EndpointSlices, func(s *EndpointSlice, keys []Key) []Key {
		if s.Import != "" {
			keys = append(keys, Key{s.Namespace, s.Import})
		}
		return keys
	})
	// ServicesByHost and the other indexes by host find the objects that a name is to
	// lead to, as in External.Hosts.
	ServicesByHost = declareIndex(Services, func(s *Service, keys []string) []string {
		return append(keys, s.hosts()...)
	})
	IngressesByHost = declareIndex(Ingresses, func(f *Frontend, keys []string) []string {
		return append(keys, f.Hosts...)
	})
	GatewaysByHost = declareIndex(Gateways, func(f *Frontend, keys []string) []string {
		return append(keys, f.Hosts...)
	})
	RoutesByHost = declareIndex(HTTPRoutes, func(r *Route, keys []string) []string {
		return append(keys, r.Hosts...)
	})
	// RoutesByGateway finds the HTTPRoutes that a Gateway accepted.
	RoutesByGateway = declareIndex(HTTPRoutes, func(r *Route, keys []Key) []Key {
		return append(keys, r.Gateways...)
	})
	// RoutesByParent finds the Routes that attach, or want to attach, to an object, and RoutesByBackend
	// those that send requests to an object, mirrors included. There are none where the source reads only
	// names.
	RoutesByParent  = declareRouteIndex((*RouteSpec).parents)
	RoutesByBackend = declareRouteIndex((*RouteSpec).backends)
	// PoliciesByTarget finds the BackendTLSPolicies of an object.
	PoliciesByTarget = declareIndex(BackendTLSPolicies, func(p *BackendTLSPolicy, keys []ObjectRef) []ObjectRef {
		return targets(p.Targets, keys)
	})
	PoliciesByReference = declareIndex(BackendTLSPolicies, func(p *BackendTLSPolicy, keys []Ref) []Ref {
		return append(keys, References(p)...)
	})
	// RoutePoliciesByTarget finds the RoutePolicies of a route, RoutePoliciesByReference those that refer to a Secret.
	RoutePoliciesByTarget = declareIndex(RoutePolicies, func(p *RoutePolicy, keys []ObjectRef) []ObjectRef {
		return targets(p.Targets, keys)
	})
	RoutePoliciesByReference = declareIndex(RoutePolicies, func(p *RoutePolicy, keys []Ref) []Ref {
		return append(keys, References(p)...)
	})
	// TrafficPoliciesByTarget finds the XBackendTrafficPolicies of an object.
	TrafficPoliciesByTarget = declareIndex(
		BackendTrafficPolicies,
		func(p *BackendTrafficPolicy, keys []ObjectRef) []ObjectRef { return targets(p.Targets, keys) },
	)
	// IngressesByService finds the Ingresses that send requests to a Service.
	IngressesByService = declareIndex(Ingresses, func(f *Frontend, keys []Key) []Key {
		return f.Ingress.services(f.Namespace, keys)
	})
	// IngressesByReference and the next two, and PoliciesByReference, find the objects that refer to a
	// Secret or ConfigMap.
	IngressesByReference = declareIndex(Ingresses, func(f *Frontend, keys []Ref) []Ref {
		return append(keys, References(f)...)
	})
	GatewaysByReference = declareIndex(Gateways, func(f *Frontend, keys []Ref) []Ref {
		return append(keys, References(f)...)
	})
	ListenerSetsByReference = declareIndex(ListenerSets, func(s *ListenerSet, keys []Ref) []Ref {
		return append(keys, References(s)...)
	})
	// ListenerSetsByGateway finds the ListenerSets whose parent is a Gateway.
	ListenerSetsByGateway = declareIndex(ListenerSets, func(s *ListenerSet, keys []ObjectRef) []ObjectRef {
		return append(keys, s.Parent)
	})
	// GrantsByNamespace finds the ReferenceGrants of a namespace.
	GrantsByNamespace = declareIndex(ReferenceGrants, func(g *ReferenceGrant, keys []string) []string {
		return append(keys, g.Namespace)
	})
)

// Kinds lists every kind.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// KindsOfNames lists the kinds that DNS answers may be compiled from.
func KindsOfNames() []Kind {
	return []Kind{
		KindNamespace, KindService, KindEndpointSlice, KindPod, KindNode,
		KindServiceImport, KindIngress, KindGateway, KindHTTPRoute,
	}
}

// KindsOfGateway lists the kinds that a gateway's table may be compiled from.
func KindsOfGateway() []Kind {
	return append([]Kind{
		KindNamespace, KindService, KindEndpointSlice, KindNode, KindIngressClass, KindIngress,
		KindGatewayClass, KindGateway, KindListenerSet, KindReferenceGrant, KindBackendTLSPolicy,
		KindRoutePolicy, KindBackendTrafficPolicy,
	}, append(RouteKinds(), ReferencedKinds()...)...)
}

// RouteKinds lists the kinds of routes: those whose table holds Route.
func RouteKinds() []Kind {
	return []Kind{KindHTTPRoute, KindGRPCRoute, KindTLSRoute, KindTCPRoute, KindUDPRoute}
}

// ReferencedKinds lists the kinds of which a source that reads the API has only the objects that
// others refer to, see References.
func ReferencedKinds() []Kind { return []Kind{KindSecret, KindConfigMap} }

// WorkloadKinds lists the kinds of workloads: those whose table holds Workload.
func WorkloadKinds() []Kind {
	return slices.DeleteFunc(Kinds(), func(k Kind) bool {
		_, ok := tables[k].(*Table[*Workload])
		return !ok
	})
}

// KindOf returns the kind with the given name in the API.
func KindOf(name string) (k Kind, ok bool) {
	i := slices.IndexFunc(tables[:], func(t table) bool { return t.kindName() == name })
	return Kind(max(0, i)), i >= 0
}

// String returns the kind's name in the API, such as "Service".
func (k Kind) String() string {
	if k >= kinds {
		return "unknown"
	}
	return tables[k].kindName()
}

// Plural returns the plural of the kind, as in "NetworkPolicies".
func (k Kind) Plural() string {
	name := k.String()
	if stem, ok := strings.CutSuffix(name, "cy"); ok {
		return stem + "cies"
	}
	if strings.HasSuffix(name, "s") {
		return name + "es"
	}
	return name + "s"
}

// Namespaced reports whether objects of the kind live in a Namespace.
func (k Kind) Namespaced() bool { return tables[k].kindScope() == namespaced }

// New returns an empty object of the kind, for decoders.
func (k Kind) New() Object { return tables[k].empty() }

// Freshness is how far the objects of a kind can be relied on.
type Freshness uint8

// The degrees of freshness, in ascending order.
const (
	// Loading: some objects are missing.
	Loading Freshness = iota
	// Confirming: all objects of a snapshot are present, and the source is about
	// to list the present ones.
	Confirming
	// Recalled: as Confirming, but the source can't be reached.
	Recalled
	// Live: all objects that the source reported are present.
	Live
)

// String returns the degree in a word.
func (f Freshness) String() string {
	return [...]string{"loading", "confirming", "recalled", "live"}[f]
}
