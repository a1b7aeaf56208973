package object

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
)

// retry converts the field retry of a rule; nil stays nil.
func (c *ruleConverter) retry(r *gatewayv1.HTTPRouteRetry) (made *cluster.RouteRetry, errs field.ErrorList) {
	if r == nil {
		return nil, nil
	}
	made = &cluster.RouteRetry{Attempts: or(r.Attempts, 0)}
	const least, most = 400, 599
	for i, code := range r.Codes {
		if code < least || code > most {
			c.unknown(code, "retry", "codes", i)
		}
		made.Codes = append(made.Codes, int(code))
	}
	if r.Attempts != nil && *r.Attempts < 1 {
		c.unknown(*r.Attempts, "retry", "attempts")
	}
	made.Backoff, errs = timeout(r.Backoff)
	return made, in(errs, "retry", "backoff")
}

// session converts the field sessionPersistence of a rule; nil stays nil.
func (c *ruleConverter) session(s *gatewayv1.SessionPersistence) (made *cluster.RouteSession, errs field.ErrorList) {
	if s == nil {
		return nil, nil
	}
	const at = "sessionPersistence"
	made = &cluster.RouteSession{Name: or(s.SessionName, ""), UID: c.uid}
	switch of := or(s.Type, gatewayv1.CookieBasedSessionPersistence); of {
	case gatewayv1.CookieBasedSessionPersistence:
	case gatewayv1.HeaderBasedSessionPersistence:
		made.Header = true
	default:
		c.unknown(of, at, "type")
	}
	if made.Name != "" && !isToken(made.Name) {
		c.unknown(made.Name, at, "sessionName")
	}
	made.Absolute, errs = timeout(s.AbsoluteTimeout)
	if s.CookieConfig != nil {
		switch of := or(s.CookieConfig.LifetimeType, gatewayv1.SessionCookieLifetimeType); of {
		case gatewayv1.SessionCookieLifetimeType:
		case gatewayv1.PermanentCookieLifetimeType:
			if made.Permanent = true; made.Absolute.Limit <= 0 {
				c.unknown(of, at, "cookieConfig", "lifetimeType") // it needs an absoluteTimeout
			}
		default:
			c.unknown(of, at, "cookieConfig", "lifetimeType")
		}
	}
	return made, in(errs, at, "absoluteTimeout")
}

// externalAuth converts the filter at a place in the rule.
func (c *ruleConverter) externalAuth(
	f *gatewayv1.HTTPExternalAuthFilter, at []any,
) (*cluster.ExternalAuth, field.ErrorList) {
	to, errs := c.backendRef(&f.BackendRef)
	made := &cluster.ExternalAuth{Backend: to}
	check := func(names []string, place ...any) []string {
		for i, name := range names {
			if !isToken(name) {
				c.unknown(name, append(append(slices.Clip(at), place...), i)...)
			}
		}
		return names
	}
	switch f.ExternalAuthProtocol {
	case gatewayv1.HTTPRouteExternalAuthHTTPProtocol:
		if h := f.HTTPAuthConfig; h != nil {
			if made.Path = h.Path; !pathOctets.MatchString(h.Path) {
				c.unknown(h.Path, append(slices.Clip(at), "http", "path")...)
			}
			made.RequestHeaders = check(h.AllowedRequestHeaders, "http", "allowedHeaders")
			made.ResponseHeaders = check(h.AllowedResponseHeaders, "http", "allowedResponseHeaders")
		}
	case gatewayv1.HTTPRouteExternalAuthGRPCProtocol:
		if made.GRPC = true; f.GRPCAuthConfig != nil {
			made.RequestHeaders = check(f.GRPCAuthConfig.AllowedRequestHeaders, "grpc", "allowedHeaders")
		}
	default:
		c.unknown(f.ExternalAuthProtocol, append(slices.Clip(at), "protocol")...)
	}
	if f.ForwardBody != nil {
		made.MaxBody = int(f.ForwardBody.MaxSize)
	}
	return made, in(errs, "backendRef")
}
