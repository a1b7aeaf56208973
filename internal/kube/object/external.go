package object

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// hostnameAnnotation lists names of a Service, an Ingress or a Gateway, separated by
// commas (github.com/kubernetes-sigs/external-dns, annotations).
const hostnameAnnotation = "external-dns.alpha.kubernetes.io/hostname"

// serviceExternal returns how a Service is reached from outside; nil if it is not, and
// has no name there.
func serviceExternal(s *corev1.Service) *cluster.External {
	var e cluster.External
	for _, text := range s.Spec.ExternalIPs {
		addPlace(&e, text, "")
	}
	for i := range s.Status.LoadBalancer.Ingress {
		addPlace(&e, s.Status.LoadBalancer.Ingress[i].IP, s.Status.LoadBalancer.Ingress[i].Hostname)
	}
	addHosts(&e, annotatedHosts(s.Annotations)...)
	if len(e.Addresses)+len(e.Targets)+len(e.Hosts) == 0 {
		return nil
	}
	return &e
}

// addPlace adds an address or, if there is none, a name. Others than the user write
// these fields, so that invalid ones are no reason to refuse the object.
func addPlace(e *cluster.External, ip, name string) {
	addr, bad := address(ip)
	switch {
	case len(bad) == 0 && !slices.Contains(e.Addresses, addr):
		e.Addresses = append(e.Addresses, addr)
	case len(bad) > 0 && name != "" && !slices.Contains(e.Targets, name):
		e.Targets = append(e.Targets, name)
	}
}

// addHosts adds names, each once. An empty one stands for all names, and is left out.
func addHosts(e *cluster.External, hosts ...string) {
	for _, h := range hosts {
		h = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(h)), ".")
		if h != "" && !slices.Contains(e.Hosts, h) {
			e.Hosts = append(e.Hosts, h)
		}
	}
}

func annotatedHosts(annotations map[string]string) []string {
	return strings.Split(annotations[hostnameAnnotation], ",")
}

// Ingress converts an Ingress.
func Ingress(i *networkingv1.Ingress) (*cluster.Frontend, field.ErrorList) {
	k, errs := key(&i.ObjectMeta, validation.IsDNS1123Subdomain)
	f := &cluster.Frontend{Kind: cluster.KindIngress, Key: k}
	for n := range i.Spec.Rules {
		addHosts(&f.External, i.Spec.Rules[n].Host)
	}
	addHosts(&f.External, annotatedHosts(i.Annotations)...)
	for n := range i.Status.LoadBalancer.Ingress {
		addPlace(&f.External, i.Status.LoadBalancer.Ingress[n].IP, i.Status.LoadBalancer.Ingress[n].Hostname)
	}
	addBackend(f, "spec.defaultBackend", i.Spec.DefaultBackend)
	for n := range i.Spec.Rules {
		http := i.Spec.Rules[n].HTTP
		if http == nil {
			continue
		}
		for k := range http.Paths {
			addBackend(f, fmt.Sprintf("spec.rules[%d].http.paths[%d].backend", n, k), &http.Paths[k].Backend)
		}
	}
	return f, errs
}

// addBackend adds a backend that is a Service.
func addBackend(f *cluster.Frontend, at string, b *networkingv1.IngressBackend) {
	if b == nil || b.Service == nil {
		return
	}
	f.Backends = append(f.Backends, cluster.Backend{
		Field: at + ".service", Service: b.Service.Name, Port: b.Service.Port.Name, Number: uint16(b.Service.Port.Number),
	})
}

var gatewayVersion = schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}

func addGateway(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(gatewayVersion.WithKind("Gateway"), new(APIGateway))
	s.AddKnownTypeWithName(gatewayVersion.WithKind("GatewayList"), new(APIGatewayList))
	s.AddKnownTypeWithName(gatewayVersion.WithKind("HTTPRoute"), new(APIHTTPRoute))
	s.AddKnownTypeWithName(gatewayVersion.WithKind("HTTPRouteList"), new(APIHTTPRouteList))
	metav1.AddToGroupVersion(s, gatewayVersion)
	return nil
}

// lenient is a part of an object of which few fields are known here: the others are
// accepted, whatever they are.
type lenient[T any] struct{ Known T }

// UnmarshalJSON decodes the fields that are known.
func (l *lenient[T]) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &l.Known) }

// MarshalJSON encodes them.
func (l lenient[T]) MarshalJSON() ([]byte, error) { return json.Marshal(l.Known) }

// APIGateway is a Gateway of the API, with the fields that matter here.
type APIGateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   lenient[gatewaySpec]   `json:"spec,omitzero"`
	Status lenient[gatewayStatus] `json:"status,omitzero"`
}

type gatewaySpec struct {
	Listeners []struct {
		Hostname string `json:"hostname"`
	} `json:"listeners"`
}

type gatewayStatus struct {
	Addresses []struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"addresses"`
}

// APIHTTPRoute is a HTTPRoute of the API, with the fields that matter here.
type APIHTTPRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   lenient[routeSpec]   `json:"spec,omitzero"`
	Status lenient[routeStatus] `json:"status,omitzero"`
}

type routeSpec struct {
	Hostnames []string `json:"hostnames"`
}

type routeStatus struct {
	Parents []routeParent `json:"parents"`
}

// routeParent is what a Gateway's controller says of a route.
type routeParent struct {
	ParentRef struct {
		Group     *string `json:"group"`
		Kind      *string `json:"kind"`
		Namespace string  `json:"namespace"`
		Name      string  `json:"name"`
	} `json:"parentRef"`
	Conditions []metav1.Condition `json:"conditions"`
}

// APIGatewayList is a list of Gateways.
type APIGatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []APIGateway `json:"items"`
}

// APIHTTPRouteList is a list of HTTPRoutes.
type APIHTTPRouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []APIHTTPRoute `json:"items"`
}

// DeepCopyObject implements runtime.Object. What is decoded is not changed, so that
// copies may share it.
func (g *APIGateway) DeepCopyObject() runtime.Object {
	c := *g
	g.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (r *APIHTTPRoute) DeepCopyObject() runtime.Object {
	c := *r
	r.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *APIGatewayList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *APIHTTPRouteList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

// Gateway converts a Gateway.
func Gateway(g *APIGateway) (*cluster.Frontend, field.ErrorList) {
	k, errs := key(&g.ObjectMeta, validation.IsDNS1123Subdomain)
	f := &cluster.Frontend{Kind: cluster.KindGateway, Key: k}
	for _, l := range g.Spec.Known.Listeners {
		addHosts(&f.External, l.Hostname)
	}
	addHosts(&f.External, annotatedHosts(g.Annotations)...)
	for _, a := range g.Status.Known.Addresses {
		switch a.Type { // of others, only their implementation knows what the value means
		case "", "IPAddress":
			addPlace(&f.External, a.Value, "")
		case "Hostname":
			addPlace(&f.External, "", a.Value)
		}
	}
	return f, errs
}

// HTTPRoute converts a HTTPRoute.
func HTTPRoute(r *APIHTTPRoute) (*cluster.Route, field.ErrorList) {
	k, errs := key(&r.ObjectMeta, validation.IsDNS1123Subdomain)
	var e cluster.External
	addHosts(&e, r.Spec.Known.Hostnames...)
	route := &cluster.Route{Key: k, Hosts: e.Hosts}
	for i := range r.Status.Known.Parents {
		p := &r.Status.Known.Parents[i]
		at := cluster.Key{Namespace: p.ParentRef.Namespace, Name: p.ParentRef.Name}
		if at.Namespace == "" {
			at.Namespace = k.Namespace
		}
		if p.isGateway() && p.isAccepted() && !slices.Contains(route.Gateways, at) {
			route.Gateways = append(route.Gateways, at)
		}
	}
	return route, errs
}

// isGateway reports whether the parent is a Gateway, which it is unless it says
// otherwise.
func (p *routeParent) isGateway() bool {
	r := &p.ParentRef
	return (r.Group == nil || *r.Group == gatewayVersion.Group) && (r.Kind == nil || *r.Kind == "Gateway")
}

func (p *routeParent) isAccepted() bool {
	return slices.ContainsFunc(p.Conditions, func(c metav1.Condition) bool {
		return c.Type == "Accepted" && c.Status == metav1.ConditionTrue
	})
}
