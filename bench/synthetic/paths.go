package synthetic

import (
	"fmt"
	"iter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Paths is a cluster in which clients, and a gateway, reach Services: one Pod behind each Service, policies that
// allow it, and routes. The i-th Service, Pod, policy and route are in the same namespace.
type Paths struct {
	Namespaces, Services, Policies, Routes int
	// Sliceless leaves out EndpointSlices, the status of Pods and addresses of Services, as manifests that people write.
	Sliceless bool
}

// These are the names of the gateway's objects.
const (
	GatewayClass     = "portolan"
	GatewayName      = "public"
	GatewayNamespace = "infra"
	GatewayAddress   = "203.0.113.10"
)

// gatewayPort is where the gateway's Pod listens, and podPort where the Pods of Services do.
const (
	gatewayPort = 8080
	podPort     = 8080
)

func (p *Paths) cluster() *Cluster { return &Cluster{Namespaces: p.Namespaces} }

// ServiceName returns the name of the i-th Service, which its Pods have in the label app.
func (p *Paths) ServiceName(i int) string { return p.cluster().ServiceName(ClusterIP, i) }

// Namespace returns the namespace of the i-th object of any kind.
func (p *Paths) Namespace(i int) string { return p.cluster().NamespaceName(i) }

// PodName returns the name of the i-th Pod, which the i-th Service selects.
func (p *Paths) PodName(i int) string { return p.ServiceName(i) + "-5d4f8c7b9-x7k2p" }

// Host returns the name by which Pods of any namespace reach the i-th Service.
func (p *Paths) Host(i int) string { return p.ServiceName(i) + "." + p.Namespace(i) }

// RouteHost returns the host of the i-th route.
func (p *Paths) RouteHost(i int) string { return fmt.Sprintf("site-%d.example", i) }

// All iterates over all objects.
func (p *Paths) All() iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, of := range []iter.Seq[any]{
			p.shared(), each(p.Namespaces, func(i int) any { return p.cluster().Namespace(i) }),
			each(p.Services, func(i int) any { return p.Service(i) }), each(p.Services, func(i int) any { return p.Pod(i) }),
			p.slices(), each(p.Policies, func(i int) any { return p.Policy(i) }),
			each(p.Routes, func(i int) any { return p.Route(i) }),
		} {
			for o := range of {
				if !yield(o) {
					return
				}
			}
		}
	}
}

func each(n int, of func(int) any) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range n {
			if !yield(of(i)) {
				return
			}
		}
	}
}

func (p *Paths) slices() iter.Seq[any] {
	if p.Sliceless {
		return func(func(any) bool) {}
	}
	return each(p.Services, func(i int) any { return p.Slice(i) })
}

// shared iterates over the Nodes, the DNS Service and the gateway's objects.
func (p *Paths) shared() iter.Seq[any] {
	return func(yield func(any) bool) {
		all := []any{p.dns(), p.gatewayNamespace(), p.gatewayClass(), p.gateway(), p.gatewayService(), p.gatewayPod()}
		if !p.Sliceless {
			all = append(all, p.gatewaySlice())
		}
		for i := range nodes {
			all = append(all, p.node(i))
		}
		for _, o := range all {
			if !yield(o) {
				return
			}
		}
	}
}

// Service returns the i-th Service.
func (p *Paths) Service(i int) *corev1.Service {
	o := p.cluster().Service(ClusterIP, i)
	o.Spec.Selector = map[string]string{"app": o.Name}
	o.Spec.Ports[0].TargetPort = intstr.FromString("web")
	if p.Sliceless {
		o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil
	}
	return o
}

// Pod returns the Pod of the i-th Service.
func (p *Paths) Pod(i int) *corev1.Pod {
	o := p.cluster().Pod(i)
	o.Name, o.Labels["app"] = p.PodName(i), p.ServiceName(i)
	o.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: podPort}}
	if p.Sliceless {
		o.Spec.NodeName, o.Status = "", corev1.PodStatus{}
	}
	return o
}

// Slice returns the EndpointSlice of the i-th Service.
func (p *Paths) Slice(i int) *discoveryv1.EndpointSlice {
	o := p.cluster().slice(Single, i, 0, 1)
	pod := p.Pod(i)
	o.Name = p.ServiceName(i) + "-xk2p"
	o.Labels[discoveryv1.LabelServiceName] = p.ServiceName(i)
	o.Ports[0].Port = new(int32(podPort))
	e := &o.Endpoints[0]
	e.Addresses, e.NodeName = []string{pod.Status.PodIP}, &pod.Spec.NodeName
	e.TargetRef.Namespace, e.TargetRef.Name = pod.Namespace, pod.Name
	return o
}

// Policy returns the i-th NetworkPolicy: the Pod of the i-th Service may be reached from its namespace and the
// gateway's.
func (p *Paths) Policy(i int) *networkingv1.NetworkPolicy {
	o := &networkingv1.NetworkPolicy{
		TypeMeta: typeMeta("networking.k8s.io/v1", "NetworkPolicy"), ObjectMeta: p.cluster().meta(i, p.ServiceName(i)),
	}
	gateway := metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: GatewayNamespace}}
	o.Spec = networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": p.ServiceName(i)}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: new(metav1.LabelSelector)}, {NamespaceSelector: &gateway}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(podPort)), Protocol: new(corev1.ProtocolTCP)}},
		}},
	}
	return o
}

// Route returns the i-th HTTPRoute: a host, whose requests the i-th Service gets.
func (p *Paths) Route(i int) *gatewayv1.HTTPRoute {
	o := &gatewayv1.HTTPRoute{
		TypeMeta:   typeMeta("gateway.networking.k8s.io/v1", "HTTPRoute"),
		ObjectMeta: p.cluster().meta(i, fmt.Sprintf("site-%d", i)),
	}
	o.Spec.ParentRefs = []gatewayv1.ParentReference{
		{Name: GatewayName, Namespace: new(gatewayv1.Namespace(GatewayNamespace))},
	}
	o.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(p.RouteHost(i))}
	rule := func(path string) (r gatewayv1.HTTPRouteRule) {
		r.Matches = []gatewayv1.HTTPRouteMatch{{
			Path: &gatewayv1.HTTPPathMatch{Type: new(gatewayv1.PathMatchPathPrefix), Value: &path},
		}}
		r.BackendRefs = []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{
				Name: gatewayv1.ObjectName(p.ServiceName(i)), Port: new(gatewayv1.PortNumber(80)),
			},
		}}}
		return r
	}
	o.Spec.Rules = []gatewayv1.HTTPRouteRule{rule("/api"), rule("/")}
	return o
}

func (p *Paths) node(i int) *corev1.Node {
	o := &corev1.Node{TypeMeta: typeMeta("v1", "Node"), ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}
	o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: Nth("192.0.2.1", i).String()}}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return o
}

func (p *Paths) dns() *corev1.Service {
	o := p.cluster().Service(ClusterIP, 0)
	o.Namespace, o.Name = "kube-system", "kube-dns"
	o.Spec.Selector = map[string]string{"k8s-app": "kube-dns"}
	o.Spec.ClusterIP, o.Spec.ClusterIPs = "10.96.0.10", []string{"10.96.0.10"}
	o.Spec.Ports = []corev1.ServicePort{
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(53)},
	}
	return o
}

func (p *Paths) gatewayNamespace() *corev1.Namespace {
	o := p.cluster().Namespace(0)
	o.Name, o.Labels = GatewayNamespace, map[string]string{corev1.LabelMetadataName: GatewayNamespace}
	return o
}

func (p *Paths) gatewayClass() *gatewayv1.GatewayClass {
	o := &gatewayv1.GatewayClass{TypeMeta: typeMeta("gateway.networking.k8s.io/v1", "GatewayClass")}
	o.Name, o.Spec.ControllerName = GatewayClass, "portolan.dev/gateway"
	return o
}

func (p *Paths) gateway() *gatewayv1.Gateway {
	o := &gatewayv1.Gateway{
		TypeMeta:   typeMeta("gateway.networking.k8s.io/v1", "Gateway"),
		ObjectMeta: metav1.ObjectMeta{Namespace: GatewayNamespace, Name: GatewayName},
	}
	o.Spec.GatewayClassName = GatewayClass
	all := &gatewayv1.AllowedRoutes{
		Namespaces: &gatewayv1.RouteNamespaces{From: new(gatewayv1.NamespacesFromAll)},
	}
	o.Spec.Listeners = []gatewayv1.Listener{
		{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType, AllowedRoutes: all},
	}
	o.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: new(gatewayv1.IPAddressType), Value: GatewayAddress}}
	return o
}

func (p *Paths) gatewayService() *corev1.Service {
	o := p.cluster().Service(ClusterIP, p.Services)
	o.Namespace, o.Name = GatewayNamespace, "gateway"
	o.Spec.Type, o.Spec.Selector = corev1.ServiceTypeLoadBalancer, map[string]string{"app": "gateway"}
	o.Spec.Ports[0].TargetPort = intstr.FromInt32(gatewayPort)
	o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: GatewayAddress}}
	if p.Sliceless {
		o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil
	}
	return o
}

func (p *Paths) gatewayPod() *corev1.Pod {
	o := p.Pod(p.Services)
	o.Namespace, o.Name, o.Labels["app"] = GatewayNamespace, "gateway-0", "gateway"
	return o
}

func (p *Paths) gatewaySlice() *discoveryv1.EndpointSlice {
	o, pod := p.Slice(p.Services), p.gatewayPod()
	o.Namespace, o.Name, o.Labels[discoveryv1.LabelServiceName] = GatewayNamespace, "gateway-xk2p", "gateway"
	o.Endpoints[0].TargetRef.Namespace, o.Endpoints[0].TargetRef.Name = pod.Namespace, pod.Name
	return o
}
