package view

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/request"
)

// Route is a rule of a route, or a path of an Ingress, that sends requests to a Service.
type Route struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Rule is the path of the rule in the object.
	Rule string `json:"rule"`
	// URL is one that the rule may take; empty if it takes no requests, but connections.
	URL string `json:"url"`
	// State is ok, broken, or other: another controller serves it.
	State string `json:"state"`
	// Why is what is wrong with the route, or whose it is.
	Why string `json:"why,omitempty"`
}

// The states of a Route, and of a Certificate.
const (
	ok      = "ok"
	broken  = "broken"
	other   = "other"
	unknown = "unknown"
	soon    = "expiring"
	expired = "expired"
)

// rank orders routes by their states: broken ones come first.
func rank(state string) int { return slices.Index([]string{broken, ok, other}, state) }

// routesTo returns the rules and paths that send requests to a Service, the broken ones first.
func (m *Model) routesTo(s *cluster.Service) (all []Route) {
	if !m.reads(cluster.KindHTTPRoute) && !m.reads(cluster.KindIngress) {
		return nil
	}
	ref := cluster.ObjectRef{Kind: cluster.KindService.String(), Namespace: s.Namespace, Name: s.Name}
	for r := range cluster.RoutesByBackend.Get(m.View, ref) {
		all = append(all, m.routeRules(r, &ref)...)
	}
	for _, f := range cluster.IngressesByService.Get(m.View, s.Key) {
		all = append(all, m.ingressPaths(f, s.Name)...)
	}
	slices.SortStableFunc(all, func(a, b Route) int { // rules of an object stay in order
		return cmp.Or(
			cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Kind, b.Kind),
		)
	})
	return all
}

// routeRules returns the rules of a route that send requests to a Service.
func (m *Model) routeRules(r *cluster.Route, to *cluster.ObjectRef) (all []Route) {
	w := m.Gateway()
	listed := w.RouteOf(r)
	made := Route{Kind: r.Kind.String(), Namespace: r.Namespace, Name: r.Name}
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		if slices.ContainsFunc(rule.Backends, func(b cluster.RouteBackend) bool { return b.ObjectRef == *to }) {
			made.Rule, made.URL = "spec.rules["+strconv.Itoa(i)+"]", urlOf(w, r, rule)
			made.State, made.Why = stateOf(
				listed.Accepted != "", slices.Concat(listed.Problems, m.unserved(r.Ref(), made.Rule)),
			)
			all = append(all, made)
		}
	}
	return all
}

// urlOf returns a URL that a rule may take; empty if the route is for connections.
func urlOf(w *request.World, r *cluster.Route, rule *cluster.RouteRule) string {
	if r.Kind != cluster.KindHTTPRoute && r.Kind != cluster.KindGRPCRoute {
		return ""
	}
	return originOf(w, r) + pathOf(rule)
}

// routeURL returns a URL that some rule of a route may take; empty if the route has no host that is one name.
func routeURL(w *request.World, r *cluster.Route) string {
	origin := originOf(w, r)
	if _, host, _ := strings.Cut(origin, "://"); !isName(host) {
		return ""
	}
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		regex := func(match cluster.RouteMatch) bool {
			return match.RPC.Regex || match.Path.Type == cluster.PathRegularExpression
		}
		if !slices.ContainsFunc(rule.Matches[:min(len(rule.Matches), 1)], regex) {
			return origin + pathOf(rule)
		}
	}
	return origin + "/"
}

// pathOf returns a path that a rule may take.
func pathOf(rule *cluster.RouteRule) string {
	if len(rule.Matches) == 0 {
		return "/"
	}
	match := &rule.Matches[0]
	if match.RPC.Service != "" {
		return "/" + match.RPC.Service + "/" + match.RPC.Method
	}
	return cmp.Or(match.Path.Value, "/")
}

// originOf returns the scheme, the host and, unless it is the usual one, the port of a URL of a route, at a listener
// that serves it or, if none does, that its parents name. The host is one without a wildcard, if there is any.
func originOf(w *request.World, r *cluster.Route) string {
	all := w.AttachedTo(r)
	if len(all) == 0 {
		all = w.MeantBy(r)
	}
	host := hostOf(r, all)
	var best *request.Attached
	unusual := func(a *request.Attached) int {
		if _, usual := a.Scheme(); a.Port == usual {
			return 0
		}
		return 1
	}
	for i := range all {
		a := &all[i]
		if (a.Hosts == nil || slices.Contains(a.Hosts, host)) && (best == nil || unusual(a) < unusual(best)) {
			best = a
		}
	}
	host = cmp.Or(host, "*")
	if best == nil {
		return "http://" + host
	}
	return origin(best, host)
}

// origin returns the origin of URLs of a host at a listener.
func origin(a *request.Attached, host string) string {
	scheme, usual := a.Scheme()
	if a.Port != usual {
		host += ":" + strconv.Itoa(int(a.Port))
	}
	return scheme + "://" + host
}

// hostOf returns a host of a route that its listeners serve: one without a wildcard, if there is any.
func hostOf(r *cluster.Route, all []request.Attached) string {
	var hosts []string
	for _, host := range r.Hosts {
		if slices.ContainsFunc(all, func(a request.Attached) bool { return slices.Contains(a.Hosts, host) }) {
			hosts = append(hosts, host)
		}
	}
	for i := range all {
		hosts = append(hosts, all[i].Hosts...) // of a route without any, or with wildcards, those of its listeners
	}
	if len(hosts) == 0 { // nothing serves it
		hosts = append(hosts, r.Hosts...)
	}
	if i := slices.IndexFunc(hosts, isName); i >= 0 {
		return hosts[i]
	}
	return strings.Join(hosts[:min(len(hosts), 1)], "")
}

// isName reports whether a host is one name, which a URL can have.
func isName(host string) bool { return host != "" && !strings.HasPrefix(host, "*") }

// ingressPaths returns the paths of an Ingress that send requests to a Service.
func (m *Model) ingressPaths(f *cluster.Frontend, service string) (all []Route) {
	listed := m.Gateway().IngressOf(f)
	made := Route{Kind: f.Kind.String(), Namespace: f.Namespace, Name: f.Name}
	add := func(rule, url string) {
		made.Rule, made.URL = rule, url
		made.State, made.Why = stateOf(listed.Served, slices.Concat(listed.Problems, m.unserved(f.Ref(), rule)))
		all = append(all, made)
	}
	if d := f.Ingress.Default; d != nil && d.Service == service {
		add("spec.defaultBackend", origin(ingressListener(f, listed.Ports, ""), "*")+"/")
	}
	for i := range f.Ingress.Rules {
		rule := &f.Ingress.Rules[i]
		at := ingressListener(f, listed.Ports, rule.Host)
		for k := range rule.Paths {
			p := &rule.Paths[k]
			if p.Backend.Service != service {
				continue
			}
			add(
				"spec.rules["+strconv.Itoa(i)+"].http.paths["+strconv.Itoa(k)+"]",
				origin(at, cmp.Or(rule.Host, "*"))+cmp.Or(p.Path, "/"),
			)
		}
	}
	return all
}

// ingressListener returns where the requests for a host of an Ingress are served that has these ports: with TLS if the
// Ingress has a certificate for the host.
func ingressListener(f *cluster.Frontend, ports []uint16, host string) *request.Attached {
	secure := slices.ContainsFunc(
		f.Ingress.TLS,
		func(t cluster.IngressTLS) bool { return slices.Contains(t.Hosts, host) },
	)
	if secure && len(ports) > 1 {
		return &request.Attached{Port: ports[1], Protocol: cluster.HTTPSProtocol}
	}
	return &request.Attached{Port: ports[0], Protocol: cluster.HTTPProtocol}
}

// ingressURL returns a URL that an Ingress may take; empty if it has no host that is one name.
func ingressURL(f *cluster.Frontend, ports []uint16) string {
	for i := range f.Ingress.Rules {
		rule := &f.Ingress.Rules[i]
		if isName(rule.Host) && len(rule.Paths) > 0 {
			return origin(ingressListener(f, ports, rule.Host), rule.Host) + cmp.Or(rule.Paths[0].Path, "/")
		}
	}
	return ""
}

// unserved says which requests of a route or an Ingress have no endpoint: those of a rule or, if that is empty, of all,
// with the rules if they differ. Where no EndpointSlice is known at all, as in manifests of what is to be deployed,
// nothing is said of endpoints.
func (m *Model) unserved(ref cluster.Ref, rule string) (problems []string) {
	if !m.knowsEndpoints() {
		return nil
	}
	rules := make(map[string][]string)
	for _, u := range m.Gateway().UnservedOf(ref) {
		if rule != "" && u.Rule != rule {
			continue
		}
		if rules[u.Why] == nil {
			problems = append(problems, u.Why)
		}
		rules[u.Why] = append(rules[u.Why], u.Rule)
	}
	const most = 3
	for i, why := range problems {
		if of := rules[why]; rule == "" {
			problems[i] = strings.Join(of[:min(len(of), most)], ", ") + rest(len(of), most, "rule") + ": " + why
		}
	}
	return problems
}

// knowsEndpoints reports whether a Service without EndpointSlices has no endpoints, as far as is known.
func (m *Model) knowsEndpoints() bool {
	if !m.View.Loaded(cluster.KindEndpointSlice) {
		return false
	}
	if m.Linter.Observed {
		return true
	}
	for range cluster.EndpointSlices.All(m.View) {
		return true
	}
	return false
}

// stateOf returns the state of what is ours or another controller's, with its problems.
func stateOf(ours bool, problems []string) (state, why string) {
	const most = 5
	why = strings.Join(problems[:min(len(problems), most)], "; ") + rest(len(problems), most, "problem")
	switch {
	case !ours:
		return other, why
	case len(problems) > 0:
		return broken, why
	}
	return ok, ""
}
