package object

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
)

// routeParts are what a route of any kind consists of.
type routeParts struct {
	kind      cluster.Kind
	meta      *metav1.ObjectMeta
	spec      *gatewayv1.CommonRouteSpec
	hostnames []gatewayv1.Hostname
	status    *gatewayv1.RouteStatus
	rules     int // how many there are
	convert   func(c *ruleConverter, rule int) field.ErrorList
}

// newRoute converts a route.
func newRoute(r routeParts) (*cluster.Route, field.ErrorList) {
	k, errs := key(r.meta, validation.IsDNS1123Subdomain)
	var e cluster.External
	for _, name := range r.hostnames {
		addHosts(&e, string(name))
	}
	spec := &cluster.RouteSpec{Meta: meta(r.meta)}
	route := &cluster.Route{Kind: r.kind, Key: k, Hosts: e.Hosts, Spec: spec}
	for i := range r.spec.ParentRefs {
		p, bad := parentRef(&r.spec.ParentRefs[i], k.Namespace)
		spec.Parents, errs = append(spec.Parents, p), append(errs, in(bad, "spec", "parentRefs", i)...)
	}
	for i := range r.rules {
		c := ruleConverter{namespace: k.Namespace, uid: string(r.meta.UID), at: fmt.Sprintf("spec.rules[%d]", i)}
		bad := r.convert(&c, i)
		spec.Rules, errs = append(spec.Rules, c.rule), append(errs, in(bad, "spec", "rules", i)...)
	}
	for i := range r.status.Parents {
		p := &r.status.Parents[i]
		status := parentStatus(&p.ParentRef, string(p.ControllerName), p.Conditions, k.Namespace)
		spec.Statuses = append(spec.Statuses, status)
		at := cluster.Key{Namespace: status.Parent.Namespace, Name: status.Parent.Name}
		if isGateway(&status.Parent) && isAccepted(status.Conditions) && !slices.Contains(route.Gateways, at) {
			route.Gateways = append(route.Gateways, at)
		}
	}
	return route, errs
}

// parentStatus converts what a controller says of an object at a parent. Controllers write it, not users: invalid
// values are left out.
func parentStatus(
	of *gatewayv1.ParentReference, controller string, all []metav1.Condition, namespace string,
) cluster.ParentStatus {
	ref, _ := parentRef(of, namespace)
	return cluster.ParentStatus{Parent: ref, Controller: controller, Conditions: conditions(all)}
}

func parentRef(r *gatewayv1.ParentReference, namespace string) (p cluster.ParentRef, errs field.ErrorList) {
	p.ObjectRef = cluster.ObjectRef{
		Group: string(or(r.Group, gatewayv1.GroupName)), Kind: string(or(r.Kind, kindGateway)),
		Namespace: string(or(r.Namespace, gatewayv1.Namespace(namespace))), Name: string(r.Name),
	}
	p.Section = string(or(r.SectionName, ""))
	p.Port, errs = optionalPort(r.Port)
	return p, errs
}

// optionalPort converts a field port that may be missing.
func optionalPort(n *gatewayv1.PortNumber) (uint16, field.ErrorList) {
	if n == nil {
		return 0, nil
	}
	port, errs := portNumber(*n)
	return port, in(errs, "port")
}

// ruleConverter converts a rule of a route.
type ruleConverter struct {
	namespace string
	uid       string // of the route
	at        string // the rule's path
	rule      cluster.RouteRule
}

// unknown records a value of a field, in the rule.
func (c *ruleConverter) unknown(value any, place ...any) {
	path := in(nowhere(field.Invalid(nil, "", "")), place...)[0].Field
	c.rule.Unknown = append(c.rule.Unknown, cluster.UnknownValue{Field: c.at + "." + path, Value: fmt.Sprint(value)})
}

const maxWeight = 1_000_000

// backend converts the n-th backend, without filters.
func (c *ruleConverter) backend(b *gatewayv1.BackendRef, n int) (cluster.RouteBackend, field.ErrorList) {
	to, errs := c.backendRef(&b.BackendObjectReference)
	made := cluster.RouteBackend{BackendRef: to, Weight: or(b.Weight, 1)}
	if made.Weight < 0 || made.Weight > maxWeight {
		bad := nowhere(field.Invalid(nil, made.Weight, "must be between 0 and 1000000"))
		errs = append(errs, in(bad, "weight")...)
	}
	return made, in(errs, "backendRefs", n)
}

func (c *ruleConverter) backendRef(r *gatewayv1.BackendObjectReference) (to cluster.BackendRef, errs field.ErrorList) {
	to.ObjectRef = cluster.ObjectRef{
		Group: string(or(r.Group, "")), Kind: string(or(r.Kind, "Service")),
		Namespace: string(or(r.Namespace, gatewayv1.Namespace(c.namespace))), Name: string(r.Name),
	}
	to.Port, errs = optionalPort(r.Port)
	return to, errs
}

// stream converts a rule of a TLSRoute, a TCPRoute or a UDPRoute.
func (c *ruleConverter) stream(name *gatewayv1.SectionName, backends []gatewayv1.BackendRef) (errs field.ErrorList) {
	c.rule.Name = string(or(name, ""))
	for i := range backends {
		made, bad := c.backend(&backends[i], i)
		c.rule.Backends, errs = append(c.rule.Backends, made), append(errs, bad...)
	}
	return errs
}

// TLSRoute converts a TLSRoute.
func TLSRoute(r *gatewayv1.TLSRoute) (*cluster.Route, field.ErrorList) {
	return newRoute(routeParts{
		cluster.KindTLSRoute, &r.ObjectMeta, &r.Spec.CommonRouteSpec, r.Spec.Hostnames, &r.Status.RouteStatus,
		len(r.Spec.Rules), func(c *ruleConverter, i int) field.ErrorList {
			return c.stream(r.Spec.Rules[i].Name, r.Spec.Rules[i].BackendRefs)
		},
	})
}

// TCPRoute converts a TCPRoute.
func TCPRoute(r *gatewayv1.TCPRoute) (*cluster.Route, field.ErrorList) {
	return newRoute(routeParts{
		cluster.KindTCPRoute, &r.ObjectMeta, &r.Spec.CommonRouteSpec, nil, &r.Status.RouteStatus,
		len(r.Spec.Rules), func(c *ruleConverter, i int) field.ErrorList {
			return c.stream(r.Spec.Rules[i].Name, r.Spec.Rules[i].BackendRefs)
		},
	})
}

// UDPRoute converts a UDPRoute.
func UDPRoute(r *gatewayv1.UDPRoute) (*cluster.Route, field.ErrorList) {
	return newRoute(routeParts{
		cluster.KindUDPRoute, &r.ObjectMeta, &r.Spec.CommonRouteSpec, nil, &r.Status.RouteStatus,
		len(r.Spec.Rules), func(c *ruleConverter, i int) field.ErrorList {
			return c.stream(r.Spec.Rules[i].Name, r.Spec.Rules[i].BackendRefs)
		},
	})
}
