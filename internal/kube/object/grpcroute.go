package object

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
)

// GRPCRoute converts a GRPCRoute, see HTTPRoute.
func GRPCRoute(r *gatewayv1.GRPCRoute) (*cluster.Route, field.ErrorList) {
	rules := r.Spec.Rules
	if len(rules) == 0 {
		rules = make([]gatewayv1.GRPCRouteRule, 1) // as an HTTPRoute without rules
	}
	return newRoute(routeParts{
		cluster.KindGRPCRoute, &r.ObjectMeta, &r.Spec.CommonRouteSpec, r.Spec.Hostnames, &r.Status.RouteStatus,
		len(rules), func(c *ruleConverter, i int) field.ErrorList { return c.convertRPC(&rules[i]) },
	})
}

// convertRPC converts a rule of a GRPCRoute.
func (c *ruleConverter) convertRPC(r *gatewayv1.GRPCRouteRule) (errs field.ErrorList) {
	c.rule.Name = string(or(r.Name, ""))
	matches := r.Matches
	if len(matches) == 0 {
		matches = make([]gatewayv1.GRPCRouteMatch, 1) // which is for all requests
	}
	for i := range matches {
		errs = append(errs, in(c.rpc(&matches[i], i), "matches", i)...)
	}
	var bad field.ErrorList
	c.rule.Filters, bad = c.filters(c.rpcFilters(r.Filters))
	errs = append(errs, bad...)
	for i := range r.BackendRefs {
		b := &r.BackendRefs[i]
		made, bad := c.backend(&b.BackendRef, i)
		errs = append(errs, bad...)
		made.Filters, bad = c.filters(c.rpcFilters(b.Filters, "backendRefs", i), "backendRefs", i)
		errs = append(errs, bad...)
		c.rule.Backends = append(c.rule.Backends, made)
	}
	c.rule.Session, bad = c.session(r.SessionPersistence)
	errs = append(errs, bad...)
	return errs
}

// rpc converts the n-th match.
func (c *ruleConverter) rpc(m *gatewayv1.GRPCRouteMatch, n int) (errs field.ErrorList) {
	var made cluster.RouteMatch
	if m.Method != nil {
		made.RPC.Service, made.RPC.Method = or(m.Method.Service, ""), or(m.Method.Method, "")
		switch of := or(m.Method.Type, gatewayv1.GRPCMethodMatchExact); of {
		case gatewayv1.GRPCMethodMatchExact:
			errs = append(
				in(checkRPC(made.RPC.Service), "method", "service"),
				in(checkRPC(made.RPC.Method), "method", "method")...)
		case gatewayv1.GRPCMethodMatchRegularExpression:
			made.RPC.Regex = true
		default:
			c.unknown(of, "matches", n, "method", "type")
		}
	}
	for i := range m.Headers {
		h := &m.Headers[i]
		of := string(or(h.Type, gatewayv1.GRPCHeaderMatchExact))
		made.Headers = append(made.Headers, c.value(of, string(h.Name), h.Value, "matches", n, "headers", i, "type"))
	}
	c.rule.Matches = append(c.rule.Matches, made)
	return errs
}

// checkRPC checks the name of a service or of a method, which is an element of a path.
func checkRPC(name string) field.ErrorList {
	if strings.Contains(name, "/") || !pathOctets.MatchString(name) {
		return nowhere(field.Invalid(nil, name, "must be a name of gRPC, without slashes"))
	}
	return nil
}

// rpcFilters returns the filters of the object at a place in the rule as those of HTTPRoutes, which have the same types
// and more.
func (c *ruleConverter) rpcFilters(
	all []gatewayv1.GRPCRouteFilter, place ...any,
) (made []gatewayv1.HTTPRouteFilter) {
	for i := range all {
		f := &all[i]
		switch f.Type {
		case gatewayv1.GRPCRouteFilterRequestHeaderModifier, gatewayv1.GRPCRouteFilterResponseHeaderModifier,
			gatewayv1.GRPCRouteFilterRequestMirror, gatewayv1.GRPCRouteFilterExtensionRef:
			made = append(made, gatewayv1.HTTPRouteFilter{
				Type:                  gatewayv1.HTTPRouteFilterType(f.Type),
				RequestHeaderModifier: f.RequestHeaderModifier, ResponseHeaderModifier: f.ResponseHeaderModifier,
				RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
			})
		default:
			c.unknown(f.Type, append(slices.Clip(place), "filters", i, "type")...)
		}
	}
	return made
}
