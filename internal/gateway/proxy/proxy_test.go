package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

// gateway is a Proxy that listens, with the upstreams web and other.
type gateway struct {
	t       *testing.T
	proxy   *proxy.Proxy
	pools   *balance.Set[table.Upstream]
	addr    netip.AddrPort
	mu      sync.Mutex
	records []proxy.Record
}

var (
	web   = table.Upstream{Namespace: "shop", Service: "web", Port: 80}
	other = table.Upstream{Namespace: "shop", Service: "other", Port: 80}
)

// newGateway starts a gateway; change changes its settings.
func newGateway(t *testing.T, change func(*proxy.Config)) *gateway {
	t.Helper()
	g := &gateway{t: t, pools: new(balance.Set[table.Upstream])}
	cfg := proxy.Config{Endpoints: g.pools, Done: func(r *proxy.Record) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.records = append(g.records, *r)
	}}
	if change != nil {
		change(&cfg)
	}
	g.proxy = proxy.New(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	g.addr = netip.MustParseAddrPort(l.Addr().String())
	s := &h1.Server{Handler: g.proxy.At(table.Socket{Port: g.addr.Port()})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		g.proxy.Close()
	})
	return g
}

// serve has the gateway serve routes for all hosts.
func (g *gateway) serve(routes ...table.Route) {
	l := table.NewListener("gateway shop/web http", "").WithHosts(map[string]*table.Host{"": table.NewHost(routes)})
	port := table.NewPort([]*table.Listener{l}, nil)
	g.proxy.SetTable(table.New(map[table.Socket]*table.Port{{Port: g.addr.Port()}: port}))
}

// to returns a route of a prefix to web.
func to(prefix string, a table.Actions) table.Route {
	return table.Route{
		Match: table.Match{Kind: table.Prefix, Path: prefix},
		Rule:  &table.Rule{Object: "httproute shop/web", Actions: a, Backends: []table.Backend{{Upstream: web, Weight: 1}}},
	}
}

// endpoint starts a server, and returns its address.
func endpoint(t *testing.T, handler http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// echo answers with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header()["Server-Says"] = []string{"hello"}
	fmt.Fprintf(w, "%s %s %s\n", r.Method, r.RequestURI, r.Host)
	_ = r.Header.Write(w)
	fmt.Fprintf(w, "body %s\n", body)
}

// web gives web these endpoints.
func (g *gateway) web(addrs ...netip.AddrPort) {
	g.pools.Update(map[table.Upstream][]netip.AddrPort{web: addrs})
}

// ask sends a request with fields "Name: value", and returns the response and its body. It follows no
// redirects.
func (g *gateway) ask(method, target, body string, fields ...string) (*http.Response, string) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.addr.String()+target, strings.NewReader(body))
	must(g.t, err)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	res, err := new(http.Transport).RoundTrip(r)
	must(g.t, err)
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	must(g.t, err)
	return res, string(all)
}

// last returns the newest Record, which comes after the answer.
func (g *gateway) last() proxy.Record {
	g.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.mu.Lock()
		if n := len(g.records); n > 0 {
			defer g.mu.Unlock()
			return g.records[n-1]
		}
		g.mu.Unlock()
	}
	g.t.Fatal("no record")
	return proxy.Record{}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnswers has requests that the gateway answers itself, each with its reason.
func TestAnswers(t *testing.T) {
	t.Parallel()
	refused := func() netip.AddrPort { // nobody listens there
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		return netip.MustParseAddrPort(l.Addr().String())
	}
	slow := endpoint(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	rule := func(r table.Rule) []table.Route {
		return []table.Route{{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: &r}}
	}
	toWeb := []table.Backend{{Upstream: web, Weight: 1}}
	tests := map[string]struct {
		routes    []table.Route
		endpoints []netip.AddrPort
		target    string
		status    int
		reason    table.Reason
	}{
		"no table":            {nil, nil, "/", 503, proxy.NoTable},
		"no route":            {[]table.Route{to("/a", table.Actions{})}, nil, "/b", 404, proxy.NoRoute},
		"a bad path":          {rule(table.Rule{Backends: toWeb}), nil, "/%00", 400, proxy.BadPath},
		"a rule's own answer": {rule(table.Rule{Status: 503, Reason: "because"}), nil, "/", 503, "because"},
		"no backends":         {rule(table.Rule{}), nil, "/", 500, proxy.NoBackend},
		"weight 0":            {rule(table.Rule{Backends: []table.Backend{{Upstream: web}}}), nil, "/", 500, proxy.NoBackend},
		"an invalid backend": {
			rule(table.Rule{Backends: []table.Backend{{Weight: 1, Reason: "gone"}}}),
			nil,
			"/",
			500,
			"gone",
		},
		"no endpoints": {rule(table.Rule{Backends: toWeb}), nil, "/", 503, proxy.NoEndpoint},
		"endpoints that refuse": {
			rule(table.Rule{Backends: toWeb}), []netip.AddrPort{refused(), refused()}, "/", 502, proxy.Unreachable,
		},
		"the request's timeout": {
			rule(table.Rule{Backends: toWeb, Request: 50 * time.Millisecond}), []netip.AddrPort{slow}, "/", 504, proxy.TimedOut,
		},
		"an attempt's timeout": {
			rule(
				table.Rule{Backends: toWeb, BackendRequest: 50 * time.Millisecond},
			),
			[]netip.AddrPort{slow},
			"/",
			504,
			proxy.TimedOut,
		},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil)
			g.web(test.endpoints...)
			if test.routes != nil {
				g.serve(test.routes...)
			}
			res, body := g.ask("GET", test.target, "")
			if res.StatusCode != test.status || g.last().Reason != test.reason {
				t.Errorf(
					"GET %s = %d %s(%s), want %d, %q",
					test.target,
					res.StatusCode,
					body,
					g.last().Reason,
					test.status,
					test.reason,
				)
			}
		})
	}
}

// TestRequest looks at what an upstream gets.
func TestRequest(t *testing.T) {
	t.Parallel()
	prefix := func(to string) table.Actions {
		return table.Actions{Rewrite: &table.Rewrite{Path: &table.PathChange{Prefix: true, To: to}}}
	}
	tests := map[string]struct {
		route  table.Route
		target string
		fields []string
		want   []string // lines that the upstream gets; with "-" in front, that it does not get
	}{
		"the request as it is": {
			to("/", table.Actions{}), "/a%2Fb?c=%20d", []string{"Host: shop.test", "A: 1", "A: 2"},
			[]string{"POST /a%2Fb?c=%20d shop.test", "A: 1", "A: 2", "body text"},
		},
		"a normal path": {to("/", table.Actions{}), "/x/../%61", nil, []string{"POST /a " + ""}},
		"forwarded fields are replaced": {
			to("/", table.Actions{}), "/", []string{"Host: shop.test", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https"},
			[]string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: shop.test", "X-Forwarded-Proto: http"},
		},
		"forged fields in another form are removed": { // some backends take an underscore for a hyphen
			to("/", table.Actions{}), "/", []string{"Host: shop.test", "X_Forwarded_For: 1.2.3.4", "x-forwarded_host: b.test", "X_Other: 1"},
			[]string{"-X_forwarded_for: 1.2.3.4", "-X-Forwarded_host: b.test", "X-Forwarded-For: 127.0.0.1", "X_other: 1"},
		},
		"other fields of the way here are removed": {
			to("/", table.Actions{}), "/", []string{"X-Forwarded-Prefix: /a", "X-Forwarded-Port: 1", "X_Real_IP: 1.2.3.4", "X-Real-Ip: 1.2.3.4"},
			[]string{"-X-Forwarded-Prefix: /a", "-X-Forwarded-Port: 1", "-X_real_ip: 1.2.3.4", "-X-Real-Ip: 1.2.3.4"},
		},
		"fields of the connection stay": {
			to("/", table.Actions{}), "/", []string{"Connection: X-Secret", "X-Secret: 1", "Keep-Alive: 1", "Te: trailers"},
			[]string{"-X-Secret: 1", "-Keep-Alive: 1", "-Connection: X-Secret"},
		},
		"header modifiers": {
			to("/", table.Actions{Request: &table.HeaderChange{
				Set: []table.Field{{Name: "A", Value: "new"}}, Add: []table.Field{{Name: "B", Value: "2"}}, Remove: []string{"C"},
			}}),
			"/", []string{"A: old", "B: 1", "C: 3"}, []string{"A: new", "-A: old", "B: 1", "B: 2", "-C: 3"},
		},
		"another host": {
			to("/", table.Actions{Rewrite: &table.Rewrite{Host: "other.test"}}), "/", []string{"Host: shop.test"},
			[]string{"POST / other.test"},
		},
		"a whole path": {
			to(
				"/a",
				table.Actions{Rewrite: &table.Rewrite{Path: &table.PathChange{To: "/x"}}},
			),
			"/a/b?c=d",
			nil,
			[]string{"POST /x?c=d "},
		},
		// The examples of HTTPPathModifier.replacePrefixMatch.
		"/foo/bar, /foo, /xyz":  {to("/foo", prefix("/xyz")), "/foo/bar", nil, []string{"POST /xyz/bar "}},
		"/foo/bar, /foo, /xyz/": {to("/foo", prefix("/xyz/")), "/foo/bar", nil, []string{"POST /xyz/bar "}},
		"/foo/bar, /foo/, /xyz": {to("/foo/", prefix("/xyz")), "/foo/bar", nil, []string{"POST /xyz/bar "}},
		"/foo, /foo, /xyz":      {to("/foo", prefix("/xyz")), "/foo", nil, []string{"POST /xyz "}},
		"/foo/, /foo, /xyz":     {to("/foo", prefix("/xyz")), "/foo/", nil, []string{"POST /xyz/ "}},
		"/foo/bar, /foo, empty": {to("/foo", prefix("")), "/foo/bar", nil, []string{"POST /bar "}},
		"/foo/, /foo, empty":    {to("/foo", prefix("")), "/foo/", nil, []string{"POST / "}},
		"/foo, /foo, empty":     {to("/foo", prefix("")), "/foo", nil, []string{"POST / "}},
		"/foo/, /foo, /":        {to("/foo", prefix("/")), "/foo/", nil, []string{"POST / "}},
		"/foo, /foo, /":         {to("/foo", prefix("/")), "/foo", nil, []string{"POST / "}},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil)
			g.web(endpoint(t, echo))
			g.serve(test.route)
			_, got := g.ask("POST", test.target, "text", test.fields...)
			lines := "\n" + strings.ReplaceAll(got, "\r", "")
			for _, want := range test.want {
				want, not := strings.CutPrefix(want, "-")
				if strings.Contains(lines, "\n"+want) == not {
					t.Errorf("POST %s gave the upstream\n%s\nwant %t of %q", test.target, got, !not, want)
				}
			}
		})
	}
}

// TestTrusted keeps what a trusted client says of the one before it.
func TestTrusted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *proxy.Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	g.web(endpoint(t, echo))
	g.serve(to("/", table.Actions{}))
	_, got := g.ask("GET", "/", "", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "X-Forwarded-Host: a.test",
		"X-Forwarded-Prefix: /a", "X-Real-Ip: 1.2.3.4")
	for _, want := range []string{
		"X-Forwarded-For: 1.2.3.4, 127.0.0.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: a.test", "X-Forwarded-Prefix: /a",
		"X-Real-Ip: 1.2.3.4",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the upstream got\n%s\nwant %s", got, want)
		}
	}
}

// TestResponse changes the head of a response.
func TestResponse(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	route := to("/", table.Actions{Response: &table.HeaderChange{
		Set: []table.Field{{Name: "A", Value: "rule"}}, Remove: []string{"Server-Says"},
	}})
	route.Rule.Backends[0].Response = &table.HeaderChange{
		Set: []table.Field{{Name: "A", Value: "backend"}, {Name: "B", Value: "2"}},
	}
	g.serve(route)
	res, _ := g.ask("GET", "/", "")
	if h := res.Header; h.Get("A") != "rule" || h.Get("B") != "2" || h.Get("Server-Says") != "" {
		t.Errorf("the head is %v", h)
	}
	if r := g.last(); r.Upstream != web || r.Attempts != 1 || r.Reason != "" || r.Rule.Object != "httproute shop/web" ||
		r.Listener != "gateway shop/web http" || r.Duration <= 0 {
		t.Errorf("the record is %+v", r)
	}
}

// TestRedirect has the rules of HTTPRequestRedirectFilter.
func TestRedirect(t *testing.T) {
	t.Parallel()
	path := func(to string) *table.PathChange { return &table.PathChange{Prefix: true, To: to} }
	tests := map[string]struct {
		redirect table.Redirect
		host     string
		want     string // PORT stands for the listener's port
	}{
		"to https": {table.Redirect{Scheme: "https", Status: 301}, "a.test:8080", "https://a.test/p/q?r=s"},
		"to https with a port": {
			table.Redirect{Scheme: "https", Port: 8443, Status: 301},
			"a.test",
			"https://a.test:8443/p/q?r=s",
		},
		"the listener's port": {table.Redirect{Host: "b.test", Status: 302}, "a.test:81", "http://b.test:PORT/p/q?r=s"},
		"a well-known port":   {table.Redirect{Port: 80, Status: 302}, "a.test:81", "http://a.test/p/q?r=s"},
		"https at port 443":   {table.Redirect{Scheme: "https", Port: 443, Status: 302}, "a.test", "https://a.test/p/q?r=s"},
		"http at port 443": {
			table.Redirect{Scheme: "http", Port: 443, Status: 302},
			"a.test",
			"http://a.test:443/p/q?r=s",
		},
		"another prefix": {table.Redirect{Port: 80, Path: path("/x"), Status: 307}, "a.test", "http://a.test/x/q?r=s"},
		"another path": {
			table.Redirect{Port: 80, Path: &table.PathChange{To: "/y"}, Status: 308},
			"a.test",
			"http://a.test/y?r=s",
		},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil)
			g.serve(to("/p", table.Actions{Redirect: &test.redirect}))
			res, _ := g.ask("GET", "/p/q?r=s", "", "Host: "+test.host)
			want := strings.ReplaceAll(test.want, "PORT", strconv.FormatUint(uint64(g.addr.Port()), 10))
			if got := res.Header.Get("Location"); got != want || res.StatusCode != test.redirect.Status {
				t.Errorf("Location is %s with status %d, want %s, %d", got, res.StatusCode, want, test.redirect.Status)
			}
		})
	}
}

// TestCORS asks from other origins.
func TestCORS(t *testing.T) {
	t.Parallel()
	cors := table.CORS{
		Origins: []string{"https://*.a.test", "https://b.test"}, Methods: []string{"GET", "PUT"},
		Headers: []string{"*"}, Expose: []string{"X-A"}, MaxAge: time.Hour,
	}
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	g.serve(to("/", table.Actions{CORS: &cors}))
	preflight := func(origin string) *http.Response {
		res, _ := g.ask("OPTIONS", "/", "", "Origin: "+origin, "Access-Control-Request-Method: PUT",
			"Access-Control-Request-Headers: x-b")
		return res
	}
	for origin, allowed := range map[string]bool{
		"https://x.a.test": true, "https://x.y.a.test": true, "https://b.test": true,
		"https://a.test": false, "http://b.test": false, "https://c.test": false, "https://b.test.c.test": false,
	} {
		h := preflight(origin).Header
		if got := h.Get("Access-Control-Allow-Origin"); (got == origin) != allowed {
			t.Errorf("%s: allowed origin %q, want it %t", origin, got, allowed)
		}
		if allowed && (h.Get("Access-Control-Allow-Methods") != "GET, PUT" || h.Get("Access-Control-Max-Age") != "3600" ||
			h.Get("Access-Control-Allow-Headers") != "x-b" || h.Get("Access-Control-Expose-Headers") != "X-A") {
			t.Errorf("%s: the answer to the preflight request is %v", origin, h)
		}
		res, _ := g.ask("GET", "/", "", "Origin: "+origin)
		if got := res.Header.Get(
			"Access-Control-Allow-Origin",
		); (got == origin) != allowed ||
			res.StatusCode != http.StatusOK ||
			(res.Header.Get("Access-Control-Expose-Headers") == "X-A") != allowed {
			t.Errorf("%s: a request has %d, %v", origin, res.StatusCode, res.Header)
		}
	}
	if res, body := g.ask("OPTIONS", "/", ""); res.StatusCode != http.StatusOK || !strings.HasPrefix(body, "OPTIONS / ") {
		t.Errorf("OPTIONS that is no preflight request = %d %s, want the upstream's answer", res.StatusCode, body)
	}
}

// TestCORSOfUpstream: what an upstream says of origins goes, whatever the origin, and caches are told that it matters.
func TestCORSOfUpstream(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		w.Header().Set("Access-Control-Expose-Headers", "X-Secret")
	}))
	g.serve(to("/", table.Actions{CORS: &table.CORS{Origins: []string{"https://a.test"}}}))
	for origin, want := range map[string]string{"https://a.test": "https://a.test", "https://evil.test": "", "": ""} {
		var fields []string
		if origin != "" {
			fields = append(fields, "Origin: "+origin)
		}
		res, _ := g.ask("GET", "/", "", fields...)
		h := res.Header
		if got := h.Get("Access-Control-Allow-Origin"); got != want || h.Get("Access-Control-Allow-Credentials") != "" ||
			h.Get("Access-Control-Expose-Headers") != "" || h.Get("Vary") != "Origin" {
			t.Errorf("origin %q: %v, want %q without credentials", origin, h, want)
		}
	}
}

// TestWeights sends requests to backends in proportion.
func TestWeights(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	says := func(text string) netip.AddrPort {
		return endpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	g.pools.Update(map[table.Upstream][]netip.AddrPort{web: {says("web")}, other: {says("other")}})
	route := to("/", table.Actions{})
	route.Rule.Backends = []table.Backend{{Upstream: web, Weight: 3}, {Weight: 0}, {Upstream: other, Weight: 1}}
	g.serve(route)
	seen := make(map[string]int)
	for range 400 {
		_, body := g.ask("GET", "/", "")
		seen[body]++
	}
	// The deviation is 8.7; five of them are exceeded once in two million runs.
	if n := seen["web"]; n < 256 || n > 344 || n+seen["other"] != 400 {
		t.Errorf("%v of 400 requests, want 300 of web and 100 of other", seen)
	}
}

// TestOtherEndpoint sends a request to another endpoint if one refuses connections.
func TestOtherEndpoint(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	gone := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	g.web(gone, endpoint(t, echo))
	g.serve(to("/", table.Actions{}))
	for range 40 {
		if res, body := g.ask("POST", "/", "text"); res.StatusCode != http.StatusOK || !strings.Contains(body, "body text") {
			t.Fatalf("POST / = %d %s", res.StatusCode, body)
		}
	}
}

// TestNotRepeated: a request that may have had an effect is not sent again.
func TestNotRepeated(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	var mu sync.Mutex
	n := make(map[string]int)
	breaks := func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n[r.Method]++
		mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	g.web(endpoint(t, breaks), endpoint(t, breaks))
	g.serve(to("/", table.Actions{}))
	for _, method := range []string{"POST", "GET"} {
		if res, _ := g.ask(method, "/", ""); res.StatusCode != http.StatusBadGateway {
			t.Errorf("%s = %d, want 502", method, res.StatusCode)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if n["POST"] != 1 || n["GET"] < 2 {
		t.Errorf("the endpoints got %v, want one POST and several GET", n)
	}
}

// TestMirror copies requests.
func TestMirror(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	copies := make(chan string, 10)
	copied := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		copies <- r.Method + " " + r.RequestURI + " " + r.Host + " " + string(body) + fields(r.Header, "X-Secret", "Keep-Alive",
			"Connection", "Upgrade", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto")
		w.WriteHeader(http.StatusInternalServerError)
	})
	g.pools.Update(map[table.Upstream][]netip.AddrPort{web: {endpoint(t, echo)}, other: {copied}})
	g.serve(to("/", table.Actions{Mirrors: []table.Mirror{
		{Upstream: other, Numerator: 1, Denominator: 1}, {Upstream: other, Numerator: 0, Denominator: 1},
	}}))
	if res, body := g.ask(
		"PUT",
		"/a?b=c",
		"text",
		"Host: shop.test", "Connection: X-Secret, upgrade", "Connection: x-forwarded-host", "Upgrade: x", "X-Secret: 1", "Keep-Alive: 1",
		"Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https",
	); res.StatusCode != http.StatusOK ||
		!strings.Contains(body, "body text") {
		t.Errorf("PUT = %d %s", res.StatusCode, body)
	}
	select {
	case got := <-copies:
		if want := "PUT /a?b=c shop.test text X-Forwarded-For: 127.0.0.1 X-Forwarded-Host: shop.test X-Forwarded-Proto: http"; got != want {
			t.Errorf("the copy is %q", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("no copy after a minute")
	}
	select {
	case got := <-copies:
		t.Errorf("a second copy: %q", got)
	case <-time.After(20 * time.Millisecond):
	}
}

// fields returns fields that a header has.
func fields(h http.Header, names ...string) string {
	var b strings.Builder
	for _, name := range names {
		for _, value := range h[name] {
			b.WriteString(" " + name + ": " + value)
		}
	}
	return b.String()
}

// TestNoUpgrade: a client cannot have a tunnel to an upstream by a protocol that carries further requests.
func TestNoUpgrade(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	g.serve(to("/", table.Actions{}))
	for upgrade, passes := range map[string]bool{
		"h2c": false, "H2C": false, "websocket, h2c": false, "HTTP/2.0": false, "TLS/1.2": false, "h2c, ": false,
		"websocket": true, "spdy/3": true,
	} {
		_, got := g.ask("GET", "/", "", "Connection: Upgrade, HTTP2-Settings", "Upgrade: "+upgrade, "Http2-Settings: AAMAAABk")
		if strings.Contains(got, "Upgrade") != passes || strings.Contains(got, "Settings") {
			t.Errorf("Upgrade: %s gave the upstream\n%s\nwant Upgrade %t", upgrade, got, passes)
		}
	}
}

// TestH2C sends requests of all kinds to an upstream that speaks HTTP/2 only, and copies of them to another. What asks
// for another protocol is answered in HTTP.
func TestH2C(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	copies := make(chan string, 1)
	start := func(handler http.HandlerFunc) netip.AddrPort {
		s := httptest.NewUnstartedServer(handler)
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		t.Cleanup(s.Close)
		return netip.MustParseAddrPort(s.Listener.Addr().String())
	}
	web, other := web, other
	web.Protocol, other.Protocol = table.H2C, table.H2C
	g.pools.Update(map[table.Upstream][]netip.AddrPort{
		web: {start(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "After")
			fmt.Fprintf(w, "%s ", r.Proto)
			w.(http.Flusher).Flush() // so that the length is not known
			echo(w, r)
			w.Header().Set("After", "all")
		})},
		other: {start(func(_ http.ResponseWriter, r *http.Request) { copies <- r.Proto + " " + r.RequestURI })},
	})
	route := to("/", table.Actions{Mirrors: []table.Mirror{{Upstream: other}}})
	route.Rule.Backends[0].Upstream = web
	g.serve(route)
	res, got := g.ask("POST", "/a?b", "c", "Connection: Upgrade", "Upgrade: websocket")
	if !strings.HasPrefix(got, "HTTP/2.0 POST /a?b ") || !strings.Contains(got, "body c") || strings.Contains(got, "Upgrade") ||
		res.Trailer.Get("After") != "all" {
		t.Errorf("status %d, trailer %v, %q; want HTTP/2.0 POST /a?b, body c and no Upgrade", res.StatusCode, res.Trailer, got)
	}
	if got, want := <-copies, "HTTP/2.0 /a?b"; got != want {
		t.Errorf("copy %q, want %q", got, want)
	}
}

// TestUpgrade passes both directions of a connection that changed its protocol (RFC 9110, section 7.8),
// and keeps it when the table changes.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		conn, both, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = both.Flush()
		_, _ = io.Copy(conn, both)
	}))
	const limit = 500 * time.Millisecond // which is for the time until the response
	route := to("/", table.Actions{})
	route.Rule.Request, route.Rule.BackendRequest = limit, limit
	g.serve(route)
	conn, err := net.Dial("tcp", g.addr.String())
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: shop.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	must(t, err)
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d, want 101", res.StatusCode)
	}
	for i := range 5 {
		text := fmt.Sprintf("message %d\n", i)
		_, err := conn.Write([]byte(text))
		must(t, err)
		got, err := r.ReadString('\n')
		must(t, err)
		if got != text {
			t.Fatalf("got %q, want %q", got, text)
		}
		g.serve(to("/other", table.Actions{}))
		g.web()
		time.Sleep(limit / 4)
	}
}

// TestClientGone: if the client goes, the upstream's request ends.
func TestClientGone(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	came, gone := make(chan struct{}), make(chan struct{})
	g.web(endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		close(came)
		<-r.Context().Done()
		close(gone)
	}))
	g.serve(to("/", table.Actions{}))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addr.String(), nil)
	must(t, err)
	go func() {
		if res, err := new(http.Transport).RoundTrip(r); err == nil {
			res.Body.Close()
		}
	}()
	<-came
	cancel()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("the upstream's request goes on a minute after the client went")
	}
	if e := g.pools.Pool(web).Pick(); e.UnderWay() > 2 {
		t.Errorf("%d requests under way", e.UnderWay())
	}
}
