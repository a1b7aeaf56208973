package translate

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/annotation"
)

// rules translates a location, and returns its match without headers, too.
func (t *translator) rules(h *host, l *annotation.Location) (rules []any, plain Object) {
	s := h.sources[l.Of]
	path, rewrite, ok := t.path(h, l)
	plain = Object{"path": path}
	rule := Object{}
	if filters := t.filters(s, rewrite); len(filters) > 0 {
		rule["filters"] = filters
	}
	if l.Of.Settings.Affinity != nil {
		rule["sessionPersistence"] = session(l.Of.Settings.Affinity)
	}
	with := func(backends []any, headers ...any) {
		one, match := Object{}, Object{"path": path}
		maps.Copy(one, rule)
		if len(headers) > 0 {
			match["headers"] = headers
		}
		one["matches"] = []any{match}
		if backends != nil && s.Settings.Redirect == nil {
			one["backendRefs"] = backends
		}
		rules = append(rules, one)
	}
	if !ok || t.closed(h, s) {
		delete(rule, "filters")
		with(nil)
		return rules, plain
	}
	main := t.backends(s, l.Backend, 0)
	if l.Canary == nil {
		with(main)
		return rules, plain
	}
	t.canary(h, l, with)
	return rules, plain
}

// closed reports whether no request may be served, since what restricts them is not translated.
func (t *translator) closed(h *host, s *source) bool {
	set := s.Settings
	const text = "the rules have no backends, and answer with 500, until it is done otherwise"
	switch {
	case h.ClosedBy != nil && h.ClosedBy != s.Ingress:
		s.noteField("spec.rules", annotation.Missing, h.Denied()+": "+text)
	case set.Denied != "":
		name, _, _ := strings.Cut(set.Denied, " ")
		s.note(name, annotation.Missing, set.Denied+": "+text)
	case set.External != nil:
		s.note("auth-url", annotation.Missing, "there is no filter for it in the standard channel: "+text)
	case set.Basic != nil && set.Basic.Namespace != "" && set.Basic.Namespace != s.Key.Namespace:
		s.note("auth-secret", annotation.Missing, "the Secret is in another namespace: "+text)
	case tooLong(set):
		s.noteField("spec.rules", annotation.Missing,
			fmt.Sprintf("a RoutePolicy has at most %d ranges of clients: %s", maxRanges, text))
	default:
		return false
	}
	return true
}

// canary makes the rules of a location with a canary.
func (t *translator) canary(h *host, l *annotation.Location, with func(backends []any, headers ...any)) {
	c := l.Canary.Of.Settings.Canary
	of, canary := h.sources[l.Of], h.sources[l.Canary.Of]
	main, other := t.backends(of, l.Backend, 0), t.backends(canary, l.Canary.Backend, 0)
	if of.Settings.Affinity != nil && (c.Header != "" || c.Cookie != "") {
		canary.note("canary", annotation.Differs,
			"a session holds for requests with the same header or cookie of the canary alone")
	}
	header := func(kind, name, value string) Object { return Object{"type": kind, "name": name, "value": value} }
	switch {
	case c.Header == "":
	case c.Value != "":
		with(other, header("Exact", c.Header, c.Value))
	case c.Pattern != "":
		with(other, header("RegularExpression", c.Header, "(?s:.*)(?:"+c.Pattern+")(?s:.*)"))
	default:
		with(other, header("Exact", c.Header, "always"))
		with(main, header("Exact", c.Header, "never"))
	}
	if c.Cookie != "" {
		cookie := func(value string) Object {
			return header("RegularExpression", "Cookie", `(.*;\s*)?`+regexp.QuoteMeta(c.Cookie)+"="+value+`(\s*;.*)?`)
		}
		with(other, cookie("always"))
		with(main, cookie("never"))
	}
	switch c.Weight {
	case 0:
		with(main)
	case c.Total:
		with(other)
	default:
		with(append(t.backends(of, l.Backend, c.Total-c.Weight), t.backends(canary, l.Canary.Backend, c.Weight)...))
	}
}

// backends returns the reference to a backend; with weight 0 it has none. It is empty if there is no such backend.
func (t *translator) backends(s *source, b *cluster.IngressBackend, weight int) []any {
	if b.Resource != nil {
		s.noteField("spec.rules", annotation.Missing, b.Resource.Kind+" is no backend")
		return []any{}
	}
	key := cluster.Key{Namespace: s.Key.Namespace, Name: b.Service}
	number, protocol := b.Number, ""
	if service := t.view.Service(key); service != nil {
		i := slices.IndexFunc(service.Ports, func(p cluster.Port) bool {
			return b.Matches(p) && p.Protocol == cluster.TCP
		})
		if i >= 0 {
			number, protocol = service.Ports[i].Number, service.AppProtocol(i)
		}
	}
	if number == 0 {
		s.noteField("spec.rules", annotation.Missing, fmt.Sprintf("Service %s has no port called %s", key, b.Port))
		return []any{}
	}
	ref := Object{"name": b.Service, "port": number}
	if weight > 0 {
		ref["weight"] = weight
	}
	const h2c = "kubernetes.io/h2c"
	t.secureBackend(s, key)
	if grpc := s.Settings.Protocol; (grpc == annotation.GRPC || grpc == annotation.GRPCS) && protocol != h2c {
		s.noteIf("backend-protocol", annotation.Missing,
			fmt.Sprintf("set appProtocol %s at port %d of Service %s", h2c, number, key))
	}
	return []any{ref}
}

// secureBackend makes the BackendTLSPolicy of a Service, if the backend protocol has TLS.
func (t *translator) secureBackend(s *source, key cluster.Key) {
	if s.Settings.Protocol != annotation.HTTPS && s.Settings.Protocol != annotation.GRPCS {
		return
	}
	name := key.Name + "." + key.Namespace + ".svc"
	t.backendTLS[key] = Object{
		"apiVersion": api, "kind": "BackendTLSPolicy", "metadata": meta(key), "spec": Object{
			"targetRefs": []any{Object{"group": "", "kind": "Service", "name": key.Name}},
			"validation": Object{"hostname": name, "wellKnownCACertificates": "System"},
		},
	}
	s.noteIf("backend-protocol", annotation.Differs,
		"a BackendTLSPolicy; the certificate of the backend is verified: "+
			"it must be for "+name+", and of an authority of the system, or of a ConfigMap in caCertificateRefs")
}

// filters returns the filters of the rules of an Ingress.
func (t *translator) filters(s *source, rewrite Object) (all []any) {
	set := s.Settings
	if set.CORS != nil {
		all = append(all, cors(s, set.CORS))
	}
	if set.Prefix != "" {
		all = append(all, Object{"type": "RequestHeaderModifier", "requestHeaderModifier": Object{
			"set": []any{Object{"name": "X-Forwarded-Prefix", "value": set.Prefix}},
		}})
	}
	if set.Redirect != nil {
		return append(all, redirectTo(redirectURL(s, set.Redirect)))
	}
	to := Object{}
	if set.Host != "" {
		to["hostname"] = hostOnly(s, set.Host)
	}
	if rewrite != nil {
		to["path"] = rewrite
	}
	if len(to) > 0 {
		all = append(all, Object{"type": "URLRewrite", "urlRewrite": to})
	}
	return all
}

// hostOnly returns a host without a port, which a filter cannot have.
func hostOnly(s *source, host string) string {
	name, _, has := strings.Cut(host, ":")
	if has {
		s.noteIf("upstream-vhost", annotation.Differs, "URLRewrite cannot have a port")
	}
	return strings.ToLower(name)
}

// redirectURL is a redirect to a URL.
func redirectURL(s *source, r *annotation.Redirect) Object {
	u, err := url.Parse(r.Location)
	if err != nil {
		return Object{}
	}
	to := Object{
		"scheme": u.Scheme, "hostname": strings.ToLower(u.Hostname()), "path": fullPath(cmp.Or(u.EscapedPath(), "/")),
		"statusCode": r.Status,
	}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		to["port"] = port
	}
	if u.RawQuery != "" {
		for _, name := range []string{"permanent-redirect", "temporal-redirect"} {
			s.noteIf(name, annotation.Missing, "RequestRedirect cannot have a query: "+u.RawQuery+" is left out")
		}
	}
	return to
}

// cors is a filter.
func cors(s *source, c *annotation.CORS) Object {
	origins := slices.DeleteFunc(slices.Clone(c.Origins), func(o string) bool { return o == "null" })
	if len(origins) < len(c.Origins) {
		s.noteIf("cors-allow-origin", annotation.Missing, "the origin null cannot be allowed")
	}
	made := Object{
		"allowCredentials": c.Credentials, "allowMethods": c.Methods, "allowHeaders": c.Headers,
		"maxAge": max(1, int(c.MaxAge.Seconds())),
	}
	if len(origins) > 0 {
		made["allowOrigins"] = origins
	}
	if len(c.Expose) > 0 {
		made["exposeHeaders"] = c.Expose
	}
	return Object{"type": "CORS", "cors": made}
}

// session is sessionPersistence (GEP-1619), of the experimental channel.
func session(a *annotation.Affinity) Object {
	made := Object{"sessionName": cmp.Or(a.Name, "INGRESSCOOKIE"), "type": "Cookie"}
	if a.MaxAge > 0 {
		made["absoluteTimeout"] = fmt.Sprintf("%ds", int(a.MaxAge.Seconds()))
		made["cookieConfig"] = Object{"lifetimeType": "Permanent"}
	}
	return made
}

// The forms of paths with a group for the rest, and the number of that group. What is before them is a prefix.
var tails = []struct {
	text  string
	group string
}{
	{"(/|$)(.*)", "$2"}, {"(/|$)(.+)", "$2"}, {"/?(.*)", "$1"}, {"(/.*)?", "$1"}, {"(/.*)", "$1"}, {"/(.*)", "$1"},
	{"/(.+)", "$1"}, {"(.*)", "$1"},
}

// literal is a path without what regular expressions have, but dots.
var literal = regexp.MustCompile(`^/?[-._~a-zA-Z0-9/]*$`)

// prefix returns the prefix of a location, and what its Rewrite puts in the place of that; ok is false if the path is
// another regular expression, or if more is replaced than a prefix.
func prefix(l *annotation.Location) (prefix, replacement string, ok bool) {
	if literal.MatchString(l.Text) {
		return l.Text, "", true
	}
	for _, tail := range tails {
		before, found := strings.CutSuffix(l.Text, tail.text)
		if !found || !literal.MatchString(before) {
			continue
		}
		to, ends := strings.CutSuffix(l.Target(), tail.group)
		if strings.Contains(to, "$") || !ends && strings.Contains(l.Target(), "$") {
			return "", "", false
		}
		return cmp.Or(before, "/"), "/" + strings.Trim(to, "/"), true
	}
	return "", "", false
}

// allPrefixes reports whether a host with regular expressions has parts of paths replaced, and all its paths can be
// prefixes: what else replaces a part of a path is not there in routes.
func (h *host) allPrefixes() bool {
	replaces := false
	for i := range h.Locations {
		l := &h.Locations[i]
		if _, _, ok := prefix(l); !ok {
			return false
		}
		replaces = replaces || strings.Contains(l.Target(), "$")
	}
	return h.Regex && replaces
}

// path returns the match of a location's path, and how the path is rewritten, nil if it is not. ok is false if that
// cannot be.
func (t *translator) path(h *host, l *annotation.Location) (match, rewrite Object, ok bool) {
	s := h.sources[l.Of]
	target := l.Target()
	path := func(kind, value string) Object { return Object{"type": kind, "value": value} }
	if !h.Regex {
		kind := "PathPrefix"
		if l.Type == cluster.PathExact {
			kind = "Exact"
		}
		if l.Type == cluster.PathImplementationSpecific && l.Text != "/" {
			s.noteField("spec.rules", annotation.Differs, l.Text+" is a prefix of elements, not of characters")
		}
		return path(kind, l.Text), nil, true
	}
	if h.prefixes {
		before, to, _ := prefix(l)
		const text = "paths of the host become prefixes of elements, with regard to case"
		s.noteIf("use-regex", annotation.Differs, text)
		s.noteIf("rewrite-target", annotation.Differs, text)
		if !s.Settings.UseRegex && !l.Rewrites() {
			s.noteField("spec.rules", annotation.Differs, text)
		}
		if l.Type == cluster.PathExact && literal.MatchString(l.Text) {
			before = l.Text
		}
		switch {
		case !l.Rewrites() || before == "/" && to == "/":
			return path("PathPrefix", before), nil, true
		case strings.Contains(target, "$"):
			rewrite = Object{"type": "ReplacePrefixMatch", "replacePrefixMatch": to}
		default:
			rewrite = fullPath("/" + strings.TrimPrefix(target, "/"))
		}
		return path("PathPrefix", before), rewrite, true
	}
	match = path("PathPrefix", "/")
	if l.Text != "/" {
		if _, err := l.Expression(); err != nil {
			s.noteField(
				"spec.rules",
				annotation.Missing,
				l.Text+" is not a regular expression of RE2: the rule is for all "+
					"paths that begin with "+cmp.Or(l.Literal(), "/")+", and has no backends; write it in another way",
			)
			return path("RegularExpression", "(?i:"+regexp.QuoteMeta(l.Literal())+")(?s:.*)"), nil, false
		}
		match = path("RegularExpression", "(?i:"+l.Text+")(?s:.*)")
		if len(l.Text) > 900 {
			s.noteField("spec.rules", annotation.Missing, "a path is too long for a route")
			return path("PathPrefix", "/"), nil, false
		}
	}
	switch {
	case !l.Rewrites():
		return match, nil, true
	case strings.Contains(target, "$"):
		s.note("rewrite-target", annotation.Missing,
			fmt.Sprintf("%s for %s has groups that no filter can put in a path: the "+
				"rule has no backends; have the backend serve the path as it is, or change the path to PREFIX(/|$)(.*)",
				target, l.Text))
		return match, nil, false
	}
	return match, fullPath("/" + strings.TrimPrefix(target, "/")), true
}
