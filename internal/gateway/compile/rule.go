package compile

import (
	"cmp"
	"errors"
	"fmt"
	"net/textproto"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// rules is what the rules of an HTTPRoute are compiled into.
type rules struct {
	routes []table.Route
	// dropped are rules that are not served.
	dropped []dropped
	// unresolved is the first reference that leads nowhere; nil if all lead somewhere.
	unresolved *cluster.Condition
	// foreign are the other namespaces that the rules refer to.
	foreign []string
}

// dropped is why a rule is not served.
type dropped struct {
	index           int
	reason, message string
}

// compileRules compiles the rules of a route.
func compileRules(v *cluster.View, r *cluster.Route) *rules {
	made := new(rules)
	for i := range r.Spec.Rules {
		rule := &table.Rule{Object: r.Ref().String(), Index: i, Name: r.Spec.Rules[i].Name}
		ruler := ruler{view: v, route: r, rules: made}
		routes, err := ruler.compile(rule, &r.Spec.Rules[i])
		if refusal, ok := errors.AsType[*refusalError](err); ok {
			made.dropped = append(made.dropped, dropped{i, refusal.reason, refusal.Error()})
			continue
		}
		made.routes = append(made.routes, routes...)
	}
	return made
}

// refusalError is why a rule is not served, as a reason of the condition Accepted.
type refusalError struct{ reason, message string }

// Error implements error.
func (e *refusalError) Error() string { return e.message }

func refuse(reason, format string, args ...any) error {
	return &refusalError{reason, fmt.Sprintf(format, args...)}
}

// ruler compiles a rule.
type ruler struct {
	view  *cluster.View
	route *cluster.Route
	rules *rules
}

// compile completes a Rule, and returns its routes. Its error is a refusalError.
func (r *ruler) compile(rule *table.Rule, from *cluster.RouteRule) (routes []table.Route, err error) {
	for _, u := range from.Unknown {
		return nil, refuse("UnsupportedValue", "%s: %q is not supported", u.Field, u.Value)
	}
	if rule.Actions, err = r.actions(from.Filters); err != nil {
		return nil, err
	}
	rule.Request, rule.BackendRequest = from.Request.Limit, from.BackendRequest.Limit
	for i := range from.Backends {
		b, err := r.backend(&from.Backends[i])
		if err != nil {
			return nil, err
		}
		rule.Backends = append(rule.Backends, b)
	}
	if slices.ContainsFunc(from.Filters, func(f cluster.Filter) bool { return f.Type == cluster.ExtensionRef }) {
		rule.Status, rule.Reason = 500, "unknown filter"
	}
	for i := range from.Matches {
		m, err := match(&from.Matches[i])
		if err != nil {
			return nil, err
		}
		routes = append(routes, table.Route{Match: m, Rule: rule})
	}
	return routes, nil
}

// pathKinds are the kinds of matches of paths.
var pathKinds = map[cluster.PathType]table.PathKind{
	cluster.PathExact: table.Exact, cluster.PathPathPrefix: table.Prefix, cluster.PathRegularExpression: table.Expression,
}

// match compiles a match.
func match(from *cluster.RouteMatch) (m table.Match, err error) {
	kind, ok := pathKinds[from.Path.Type]
	if !ok {
		return m, refuse("UnsupportedValue", "path type %s is not supported", from.Path.Type)
	}
	m = table.Match{Kind: kind, Path: from.Path.Value, Method: from.Method}
	if kind == table.Expression {
		m.Whole, err = table.CompileWhole(m.Path)
	} else {
		m.Path, err = table.Normalize(m.Path)
	}
	if err != nil {
		return m, refuse("UnsupportedValue", "path %q: %v", from.Path.Value, err)
	}
	if m.Headers, err = values(from.Headers, textproto.CanonicalMIMEHeaderKey); err != nil {
		return m, err
	}
	m.Query, err = values(from.Query, func(name string) string { return name })
	return m, err
}

// values compiles conditions for headers or parameters, of which the first of each name counts.
func values(from []cluster.ValueMatch, canonical func(string) string) (all []table.Value, err error) {
	for _, f := range from {
		v := table.Value{Name: canonical(f.Name), Text: f.Value}
		if slices.ContainsFunc(all, func(o table.Value) bool { return o.Name == v.Name }) {
			continue
		}
		if f.Regex {
			if v.Expression, err = table.CompileWhole(f.Value); err != nil {
				return nil, refuse("UnsupportedValue", "%s: %v", f.Name, err)
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// actions compiles filters.
func (r *ruler) actions(filters []cluster.Filter) (a table.Actions, err error) {
	for i := range filters {
		switch f := &filters[i]; f.Type {
		case cluster.RequestHeaderModifier:
			a.Request = headerChange(f.Headers)
		case cluster.ResponseHeaderModifier:
			a.Response = headerChange(f.Headers)
		case cluster.RequestRedirect:
			a.Redirect = &table.Redirect{
				Scheme: f.Redirect.Scheme, Host: f.Redirect.Hostname, Port: f.Redirect.Port,
				Path: pathChange(f.Redirect.Path), Status: cmp.Or(f.Redirect.Status, 302),
			}
		case cluster.URLRewrite:
			a.Rewrite = &table.Rewrite{Host: f.Rewrite.Hostname, Path: pathChange(f.Rewrite.Path)}
		case cluster.RequestMirror:
			up, problem := r.upstream(&f.Mirror.Backend)
			if problem != nil {
				r.unresolved(problem)
				continue // the request itself is served (HTTPRequestMirrorFilter.backendRef)
			}
			a.Mirrors = append(a.Mirrors, table.Mirror{
				Upstream: up, Numerator: uint32(f.Mirror.Numerator), Denominator: uint32(f.Mirror.Denominator),
			})
		case cluster.CORSFilter:
			a.CORS = &table.CORS{
				Origins: f.CORS.Origins, Credentials: f.CORS.Credentials, Methods: f.CORS.Methods,
				Headers: f.CORS.Headers, Expose: f.CORS.Expose, MaxAge: f.CORS.MaxAge,
			}
		case cluster.ExtensionRef:
			r.unresolved(new(no(resolvedRefs, "InvalidKind", "filters of type ExtensionRef are not supported")))
		default:
			return a, refuse("UnsupportedValue", "filter type %s is not supported", f.Type)
		}
	}
	if a.Redirect != nil && a.Rewrite != nil {
		return a, refuse("IncompatibleFilters", "RequestRedirect and URLRewrite exclude each other")
	}
	return a, nil
}

func headerChange(from *cluster.HeaderModifier) *table.HeaderChange {
	fields := func(all []cluster.Header) (made []table.Field) {
		for _, h := range all {
			made = append(made, table.Field{Name: textproto.CanonicalMIMEHeaderKey(h.Name), Value: h.Value})
		}
		return made
	}
	change := &table.HeaderChange{Set: fields(from.Set), Add: fields(from.Add)}
	for _, name := range from.Remove {
		change.Remove = append(change.Remove, textproto.CanonicalMIMEHeaderKey(name))
	}
	return change
}

func pathChange(from *cluster.PathModifier) *table.PathChange {
	if from == nil {
		return nil
	}
	return &table.PathChange{Prefix: from.Prefix, To: from.Value}
}

// backend compiles a backend. One that is invalid keeps its share of the requests.
func (r *ruler) backend(from *cluster.RouteBackend) (b table.Backend, err error) {
	b.Weight = uint32(from.Weight)
	if b.Actions, err = r.actions(from.Filters); err != nil {
		return b, err
	}
	up, problem := r.upstream(&from.BackendRef)
	if problem != nil {
		r.unresolved(problem)
		b.Reason = table.Reason(problem.Message)
		return b, nil
	}
	b.Upstream = up
	return b, nil
}

// unresolved keeps the first reference that leads nowhere.
func (r *ruler) unresolved(c *cluster.Condition) { r.rules.unresolved = cmp.Or(r.rules.unresolved, c) }

// upstream returns the port of a Service that a reference leads to, or the condition ResolvedRefs that
// says why it leads nowhere.
func (r *ruler) upstream(ref *cluster.BackendRef) (up table.Upstream, problem *cluster.Condition) {
	fail := func(reason, format string, args ...any) (table.Upstream, *cluster.Condition) {
		return up, new(no(resolvedRefs, reason, fmt.Sprintf(format, args...)))
	}
	key, ok := ref.Core(cluster.KindService)
	if !ok {
		return fail("InvalidKind", "backend of kind %s is not a Service", ref.Kind)
	}
	if key.Namespace != r.route.Namespace {
		r.rules.foreign = append(r.rules.foreign, key.Namespace)
		if !granted(r.view, httpRoute, r.route.Namespace, &ref.ObjectRef) {
			return fail("RefNotPermitted", "no ReferenceGrant in namespace %s allows Service %s", key.Namespace, key.Name)
		}
	}
	s := r.view.Service(key)
	if s == nil {
		return fail("BackendNotFound", "Service %s does not exist", key)
	}
	i := slices.IndexFunc(s.Ports, func(p cluster.Port) bool { return p.Number == ref.Port && p.Protocol == cluster.TCP })
	switch {
	case s.ExternalName != "":
		return fail("BackendNotFound", "Service %s is of type ExternalName, which is not supported", key)
	case i < 0:
		return fail("BackendNotFound", "Service %s has no TCP port %d", key, ref.Port)
	case !spoken(s, i):
		return fail("UnsupportedProtocol", "port %d of Service %s has appProtocol %s", ref.Port, key, appProtocol(s, i))
	}
	return newUpstream(s, i), nil
}

// newUpstream returns a port of a Service.
func newUpstream(s *cluster.Service, port int) table.Upstream {
	up := table.Upstream{Namespace: s.Namespace, Service: s.Name, Port: s.Ports[port].Number}
	if appProtocol(s, port) == "kubernetes.io/h2c" {
		up.Protocol = table.H2C
	}
	return up
}

// spoken reports whether requests can be sent to a port of a Service (KEP-3726, appProtocol). What has no
// prefix is a name of IANA's, and what is unknown is taken for HTTP.
func spoken(s *cluster.Service, port int) bool {
	return !slices.Contains([]string{"https", "tls", "kubernetes.io/wss"}, appProtocol(s, port))
}

// appProtocol returns that of a port of a Service; empty if it has none.
func appProtocol(s *cluster.Service, port int) string {
	if s.Spec == nil || s.Spec.AppProtocols == nil || s.Spec.AppProtocols[port] == nil {
		return ""
	}
	return *s.Spec.AppProtocols[port]
}

// granted reports whether a ReferenceGrant allows objects of a kind in a namespace to refer to another
// object.
func granted(v *cluster.View, from cluster.GroupKind, namespace string, to *cluster.ObjectRef) bool {
	grants := cluster.GrantsByNamespace.Get(v, to.Namespace)
	return slices.ContainsFunc(grants, func(g *cluster.ReferenceGrant) bool { return g.Allows(from, namespace, to) })
}
