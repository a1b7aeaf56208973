package object

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayx "sigs.k8s.io/gateway-api/apisx/v1alpha1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"portolan.dev/portolan/internal/cluster"
)

// Kinds declares every kind of the model once: its API group and version, its
// resource name, and its decoder. The sources read what is here.
var Kinds = []Kind{
	declare(cluster.KindNamespace, core, "namespaces", Namespace),
	declare(cluster.KindService, core, "services", Service),
	declare(cluster.KindEndpointSlice, discovery, "endpointslices", EndpointSlice),
	declare(cluster.KindPod, core, "pods", Pod),
	declare(cluster.KindNode, core, "nodes", Node),
	declare(cluster.KindDeployment, apps, "deployments", Deployment),
	declare(cluster.KindStatefulSet, apps, "statefulsets", StatefulSet),
	declare(cluster.KindDaemonSet, apps, "daemonsets", DaemonSet),
	declare(cluster.KindJob, batch, "jobs", Job),
	declare(cluster.KindCronJob, batch, "cronjobs", CronJob),
	closed(cluster.KindNetworkPolicy, networking, "networkpolicies", NetworkPolicy, &networkPolicySalvage),
	custom(declare(cluster.KindServiceImport, multicluster, "serviceimports", ServiceImport)),
	declare(cluster.KindIngress, networking, "ingresses", Ingress),
	declare(cluster.KindIngressClass, networking, "ingressclasses", IngressClass),
	custom(declare(cluster.KindGatewayClass, gateway, "gatewayclasses", GatewayClass)),
	custom(declare(cluster.KindGateway, gateway, "gateways", Gateway)),
	custom(declare(cluster.KindListenerSet, gateway, "listenersets", ListenerSet)),
	custom(declare(cluster.KindHTTPRoute, gateway, "httproutes", HTTPRoute)),
	custom(declare(cluster.KindGRPCRoute, gateway, "grpcroutes", GRPCRoute)),
	custom(declare(cluster.KindTLSRoute, gateway, "tlsroutes", TLSRoute)),
	custom(declare(cluster.KindTCPRoute, gateway, "tcproutes", TCPRoute)),
	custom(declare(cluster.KindUDPRoute, gateway, "udproutes", UDPRoute)),
	custom(declare(cluster.KindBackendTLSPolicy, gateway, "backendtlspolicies", BackendTLSPolicy)),
	custom(closed(cluster.KindRoutePolicy, portolan, "routepolicies", RoutePolicy, &routePolicySalvage)),
	custom(declare(cluster.KindBackendTrafficPolicy, gatewayX, "xbackendtrafficpolicies", BackendTrafficPolicy)),
	custom(declare(cluster.KindReferenceGrant, gateway, "referencegrants", ReferenceGrant)),
	custom(declare(cluster.KindServiceCIDR, networking, "servicecidrs", ServiceCIDR)), // since Kubernetes 1.33
	custom(closed(cluster.KindClusterNetworkPolicy, clusterPolicy, "clusternetworkpolicies", ClusterNetworkPolicy,
		&clusterNetworkPolicySalvage)),
	declare(cluster.KindSecret, core, "secrets", Secret),
	declare(cluster.KindConfigMap, core, "configmaps", ConfigMap),
}

// The API groups that kinds are from.
var (
	core       = Group{corev1.SchemeGroupVersion, corev1.AddToScheme}
	discovery  = Group{discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme}
	apps       = Group{appsv1.SchemeGroupVersion, appsv1.AddToScheme}
	batch      = Group{batchv1.SchemeGroupVersion, batchv1.AddToScheme}
	networking = Group{networkingv1.SchemeGroupVersion, networkingv1.AddToScheme}

	multicluster  = Group{multiclusterVersion, addMulticluster}
	gateway       = Group{schema.GroupVersion(gatewayv1.GroupVersion), addGateway}
	gatewayX      = Group{schema.GroupVersion(gatewayx.GroupVersion), addGatewayX}
	portolan      = Group{portolanVersion, addPortolan}
	clusterPolicy = Group{schema.GroupVersion(policyv1alpha2.GroupVersion), policyv1alpha2.Install}
)

// Group is a version of an API group.
type Group struct {
	schema.GroupVersion
	// AddToScheme adds the group's types to a scheme.
	AddToScheme func(*runtime.Scheme) error
}

// Kind ties a kind of the model to its type in the API.
type Kind struct {
	Model    cluster.Kind
	Group    Group
	Resource string // plural, as in URLs and RBAC rules
	// Custom: the kind is from a CustomResourceDefinition, or from a later release than the
	// others. A cluster may lack it.
	Custom bool
	// New returns an empty object of the API's type.
	New func() API
	// Decode converts such an object into the model's type. It returns the fields that are invalid. The
	// object is nil then, and not used, unless the kind fails closed.
	Decode func(API) (cluster.Object, field.ErrorList)
	// Salvage reads what can be read of JSON that does not have the types of the API. It is nil unless the
	// kind fails closed: an object with a valid key is always used, and what is invalid in it lets nothing
	// through.
	Salvage func(json []byte) API
}

// Of returns the declaration of a kind of the model.
func Of(k cluster.Kind) *Kind {
	return &Kinds[slices.IndexFunc(Kinds, func(o Kind) bool { return o.Model == k })]
}

// Path returns the elements of the path of an object in the API; without a name, of those of a namespace.
func (k *Kind) Path(of cluster.Key) []string {
	path := []string{"apis", k.Group.Group, k.Group.Version}
	if k.Group.Group == "" {
		path = []string{"api", k.Group.Version}
	}
	if k.Model.Namespaced() {
		path = append(path, "namespaces", of.Namespace)
	}
	path = append(path, k.Resource)
	if of.Name != "" {
		path = append(path, of.Name)
	}
	return path
}

// API is an object of the Kubernetes API.
type API interface {
	runtime.Object
	metav1.Object
}

func custom(k Kind) Kind {
	k.Custom = true
	return k
}

// decoder converts objects of the API's type into those of the model's.
type decoder[Type API, Obj cluster.Object] func(Type) (Obj, field.ErrorList)

func declare[T any, Type interface {
	*T
	API
}, Obj cluster.Object](k cluster.Kind, g Group, resource string, decode decoder[Type, Obj]) Kind {
	return Kind{
		Model: k, Group: g, Resource: resource,
		New: func() API { return Type(new(T)) },
		Decode: func(o API) (cluster.Object, field.ErrorList) {
			made, errs := decode(o.(Type))
			if len(errs) > 0 {
				return nil, errs
			}
			return made, nil
		},
	}
}

// closed declares a kind that fails closed.
func closed[T any, Type interface {
	*T
	API
}, Obj cluster.Object](k cluster.Kind, g Group, resource string, decode decoder[Type, Obj], s *salvage) Kind {
	kind := declare(k, g, resource, decode)
	kind.Decode = func(o API) (cluster.Object, field.ErrorList) {
		made, errs := decode(o.(Type))
		if slices.ContainsFunc(errs, isOfKey) {
			return nil, errs
		}
		return made, errs
	}
	kind.Salvage = func(json []byte) API {
		made := kind.New()
		s.read(json, made, kind.New)
		return made
	}
	return kind
}

// isOfKey reports whether an error is one of an object's name or namespace.
func isOfKey(err *field.Error) bool {
	return err.Field == "metadata.name" || err.Field == "metadata.namespace"
}
