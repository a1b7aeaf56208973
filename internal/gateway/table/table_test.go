package table_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/gateway/table"
)

// rule returns a Rule with a name.
func rule(name string) *table.Rule { return &table.Rule{Name: name} }

// host returns a Host of routes.
func host(t *testing.T, routes ...table.Route) *table.Host {
	t.Helper()
	for i := range routes {
		if m := &routes[i].Match; m.Kind == table.Expression {
			var err error
			if m.Whole, err = table.CompileWhole(m.Path); err != nil {
				t.Fatal(err)
			}
		}
	}
	return table.NewHost(routes)
}

// name returns the name of the Rule that serves a request, "" for none.
func name(h *table.Host, r *table.Request) string {
	if found := h.Find(r); found != nil {
		return found.Rule.Name
	}
	return ""
}

// TestPaths has the examples of the table "Path types" (Kubernetes, "Ingress").
func TestPaths(t *testing.T) {
	t.Parallel()
	prefix := func(path string) table.Match { return table.Match{Kind: table.Prefix, Path: path} }
	exact := func(path string) table.Match { return table.Match{Kind: table.Exact, Path: path} }
	tests := map[string]struct {
		matches []table.Match
		path    string
		want    string // the number of the match, "" for none
	}{
		"/ matches all":                             {[]table.Match{prefix("/")}, "/any/path", "0"},
		"exact, equal":                              {[]table.Match{exact("/foo")}, "/foo", "0"},
		"exact, another":                            {[]table.Match{exact("/foo")}, "/bar", ""},
		"exact, a slash more":                       {[]table.Match{exact("/foo")}, "/foo/", ""},
		"exact, a slash less":                       {[]table.Match{exact("/foo/")}, "/foo", ""},
		"prefix, equal":                             {[]table.Match{prefix("/foo")}, "/foo", "0"},
		"prefix, a slash more":                      {[]table.Match{prefix("/foo")}, "/foo/", "0"},
		"prefix, a slash less":                      {[]table.Match{prefix("/foo/")}, "/foo", "0"},
		"prefix with a slash, equal":                {[]table.Match{prefix("/foo/")}, "/foo/", "0"},
		"the last element is no substring":          {[]table.Match{prefix("/aaa/bb")}, "/aaa/bbb", ""},
		"elements are equal":                        {[]table.Match{prefix("/aaa/bbb")}, "/aaa/bbb", "0"},
		"a slash at the end is ignored":             {[]table.Match{prefix("/aaa/bbb/")}, "/aaa/bbb", "0"},
		"a slash at the end matches":                {[]table.Match{prefix("/aaa/bbb")}, "/aaa/bbb/", "0"},
		"a subpath":                                 {[]table.Match{prefix("/aaa/bbb")}, "/aaa/bbb/ccc", "0"},
		"a string prefix is none":                   {[]table.Match{prefix("/aaa/bbb")}, "/aaa/bbbxyz", ""},
		"the longer prefix":                         {[]table.Match{prefix("/"), prefix("/aaa")}, "/aaa/ccc", "1"},
		"the longest prefix":                        {[]table.Match{prefix("/"), prefix("/aaa"), prefix("/aaa/bbb")}, "/aaa/bbb", "2"},
		"the root of prefixes":                      {[]table.Match{prefix("/"), prefix("/aaa"), prefix("/aaa/bbb")}, "/ccc", "0"},
		"no prefix matches":                         {[]table.Match{prefix("/aaa")}, "/ccc", ""},
		"exact precedes prefix":                     {[]table.Match{prefix("/foo"), exact("/foo")}, "/foo", "1"},
		"case matters":                              {[]table.Match{prefix("/foo")}, "/FOO", ""},
		"the first of equal ones":                   {[]table.Match{prefix("/foo/"), prefix("/foo")}, "/foo", "0"},
		"an empty element is one":                   {[]table.Match{prefix("/a/b")}, "/a//b", ""},
		"empty elements are equal":                  {[]table.Match{prefix("/a//b")}, "/a//b/c", "0"},
		"a regular expression matches whole paths":  {[]table.Match{{Kind: table.Expression, Path: "/a|/b"}}, "/abc", ""},
		"a regular expression matches":              {[]table.Match{{Kind: table.Expression, Path: "/a.*|/b"}}, "/abc", "0"},
		"a regular expression precedes prefixes":    {[]table.Match{prefix("/abc"), {Kind: table.Expression, Path: "/a.*"}}, "/abc", "1"},
		"the longer regular expression comes first": {[]table.Match{{Kind: table.Expression, Path: "/a.*"}, {Kind: table.Expression, Path: "/ab.*"}}, "/abc", "1"},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			var routes []table.Route
			for i, m := range test.matches {
				routes = append(routes, table.Route{Match: m, Rule: rule(strconv.Itoa(i))})
			}
			if got := name(host(t, routes...), &table.Request{Path: test.path}); got != test.want {
				t.Errorf("Find(%s) = %q, want %q", test.path, got, test.want)
			}
		})
	}
}

// TestPrecedence has routes of one path, of which the most specific serves (HTTPRouteRule.matches).
func TestPrecedence(t *testing.T) {
	t.Parallel()
	a, b := table.Value{Name: "A", Text: "1"}, table.Value{Name: "B", Text: "2"}
	number := table.Value{Name: "A", Expression: regexp.MustCompile(`^(?:[0-9]+)$`)}
	route := func(name string, m table.Match) table.Route {
		m.Kind, m.Path = table.Prefix, "/x"
		return table.Route{Match: m, Rule: rule(name)}
	}
	h := host(t,
		route("any", table.Match{}),
		route("any, later", table.Match{}),
		route("two parameters", table.Match{Query: []table.Value{a, b}}),
		route("header", table.Match{Headers: []table.Value{a}}),
		route("headers", table.Match{Headers: []table.Value{a, b}}),
		route("number", table.Match{Headers: []table.Value{number}}),
		route("header and parameter", table.Match{Headers: []table.Value{a}, Query: []table.Value{a}}),
		route("method", table.Match{Method: "PUT"}),
		table.Route{Match: table.Match{Kind: table.Prefix, Path: "/x/y", Method: "PUT"}, Rule: rule("longer")},
	)
	header := func(pairs ...string) map[string][]string {
		all := make(map[string][]string)
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = append(all[pairs[i]], pairs[i+1])
		}
		return all
	}
	tests := map[string]table.Request{
		"any":                  {Path: "/x/y", Method: "GET"},
		"header":               {Path: "/x", Header: header("A", "1")},
		"headers":              {Path: "/x", Header: header("A", "1", "B", "2"), Query: "A=1&B=2"},
		"number":               {Path: "/x", Header: header("A", "27")},
		"header and parameter": {Path: "/x", Header: header("A", "1"), Query: "z&%41=1&A=2"},
		"two parameters":       {Path: "/x", Header: header("A", "1", "A", "1"), Query: "B=2&A=1"},
		"method":               {Path: "/x", Method: "PUT", Header: header("A", "1", "B", "2")},
		"longer":               {Path: "/x/y", Method: "PUT"},
		"":                     {Path: "/"},
	}
	for want, r := range tests {
		if got := name(h, &r); got != want {
			t.Errorf("Find(%+v) = %q, want %q", r, got, want)
		}
	}
}

// TestHosts looks for the hosts of names.
func TestHosts(t *testing.T) {
	t.Parallel()
	hosts := func(names ...string) map[string]*table.Host {
		all := make(map[string]*table.Host)
		for _, n := range names {
			all[n] = host(t, table.Route{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: rule(n)})
		}
		return all
	}
	listener := func(name, hostname string, names ...string) *table.Listener {
		return table.NewListener(name, hostname).WithHosts(hosts(names...))
	}
	p := table.NewPort([]*table.Listener{
		listener("all", "", "", "example.com", "*.example.com", "*.b.example.com"),
		listener("shop", "shop.example.com", "shop.example.com"),
		listener("wild", "*.example.org", "*.example.org", "a.example.org"),
		listener("empty", "*.example.net"),
	}, table.NewIngresses().WithHosts(hosts("*.example.net", "x.example.net", "a.example.com")))
	tests := map[string]string{
		"example.com":        "all: example.com",
		"a.example.com":      "all: *.example.com",
		"a.a.example.com":    "all: *.example.com",
		"b.example.com":      "all: *.example.com",
		"a.b.example.com":    "all: *.b.example.com",
		"shop.example.com":   "shop: shop.example.com",
		"a.shop.example.com": "all: *.example.com",
		"example.org":        "all: ",
		"a.example.org":      "wild: a.example.org",
		"b.a.example.org":    "wild: *.example.org",
		"x.example.net":      "Ingress: x.example.net",
		"y.example.net":      "Ingress: *.example.net",
		"y.y.example.net":    "empty: none",
		"localhost":          "all: ",
		"":                   "all: ",
	}
	for name, want := range tests {
		l, h := p.Host(name)
		got := l.Name + ": none"
		if h != nil {
			got = l.Name + ": " + h.Routes()[0].Rule.Name
		}
		if got != want {
			t.Errorf("Host(%q) = %s, want %s", name, got, want)
		}
	}
	if l, h := table.NewPort(nil, nil).Host("a"); l != nil || h != nil {
		t.Errorf("an empty Port has %v, %v for a name", l, h)
	}
}

// TestWithHosts changes hosts of a Listener, one of which has those it had.
func TestWithHosts(t *testing.T) {
	t.Parallel()
	one, other := host(t), host(t)
	random := rand.New(rand.NewPCG(1, 2))
	l := table.NewListener("all", "")
	want := make(map[string]*table.Host)
	for range 500 {
		before, wantBefore := l, maps.Clone(want)
		differ := make(map[string]*table.Host)
		for range random.IntN(4) {
			n := []string{"", "a%d.example.com", "*.b%d.example.com"}[random.IntN(3)]
			if n != "" {
				n = fmt.Sprintf(n, random.IntN(300))
			}
			differ[n] = []*table.Host{nil, one, other}[random.IntN(3)]
			if want[n] = differ[n]; differ[n] == nil {
				delete(want, n)
			}
		}
		l = l.WithHosts(differ)
		for of, want := range map[*table.Listener]map[string]*table.Host{before: wantBefore, l: want} {
			n := 0
			for hostname, h := range of.Hosts() {
				if n++; want[hostname] != h {
					t.Fatalf("after %v, %q has another host", differ, hostname)
				}
			}
			if n != len(want) {
				t.Fatalf("after %v, there are %d hosts, want %d", differ, n, len(want))
			}
		}
	}
}

// TestRandom compares a million requests to random routes with a walk through all of them.
func TestRandom(t *testing.T) {
	t.Parallel()
	requests := 1_000_000
	if testing.Short() {
		requests = 50_000
	}
	const each = 200
	for seed := range uint64(requests / each) {
		random := rand.New(rand.NewPCG(seed, 3))
		var routes []table.Route
		for i := range 1 + random.IntN(25) {
			routes = append(routes, table.Route{Match: randomMatch(random), Rule: rule(strconv.Itoa(i))})
		}
		h := host(t, routes...)
		for range each {
			r := randomRequest(random)
			want := slow(routes, r)
			if got := name(h, r); got != want {
				t.Fatalf("seed %d: Find(%+v) = %q, want %q of %+v", seed, r, got, want, routes)
			}
			if got := firstOf(h.Routes(), r); got != want {
				t.Fatalf("seed %d: the first of Routes that %+v matches is %q, want %q of %+v", seed, r, got, want, routes)
			}
		}
	}
}

// firstOf returns the name of the first route that a request matches.
func firstOf(routes []table.Route, r *table.Request) string {
	i := slices.IndexFunc(routes, func(o table.Route) bool { return o.OnPath(r.Path) && o.Miss(r) == "" })
	if i < 0 {
		return ""
	}
	return routes[i].Rule.Name
}

// expressions are those of randomMatch.
var expressions = map[string]*regexp.Regexp{
	"/a.*":   regexp.MustCompile("^/a.*$"),
	"/[ab]+": regexp.MustCompile("^/[ab]+$"),
	"(/a)*/": regexp.MustCompile("^(/a)*/$"),
	"/b/?":   regexp.MustCompile("^/b/?$"),
}

func randomPath(random *rand.Rand) string {
	var b strings.Builder
	for range random.IntN(4) {
		b.WriteString([]string{"/a", "/b", "/ab", "/"}[random.IntN(4)])
	}
	if b.Len() == 0 || random.IntN(6) == 0 {
		b.WriteString("/")
	}
	return b.String()
}

func randomMatch(random *rand.Rand) table.Match {
	m := table.Match{Kind: table.PathKind(random.IntN(3)), Path: randomPath(random)}
	if m.Kind == table.Expression {
		all := slices.Sorted(maps.Keys(expressions))
		m.Path = all[random.IntN(len(all))]
	}
	if random.IntN(3) == 0 {
		m.Method = []string{"GET", "PUT"}[random.IntN(2)]
	}
	values := func() (all []table.Value) {
		for _, name := range []string{"A", "B"} {
			if random.IntN(4) == 0 {
				all = append(all, table.Value{Name: name, Text: strconv.Itoa(random.IntN(2))})
			}
		}
		return all
	}
	m.Headers, m.Query = values(), values()
	return m
}

func randomRequest(random *rand.Rand) *table.Request {
	r := &table.Request{
		Path: randomPath(random), Method: []string{"GET", "PUT", "POST"}[random.IntN(3)],
		Header: make(map[string][]string),
	}
	for _, name := range []string{"A", "B"} {
		if random.IntN(2) == 0 {
			r.Header[name] = []string{strconv.Itoa(random.IntN(2))}
		}
		if random.IntN(2) == 0 {
			r.Query += fmt.Sprintf("&%s=%d", name, random.IntN(2))
		}
	}
	return r
}

// slow returns the name of the rule that serves a request, from the text of the specification.
func slow(routes []table.Route, r *table.Request) string {
	best, name := []int(nil), ""
	for _, route := range routes {
		rank, ok := rank(&route.Match, r)
		if !ok {
			continue
		}
		better := best == nil
		for i := range best {
			if rank[i] != best[i] {
				better = rank[i] > best[i]
				break
			}
		}
		if better {
			best, name = rank, route.Rule.Name
		}
	}
	return name
}

// rank returns how specific a match is, and whether a request matches.
func rank(m *table.Match, r *table.Request) (of []int, ok bool) {
	kind, length, method, text := 0, len(m.Path), 0, 0
	switch m.Kind {
	case table.Exact:
		kind, ok = 2, m.Path == r.Path
	case table.Expression:
		kind, ok = 1, expressions[m.Path].MatchString(r.Path)
		text = -int(m.Path[1])<<8 - int(m.Path[2])
	case table.Prefix:
		prefix, path := elements(m.Path), elements(r.Path)
		length = len(strings.Join(prefix, "/"))
		ok = len(prefix) <= len(path) && slices.Equal(prefix, path[:len(prefix)])
	}
	if m.Method != "" {
		method, ok = 1, ok && m.Method == r.Method
	}
	for _, v := range m.Headers {
		ok = ok && len(r.Header[v.Name]) == 1 && r.Header[v.Name][0] == v.Text
	}
	for _, v := range m.Query {
		ok = ok && strings.Contains(r.Query+"&", "&"+v.Name+"="+v.Text+"&")
	}
	return []int{kind, length, text, method, len(m.Headers), len(m.Query)}, ok
}

// elements returns the elements of a path; a slash at its end does not count.
func elements(path string) []string { return strings.Split(strings.TrimSuffix(path, "/"), "/") }

// TestGroups: a group serves what no route of those before it matches, however specific its own are.
func TestGroups(t *testing.T) {
	t.Parallel()
	prefix := table.Route{Match: table.Match{Kind: table.Prefix, Path: "/a", Method: "GET"}, Rule: rule("first")}
	exact := table.Route{Match: table.Match{Kind: table.Exact, Path: "/a"}, Rule: rule("second")}
	h := table.NewHost([]table.Route{prefix}, nil, []table.Route{exact})
	for method, want := range map[string]string{"GET": "first", "PUT": "second"} {
		r := &table.Request{Path: "/a", Method: method}
		if got := name(h, r); got != want {
			t.Errorf("Find(%+v) = %q, want %q", r, got, want)
		}
		if got := firstOf(h.Routes(), r); got != want {
			t.Errorf("the first of Routes that %+v matches is %q, want %q", r, got, want)
		}
	}
}

// TestRest: what serves the rest of the Ingresses serves the names that no listener has a host for.
func TestRest(t *testing.T) {
	t.Parallel()
	all := func(name string) *table.Host {
		return host(t, table.Route{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: rule(name)})
	}
	l := table.NewListener("all", "").WithHosts(map[string]*table.Host{"a.test": all("route")})
	ingresses := table.NewIngresses().WithHosts(map[string]*table.Host{"b.test": all("ingress")}).WithRest(all("rest"))
	p := table.NewPort([]*table.Listener{l}, ingresses)
	for name, want := range map[string]string{"a.test": "route", "b.test": "ingress", "c.test": "rest"} {
		if _, found := p.Find(name, &table.Request{Path: "/"}); found == nil || found.Rule.Name != want {
			t.Errorf("Find(%s) = %v, want the rule %s", name, found, want)
		}
	}
	if l, found := table.NewPort([]*table.Listener{l}, nil).Find("c.test", &table.Request{Path: "/"}); l == nil || found != nil {
		t.Errorf("Find(c.test) = %v, %v, want the listener and no route", l, found)
	}
}

func TestBadExpression(t *testing.T) {
	t.Parallel()
	if _, err := table.CompileWhole("/(a"); err == nil || !strings.Contains(err.Error(), "`/(a`") {
		t.Errorf("CompileWhole(/(a): %v", err)
	}
}

// TestAllocFind: finding a route allocates nothing.
func TestAllocFind(t *testing.T) {
	var routes []table.Route
	for i := range 1000 {
		routes = append(routes, table.Route{
			Match: table.Match{
				Kind: table.Prefix, Path: fmt.Sprintf("/api/v%d", i),
				Headers: []table.Value{{Name: "A", Text: "1"}}, Query: []table.Value{{Name: "q", Text: "1"}},
			},
			Rule: rule(strconv.Itoa(i)),
		})
	}
	l := table.NewListener("all", "").WithHosts(map[string]*table.Host{"*.example.com": host(t, routes...)})
	p := table.NewPort([]*table.Listener{l}, nil)
	r := &table.Request{Path: "/api/v711/items/1", Header: map[string][]string{"A": {"1"}}, Query: "a=b&q=1"}
	if n := testing.AllocsPerRun(100, func() {
		if _, found := p.Find("a.shop.example.com", r); found == nil || found.Rule.Name != "711" {
			t.Errorf("Find(%+v) = %v", r, found)
		}
	}); n != 0 {
		t.Errorf("Find allocates %v times", n)
	}
}

func BenchmarkFind(b *testing.B) {
	var routes []table.Route
	for i := range 1000 {
		routes = append(routes, table.Route{
			Match: table.Match{Kind: table.Prefix, Path: fmt.Sprintf("/api/v%d", i)}, Rule: rule(strconv.Itoa(i)),
		})
	}
	h := table.NewHost(routes)
	l := table.NewListener("all", "").WithHosts(map[string]*table.Host{"*.example.com": h})
	p := table.NewPort([]*table.Listener{l}, nil)
	r := &table.Request{Path: "/api/v711/items/1"}
	for b.Loop() {
		p.Find("a.shop.example.com", r)
	}
}
