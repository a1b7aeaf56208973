package translate

import (
	"fmt"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/annotation"
)

// maxRules is how many rules a route can have (HTTPRouteSpec.rules), and maxMatches how many matches a rule.
const maxRules, maxMatches = 16, 64

// ingress translates what an Ingress has of a host.
func (t *translator) ingress(h *host, s *source) {
	var rules []any
	matches := []any{}
	var root []any
	if h.AppRoot != "" && s.Settings.AppRoot == h.AppRoot && h.ClosedBy == nil {
		m := Object{"path": Object{"type": "Exact", "value": "/"}}
		matches = append(matches, m)
		root = []any{Object{"matches": []any{m}, "filters": []any{redirectTo(Object{
			"path": fullPath(h.AppRoot), "statusCode": 302,
		})}}}
	}
	slash := false
	for i := range h.Locations {
		l := &h.Locations[i]
		if l.Of != s.Ingress {
			continue
		}
		slash = slash || l.Text == "/"
		made, first := t.rules(h, l)
		rules, matches = append(rules, made...), append(matches, first)
	}
	if s.Spec.Default != nil && !slash && len(rules) > 0 {
		rules = append(rules, t.rest(h, s))
	}
	if len(rules)+len(root) == 0 {
		return
	}
	base := s.Key.Name
	if several(s) && h.Name != "" {
		base += "-" + strings.ReplaceAll(strings.Replace(h.Name, "*", "any", 1), ".", "-")
	}
	which := "all"
	if t.redirects(h, s) {
		which = "tls"
		t.route(h, s, routeOf{base + "-to-https", "http", redirectRules(matches), h.hostnames})
	}
	t.route(h, s, routeOf{base + "-app-root", which, root, h.hostnames}) // which no policy restricts
	s.routes = append(s.routes, t.route(h, s, routeOf{base, which, rules, h.hostnames})...)
	t.www(h, s, base)
}

// several reports whether an Ingress has rules for several hosts.
func several(s *source) bool {
	for i := range s.Spec.Rules {
		if s.Spec.Rules[i].Host != s.Spec.Rules[0].Host {
			return true
		}
	}
	return false
}

// redirects reports whether requests over HTTP are redirected.
func (t *translator) redirects(h *host, s *source) bool {
	switch {
	case h.listener != nil:
		redirects := s.Settings.SSLRedirect || s.Settings.ForceSSLRedirect
		if _, said := s.notes["ssl-redirect"]; redirects && !said && !s.Settings.KeepSlash {
			s.noteField(
				"spec.tls",
				annotation.Differs,
				"redirects to HTTPS keep a slash at the end, which ingress-nginx removes",
			)
		}
		return redirects
	case s.Settings.ForceSSLRedirect:
		s.noteIf("force-ssl-redirect", annotation.Missing,
			h.Name+" has no tls: redirect where TLS ends, such as in the "+
				"load balancer, since a route cannot look at X-Forwarded-Proto")
	}
	return false
}

// redirectRules redirect all matches to HTTPS.
func redirectRules(matches []any) (rules []any) {
	for n := 0; n < len(matches); n += maxMatches {
		rules = append(rules, Object{
			"matches": matches[n:min(n+maxMatches, len(matches))],
			"filters": []any{redirectTo(Object{"scheme": "https", "statusCode": 308})},
		})
	}
	return rules
}

// redirectTo returns a filter.
func redirectTo(to Object) Object { return Object{"type": "RequestRedirect", "requestRedirect": to} }

// fullPath replaces a path.
func fullPath(path string) Object { return Object{"type": "ReplaceFullPath", "replaceFullPath": path} }

// routeOf is a route to be made: which listeners it is for, http, tls or all, and its rules.
type routeOf struct {
	name, which string
	rules       []any
	hostnames   []string
}

// route makes the HTTPRoutes of an Ingress, each with as many rules as it can have, and returns their names.
func (t *translator) route(h *host, s *source, r routeOf) (names []string) {
	for n := 0; n < len(r.rules); n += maxRules {
		name := limit(r.name, 240)
		for number := 2; s.names[name]; number++ {
			name = fmt.Sprintf("%s-%d", limit(r.name, 240), number)
		}
		s.names[name] = true
		spec := Object{"parentRefs": t.parents(h, r.which), "rules": r.rules[n:min(n+maxRules, len(r.rules))]}
		if r.hostnames != nil {
			spec["hostnames"] = r.hostnames
		}
		key := cluster.Key{Namespace: s.Key.Namespace, Name: name}
		t.routes = append(t.routes, Object{"apiVersion": api, "kind": "HTTPRoute", "metadata": meta(key),
			"spec": spec})
		names = append(names, name)
	}
	return names
}

// www redirects from the other name of a host, with or without www.
func (t *translator) www(h *host, s *source, base string) {
	if !s.Settings.WWW || h.Name == "" || strings.HasPrefix(h.Name, "*") {
		return
	}
	other, has := strings.CutPrefix(h.Name, "www.")
	if !has {
		other = "www." + h.Name
	}
	_, alias := t.aliases[other]
	if _, own := t.hosts[other]; own || alias {
		s.noteIf("from-to-www-redirect", annotation.Done, other+" has rules of its own")
		return
	}
	t.aliases[other] = h.Name
	t.route(h, s, routeOf{base + "-www", "http", []any{Object{"filters": []any{redirectTo(Object{
		"hostname": h.Name, "statusCode": 308,
	})}}}, []string{other}})
}

// catchAll translates the default backend of an Ingress without rules.
func (t *translator) catchAll(s *source) {
	if s.Spec.Default == nil || len(s.Spec.Rules) > 0 || s.Settings.Canary != nil {
		return
	}
	h := &host{Host: &annotation.Host{}}
	s.routes = append(s.routes, t.route(h, s, routeOf{s.Key.Name, "all", []any{t.rest(h, s)}, nil})...)
}

// rest returns the rule of the default backend of an Ingress.
func (t *translator) rest(h *host, s *source) Object {
	if t.closed(h, s) {
		return Object{}
	}
	return Object{"backendRefs": t.backends(s, s.Spec.Default, 0)}
}
