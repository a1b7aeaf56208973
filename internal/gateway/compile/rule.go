package compile

import (
	"cmp"
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// rules is what the rules of a route are compiled into.
type rules struct {
	routes []table.Route
	// dropped are rules that are not served.
	dropped []dropped
	// unresolved is the first reference that leads nowhere; nil if all lead somewhere.
	unresolved *cluster.Condition
	// notes are what users should know of rules that are served.
	notes []string
	// foreign are the other namespaces that the rules refer to.
	foreign []string
}

// dropped is why a rule is not served.
type dropped struct {
	index           int
	reason, message string
}

// compileRules compiles the rules of a route.
func (c *Config) compileRules(v *cluster.View, r *cluster.Route) *rules {
	made, guards := new(rules), newGuards(v, r)
	for i := range r.Spec.Rules {
		rule := &table.Rule{Object: r.Ref().String(), Index: i, Name: r.Spec.Rules[i].Name}
		ruler := ruler{cfg: c, view: v, route: r, rules: made}
		routes, err := ruler.compile(rule, &r.Spec.Rules[i])
		if refusal, ok := errors.AsType[*refusalError](err); ok {
			made.dropped = append(made.dropped, dropped{i, refusal.reason, refusal.Error()})
			continue
		}
		demand := guards.of(rule.Name)
		demand.apply(rule)
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
	cfg   *Config
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
	if err = r.experimental(rule, from); err != nil {
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
	if extended(from.Filters) {
		rule.Status, rule.Reason = 500, unknownFilter
	}
	if protocol := streamProtocols[r.route.Kind]; protocol != table.HTTP1 {
		return []table.Route{{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: rule}}, nil // all of its listener's
	}
	for i := range from.Matches {
		m, err := r.match(&from.Matches[i])
		if err != nil {
			return nil, err
		}
		if m.Kind != table.Prefix && replacesPrefix(rule) {
			return nil, refuse("UnsupportedValue", "ReplacePrefixMatch needs matches of type PathPrefix")
		}
		routes = append(routes, table.Route{Match: m, Rule: rule})
	}
	return routes, nil
}

// unknownFilter is the Reason of what has a filter of another API. It must not be skipped (HTTPRouteFilter.type).
const unknownFilter table.Reason = "unknown filter"

// extended reports whether there is a filter of another API.
func extended(filters []cluster.Filter) bool {
	return slices.ContainsFunc(filters, func(f cluster.Filter) bool { return f.Type == cluster.ExtensionRef })
}

// replacesPrefix reports whether a rule or a backend of it replaces the prefix that matched, of which there is none
// with matches of other kinds (HTTPPathModifier.replacePrefixMatch).
func replacesPrefix(rule *table.Rule) bool {
	prefix := func(a *table.Actions) bool {
		return a.Rewrite != nil && a.Rewrite.Path != nil && a.Rewrite.Path.Prefix ||
			a.Redirect != nil && a.Redirect.Path != nil && a.Redirect.Path.Prefix
	}
	ofBackend := func(b table.Backend) bool { return prefix(&b.Actions) }
	return prefix(&rule.Actions) || slices.ContainsFunc(rule.Backends, ofBackend)
}

// pathKinds are the kinds of matches of paths.
var pathKinds = map[cluster.PathType]table.PathKind{
	cluster.PathExact: table.Exact, cluster.PathPathPrefix: table.Prefix, cluster.PathRegularExpression: table.Expression,
}

// match compiles a match.
func (r *ruler) match(from *cluster.RouteMatch) (table.Match, error) {
	if r.route.Kind == cluster.KindGRPCRoute {
		return rpcMatch(from)
	}
	return match(from)
}

// match compiles a match of an HTTPRoute.
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
		f := &filters[i]
		repeated := slices.ContainsFunc(filters[:i], func(o cluster.Filter) bool { return o.Type == f.Type })
		if repeated && f.Type != cluster.RequestMirror && f.Type != cluster.ExtensionRef {
			return a, refuse("IncompatibleFilters", "there is more than one %s", f.Type)
		}
		if err := r.action(f, &a); err != nil {
			return a, err
		}
	}
	if a.Redirect != nil && a.Rewrite != nil {
		return a, refuse("IncompatibleFilters", "RequestRedirect and URLRewrite exclude each other")
	}
	return a, nil
}

// action adds what a filter does.
func (r *ruler) action(f *cluster.Filter, a *table.Actions) (err error) {
	switch f.Type {
	case cluster.RequestHeaderModifier:
		a.Request, err = headerChange(f)
	case cluster.ResponseHeaderModifier:
		a.Response, err = headerChange(f)
	case cluster.RequestRedirect:
		a.Redirect = &table.Redirect{
			Scheme: f.Redirect.Scheme, Host: f.Redirect.Hostname, Port: f.Redirect.Port, Status: cmp.Or(f.Redirect.Status, 302),
		}
		a.Redirect.Path, err = pathChange(f.Redirect.Path)
	case cluster.URLRewrite:
		a.Rewrite = &table.Rewrite{Host: f.Rewrite.Hostname}
		a.Rewrite.Path, err = pathChange(f.Rewrite.Path)
	case cluster.RequestMirror:
		up, problem := r.upstream(&f.Mirror.Backend)
		if problem != nil {
			r.unresolved(problem)
			return nil // the request itself is served (HTTPRequestMirrorFilter.backendRef)
		}
		a.Mirrors = append(a.Mirrors, table.Mirror{
			Upstream: up, Numerator: uint32(f.Mirror.Numerator), Denominator: uint32(f.Mirror.Denominator),
		})
	case cluster.CORSFilter:
		a.CORS = &table.CORS{
			Origins: f.CORS.Origins, Credentials: f.CORS.Credentials, Methods: f.CORS.Methods,
			Headers: f.CORS.Headers, Expose: f.CORS.Expose, MaxAge: f.CORS.MaxAge,
		}
	case cluster.ExternalAuthFilter: // see experimental
	case cluster.ExtensionRef:
		message := fmt.Sprintf("filter %s %s is not supported", f.Extension.Kind, f.Extension.Name)
		r.unresolved(new(no(resolvedRefs, "InvalidKind", message)))
	default:
		return refuse("UnsupportedValue", "filter type %s is not supported", f.Type)
	}
	return err
}

// headerChange compiles changes of headers. Of several of a list for one header the first counts
// (HTTPHeader.name); those of different lists exclude each other (HTTPHeaderFilter).
func headerChange(f *cluster.Filter) (*table.HeaderChange, error) {
	var names []string
	change := new(table.HeaderChange)
	fields := func(all []cluster.Header) (made []table.Field) {
		for _, h := range all {
			name := textproto.CanonicalMIMEHeaderKey(h.Name)
			if !slices.ContainsFunc(made, func(o table.Field) bool { return o.Name == name }) {
				made, names = append(made, table.Field{Name: name, Value: h.Value}), append(names, name)
			}
		}
		return made
	}
	change.Set, change.Add = fields(f.Headers.Set), fields(f.Headers.Add)
	for _, name := range f.Headers.Remove {
		if name = textproto.CanonicalMIMEHeaderKey(name); !slices.Contains(change.Remove, name) {
			change.Remove, names = append(change.Remove, name), append(names, name)
		}
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, refuse("UnsupportedValue", "%s changes header %s in more than one way", f.Type, name)
		}
	}
	return change, nil
}

// pathChange compiles a change of the path; nil for none. What replaces it is a normal path, or nothing for a prefix.
func pathChange(from *cluster.PathModifier) (*table.PathChange, error) {
	if from == nil {
		return nil, nil
	}
	change := &table.PathChange{Prefix: from.Prefix}
	if from.Prefix && from.Value == "" {
		return change, nil
	}
	var err error
	if change.To, err = table.Normalize("/" + strings.TrimPrefix(from.Value, "/")); err != nil {
		return nil, refuse("UnsupportedValue", "path %q: %v", from.Value, err)
	}
	return change, nil
}

// backend compiles a backend. One that is invalid keeps its share of the requests.
func (r *ruler) backend(from *cluster.RouteBackend) (b table.Backend, err error) {
	b.Weight = uint32(from.Weight)
	if b.Actions, err = r.actions(from.Filters); err != nil {
		return b, err
	}
	if b.Redirect != nil || b.CORS != nil {
		return b, refuse(
			"UnsupportedValue",
			"filters of backendRefs that answer, RequestRedirect and CORS, are not supported",
		)
	}
	up, problem := r.upstream(&from.BackendRef)
	switch {
	case problem != nil:
		r.unresolved(problem)
		b.Reason = table.Reason(problem.Message)
	case extended(from.Filters):
		b.Reason = unknownFilter
	default:
		b.Upstream = up
	}
	return b, nil
}

// unresolved keeps the first reference that leads nowhere.
func (r *ruler) unresolved(c *cluster.Condition) {
	if c.Reason != invalidPolicy {
		r.rules.unresolved = cmp.Or(r.rules.unresolved, c)
	}
}

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
		if !granted(r.view, groupKind(r.route.Kind), r.route.Namespace, &ref.ObjectRef) {
			const message = "no ReferenceGrant in namespace %s allows %ss of namespace %s to refer to Service %s"
			return fail("RefNotPermitted", message, key.Namespace, r.route.Kind, r.route.Namespace, key.Name)
		}
	}
	s := r.view.Service(key)
	if s == nil {
		return fail("BackendNotFound", "Service %s does not exist", key)
	}
	protocol := streamProtocols[r.route.Kind]
	transport := transportProtocol(protocol)
	i := slices.IndexFunc(s.Ports, func(p cluster.Port) bool { return p.Number == ref.Port && p.Protocol == transport })
	switch {
	case s.ExternalName != "":
		return fail("BackendNotFound", "Service %s is of type ExternalName, which is not supported", key)
	case ref.Port == 0:
		return fail("BackendNotFound", "the backend Service %s has no port in the route", key)
	case i < 0:
		return fail("BackendNotFound", "Service %s has no %s port %d", key, transport, ref.Port)
	case protocol != table.HTTP1:
		up = table.Upstream{Namespace: s.Namespace, Service: s.Name, Port: ref.Port, Protocol: protocol}
		if r.route.Kind == cluster.KindTLSRoute {
			up = secureStream(r.view, up, s.Ports[i].Name)
		}
		return up, nil
	}
	up = newUpstream(s, i)
	if r.route.Kind == cluster.KindGRPCRoute {
		up.Protocol = table.H2C // gRPC needs it
	}
	var invalid string
	switch up, invalid = secure(r.view, up, s.Ports[i].Name); {
	case invalid != "":
		return fail(invalidPolicy, "%s", invalid)
	case !spoken(s, i) && !up.Secure() || r.route.Kind == cluster.KindGRPCRoute && s.AppProtocol(i) == "kubernetes.io/ws":
		return fail("UnsupportedProtocol", "port %d of Service %s has appProtocol %s", ref.Port, key, s.AppProtocol(i))
	}
	return up, nil
}

// invalidPolicy is the reason of a backend whose BackendTLSPolicy cannot be obeyed. The policy's status says so, and
// not that of the route, whose references lead somewhere.
const invalidPolicy = "InvalidPolicy"

// streamProtocols are what routes speak with backends whatever those are for; it is HTTP1 for those of requests.
var streamProtocols = map[cluster.Kind]table.Protocol{
	cluster.KindTLSRoute: table.RawTCP, cluster.KindTCPRoute: table.RawTCP, cluster.KindUDPRoute: table.RawUDP,
}

// transportProtocol returns the protocol of ports of Services where a protocol is spoken.
func transportProtocol(p table.Protocol) cluster.Protocol {
	if p.Transport() == table.UDP {
		return cluster.UDP
	}
	return cluster.TCP
}

// newUpstream returns a port of a Service.
func newUpstream(s *cluster.Service, port int) table.Upstream {
	up := table.Upstream{Namespace: s.Namespace, Service: s.Name, Port: s.Ports[port].Number}
	if s.AppProtocol(port) == "kubernetes.io/h2c" {
		up.Protocol = table.H2C
	}
	return up
}

// spoken reports whether requests can be sent to a port of a Service (KEP-3726, appProtocol). What has no
// prefix is a name of IANA's, and what is unknown is taken for HTTP.
func spoken(s *cluster.Service, port int) bool {
	return !slices.Contains([]string{"https", "tls", "kubernetes.io/wss"}, s.AppProtocol(port))
}

// granted reports whether a ReferenceGrant allows objects of a kind in a namespace to refer to another
// object.
func granted(v *cluster.View, from cluster.GroupKind, namespace string, to *cluster.ObjectRef) bool {
	grants := cluster.GrantsByNamespace.Get(v, to.Namespace)
	return slices.ContainsFunc(grants, func(g *cluster.ReferenceGrant) bool { return g.Allows(from, namespace, to) })
}
