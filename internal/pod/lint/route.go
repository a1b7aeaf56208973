package lint

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/suggest"
)

// routeChecker checks an HTTPRoute.
type routeChecker struct {
	*reporter
	route *cluster.Route
	// at are the listeners that accept it. unknown: a parent is not in the model, and may accept it, too.
	at      []*cluster.Listener
	unknown bool
	// ours: a parent is served by our gateway.
	ours bool
}

// CheckRoute checks the parents, matches, redirects and backends of an HTTPRoute.
func (c *Linter) CheckRoute(r *cluster.Route) []Finding {
	j := routeChecker{reporter: c.reporterFor(r.Kind, r.Key), route: r}
	if r.Spec == nil || !j.loaded(routeKinds...) {
		return nil
	}
	j.parents()
	j.hostnames()
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		field := "spec.rules" + at(i)
		j.paths(field, rule)
		j.redirects(field, rule)
		j.backends(field, rule)
	}
	for _, s := range c.routing().shadows[r.Ref()] {
		j.shadowed("spec.rules"+at(s.Index), &s)
	}
	return j.found()
}

// shadowed reports a match that never serves.
func (j *reporter) shadowed(field string, s *compile.Shadow) {
	by, fix := s.By.String()+", which is older, has the same match", "change one of the matches, or remove the rule"
	if s.By == s.Route {
		by = "an earlier rule of it has the same match"
	}
	j.add(RouteShadowed, field, fix, "%s for %s: the rule never serves it", by, cmp.Or(s.Hostname, "any host"))
}

// parents checks that the parents of the route accept it.
func (j *routeChecker) parents() {
	type refusal struct{ field, fix, message string }
	var refusals []refusal
	for i := range j.route.Spec.Parents {
		p := &j.route.Spec.Parents[i]
		fix, message := j.parent(p)
		if message != "" {
			refusals = append(refusals, refusal{"spec.parentRefs" + at(i), fix, message})
		}
	}
	for _, r := range refusals {
		severity := Error
		if len(j.at) > 0 || j.unknown {
			severity = Warning
		}
		j.addAs(severity, RouteNotAccepted, r.field, r.fix, "%s", r.message)
	}
}

// parent checks that a parent accepts the route. message is why it does not; empty if it does, or if that is not
// known.
func (j *routeChecker) parent(p *cluster.ParentRef) (fix, message string) {
	gw, listeners := j.parentListeners(p)
	if gw == nil {
		return j.noParent(p)
	}
	ours := j.isOurs(gw)
	j.ours = j.ours || ours
	named := slices.DeleteFunc(slices.Clone(listeners), func(l *cluster.Listener) bool {
		return p.Section != "" && p.Section != l.Name || p.Port != 0 && p.Port != l.Port
	})
	for _, v := range j.routing().any.Routes[j.route.Ref()] {
		if v.Parent != *p {
			continue
		}
		for _, c := range v.Conditions {
			switch {
			case c.Type == "Accepted" && c.Status == "True":
				j.at = append(j.at, named...)
			case c.Type == "Accepted":
				return j.refused(p, c, named, ours)
			case c.Type == "PartiallyInvalid" && c.Status == "True" && ours:
				return "correct the rule", "a rule is not served: " + c.Message
			}
		}
	}
	return "", ""
}

// parentListeners returns the Gateway that a parent is or belongs to, nil if that is not in the model, and the
// parent's listeners.
func (j *routeChecker) parentListeners(p *cluster.ParentRef) (gw *cluster.Frontend, all []*cluster.Listener) {
	key := cluster.Key{Namespace: p.Namespace, Name: p.Name}
	var of []cluster.Listener
	switch {
	case p.Group != gatewayGroup:
		return nil, nil
	case p.Kind == cluster.KindGateway.String():
		if gw = cluster.Gateways.Get(j.View, key); gw != nil && gw.Gateway != nil {
			of = gw.Gateway.Listeners
		}
	case p.Kind == cluster.KindListenerSet.String():
		s := cluster.ListenerSets.Get(j.View, key)
		if s == nil {
			return nil, nil
		}
		of = s.Listeners
		gw = cluster.Gateways.Get(j.View, cluster.Key{Namespace: s.Parent.Namespace, Name: s.Parent.Name})
	}
	for i := range of {
		all = append(all, &of[i])
	}
	return gw, all
}

// noParent says that a parent does not exist. Manifests need not have it, and others than those of Gateway API are
// not known.
func (j *routeChecker) noParent(p *cluster.ParentRef) (fix, message string) {
	kind, known := cluster.KindOf(p.Kind)
	if p.Group != gatewayGroup || !known || j.View.Object(kind, cluster.Key{Namespace: p.Namespace, Name: p.Name}) != nil {
		j.unknown = true // of a ListenerSet, the Gateway is missing
		return "", ""
	}
	var names []string
	for o := range j.View.Objects(kind) {
		if key := o.Ref().Key; key.Namespace == p.Namespace {
			names = append(names, key.Name)
		}
	}
	slices.Sort(names)
	near := suggest.Closest(p.Name, names)
	if near == "" && !j.Observed || j.unread(kind, p.Namespace) {
		j.unknown = true
		return "", ""
	}
	fix = "name a " + p.Kind + " that exists"
	if near != "" {
		fix = "write " + near
	}
	return fix, fmt.Sprintf("%s %s/%s does not exist%s: it does not serve the route", p.Kind, p.Namespace, p.Name,
		didYouMean(near))
}

// refused says why a parent does not accept the route. What is up to its controller is said of our gateway only.
func (j *routeChecker) refused(
	p *cluster.ParentRef, c cluster.Condition, named []*cluster.Listener, ours bool,
) (fix, message string) {
	name := fmt.Sprintf("%s %s/%s", p.Kind, p.Namespace, p.Name)
	switch c.Reason {
	case "NoMatchingParent":
		what := strings.TrimSpace(p.Section)
		if p.Port != 0 {
			what = strings.TrimSpace(what + " at port " + strconv.Itoa(int(p.Port)))
		}
		return "correct sectionName and port", fmt.Sprintf("%s has no listener %s: it does not serve the route", name, what)
	case "NotAllowedByListeners":
		if !j.Observed && slices.ContainsFunc(named, func(l *cluster.Listener) bool {
			return l.Namespaces.From == cluster.FromSelector && len(labelsOf(j.View, j.route.Namespace)) == 0
		}) {
			j.unknown = true // the cluster may have labels that the manifests lack
		}
		return "let allowedRoutes of the listener select the namespace and the kind",
			fmt.Sprintf("no listener of %s allows %ss from namespace %s: it does not serve the route", name, j.route.Kind,
				j.route.Namespace)
	case "NoMatchingListenerHostname":
		var hostnames []string
		for _, l := range named {
			hostnames = append(hostnames, l.Hostname)
		}
		return "give the route a hostname that the listener has",
			fmt.Sprintf("none of its hostnames is one of %s, which has %s: it does not serve the route", name,
				firstFew(hostnames))
	}
	if !ours {
		j.unknown = true
		return "", ""
	}
	return "correct the route", fmt.Sprintf("%s does not accept it: %s", name, c.Message)
}

// labelsOf returns the labels of a namespace but the one that all have.
func labelsOf(v *cluster.View, namespace string) (names []string) {
	n := v.Namespace(namespace)
	if n == nil {
		return nil
	}
	for name := range n.Labels {
		if name != namespaceLabel {
			names = append(names, name)
		}
	}
	return names
}

// hostnames checks that a listener has each of the route's hostnames.
func (j *routeChecker) hostnames() {
	if len(j.at) == 0 || j.unknown {
		return
	}
	for i, h := range j.route.Hosts {
		if slices.ContainsFunc(j.at, func(l *cluster.Listener) bool { return haveInCommon(l.Hostname, h) }) {
			continue
		}
		var hostnames []string
		for _, l := range j.at {
			if !slices.Contains(hostnames, l.Hostname) {
				hostnames = append(hostnames, l.Hostname)
			}
		}
		j.add(RouteNeverMatches, "spec.hostnames"+at(i), "remove it, or let a listener have it",
			"no listener of the route has the hostname %s; they have %s", h, firstFew(hostnames))
	}
}

// paths checks the matches of a rule.
func (j *routeChecker) paths(field string, rule *cluster.RouteRule) {
	for i := range rule.Matches {
		m := &rule.Matches[i]
		in := field + ".matches" + at(i)
		kind, err := compile.MatchOf(m)
		if err != nil {
			continue
		}
		j.path(in+".path.value", m.Path.Value, kind.Kind)
		if kind.Kind == table.Exact && j.trailingSlash(m.Path.Value, j.serves) {
			j.slash(in+".path.value", m.Path.Value)
		}
		if m.Method == http.MethodConnect && j.ours {
			j.add(RouteNeverMatches, in+".method", "remove the match", "the gateway serves no request with the method CONNECT")
		}
	}
}

// path reports a path that no request has.
func (j *reporter) path(field, path string, kind table.PathKind) {
	add := func(fix, why string) {
		j.add(RouteNeverMatches, field, fix, "no request has the path %s: %s", path, why)
	}
	if kind == table.Expression {
		m, err := regexp.Compile(strings.TrimPrefix(path, "^"))
		if err != nil {
			return
		}
		if prefix, _ := m.LiteralPrefix(); prefix != "" && prefix[0] != '/' {
			add("let it begin with a slash", "a regular expression must match all of it, with the slash at the beginning")
		}
		return
	}
	switch {
	case strings.ContainsAny(path, "?"):
		add("match parameters in queryParams, or write the path alone", "the query is no part of it")
	case strings.ContainsAny(path, "#"):
		add("write the path alone", "clients do not send the fragment")
	case strings.Contains(path, "*"):
		add("leave the asterisk out: a prefix matches all paths below it", "an asterisk is no wildcard")
	}
}

// trailingSlash reports whether an exact path ends in a slash, and nothing serves it without.
func (j *reporter) trailingSlash(path string, serves func(path string) bool) bool {
	bare := strings.TrimSuffix(path, "/")
	return bare != path && bare != "" && !serves(bare)
}

// slash reports that an exact path ends in a slash.
func (j *reporter) slash(field, path string) {
	j.add(PathTrailingSlash, field, "match the prefix instead, or also the path "+strings.TrimSuffix(path, "/"),
		"the slash at the end counts: no rule serves %s", strings.TrimSuffix(path, "/"))
}

// serves reports whether a match of the route is that of a path.
func (j *routeChecker) serves(path string) bool {
	for i := range j.route.Spec.Rules {
		for k := range j.route.Spec.Rules[i].Matches {
			if m, err := compile.MatchOf(&j.route.Spec.Rules[i].Matches[k]); err == nil && m.OnPath(path) {
				return true
			}
		}
	}
	return false
}

// redirects checks that the redirect of a rule leads elsewhere, at each listener of the route.
func (j *routeChecker) redirects(field string, rule *cluster.RouteRule) {
	for i := range rule.Filters {
		f := &rule.Filters[i]
		if f.Type != cluster.RequestRedirect || f.Redirect == nil {
			continue
		}
		for _, l := range j.at {
			for k := range rule.Matches {
				if from := j.leadsToItself(f.Redirect, l, &rule.Matches[k]); from != "" {
					j.add(RedirectLoop, field+".filters"+at(i)+".requestRedirect",
						"attach the route to the other listeners only, by sectionName in parentRefs",
						"at listener %s it redirects %s to itself", l.Name, from)
					return
				}
			}
		}
	}
}

// leadsToItself returns a URL at a listener that a redirect leads to itself; empty if there is none, or none that
// is known.
func (j *routeChecker) leadsToItself(r *cluster.Redirect, l *cluster.Listener, of *cluster.RouteMatch) string {
	m, err := compile.MatchOf(of)
	scheme := map[cluster.ListenerProtocol]string{cluster.HTTPProtocol: "http", cluster.HTTPSProtocol: "https"}[l.Protocol]
	if err != nil || m.Kind == table.Expression || scheme == "" {
		return ""
	}
	redirect := table.Redirect{Scheme: r.Scheme, Host: r.Hostname, Port: r.Port}
	if r.Path != nil {
		redirect.Path = &table.PathChange{Prefix: r.Path.Prefix, To: r.Path.Value}
	}
	hosts := j.route.Hosts
	if len(hosts) == 0 {
		hosts = []string{l.Hostname}
	}
	for _, host := range hosts {
		if !haveInCommon(l.Hostname, host) {
			continue
		}
		if strings.HasPrefix(host, "*") && !strings.HasPrefix(l.Hostname, "*") && l.Hostname != "" {
			host = l.Hostname
		}
		host = cmp.Or(strings.Replace(host, "*", "a", 1), "shop.example")
		from := table.Target{Scheme: scheme, Host: host, Port: l.Port, Path: m.Path}
		same := (&table.Redirect{}).Location(&from, &m)
		if redirect.Location(&from, &m) == same {
			return same
		}
	}
	return ""
}

// backends checks the backends of a rule, and its mirrors.
func (j *routeChecker) backends(field string, rule *cluster.RouteRule) {
	if !j.loaded(cluster.KindService) {
		return
	}
	for i := range rule.Filters {
		if m := rule.Filters[i].Mirror; m != nil {
			j.backend(field+".filters"+at(i)+".requestMirror.backendRef", &m.Backend, "requests are not copied")
		}
	}
	for i := range rule.Backends {
		b := &rule.Backends[i]
		j.backend(field+".backendRefs"+at(i), &b.BackendRef, "its share of the requests is answered with 500")
		for k := range b.Filters {
			if m := b.Filters[k].Mirror; m != nil {
				j.backend(field+".backendRefs"+at(i)+".filters"+at(k)+".requestMirror.backendRef", &m.Backend,
					"requests are not copied")
			}
		}
	}
}

// backend checks a reference to a port of a Service.
func (j *routeChecker) backend(field string, ref *cluster.BackendRef, consequence string) {
	key, isService := ref.Core(cluster.KindService)
	if !isService || j.notGranted(field, &ref.ObjectRef) {
		return
	}
	s := j.View.Service(key)
	if s == nil {
		j.missingService(RouteBackendMissing, field+".name", key, consequence)
		return
	}
	if s.ExternalName != "" {
		if j.ours {
			j.add(RouteBackendMissing, field+".name", "name a Service of type ClusterIP",
				"Service %s is of type ExternalName, to which the gateway sends no requests: %s", key, consequence)
		}
		return
	}
	has := func(p cluster.Port) bool { return p.Number == ref.Port && p.Protocol == cluster.TCP }
	if !slices.ContainsFunc(s.Ports, has) {
		j.add(RouteBackendMissing, field+".port", "write a port of the Service, or add this one to it",
			"Service %s has no TCP port %d: %s; its ports are %s", key, ref.Port, consequence, servicePorts(s))
	}
}
