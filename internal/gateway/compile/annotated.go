package compile

import (
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/annotation"
	"portolan.dev/portolan/internal/gateway/table"
)

// annotated is what the annotations of an Ingress are compiled into, see Config.Annotated. Nil changes nothing.
type annotated struct {
	*annotation.Ingress
	object string
	guard  *table.Guard
	// rules are those of the paths, by the positions of rule and path.
	rules map[[2]int]*table.Rule
}

// annotate compiles the annotations of an Ingress.
func (i *ingress) annotate(v *cluster.View, f *cluster.Frontend) {
	settings, verdicts := annotation.Parse(f.Ingress.Annotations)
	i.annotated = &annotated{
		Ingress: &annotation.Ingress{Key: f.Key, Spec: f.Ingress, Settings: settings}, object: f.Ref().String(),
		rules: make(map[[2]int]*table.Rule),
	}
	for _, one := range verdicts {
		if one.Effect == annotation.Unsupported || one.Effect == annotation.Invalid {
			i.problem(one.Name, one.Text)
		}
	}
	i.differ(settings)
	i.annotated.guard = i.guard(v, settings)
}

// differ notes what is obeyed in another way.
func (i *ingress) differ(s *annotation.Settings) {
	if tries := s.Retry.Tries; tries != nil && (*tries == 0 || *tries > maxRetries+1) {
		i.problem("proxy-next-upstream-tries", fmt.Sprintf("%d are made at most", maxRetries+1))
	}
	if s.ConnectTimeout > 0 && (s.Protocol == annotation.GRPC || s.Protocol == annotation.GRPCS) {
		i.problem("proxy-connect-timeout", "backends of gRPC have the gateway's own time for connections")
	}
	if s.AnyOf {
		i.problem("satisfy", "all that is demanded of requests holds")
	}
	if s.Protocol == annotation.HTTPS || s.Protocol == annotation.GRPCS {
		i.problem("backend-protocol", "the certificates of backends are verified, of authorities that the system trusts")
	}
}

// problem notes what of an annotation does not work.
func (i *ingress) problem(name, text string) {
	i.Problems = append(i.Problems, Problem{"metadata.annotations[" + annotation.Prefix + name + "]", text})
}

// guard compiles what is demanded of requests. What cannot be is Settings.Denied.
func (i *ingress) guard(v *cluster.View, s *annotation.Settings) *table.Guard {
	g := &table.Guard{Allow: s.Allow, Deny: s.Deny, MaxBody: s.Body.Octets}
	if l := s.Limits; l != nil {
		limit := func(n int, per time.Duration) {
			if n > 0 {
				g.Limits = append(g.Limits, table.RateLimit{
					Key: i.annotated.object + " " + per.String(), Requests: uint32(n), Per: per,
					Burst: uint32(min(n*l.Burst, 1<<30)), Exempt: l.Except,
				})
			}
		}
		limit(l.PerSecond, time.Second)
		limit(l.PerMinute, time.Minute)
		if l.Connections > 0 {
			g.Concurrent = &table.Concurrency{Key: i.annotated.object, Max: uint32(l.Connections), Exempt: l.Except}
		}
	}
	if s.Basic != nil && s.Denied == "" {
		var why string
		if g.BasicAuth, why = i.basicAuth(v, s.Basic); why != "" {
			s.Denied = "auth-secret " + why
			i.problem("auth-secret", why+": no request is served")
		}
	}
	if s.External != nil && s.Denied == "" {
		var err error
		if g.External, err = externalAuth(s.External); err != nil {
			s.Denied = "auth-url " + err.Error()
			i.problem("auth-url", err.Error()+": no request is served")
		}
	}
	if len(g.Allow)+len(g.Deny)+len(g.Limits) == 0 && g.Concurrent == nil && g.BasicAuth == nil && g.External == nil &&
		g.MaxBody == 0 {
		return nil
	}
	return g
}

// basicAuth reads the passwords of a Secret, or says why they cannot be read. Those of other namespaces are not, as in
// ingress-nginx without allow-cross-namespace-resources.
func (i *ingress) basicAuth(v *cluster.View, b *annotation.Basic) (*table.BasicAuth, string) {
	namespace := i.annotated.Key.Namespace
	if b.Namespace != "" && b.Namespace != namespace {
		return nil, "is in another namespace"
	}
	made, problems, why := passwords(v, &cluster.Passwords{
		Secret: cluster.ObjectRef{Kind: cluster.KindSecret.String(), Namespace: namespace, Name: b.Secret},
		Map:    b.Map, Realm: b.Realm,
	})
	i.unread = made == nil && v.Freshness(cluster.KindSecret) != cluster.Live
	for _, text := range problems {
		i.problem("auth-secret", text)
	}
	return made, why
}

// externalAuth compiles auth-url.
func externalAuth(e *annotation.External) (made *table.ExternalAuth, err error) {
	made = &table.ExternalAuth{
		Kind: table.AuthSubrequest, Method: e.Method, ResponseHeaders: canonical(e.Headers),
	}
	if made.URL, err = table.ParseTemplate(e.URL); err != nil {
		return nil, err
	}
	if e.SignIn != "" {
		made.SignIn = &table.SignIn{Parameter: e.Param}
		made.SignIn.URL, err = table.ParseTemplate(e.SignIn)
	}
	return made, err
}

// location returns the location of a path.
func (a *annotated) location(rule, path int) *annotation.Location {
	p := &a.Spec.Rules[rule].Paths[path]
	return &annotation.Location{Of: a.Ingress, Text: cmp.Or(p.Path, "/"), Type: p.Type}
}

// decoratePath adds what the annotations say to the rule of a path.
func (a *annotated) decoratePath(rule *table.Rule, n, path int) {
	if a == nil {
		return
	}
	a.rules[[2]int{n, path}] = rule
	a.decorate(rule, a.location(n, path))
}

// decorateRest adds it to the rule of a default backend. Without rules it neither redirects nor rewrites paths, as in
// ingress-nginx.
func (a *annotated) decorateRest(rule *table.Rule) {
	if a == nil {
		return
	}
	a.decorate(rule, &annotation.Location{Of: a.Ingress, Text: "/", Type: cluster.PathPrefix})
	if len(a.Spec.Rules) == 0 {
		rule.Redirect, rule.Rewrite = nil, nil
	}
}

// decorate adds what the annotations say to the rule of a location.
func (a *annotated) decorate(rule *table.Rule, l *annotation.Location) {
	s := a.Settings
	if s.Denied != "" {
		rule.Status, rule.Reason = http.StatusServiceUnavailable, table.Reason(s.Denied)
		rule.Backends = nil
		return
	}
	for i := range rule.Backends {
		up := &rule.Backends[i].Upstream
		if s.Protocol == annotation.GRPC || s.Protocol == annotation.GRPCS {
			up.Protocol = table.H2C
		}
		if s.Protocol == annotation.HTTPS || s.Protocol == annotation.GRPCS {
			up.TLS = unique.Make(table.TLS{ServerName: up.Service + "." + up.Namespace + ".svc"})
		}
	}
	rule.Guard = a.guard
	if c := s.CORS; c != nil {
		rule.CORS = &table.CORS{
			Origins: c.Origins, Credentials: c.Credentials, Methods: c.Methods, Headers: c.Headers, Expose: c.Expose,
			MaxAge: c.MaxAge,
		}
	}
	if s.Redirect != nil {
		rule.Redirect = &table.Redirect{URL: s.Redirect.Location, Status: s.Redirect.Status}
	}
	if s.Prefix != "" {
		rule.Actions.Request = &table.HeaderChange{Set: []table.Field{{Name: "X-Forwarded-Prefix", Value: s.Prefix}}}
	}
	if target := l.Target(); target != "" || s.Host != "" {
		rule.Rewrite = &table.Rewrite{Host: s.Host}
		if e, err := l.RewriteExpression(); target != "" && err == nil {
			rule.Rewrite.Path = &table.PathChange{Expression: e, To: target}
		}
	}
	rule.Connect = s.ConnectTimeout
	rule.Retry, rule.Persistence = a.retry(), a.persistence(rule, l)
}

// retry compiles proxy-next-upstream-*; nil if none is set. The conditions for requests without a response are one.
func (a *annotated) retry() *table.Retry {
	from := &a.Settings.Retry
	on := from.On
	switch {
	case from.On == nil && from.Tries == nil && from.Timeout == 0:
		return nil
	case slices.Contains(on, "off"):
		return &table.Retry{CodesOnly: true, Idempotent: true}
	case on == nil:
		on = []string{"error", "timeout"} // the default of ingress-nginx
	}
	has := func(word string) bool { return slices.Contains(on, word) }
	made := &table.Retry{
		CodesOnly:  !has("error") && !has("timeout") && !has("invalid_header"),
		Idempotent: !has("non_idempotent"), Attempts: defaultRetries, Within: from.Timeout,
	}
	for _, word := range on {
		if code, err := strconv.Atoi(strings.TrimPrefix(word, "http_")); err == nil {
			made.Codes = append(made.Codes, code)
		}
	}
	if tries := from.Tries; tries != nil {
		if made.Attempts = min(*tries-1, maxRetries); *tries == 0 { // any number
			made.Attempts = maxRetries
		}
	}
	return made
}

// persistence compiles affinity.
func (a *annotated) persistence(rule *table.Rule, l *annotation.Location) *table.Persistence {
	f := a.Settings.Affinity
	if f == nil {
		return nil
	}
	made := &table.Persistence{
		Name: cmp.Or(f.Name, "INGRESSCOOKIE"), Key: table.PersistenceKey(rule.Object, rule.Name), MaxAge: f.MaxAge,
		Path: f.Path, Domain: f.Domain, SameSite: f.SameSite, Secure: f.Secure != nil && *f.Secure,
	}
	if made.Path == "" && !a.Settings.UseRegex && !l.Rewrites() {
		made.Path = l.Text
	}
	return made
}

// borrowers yields the hosts for which paths of others are served, see part.borrows: that of whom, and whether requests
// are redirected there.
func (a *annotated) borrowers() iter.Seq2[string, part] {
	return func(yield func(string, part) bool) {
		if a == nil || a.Settings.Canary != nil {
			return
		}
		var hosts []string
		for i := range a.Spec.Rules {
			host := a.Spec.Rules[i].Host
			if host == "" || slices.Contains(hosts, host) {
				continue
			}
			hosts = append(hosts, host)
			for _, alias := range a.Settings.Aliases {
				if !yield(alias, part{borrows: host}) {
					return
				}
			}
			if !a.Settings.WWW || strings.HasPrefix(host, "*") {
				continue
			}
			other, has := strings.CutPrefix(host, "www.")
			if !has {
				other = "www." + host
			}
			if !yield(other, part{borrows: host, redirects: true}) {
				return
			}
		}
	}
}

// putBorrowers adds the parts of hosts that serve the paths of others.
func (c *Compiler) putBorrowers(of cluster.Ref, made *ingress, d *dirty) {
	for hostname, p := range made.annotated.borrowers() {
		p.of, p.by, p.age, p.annotated = of, hostname, made.age, made.annotated
		c.putPart(place{ingresses, hostname}, p, d)
	}
}

// borrow adds the hosts that serve the paths of those that changed.
func (c *Compiler) borrow(d *dirty) {
	var more []place
	for at := range d.places {
		if !c.cfg.Annotated || at.listener != ingresses {
			continue
		}
		for i := range c.parts[at] {
			for hostname := range c.parts[at][i].annotated.borrowers() {
				more = append(more, place{ingresses, hostname})
			}
		}
	}
	for _, at := range more {
		d.places[at] = struct{}{}
	}
}

// annotatedHost builds a host of Ingresses. It sorts parts.
func (c *Compiler) annotatedHost(hostname string, parts []part) *host {
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(a.age.Compare(b.age), alphabetical(a.of.Key, b.of.Key), cmp.Compare(a.borrows, b.borrows),
			cmp.Compare(flag(a.redirects), flag(b.redirects)))
	})
	own := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.borrows != "" })
	name := hostname
	if len(own) == 0 {
		first := parts[0]
		if first.redirects {
			return redirectHost(&first)
		}
		name, own = first.borrows, slices.DeleteFunc(
			slices.Clone(c.parts[place{ingresses, first.borrows}]), func(p part) bool { return p.borrows != "" },
		)
		slices.SortFunc(own, func(a, b part) int {
			return cmp.Or(a.age.Compare(b.age), alphabetical(a.of.Key, b.of.Key))
		})
	}
	m := &merger{owners: make(map[*table.Rule]cluster.Ref), of: make(map[*annotation.Ingress]*part)}
	var all []*annotation.Ingress
	var rest []table.Route
	for i := range own {
		p := &own[i]
		if p.rest != nil {
			rest = append(rest, table.Route{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: p.rest})
		}
		if p.annotated != nil {
			m.of[p.annotated.Ingress] = p
			all = append(all, p.annotated.Ingress)
		}
	}
	m.Host = annotation.Merge(name, all)
	m.judge()
	groups := m.groups()
	if m.ClosedBy != nil {
		rest = []table.Route{m.closed()}
	}
	if rest != nil {
		groups = append(groups, rest)
	}
	made := &host{Host: table.NewHost(groups...).Decoding(), problems: m.problems}
	made.shadows = shadows(hostname, made.Routes(), m.owners)
	return made
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// redirectHost redirects all requests to another host.
func redirectHost(p *part) *host {
	rule := &table.Rule{Object: p.of.String(), Name: "from-to-www-redirect"}
	rule.Redirect = &table.Redirect{Host: p.borrows, Status: 308}
	return &host{Host: table.NewHost([]table.Route{{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: rule}})}
}

// merger makes the routes of a host.
type merger struct {
	*annotation.Host
	of     map[*annotation.Ingress]*part
	owners map[*table.Rule]cluster.Ref
	// problems are those of Ingresses of the host that come of others.
	problems []hostProblem
}

// hostProblem is a problem of an Ingress.
type hostProblem struct {
	of cluster.Ref
	Problem
}

// judge finds the problems.
func (m *merger) judge() {
	add := func(of *annotation.Ingress, field, format string, args ...any) {
		m.problems = append(m.problems, hostProblem{m.of[of].of, Problem{field, fmt.Sprintf(format, args...)}})
	}
	for of := range m.of {
		for n := range of.Spec.Rules {
			if m.ClosedBy != nil && of.Settings.HostDenied == "" && of.Spec.Rules[n].Host == m.Name {
				add(of, fmt.Sprintf("spec.rules[%d].host", n), "%s: no request is served", m.Denied())
			}
		}
	}
	for i := range m.Locations {
		l := &m.Locations[i]
		if _, err := l.Expression(); m.Regex && err != nil {
			add(l.Of, fmt.Sprintf("spec.rules[%d].http.paths[%d].path", l.Rule, l.Path), "%s is not a regular expression "+
				"of RE2: no request with a path that begins with %s is served", l.Text, cmp.Or(l.Literal(), "/"))
		}
	}
	slices.SortFunc(m.problems, func(a, b hostProblem) int {
		return cmp.Or(a.of.Key.Compare(b.of.Key), strings.Compare(a.Field, b.Field))
	})
}

// groups returns the routes in groups, which are tried in their order. A group for each location is as ingress-nginx
// tries them; where all of them are exact or prefixes of elements, one for all is the same and faster.
func (m *merger) groups() (groups [][]table.Route) {
	if m.AppRoot != "" && m.ClosedBy == nil {
		groups = append(groups, m.appRoot())
	}
	plain := !m.Regex
	for i := range m.Locations {
		l := &m.Locations[i]
		plain = plain && (l.Type != cluster.PathImplementationSpecific || l.Text == "/")
	}
	var all []table.Route
	for i := range m.Locations {
		routes := m.routes(&m.Locations[i])
		if plain {
			all = append(all, routes...)
		} else if len(routes) > 0 {
			groups = append(groups, routes)
		}
	}
	if all != nil {
		groups = append(groups, all)
	}
	return groups
}

// closed answers the requests for a host that is closed and for which no Ingress has a path.
func (m *merger) closed() table.Route {
	rule := &table.Rule{
		Object: m.of[m.ClosedBy].of.String(), Name: "closed", Status: http.StatusServiceUnavailable,
		Reason: table.Reason(m.Denied()),
	}
	return table.Route{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: rule}
}

// appRoot redirects from "/".
func (m *merger) appRoot() []table.Route {
	rule := &table.Rule{Name: "app-root"}
	for i := range m.Locations {
		if l := &m.Locations[i]; l.Of.Settings.AppRoot == m.AppRoot {
			rule.Object = m.of[l.Of].of.String()
		}
	}
	rule.Redirect = &table.Redirect{Path: &table.PathChange{To: m.AppRoot}, Status: 302, NoQuery: true}
	return []table.Route{{Match: table.Match{Kind: table.Exact, Path: "/"}, Rule: rule}}
}

// match returns how a location matches; ok is false if it is no path.
func (m *merger) match(l *annotation.Location) (match table.Match, ok bool) {
	if !m.Regex && (l.Type != cluster.PathImplementationSpecific || l.Text == "/") {
		match, err := ingressMatch(&cluster.IngressPath{Path: l.Text, Type: l.Type})
		match.Path = table.Decoded(match.Path)
		return match, err == nil
	}
	e := beginning("", table.Decoded(l.Text))
	if m.Regex {
		var err error
		if e, err = l.Expression(); err != nil {
			e = beginning("(?i)", l.Literal())
		}
	}
	return table.Match{Kind: table.Expression, Path: e.String(), Whole: e}, true
}

// beginning returns the expression of what begins with a text. Octets that are not UTF-8 are U+FFFD in it, as they are
// in what it is compared with (package regexp).
func beginning(flags, text string) *regexp.Regexp {
	return regexp.MustCompile(flags + "^" + regexp.QuoteMeta(string([]rune(text))))
}

// denied says why a location serves no request; empty if it does.
func (m *merger) denied(l *annotation.Location) string {
	if _, err := l.Expression(); m.Regex && err != nil && m.ClosedBy == nil {
		return l.Text + " is not a regular expression of RE2"
	}
	return m.Denied()
}

// routes returns the routes of a location: those of its canary by header and cookie, then that for all others.
func (m *merger) routes(l *annotation.Location) (routes []table.Route) {
	p := m.of[l.Of]
	from := p.annotated.rules[[2]int{l.Rule, l.Path}]
	match, ok := m.match(l)
	if from == nil || !ok {
		return nil
	}
	if why := m.denied(l); why != "" {
		rule := &table.Rule{Object: from.Object, Index: from.Index, Name: from.Name}
		rule.Status, rule.Reason = http.StatusServiceUnavailable, table.Reason(why)
		m.owners[rule] = p.of
		return []table.Route{{Match: match, Rule: rule}}
	}
	with := func(backends []table.Backend, headers ...table.Value) {
		rule := *from
		rule.Backends = backends
		s := l.Of.Settings
		if s.ForceSSLRedirect || s.SSLRedirect && m.TLS {
			rule.Secure = &table.SecureRedirect{KeepSlash: s.KeepSlash}
		}
		m.owners[&rule] = p.of
		one := match
		one.Headers = headers
		routes = append(routes, table.Route{Match: one, Rule: &rule})
	}
	if l.Canary == nil || len(from.Backends) == 0 {
		with(from.Backends)
		return routes
	}
	other := m.of[l.Canary.Of].annotated.rules[[2]int{l.Canary.Rule, l.Canary.Path}]
	if other == nil || len(other.Backends) == 0 {
		with(from.Backends)
		return routes
	}
	main, alternative := from.Backends, other.Backends
	if from.Persistence != nil { // the session chooses the backend before the canary does
		main, alternative = slices.Concat(main, unweighted(alternative)), slices.Concat(alternative, unweighted(main))
	}
	canary(l.Canary.Of.Settings.Canary, main, alternative, with)
	return routes
}

// unweighted returns backends that get requests of their sessions alone.
func unweighted(backends []table.Backend) []table.Backend {
	all := slices.Clone(backends)
	for i := range all {
		all[i].Weight = 0
	}
	return all
}

// canary calls with for the backends of requests with some headers, and for those of all others last.
func canary(c *annotation.Canary, main, other []table.Backend, with func([]table.Backend, ...table.Value)) {
	name := textproto.CanonicalMIMEHeaderKey(c.Header)
	pattern := func(text string) *regexp.Regexp {
		e, err := table.CompileWhole(text)
		if err != nil {
			return nil
		}
		return e
	}
	switch {
	case c.Header == "":
	case c.Value != "":
		with(other, table.Value{Name: name, Text: c.Value})
	case c.Pattern != "":
		if e := pattern("(?s:.*)(?:" + c.Pattern + ")(?s:.*)"); e != nil {
			with(other, table.Value{Name: name, Expression: e})
		}
	default:
		with(other, table.Value{Name: name, Text: "always"})
		with(main, table.Value{Name: name, Text: "never"})
	}
	if c.Cookie != "" {
		cookie := func(value string) table.Value {
			text := `(.*[;,]\s*)?` + regexp.QuoteMeta(c.Cookie) + "=" + value + `(\s*[;,].*)?`
			return table.Value{Name: "Cookie", Expression: pattern(text)}
		}
		with(other, cookie("always"))
		with(main, cookie("never"))
	}
	all := main
	if c.Weight > 0 {
		all = []table.Backend{main[0], other[0]}
		all[0].Weight, all[1].Weight = uint32(c.Total-c.Weight), uint32(c.Weight)
	}
	with(all)
}
