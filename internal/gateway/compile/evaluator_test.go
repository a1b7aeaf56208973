package compile

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// TestEvaluator has an evaluator and a compiled table say what serves random requests to random clusters, and compares
// it. REQUESTS is how many there are.
func TestEvaluator(t *testing.T) {
	t.Parallel()
	requests := 20_000
	if text := os.Getenv("REQUESTS"); text != "" {
		var err error
		if requests, err = strconv.Atoi(text); err != nil {
			t.Fatalf("REQUESTS: %v", err)
		}
	}
	cfg := testConfig
	cfg.DefaultCertificate = true // what certificates there are decides nothing here
	const perCluster = 100
	seen := make(map[string]int)
	for seed := range uint64(requests / perCluster) {
		w := newWorld(seed)
		store := newStore(w.classes()...)
		store.Update(func(tx *cluster.Tx) {
			for range 200 {
				w.change(tx)
			}
		})
		var e *evaluator
		var made Output
		store.View(func(v *cluster.View) {
			e = newEvaluator(v, cfg)
			made = NewCompiler(cfg).Apply(v, &cluster.Changes{Everything: true})
		})
		at := sockets(made.Table)
		for range perCluster {
			q := w.query(at)
			want, got := e.answer(q), compiled(made.Table, q)
			if got != want {
				t.Fatalf("cluster %d: %v: the table has %s, the evaluator %s", seed, q, got, want)
			}
			seen[kindOf(want)]++
		}
	}
	t.Logf("answers: %v", seen)
	for kind, least := range map[string]int{ // of a thousand
		"404": 10, "httproute": 10, "httproute, 500": 10, "grpcroute": 10, "ingress": 10, "ingress, 503": 10,
		"defaultBackend": 10, "tlsroute": 2, "tcproute": 2, "udproute": 2,
		"httproute, demands": 5, "httproute, limited": 2, "ingress, limited": 5, "httproute, 503": 5,
	} {
		if seen[kind]*1000 < least*requests {
			t.Errorf("%d of %d requests were of kind %s, want %d of a thousand: %v", seen[kind], requests, kind, least, seen)
		}
	}
}

// kindOf returns what kind of answer it is.
func kindOf(answer string) string {
	kind, _, _ := strings.Cut(answer, " ")
	switch {
	case strings.Contains(answer, " defaultBackend"):
		return "defaultBackend"
	case strings.Contains(answer, "~"):
		return kind + ", limited"
	case strings.Contains(answer, " demands "):
		return kind + ", demands"
	case strings.Contains(answer, " 500"):
		return kind + ", 500"
	case strings.Contains(answer, " 503"):
		return kind + ", 503"
	}
	return kind
}

// evaluator says what serves a request, as the specification reads: for each request it walks all objects. It
// shares nothing with the compiler and the table but the model's types, and is as simple as it can be.
type evaluator struct {
	cfg            Config
	gatewayClasses []*cluster.GatewayClass
	ingressClasses []*cluster.IngressClass
	gateways       []*cluster.Frontend // the older ones first
	sets           []*cluster.ListenerSet
	routes         []*cluster.Route
	ingresses      []*cluster.Frontend // the older ones first
	grants         []*cluster.ReferenceGrant
	services       []*cluster.Service
	namespaces     []*cluster.Namespace
	policies       []*cluster.BackendTLSPolicy // the older ones first
	configMaps     []*cluster.ConfigMap
	reading        bool                   // there may be more ConfigMaps
	routePolicies  []*cluster.RoutePolicy // the older ones first
	secrets        []*cluster.Secret
	traffic        []*cluster.BackendTrafficPolicy // the older ones first
}

func newEvaluator(v *cluster.View, cfg Config) *evaluator {
	e := &evaluator{
		cfg:            cfg,
		gatewayClasses: slices.Collect(cluster.GatewayClasses.All(v)),
		ingressClasses: slices.Collect(cluster.IngressClasses.All(v)),
		grants:         slices.Collect(cluster.ReferenceGrants.All(v)),
		services:       slices.Collect(v.Services()),
		namespaces:     slices.Collect(v.Namespaces()),
	}
	e.gateways = byAge(cluster.Gateways.All(v), func(g *cluster.Frontend) cluster.Age { return g.Gateway.Age })
	e.sets = byAge(cluster.ListenerSets.All(v), func(s *cluster.ListenerSet) cluster.Age { return s.Age })
	e.routes = byAge(cluster.Routes(v), func(r *cluster.Route) cluster.Age { return r.Spec.Age })
	e.policies = byAge(cluster.BackendTLSPolicies.All(v), func(p *cluster.BackendTLSPolicy) cluster.Age { return p.Age })
	e.reading = v.Freshness(cluster.KindConfigMap) != cluster.Live
	e.configMaps = slices.Collect(cluster.ConfigMaps.All(v))
	e.routePolicies = byAge(cluster.RoutePolicies.All(v), func(p *cluster.RoutePolicy) cluster.Age { return p.Age })
	e.traffic = byAge(cluster.BackendTrafficPolicies.All(v), func(p *cluster.BackendTrafficPolicy) cluster.Age { return p.Age })
	e.secrets = slices.Collect(cluster.Secrets.All(v))
	e.ingresses = byAge(cluster.Ingresses.All(v), func(i *cluster.Frontend) cluster.Age { return i.Ingress.Age })
	return e
}

// byAge sorts objects: the oldest by creation timestamp, then the first in alphabetical order by
// "{namespace}/{name}". Those of manifests, without a timestamp, are younger than others, and as old as their place.
func byAge[T cluster.Object](all iter.Seq[T], age func(T) cluster.Age) []T {
	return slices.SortedFunc(all, func(a, b T) int {
		x, y := age(a), age(b)
		switch {
		case x.Created != 0 && y.Created == 0:
			return -1
		case x.Created == 0 && y.Created != 0:
			return 1
		}
		return cmp.Or(
			cmp.Compare(x.Created, y.Created), cmp.Compare(x.File, y.File), cmp.Compare(x.Index, y.Index),
			strings.Compare(a.Ref().Key.String(), b.Ref().Key.String()), cmp.Compare(a.Ref().Kind, b.Ref().Kind),
		)
	})
}

// query is a request at an address (the zero one is that of Gateways without one) and a port.
type query struct {
	addr                netip.Addr
	port                uint16
	transport           table.Transport
	host                string // the server name, too
	method, path, query string
	header              map[string][]string
}

// answer returns what serves a request: the object and the number of the rule, and where it leads.
func (e *evaluator) answer(q *query) string {
	if l := e.listener(q); l != nil {
		if found, hasHost := e.byRoutes(l, q); hasHost {
			return found
		}
	}
	if e.hasIngresses(q) { // decision: what no listener has a route for is the Ingresses'
		return e.byIngresses(q)
	}
	return "404"
}

// hasIngresses reports whether Ingresses are served where a request comes: at port 443 with TLS, at 80 without.
func (e *evaluator) hasIngresses(q *query) bool {
	if q.addr != (netip.Addr{}) || q.port != 80 && q.port != 443 || q.transport != table.TCP {
		return false
	}
	protocol := map[uint16]string{80: "HTTP", 443: "TLS"}[q.port]
	return !slices.ContainsFunc(e.listeners(), func(l *served) bool { // decision: not where a Gateway has the other one
		return l.spec.Port == q.port && slices.Contains(l.addrs, q.addr) && outermost(l.spec) != protocol && l.isAt(q)
	})
}

// served is a listener that serves.
type served struct {
	spec  *cluster.Listener
	kind  string // of the object that has it
	of    cluster.Key
	addrs []netip.Addr
}

// isAt reports whether the listener is at the port of a query.
func (l *served) isAt(q *query) bool {
	return l.spec.Port == q.port && slices.Contains(l.addrs, q.addr) &&
		(l.spec.Protocol == "UDP") == (q.transport == table.UDP)
}

// outermost returns the protocol that clients begin with. Those of HTTPS and TLS send a server name.
func outermost(l *cluster.Listener) string {
	if l.Protocol == "HTTPS" {
		return "TLS"
	}
	return string(l.Protocol)
}

// hostnameOf returns the hostname of a listener, which those of TCP and UDP have none of.
func hostnameOf(l *cluster.Listener) string {
	if l.Protocol == "TCP" || l.Protocol == "UDP" {
		return ""
	}
	return l.Hostname
}

// listener returns the listener whose hostname is the most specific of those that have the request's.
func (e *evaluator) listener(q *query) (best *served) {
	for _, l := range e.listeners() {
		if !l.isAt(q) || !hasName(hostnameOf(l.spec), q.host) {
			continue
		}
		if best == nil || moreSpecific(hostnameOf(l.spec), hostnameOf(best.spec)) {
			best = l
		}
	}
	return best
}

// hasName reports whether a hostname stands for a name: a star for any labels, nothing for all names.
func hasName(hostname, name string) bool {
	if strings.HasPrefix(hostname, "*.") {
		return strings.HasSuffix(name, hostname[1:])
	}
	return hostname == "" || hostname == name
}

// moreSpecific compares two hostnames that stand for a name.
func moreSpecific(a, b string) bool {
	x, y := precise(a), precise(b)
	return x > y || x == y && len(a) > len(b)
}

// precise returns how many characters a hostname has if it has no wildcard.
func precise(hostname string) int {
	if strings.HasPrefix(hostname, "*") {
		return 0
	}
	return len(hostname)
}

// listeners returns the listeners that serve: those that are distinct in what has them, and differ from all of
// Gateways and ListenerSets that come first (decision: those that conflict are not served by others either).
func (e *evaluator) listeners() (all []*served) {
	var earlier []*served
	conflict := func(a, b *served) bool {
		x, y := a.spec, b.spec
		return a != b && x.Port == y.Port && (x.Protocol == "UDP") == (y.Protocol == "UDP") &&
			(hostnameOf(x) == hostnameOf(y) || outermost(x) != outermost(y)) &&
			slices.ContainsFunc(a.addrs, func(addr netip.Addr) bool { return slices.Contains(b.addrs, addr) })
	}
	for _, held := range e.holders() {
		var claims []*served
		for _, l := range held {
			if !slices.ContainsFunc(earlier, func(o *served) bool { return conflict(l, o) }) {
				claims = append(claims, l)
			}
		}
		for _, l := range claims {
			if !slices.ContainsFunc(claims, func(o *served) bool { return conflict(l, o) }) {
				all = append(all, l)
			}
		}
		earlier = append(earlier, claims...)
	}
	return all
}

// holders returns what has valid listeners, in the order of its right to them: for each Gateway of ours itself,
// then its ListenerSets.
func (e *evaluator) holders() (all [][]*served) {
	addrsOf := e.addresses()
	for _, g := range e.gateways {
		spec, addrs := g.Gateway, addrsOf[g.Key]
		if !e.accepted(spec) {
			continue
		}
		valid := func(kind string, of cluster.Key, specs []cluster.Listener) (held []*served) {
			for i := range specs {
				terminates := specs[i].Protocol == "HTTPS" && (specs[i].TLS == nil || specs[i].TLS.Mode == "Terminate")
				if slices.Contains([]cluster.ListenerProtocol{"HTTP", "TLS", "TCP", "UDP"}, specs[i].Protocol) || terminates {
					held = append(held, &served{&specs[i], kind, of, addrs})
				}
			}
			return held
		}
		all = append(all, valid("Gateway", g.Key, spec.Listeners))
		for _, s := range e.sets {
			parent := cluster.ObjectRef{
				Group: "gateway.networking.k8s.io", Kind: "Gateway", Namespace: g.Namespace, Name: g.Name,
			}
			if s.Parent == parent && e.selects(&spec.ListenerSets, s.Namespace, g.Namespace) {
				all = append(all, valid("ListenerSet", s.Key, s.Listeners))
			}
		}
	}
	return all
}

// accepted reports whether a Gateway is ours, and has nothing that is not supported.
func (e *evaluator) accepted(g *cluster.GatewaySpec) bool {
	ours := slices.ContainsFunc(e.gatewayClasses, func(c *cluster.GatewayClass) bool {
		return c.Name == g.Class && c.Controller == e.cfg.GatewayController && c.Parameters == nil
	})
	return ours && g.Parameters == nil &&
		!slices.ContainsFunc(g.Addresses, func(a cluster.GatewayAddress) bool { return a.Type != "IPAddress" })
}

// addresses returns where Gateways are served (decision: see Config.Pool): the zero address is that of those that
// request none. Others get, one after the other, those that they name, and for each that may be any one that their
// status has; what then is missing they get of what is left. Nobody gets the address of another.
func (e *evaluator) addresses() map[cluster.Key][]netip.Addr {
	made, left := make(map[cluster.Key][]netip.Addr), slices.Clone(e.cfg.Pool)
	take := func(g *cluster.Frontend, text string) bool {
		for i, addr := range left {
			if addr.String() == text {
				made[g.Key], left = append(made[g.Key], addr), slices.Delete(left, i, i+1)
				return true
			}
		}
		return false
	}
	missing := make(map[cluster.Key]int)
	for _, g := range e.gateways {
		if !e.accepted(g.Gateway) {
			continue
		}
		if len(g.Gateway.Addresses) == 0 {
			made[g.Key] = []netip.Addr{{}}
		}
		for _, a := range g.Gateway.Addresses {
			if a.Value == "" {
				missing[g.Key]++
			} else {
				take(g, a.Value)
			}
		}
		for _, a := range g.Gateway.Status.Addresses {
			if missing[g.Key] > 0 && take(g, a.Value) {
				missing[g.Key]--
			}
		}
	}
	for _, g := range e.gateways {
		for ; missing[g.Key] > 0 && len(left) > 0; missing[g.Key]-- {
			take(g, left[0].String())
		}
	}
	return made
}

// selects reports whether a namespace is allowed by an object in the namespace of.
func (e *evaluator) selects(a *cluster.AllowedNamespaces, namespace, of string) bool {
	i := slices.IndexFunc(e.namespaces, func(n *cluster.Namespace) bool { return n.Name == namespace })
	switch {
	case i < 0:
		return false
	case a.From == "All":
		return true
	case a.From == "Same":
		return namespace == of
	case a.From == "Selector":
		for k, v := range a.Selector.Labels {
			if e.namespaces[i].Labels[k] != v {
				return false
			}
		}
		return true
	}
	return false
}

// candidate is a rule of a route that a request matches, by one of its matches.
type candidate struct {
	route    *cluster.Route
	hostname string // of the route
	rule     int
	match    *cluster.RouteMatch
}

// byRoutes returns what of the routes of a listener serves a request. hasHost is false if none is for the host.
func (e *evaluator) byRoutes(l *served, q *query) (found string, hasHost bool) {
	// Decision: only the routes serve whose hostname, as far as the listener has it, is the most specific.
	narrowed := func(hostname string) string {
		if moreSpecific(hostnameOf(l.spec), hostname) {
			return hostnameOf(l.spec)
		}
		return hostname
	}
	best, all := "", []candidate{}
	for _, r := range e.routesOf(l) {
		for _, h := range hostnamesOf(r) {
			if !hasName(h, q.host) {
				continue
			}
			if !hasHost || moreSpecific(narrowed(h), best) {
				hasHost, best = true, narrowed(h)
			}
			all = append(all, e.matching(r, h, q)...)
		}
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return narrowed(c.hostname) != best })
	if len(all) == 0 {
		return "404", hasHost
	}
	// The routes come by age and name, their rules in order, so that the first of equal ones is the one.
	first := slices.MinFunc(all, precedence)
	text := fmt.Sprintf("%s rule %d", first.route.Ref(), first.rule)
	return text + e.leads(first.route, &first.route.Spec.Rules[first.rule]), true
}

// routesOf returns the routes that a listener serves: of two of different kinds with a hostname in common the older one
// (GRPCRouteSpec.hostnames).
func (e *evaluator) routesOf(l *served) (all []*cluster.Route) {
	for _, r := range e.routes {
		excluded := slices.ContainsFunc(all, func(o *cluster.Route) bool {
			if o.Kind == r.Kind {
				return false
			}
			for _, a := range hostnamesOf(r) {
				for _, b := range hostnamesOf(o) {
					if overlap(a, b) && overlap(a, hostnameOf(l.spec)) && overlap(b, hostnameOf(l.spec)) {
						return true
					}
				}
			}
			return false
		})
		if !excluded && e.attached(l, r) {
			all = append(all, r)
		}
	}
	return all
}

// hostnamesOf returns those of a route; one for all names without any.
func hostnamesOf(r *cluster.Route) []string {
	if len(r.Hosts) == 0 {
		return []string{""}
	}
	return r.Hosts
}

// overlap reports whether a name has both hostnames.
func overlap(a, b string) bool {
	sample := func(hostname string) string { return strings.Replace(hostname, "*", "q", 1) }
	return hasName(a, sample(b)) || hasName(b, sample(a))
}

// attached reports whether a listener takes a route: one whose hostnames have one in common with it.
func (e *evaluator) attached(l *served, r *cluster.Route) bool {
	kinds := l.spec.Kinds
	takes := len(kinds) == 0 ||
		slices.Contains(kinds, cluster.GroupKind{Group: "gateway.networking.k8s.io", Kind: r.Kind.String()})
	takes = takes && slices.Contains(map[cluster.ListenerProtocol][]string{
		"HTTP": {"HTTPRoute", "GRPCRoute"}, "HTTPS": {"HTTPRoute", "GRPCRoute"},
		"TLS": {"TLSRoute"}, "TCP": {"TCPRoute"}, "UDP": {"UDPRoute"},
	}[l.spec.Protocol], r.Kind.String())
	common := slices.ContainsFunc(hostnamesOf(r), func(h string) bool { return overlap(h, hostnameOf(l.spec)) })
	if !takes || !common || !e.selects(&l.spec.Namespaces, r.Namespace, l.of.Namespace) {
		return false
	}
	return slices.ContainsFunc(r.Spec.Parents, func(p cluster.ParentRef) bool {
		return p.Group == "gateway.networking.k8s.io" && p.Kind == l.kind && p.Namespace == l.of.Namespace &&
			p.Name == l.of.Name && (p.Section == "" || p.Section == l.spec.Name) && (p.Port == 0 || p.Port == l.spec.Port)
	}) && slices.ContainsFunc(r.Spec.Rules, func(rule cluster.RouteRule) bool { return valid(&rule) })
}

// matching returns the matches of a route's valid rules that a request meets.
func (e *evaluator) matching(r *cluster.Route, hostname string, q *query) (all []candidate) {
	for n := range r.Spec.Rules {
		rule := &r.Spec.Rules[n]
		if !valid(rule) {
			continue
		}
		if streams(r) != "" { // they have no conditions
			all = append(all, candidate{r, hostname, n, new(cluster.RouteMatch)})
		}
		for m := range rule.Matches {
			if meets(&rule.Matches[m], q) {
				all = append(all, candidate{r, hostname, n, &rule.Matches[m]})
			}
		}
	}
	return all
}

// valid reports whether a rule has only what is supported.
func valid(rule *cluster.RouteRule) bool {
	if len(rule.Unknown) > 0 {
		return false
	}
	compiles := func(regex bool, text string) bool {
		_, err := regexp.Compile(text)
		return !regex || err == nil
	}
	for i := range rule.Matches {
		m := &rule.Matches[i]
		if !compiles(m.Path.Type == "RegularExpression", m.Path.Value) || !compiles(m.RPC.Regex, m.RPC.Service) {
			return false
		}
		for _, v := range append(distinct(m.Headers, strings.ToLower), distinct(m.Query, same)...) {
			if !compiles(v.Regex, v.Value) {
				return false
			}
		}
	}
	expressionOrExact := slices.ContainsFunc(
		rule.Matches,
		func(m cluster.RouteMatch) bool { return m.Path.Type != "PathPrefix" },
	)
	works := func(all []cluster.Filter) bool {
		has := func(t cluster.FilterType) bool {
			return slices.ContainsFunc(all, func(f cluster.Filter) bool { return f.Type == t })
		}
		prefix := slices.ContainsFunc(all, func(f cluster.Filter) bool {
			return f.Rewrite != nil && f.Rewrite.Path != nil && f.Rewrite.Path.Prefix
		})
		headers := slices.ContainsFunc(all, func(f cluster.Filter) bool {
			return f.Headers != nil && slices.ContainsFunc(f.Headers.Add, func(h cluster.Header) bool {
				return slices.Contains(f.Headers.Remove, h.Name)
			})
		})
		return (!has("RequestRedirect") || !has("URLRewrite")) && (!prefix || !expressionOrExact) && !headers
	}
	return works(rule.Filters) && !slices.ContainsFunc(rule.Backends, func(b cluster.RouteBackend) bool {
		answers := slices.ContainsFunc(
			b.Filters,
			func(f cluster.Filter) bool { return f.Type == "RequestRedirect" || f.Type == "CORS" },
		)
		return answers || !works(b.Filters) // decision: filters of backends cannot answer
	})
}

func same(text string) string { return text }

// distinct returns the first condition of each name.
func distinct(all []cluster.ValueMatch, form func(string) string) (made []cluster.ValueMatch) {
	for _, v := range all {
		if !slices.ContainsFunc(made, func(o cluster.ValueMatch) bool { return form(o.Name) == form(v.Name) }) {
			made = append(made, v)
		}
	}
	return made
}

// meets reports whether a request meets all conditions of a match.
func meets(m *cluster.RouteMatch, q *query) bool {
	if !hasRPC(&m.RPC, q.path) || m.Path.Type != "" && !hasPath(string(m.Path.Type), m.Path.Value, q.path) ||
		m.Method != "" && m.Method != q.method {
		return false
	}
	for _, c := range distinct(m.Headers, strings.ToLower) {
		is, there := "", false
		for name, values := range q.header {
			if strings.EqualFold(name, c.Name) {
				is, there = strings.Join(values, ", "), true
			}
		}
		if !there || !equals(c, is) {
			return false
		}
	}
	for _, c := range distinct(m.Query, same) {
		is, there := "", false
		for pair := range strings.SplitSeq(q.query, "&") {
			name, value, _ := strings.Cut(pair, "=")
			if name, _ = url.QueryUnescape(name); name == c.Name && !there && pair != "" {
				is, _ = url.QueryUnescape(value)
				there = true
			}
		}
		if !there || !equals(c, is) {
			return false
		}
	}
	return true
}

func equals(c cluster.ValueMatch, text string) bool {
	if c.Regex {
		return regexp.MustCompile(`^(?:` + c.Value + `)$`).MatchString(text)
	}
	return c.Value == text
}

// hasRPC reports whether a path is that of the service and the method.
func hasRPC(m *cluster.RPCMatch, path string) bool {
	parts := strings.Split(path, "/")
	is := func(want, got string) bool {
		return want == "" || got == want || m.Regex && regexp.MustCompile("^(?:"+want+")$").MatchString(got)
	}
	switch {
	case m.Service == "" && m.Method == "":
		return true
	case m.Method == "" && !m.Regex: // decision: whatever follows it
		return parts[1] == m.Service
	}
	return len(parts) == 3 && parts[1] != "" && parts[2] != "" && is(m.Service, parts[1]) && is(m.Method, parts[2])
}

// hasPath reports whether a path matches.
func hasPath(kind, value, path string) bool {
	if kind == "RegularExpression" {
		return regexp.MustCompile(`^(?:` + value + `)$`).MatchString(path)
	}
	value = unescaped(value)
	if kind == "Exact" {
		return value == path
	}
	value = strings.TrimSuffix(value, "/")
	return path == value || strings.HasPrefix(path, value+"/")
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// unescaped returns a path in which only those characters are percent-encoded that must be (decision: RFC 3986,
// section 6.2.2).
func unescaped(path string) string {
	return escape.ReplaceAllStringFunc(path, func(e string) string {
		if c, _ := url.PathUnescape(e); strings.Contains("-._~", c) || regexp.MustCompile(`^[0-9A-Za-z]$`).MatchString(c) {
			return c
		}
		return strings.ToUpper(e)
	})
}

// precedence is negative if a precedes b (HTTPRouteSpec.hostnames, HTTPRouteRule.matches).
func precedence(a, b candidate) int {
	length := func(c candidate) int { return len(strings.TrimSuffix(unescaped(c.match.Path.Value), "/")) }
	kinds := map[cluster.PathType]int{"Exact": 0, "RegularExpression": 1, "PathPrefix": 2} // expressions by decision
	by := func(of func(candidate) int) int { return cmp.Compare(of(b), of(a)) }            // more precedes
	if of := cmp.Or(
		by(func(c candidate) int { return precise(c.hostname) }),
		by(func(c candidate) int { return len(c.hostname) }),
		-by(func(c candidate) int { return kinds[c.match.Path.Type] }),
	); of != 0 {
		return of
	}
	if of := by(rankOfRPC); of != 0 {
		return of
	}
	if a.match.Path.Type == "RegularExpression" { // decision: the longer one, then the first by text
		x, y := a.match.Path.Value, b.match.Path.Value
		if of := cmp.Or(cmp.Compare(len(y), len(x)), cmp.Compare(x, y)); of != 0 {
			return of
		}
	} else if of := by(length); of != 0 {
		return of
	}
	return cmp.Or(
		by(func(c candidate) int { return min(1, len(c.match.Method)) }),
		by(func(c candidate) int { return len(distinct(c.match.Headers, strings.ToLower)) }),
		by(func(c candidate) int { return len(distinct(c.match.Query, same)) }),
	)
}

// rankOfRPC ranks a match of a GRPCRoute (decision: expressions come behind a method of a service, and before a service).
func rankOfRPC(c candidate) int {
	m := &c.match.RPC
	switch {
	case m.Service == "" && m.Method == "":
		return 0
	case m.Service == "":
		return 1
	case m.Regex:
		return 3
	case m.Method == "":
		return 2
	}
	return 4
}

// leads returns where a rule leads.
func (e *evaluator) leads(r *cluster.Route, rule *cluster.RouteRule) string {
	extended := func(all []cluster.Filter) bool {
		return slices.ContainsFunc(all, func(f cluster.Filter) bool { return f.Type == "ExtensionRef" })
	}
	if extended(rule.Filters) {
		return ": 500"
	}
	demand, valid := e.demand(r, rule)
	if !valid {
		return ": 503"
	}
	var text strings.Builder
	for i := range rule.Backends {
		b := &rule.Backends[i]
		port := e.resolve(r, &b.BackendRef)
		if extended(b.Filters) || port == "" {
			fmt.Fprintf(&text, " 500*%d", b.Weight)
		} else {
			fmt.Fprintf(&text, " %s/%s:%s*%d", b.Namespace, b.Name, port, b.Weight)
			if streams(r) == "" {
				text.WriteString(e.budget(b.Namespace, b.Name))
			}
		}
	}
	return text.String() + demand
}

// demand returns what a policy demands of requests for a rule: one for the rule comes before one for its route, and the
// oldest one first. It is not valid if the policy cannot be obeyed.
func (e *evaluator) demand(r *cluster.Route, rule *cluster.RouteRule) (text string, valid bool) {
	var best *cluster.RoutePolicy
	for _, ofRule := range []bool{true, false} {
		for _, p := range e.routePolicies {
			isIt := func(t cluster.PolicyTarget) bool {
				return p.Namespace == r.Namespace && t.Group == "gateway.networking.k8s.io" && t.Kind == r.Kind.String() &&
					t.Name == r.Name && (ofRule && t.Section != "" && t.Section == rule.Name || !ofRule && t.Section == "")
			}
			if best == nil && slices.ContainsFunc(p.Targets, isIt) {
				best = p
			}
		}
	}
	if best == nil || streams(r) != "" {
		return "", true
	}
	users := 0
	if best.Passwords != nil {
		for _, s := range e.secrets {
			if s.Key != (cluster.Key{Namespace: best.Namespace, Name: best.Passwords.Secret.Name}) {
				continue
			}
			if best.Passwords.Map {
				users = strings.Count(string(s.Data["u1"]), "{SHA}") + strings.Count(string(s.Data["u2"]), "{SHA}")
			} else {
				users = strings.Count(string(s.Data["auth"]), "{SHA}")
			}
		}
		if users == 0 {
			return "", false
		}
	}
	rates := 0
	for _, l := range best.Limits {
		rates += int(l.Requests)
	}
	return demandText(best.Allow, rates, best.Concurrent != nil, best.MaxBody, users), best.Invalid == ""
}

// demandText returns what is demanded of requests, empty for nothing.
func demandText(allow []netip.Prefix, rates int, concurrent bool, body int64, users int) string {
	if len(allow) == 0 && rates == 0 && !concurrent && body == 0 && users == 0 {
		return ""
	}
	return fmt.Sprint(" demands ", allow, rates, concurrent, body, users)
}

// streams returns the protocol over which a route passes on whatever comes; empty if it does not.
func streams(r *cluster.Route) cluster.Protocol {
	return map[string]cluster.Protocol{"TLSRoute": "TCP", "TCPRoute": "TCP", "UDPRoute": "UDP"}[r.Kind.String()]
}

// mayRefer reports whether objects of a kind in a namespace may refer to an object of the core group.
func (e *evaluator) mayRefer(kind, namespace string, ref *cluster.ObjectRef) bool {
	return ref.Namespace == namespace || slices.ContainsFunc(e.grants, func(g *cluster.ReferenceGrant) bool {
		from := slices.ContainsFunc(g.From, func(f cluster.GrantFrom) bool {
			return f.Group == "gateway.networking.k8s.io" && f.Kind == kind && f.Namespace == namespace
		})
		to := slices.ContainsFunc(g.To, func(t cluster.GrantTo) bool {
			return t.Group == "" && t.Kind == ref.Kind && (t.Name == "" || t.Name == ref.Name)
		})
		return g.Namespace == ref.Namespace && from && to
	})
}

// resolve returns the port of a Service that a backend is, see port; empty if a route may refer to none.
func (e *evaluator) resolve(r *cluster.Route, b *cluster.BackendRef) string {
	if b.Group != "" || b.Kind != "Service" {
		return ""
	}
	if !e.mayRefer(r.Kind.String(), r.Namespace, &b.ObjectRef) {
		return ""
	}
	if over := streams(r); over != "" {
		port, _ := e.port(b.Namespace, b.Name, func(p cluster.Port) bool { return p.Number == b.Port && p.Protocol == over })
		if port = strings.TrimSuffix(port, "/h2c"); port != "" {
			port += "/" + string(over)
			if r.Kind == cluster.KindTLSRoute {
				security, valid := e.security(b.Namespace, b.Name, b.Port)
				if !valid {
					security = "+,0" // nothing is sent where TLS ends here
				}
				port += security
			}
		}
		return port
	}
	port, protocol := e.port(
		b.Namespace,
		b.Name,
		func(p cluster.Port) bool { return p.Number == b.Port && p.Protocol == cluster.TCP },
	)
	security, valid := e.security(b.Namespace, b.Name, b.Port)
	if !valid || security == "" && slices.Contains([]string{"https", "tls", "kubernetes.io/wss"}, protocol) {
		return ""
	}
	if r.Kind == cluster.KindGRPCRoute && port != "" {
		if protocol == "kubernetes.io/ws" {
			return ""
		}
		return strings.TrimSuffix(port, "/h2c") + "/h2c" + security
	}
	if port == "" {
		return ""
	}
	return port + security
}

// security returns how TLS is spoken with a port of a Service; empty if it is not. It is not valid if a
// BackendTLSPolicy cannot be obeyed.
func (e *evaluator) security(namespace, name string, number uint16) (text string, valid bool) {
	section := ""
	for _, s := range e.services {
		if s.Namespace == namespace && s.Name == name {
			for _, p := range slices.Backward(s.Ports) {
				if p.Number == number && p.Protocol == cluster.TCP {
					section = p.Name
				}
			}
		}
	}
	var best *cluster.BackendTLSPolicy
	for _, of := range []string{section, ""} {
		for _, p := range e.policies {
			isIt := func(t cluster.PolicyTarget) bool {
				return t.Group == "" && t.Kind == "Service" && t.Name == name && p.Namespace == namespace && t.Section == of
			}
			if best == nil && slices.ContainsFunc(p.Targets, isIt) {
				best = p
			}
		}
	}
	if best == nil {
		return "", true
	}
	authorities := 0 // octets
	for _, ref := range best.Authorities {
		for _, m := range e.configMaps {
			if ref.Kind == "ConfigMap" && m.Namespace == ref.Namespace && m.Name == ref.Name &&
				strings.HasPrefix(m.Data["ca.crt"], "-----") {
				authorities += len(m.Data["ca.crt"]) + 1
			}
		}
	}
	valid = best.Hostname != "" && (authorities > 0 || len(best.Authorities) == 0 && best.WellKnown == "System")
	return fmt.Sprintf("+%s,%d", best.Hostname, authorities), valid
}

// budget returns how many requests to a Service may be sent again, if that is limited.
func (e *evaluator) budget(namespace, name string) string {
	for _, p := range e.traffic {
		isIt := func(t cluster.PolicyTarget) bool { return t.Group == "" && t.Kind == "Service" && t.Name == name }
		if p.Namespace != namespace || !slices.ContainsFunc(p.Targets, isIt) {
			continue
		}
		if !e.cfg.Experimental || p.Retries == nil {
			return ""
		}
		return fmt.Sprintf("~%d%%", p.Retries.Percent)
	}
	return ""
}

// port returns the number of a port of a Service and, after a slash, that it speaks h2c; empty if there is none. The
// other result is its appProtocol.
func (e *evaluator) port(namespace, name string, is func(cluster.Port) bool) (port, protocol string) {
	for _, s := range e.services {
		if s.Namespace != namespace || s.Name != name || s.ExternalName != "" {
			continue
		}
		for i, p := range s.Ports {
			if !is(p) {
				continue
			}
			if s.Spec != nil && s.Spec.AppProtocols != nil && s.Spec.AppProtocols[i] != nil {
				protocol = *s.Spec.AppProtocols[i]
			}
			if port = strconv.Itoa(int(p.Number)); protocol == "kubernetes.io/h2c" {
				port += "/h2c"
			}
			return port, protocol
		}
	}
	return "", ""
}

// byIngresses returns what of the Ingresses serves a request.
func (e *evaluator) byIngresses(q *query) string {
	var ours []*cluster.Frontend
	hosts := make(map[string]bool) // that a rule has
	for _, i := range e.ingresses {
		if e.isOurs(i.Ingress) {
			ours = append(ours, i)
			for _, r := range i.Ingress.Rules {
				hosts[r.Host] = true
			}
		}
	}
	host, hasHost := q.host, hosts[q.host]
	if _, above, ok := strings.Cut(q.host, "."); !hasHost && ok { // a star is one label
		host = "*." + above
		hasHost = hosts[host]
	}
	if !hasHost { // decision: rules without a host are for hosts that no other rule has
		host = ""
		hasHost = hosts[""]
	}
	if hasHost {
		if text := e.atHost(ours, host, q); text != "" {
			return text
		}
	}
	for _, i := range ours {
		if i.Ingress.Default != nil {
			return e.defaultOf(i)
		}
	}
	return "404"
}

// isOurs reports whether the class of an Ingress has our controller.
func (e *evaluator) isOurs(i *cluster.IngressSpec) bool {
	name := cmp.Or(i.Class, i.OldClass)
	var classes []*cluster.IngressClass
	for _, c := range e.ingressClasses {
		if name == "" && c.Default || name != "" && c.Name == name {
			classes = append(classes, c)
		}
	}
	return len(classes) == 1 && classes[0].Controller == e.cfg.IngressController
}

// atHost returns what serves a request of the rules with a host: the longest path, and of equal ones Exact.
// Decision: then the oldest Ingress, then the first path; if none matches, the defaultBackend of the oldest
// Ingress that has a rule for the host.
func (e *evaluator) atHost(ours []*cluster.Frontend, host string, q *query) string {
	found, length, exact, rest := "", -1, false, ""
	for _, i := range ours {
		has := false
		for n, r := range i.Ingress.Rules {
			if r.Host != host {
				continue
			}
			has = true
			for m := range r.Paths {
				p := &r.Paths[m]
				path := unescaped(cmp.Or(p.Path, "/"))
				kind := map[bool]string{true: "Exact", false: "PathPrefix"}[p.Type == "Exact"]
				is := len(path)
				if kind == "PathPrefix" { // a slash at its end does not count
					is = len(strings.TrimSuffix(path, "/"))
				}
				if !hasPath(kind, path, q.path) || is < length || is == length && (exact || kind != "Exact") {
					continue
				}
				found = fmt.Sprintf("ingress %s rules[%d].paths[%d]", i.Key, n, m) + e.ingressLeads(i.Namespace, &p.Backend)
				length, exact = is, kind == "Exact"
			}
		}
		if has && rest == "" && i.Ingress.Default != nil {
			rest = e.defaultOf(i)
		}
	}
	return cmp.Or(found, rest)
}

func (e *evaluator) defaultOf(i *cluster.Frontend) string {
	return fmt.Sprintf("ingress %s defaultBackend", i.Key) + e.ingressLeads(i.Namespace, i.Ingress.Default)
}

// ingressLeads returns where a backend of an Ingress leads.
func (e *evaluator) ingressLeads(namespace string, b *cluster.IngressBackend) string {
	port := ""
	if b.Resource == nil {
		port, _ = e.port(namespace, b.Service, func(p cluster.Port) bool {
			return p.Protocol == cluster.TCP && (b.Port != "" && p.Name == b.Port || b.Port == "" && p.Number == b.Number)
		})
	}
	number, _ := strconv.Atoi(strings.TrimSuffix(port, "/h2c"))
	security, valid := e.security(namespace, b.Service, uint16(number))
	if port == "" || !valid {
		return ": 503"
	}
	return fmt.Sprintf(" %s/%s:%s%s*1%s", namespace, b.Service, port, security, e.budget(namespace, b.Service))
}

// compiled returns what a table has for a request, in the words of an evaluator.
func compiled(t *table.Table, q *query) string {
	port := t.Port(table.Socket{Addr: q.addr, Port: q.port, Transport: q.transport})
	if port == nil {
		return "404"
	}
	if l, rule := port.Stream(q.host); rule != nil {
		return describe(rule)
	} else if l != nil && l.Mode != table.Requests {
		return "404"
	}
	r := &table.Request{Method: q.method, Path: q.path, Query: q.query, Header: q.header}
	_, found := port.Find(q.host, r)
	if found == nil {
		return "404"
	}
	return describe(found.Rule)
}

// describe returns what a rule does, in the words of an evaluator.
func describe(rule *table.Rule) string {
	text := fmt.Sprintf("%s rule %d", rule.Object, rule.Index)
	if strings.HasPrefix(rule.Object, "ingress ") {
		text = rule.Object + " " + rule.Name
	}
	if rule.Status != 0 {
		return fmt.Sprintf("%s: %d", text, rule.Status)
	}
	made := new(strings.Builder)
	made.WriteString(text)
	for _, b := range rule.Backends {
		if b.Upstream == (table.Upstream{}) {
			fmt.Fprintf(made, " 500*%d", b.Weight)
			continue
		}
		protocol := map[table.Protocol]string{table.H2C: "/h2c", table.RawTCP: "/TCP", table.RawUDP: "/UDP"}[b.Upstream.Protocol]
		if b.Upstream.Secure() {
			by := b.Upstream.TLS.Value()
			protocol += fmt.Sprintf("+%s,%d", by.ServerName, len(by.Authorities))
		}
		fmt.Fprintf(made, " %s/%s:%d%s*%d", b.Upstream.Namespace, b.Upstream.Service, b.Upstream.Port, protocol, b.Weight)
		if b.Retries != nil {
			fmt.Fprintf(made, "~%d%%", b.Retries.Percent)
		}
	}
	if g := rule.Guard; g != nil {
		rates, users := 0, 0
		for _, l := range g.Limits {
			rates += int(l.Requests)
		}
		if g.BasicAuth != nil {
			users = len(g.BasicAuth.Users)
		}
		made.WriteString(demandText(g.Allow, rates, g.Concurrent != nil, g.MaxBody, users))
	}
	return made.String()
}
