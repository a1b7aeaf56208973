package object

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
)

// HTTPRoute converts an HTTPRoute. Values of enumerations that are not known, and headers that HTTP
// forbids, make a rule Unknown; other invalid values make the route invalid.
func HTTPRoute(r *gatewayv1.HTTPRoute) (*cluster.Route, field.ErrorList) {
	rules := r.Spec.Rules
	if len(rules) == 0 {
		rules = make([]gatewayv1.HTTPRouteRule, 1) // the API's default
	}
	return newRoute(routeParts{
		cluster.KindHTTPRoute, &r.ObjectMeta, &r.Spec.CommonRouteSpec, r.Spec.Hostnames, &r.Status.RouteStatus,
		len(rules), func(c *ruleConverter, i int) field.ErrorList { return c.convert(&rules[i]) },
	})
}

func (c *ruleConverter) convert(r *gatewayv1.HTTPRouteRule) (errs field.ErrorList) {
	c.rule.Name = string(or(r.Name, ""))
	matches := r.Matches
	if len(matches) == 0 {
		matches = make([]gatewayv1.HTTPRouteMatch, 1) // the API's default
	}
	for i := range matches {
		errs = append(errs, in(c.match(&matches[i], i), "matches", i)...)
	}
	var bad field.ErrorList
	c.rule.Filters, bad = c.filters(r.Filters)
	errs = append(errs, bad...)
	for i := range r.BackendRefs {
		b := &r.BackendRefs[i]
		made, bad := c.backend(&b.BackendRef, i)
		errs = append(errs, bad...)
		made.Filters, bad = c.filters(b.Filters, "backendRefs", i)
		errs = append(errs, bad...)
		c.rule.Backends = append(c.rule.Backends, made)
	}
	if t := r.Timeouts; t != nil {
		c.rule.Request, bad = timeout(t.Request)
		errs = append(errs, in(bad, "timeouts", "request")...)
		c.rule.BackendRequest, bad = timeout(t.BackendRequest)
		errs = append(errs, in(bad, "timeouts", "backendRequest")...)
	}
	c.rule.Retry, bad = c.retry(r.Retry)
	errs = append(errs, bad...)
	c.rule.Session, bad = c.session(r.SessionPersistence)
	errs = append(errs, bad...)
	return errs
}

// duration is the form of GEP-2257.
var duration = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

func timeout(d *gatewayv1.Duration) (t cluster.Timeout, errs field.ErrorList) {
	if d == nil {
		return t, nil
	}
	limit, err := time.ParseDuration(string(*d))
	if err != nil || !duration.MatchString(string(*d)) {
		return t, nowhere(field.Invalid(nil, *d, "must be a duration of whole h, m, s and ms, such as 1m30s"))
	}
	return cluster.Timeout{Set: true, Limit: limit}, nil
}

// match converts the n-th match.
func (c *ruleConverter) match(m *gatewayv1.HTTPRouteMatch, n int) (errs field.ErrorList) {
	made := cluster.RouteMatch{
		Path:   cluster.PathMatch{Type: cluster.PathPathPrefix, Value: "/"},
		Method: string(or(m.Method, "")),
	}
	if m.Path != nil {
		made.Path.Type = cluster.PathType(or(m.Path.Type, gatewayv1.PathMatchPathPrefix))
		made.Path.Value = or(m.Path.Value, "/")
	}
	switch made.Path.Type {
	case cluster.PathExact, cluster.PathPathPrefix:
		errs = in(checkPath(made.Path.Value), "path", "value")
		if !pathOctets.MatchString(made.Path.Value) {
			bad := nowhere(field.Invalid(nil, made.Path.Value, "must be the path of a URL (RFC 3986)"))
			errs = append(errs, in(bad, "path", "value")...)
		}
	case cluster.PathRegularExpression:
	default:
		c.unknown(made.Path.Type, "matches", n, "path", "type")
	}
	if made.Method != "" && !slices.Contains(methods, made.Method) {
		c.unknown(made.Method, "matches", n, "method")
	}
	for i := range m.Headers {
		h := &m.Headers[i]
		of := string(or(h.Type, gatewayv1.HeaderMatchExact))
		made.Headers = append(made.Headers, c.value(of, string(h.Name), h.Value, "matches", n, "headers", i, "type"))
	}
	for i := range m.QueryParams {
		q := &m.QueryParams[i]
		of := string(or(q.Type, gatewayv1.QueryParamMatchExact))
		made.Query = append(made.Query, c.value(of, string(q.Name), q.Value, "matches", n, "queryParams", i, "type"))
	}
	c.rule.Matches = append(c.rule.Matches, made)
	return errs
}

// pathOctets are those of a path (RFC 3986, section 3.3).
var pathOctets = regexp.MustCompile(`^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*$`)

// methods are those of the API.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

// value converts a condition for a value; place is the field with its type.
func (c *ruleConverter) value(of, name, value string, place ...any) cluster.ValueMatch {
	switch gatewayv1.HeaderMatchType(of) {
	case gatewayv1.HeaderMatchExact, gatewayv1.HeaderMatchRegularExpression:
	default:
		c.unknown(of, place...)
	}
	return cluster.ValueMatch{Name: name, Regex: of == string(gatewayv1.HeaderMatchRegularExpression), Value: value}
}

// filters converts the filters of the object at a place in the rule.
func (c *ruleConverter) filters(
	all []gatewayv1.HTTPRouteFilter, place ...any,
) (made []cluster.Filter, errs field.ErrorList) {
	for i := range all {
		at := append(slices.Clip(place), "filters", i)
		f, bad := c.filter(&all[i], at)
		made, errs = append(made, f), append(errs, in(bad, at...)...)
	}
	return made, errs
}

// filter converts the filter at a place in the rule.
func (c *ruleConverter) filter(f *gatewayv1.HTTPRouteFilter, at []any) (made cluster.Filter, errs field.ErrorList) {
	made.Type = cluster.FilterType(f.Type)
	missing := func(name string) field.ErrorList {
		return in(nowhere(field.Required(nil, "must be set with the type "+string(f.Type))), name)
	}
	switch made.Type {
	case cluster.RequestHeaderModifier:
		if f.RequestHeaderModifier == nil {
			return made, missing("requestHeaderModifier")
		}
		made.Headers = c.headers(f.RequestHeaderModifier, append(at, "requestHeaderModifier"))
	case cluster.ResponseHeaderModifier:
		if f.ResponseHeaderModifier == nil {
			return made, missing("responseHeaderModifier")
		}
		made.Headers = c.headers(f.ResponseHeaderModifier, append(at, "responseHeaderModifier"))
	case cluster.RequestRedirect:
		if f.RequestRedirect == nil {
			return made, missing("requestRedirect")
		}
		made.Redirect, errs = c.redirect(f.RequestRedirect, append(at, "requestRedirect"))
		return made, in(errs, "requestRedirect")
	case cluster.URLRewrite:
		if f.URLRewrite == nil {
			return made, missing("urlRewrite")
		}
		made.Rewrite = &cluster.Rewrite{Hostname: string(or(f.URLRewrite.Hostname, ""))}
		made.Rewrite.Path, errs = c.pathModifier(f.URLRewrite.Path, append(at, "urlRewrite"))
		return made, in(errs, "urlRewrite")
	case cluster.RequestMirror:
		if f.RequestMirror == nil {
			return made, missing("requestMirror")
		}
		made.Mirror, errs = c.mirror(f.RequestMirror)
		return made, in(errs, "requestMirror")
	case cluster.CORSFilter:
		if f.CORS == nil {
			return made, missing("cors")
		}
		made.CORS = c.cors(f.CORS, append(at, "cors"))
	case cluster.ExternalAuthFilter:
		if f.ExternalAuth == nil {
			return made, missing("externalAuth")
		}
		made.External, errs = c.externalAuth(f.ExternalAuth, append(at, "externalAuth"))
		return made, in(errs, "externalAuth")
	case cluster.ExtensionRef:
		if f.ExtensionRef == nil {
			return made, missing("extensionRef")
		}
		made.Extension = &cluster.ObjectRef{
			Group: string(f.ExtensionRef.Group), Kind: string(f.ExtensionRef.Kind), Namespace: c.namespace,
			Name: string(f.ExtensionRef.Name),
		}
	default:
		c.unknown(f.Type, append(at, "type")...)
	}
	return made, nil
}

func (c *ruleConverter) headers(f *gatewayv1.HTTPHeaderFilter, at []any) *cluster.HeaderModifier {
	made := &cluster.HeaderModifier{Remove: f.Remove}
	for i, name := range f.Remove {
		if !isToken(name) {
			c.unknown(name, append(slices.Clip(at), "remove", i)...)
		}
	}
	convert := func(all []gatewayv1.HTTPHeader, list string) (headers []cluster.Header) {
		for i, h := range all {
			if !isToken(string(h.Name)) {
				c.unknown(h.Name, append(slices.Clip(at), list, i, "name")...)
			}
			if !isFieldValue(h.Value) {
				c.unknown(fmt.Sprintf("%q", h.Value), append(slices.Clip(at), list, i, "value")...)
			}
			headers = append(headers, cluster.Header{Name: string(h.Name), Value: h.Value})
		}
		return headers
	}
	made.Set, made.Add = convert(f.Set, "set"), convert(f.Add, "add")
	return made
}

// isToken reports whether a name can be that of a header (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return name != "" && strings.Trim(name, token) == "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune(token, r)
	})
}

// isFieldValue reports whether a value can be that of a header (RFC 9110, section 5.5): without control
// characters, such as the ends of lines.
func isFieldValue(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func (c *ruleConverter) redirect(
	f *gatewayv1.HTTPRequestRedirectFilter, at []any,
) (made *cluster.Redirect, errs field.ErrorList) {
	made = &cluster.Redirect{
		Scheme: or(f.Scheme, ""), Hostname: string(or(f.Hostname, "")), Status: or(f.StatusCode, 302),
	}
	if made.Scheme != "" && made.Scheme != "http" && made.Scheme != "https" {
		c.unknown(made.Scheme, append(slices.Clip(at), "scheme")...)
	}
	if !slices.Contains([]int{301, 302, 303, 307, 308}, made.Status) {
		c.unknown(made.Status, append(slices.Clip(at), "statusCode")...)
	}
	made.Path, errs = c.pathModifier(f.Path, at)
	port, bad := optionalPort(f.Port)
	made.Port = port
	return made, append(errs, bad...)
}

// pathModifier converts a field path.
func (c *ruleConverter) pathModifier(
	p *gatewayv1.HTTPPathModifier, at []any,
) (*cluster.PathModifier, field.ErrorList) {
	if p == nil {
		return nil, nil
	}
	made := &cluster.PathModifier{Prefix: p.Type == gatewayv1.PrefixMatchHTTPPathModifier}
	value, name := p.ReplaceFullPath, "replaceFullPath"
	switch p.Type {
	case gatewayv1.FullPathHTTPPathModifier:
	case gatewayv1.PrefixMatchHTTPPathModifier:
		value, name = p.ReplacePrefixMatch, "replacePrefixMatch"
	default:
		c.unknown(p.Type, append(slices.Clip(at), "path", "type")...)
		return made, nil
	}
	if value == nil {
		return made, in(nowhere(field.Required(nil, "must be set with the type "+string(p.Type))), "path", name)
	}
	made.Value = *value
	if !isFieldValue(made.Value) {
		c.unknown(fmt.Sprintf("%q", made.Value), append(slices.Clip(at), "path", name)...)
	}
	return made, nil
}

func (c *ruleConverter) mirror(f *gatewayv1.HTTPRequestMirrorFilter) (*cluster.Mirror, field.ErrorList) {
	to, errs := c.backendRef(&f.BackendRef)
	errs = in(errs, "backendRef")
	const percent = 100
	made := &cluster.Mirror{Backend: to, Numerator: or(f.Percent, percent), Denominator: percent}
	at := "percent"
	if f.Fraction != nil {
		made.Numerator, made.Denominator, at = f.Fraction.Numerator, or(f.Fraction.Denominator, percent), "fraction"
		if f.Percent != nil {
			errs = append(errs, in(nowhere(field.Forbidden(nil, "may not be set with percent")), at)...)
		}
	}
	if made.Numerator < 0 || made.Denominator < 1 || made.Numerator > made.Denominator {
		errs = append(errs, in(nowhere(field.Invalid(nil, made.Numerator, "must be a part of the whole")), at)...)
	}
	return made, errs
}

// corsAge is the default of maxAge.
const corsAge = 5 * time.Second

func (c *ruleConverter) cors(f *gatewayv1.HTTPCORSFilter, at []any) *cluster.CORS {
	made := &cluster.CORS{Credentials: or(f.AllowCredentials, false), MaxAge: corsAge}
	if f.MaxAge > 0 {
		made.MaxAge = time.Duration(f.MaxAge) * time.Second
	}
	for _, o := range f.AllowOrigins {
		made.Origins = append(made.Origins, string(o))
	}
	for i, m := range f.AllowMethods {
		if m != "*" && !slices.Contains(methods, string(m)) {
			c.unknown(m, append(slices.Clip(at), "allowMethods", i)...)
		}
		made.Methods = append(made.Methods, string(m))
	}
	names := func(all []gatewayv1.HTTPHeaderName, list string) (made []string) {
		for i, name := range all {
			if !isToken(string(name)) {
				c.unknown(name, append(slices.Clip(at), list, i)...)
			}
			made = append(made, string(name))
		}
		return made
	}
	made.Headers, made.Expose = names(f.AllowHeaders, "allowHeaders"), names(f.ExposeHeaders, "exposeHeaders")
	return made
}
