package proxy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

// trusting has a gateway trust this test's clients, which name others.
func trusting(c *proxy.Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

// guarded returns a route of all paths to web with a Guard.
func guarded(g table.Guard, a table.Actions) table.Route {
	route := to("/", a)
	route.Rule.Guard = &g
	return route
}

func prefixes(all ...string) (made []netip.Prefix) {
	for _, p := range all {
		made = append(made, netip.MustParsePrefix(p))
	}
	return made
}

func TestAddressLists(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		allow, deny []netip.Prefix
		client      string
		status      int
	}{
		"no lists":                 {nil, nil, "192.0.2.1", 200},
		"an allowed client":        {prefixes("192.0.2.0/24"), nil, "192.0.2.1", 200},
		"a client not allowed":     {prefixes("192.0.2.0/24"), nil, "198.51.100.1", 403},
		"a denied client":          {nil, prefixes("192.0.2.0/24"), "192.0.2.1", 403},
		"a client not denied":      {nil, prefixes("192.0.2.0/24"), "198.51.100.1", 200},
		"denied of those allowed":  {prefixes("192.0.2.0/24"), prefixes("192.0.2.1/32"), "192.0.2.1", 403},
		"allowed in IPv6":          {prefixes("2001:db8::/32"), nil, "2001:db8::1", 200},
		"an IPv4 address in IPv6":  {prefixes("192.0.2.0/24"), nil, "::ffff:192.0.2.1", 200},
		"a client with a port":     {prefixes("127.0.0.0/8"), nil, "198.51.100.1:4711", 403},
		"IPv6 with a port":         {prefixes("2001:db8::/32"), nil, "[2001:db8::1]:4711", 200},
		"IPv6 in brackets":         {nil, prefixes("2001:db8::/32"), "[2001:db8::1]", 403},
		"what a proxy before says": {prefixes("192.0.2.0/24"), nil, "192.0.2.1, 198.51.100.1", 403},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, trusting)
			g.web(endpoint(t, echo))
			g.serve(guarded(table.Guard{Allow: test.allow, Deny: test.deny}, table.Actions{}))
			res, _ := g.ask("GET", "/", "", "X-Forwarded-For: "+test.client)
			if res.StatusCode != test.status {
				t.Errorf("GET / for %s with %v, %v = %d, want %d", test.client, test.allow, test.deny, res.StatusCode, test.status)
			}
			if reason := g.last().Reason; (reason == proxy.AddressDenied) != (test.status == 403) {
				t.Errorf("GET / for %s: reason %q", test.client, reason)
			}
		})
	}
}

// TestUntrustedAddress takes no client's word for where it is.
func TestUntrustedAddress(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	g.serve(guarded(table.Guard{Allow: prefixes("192.0.2.0/24")}, table.Actions{}))
	if res, _ := g.ask("GET", "/", "", "X-Forwarded-For: 192.0.2.1"); res.StatusCode != http.StatusForbidden {
		t.Errorf("GET / = %d, want 403", res.StatusCode)
	}
}

// TestRateLimit has clients use up their limit over several connections, also while the table changes.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	g := newGateway(t, trusting)
	g.web(endpoint(t, echo))
	limit := table.Guard{Limits: []table.RateLimit{
		{Key: "shop/web", Requests: 3, Per: time.Hour, Exempt: prefixes("203.0.113.0/24")},
	}}
	g.serve(guarded(limit, table.Actions{}))
	ask := func(client string) *http.Response {
		res, _ := g.ask("GET", "/", "", "X-Forwarded-For: "+client)
		return res
	}
	for n := range 3 {
		if res := ask("192.0.2.1"); res.StatusCode != http.StatusOK {
			t.Errorf("request %d = %d, want 200", n, res.StatusCode)
		}
		g.serve(guarded(limit, table.Actions{}))
	}
	res := ask("192.0.2.1")
	if res.StatusCode != http.StatusTooManyRequests || g.last().Reason != proxy.RateLimited {
		t.Errorf("request 4 = %d, %q, want 429", res.StatusCode, g.last().Reason)
	}
	if after := res.Header.Get("Retry-After"); after != "1200" && after != "1199" {
		t.Errorf("Retry-After: %s, want 1200", after)
	}
	for range 4 {
		if res := ask("203.0.113.1"); res.StatusCode != http.StatusOK {
			t.Errorf("an exempt client got %d, want 200", res.StatusCode)
		}
	}
	if res := ask("192.0.2.2"); res.StatusCode != http.StatusOK {
		t.Errorf("another client got %d, want 200", res.StatusCode)
	}
	for n := range 4 {
		want := 200
		if n == 3 {
			want = 429
		}
		if res := ask(fmt.Sprintf("2001:db8::%d", n)); res.StatusCode != want {
			t.Errorf("request %d of a /64 = %d, want %d", n, res.StatusCode, want)
		}
	}
}

// TestConcurrent has a client have two requests under way, of HTTP/1.1 and HTTP/2, and no more until one ends.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	hold, begun := make(chan struct{}), make(chan struct{}, 8)
	g.web(endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		if r.URL.Path == "/hold" {
			<-hold
		}
	}))
	g.serve(guarded(table.Guard{Concurrent: &table.Concurrency{Key: "shop/web", Max: 2}}, table.Actions{}))
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if res, _ := g.ask("GET", "/hold", ""); res.StatusCode != http.StatusOK {
				t.Errorf("GET /hold = %d, want 200", res.StatusCode)
			}
		})
		<-begun
	}
	if res, _ := g.ask(
		"GET",
		"/",
		"",
	); res.StatusCode != http.StatusTooManyRequests ||
		g.last().Reason != proxy.TooManyAtOnce {
		t.Errorf("GET / = %d, want 429", res.StatusCode)
	}
	close(hold)
	group.Wait()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); { // the first two end after their responses
		if res, _ := g.ask("GET", "/", ""); res.StatusCode == http.StatusOK {
			return
		}
	}
	t.Error("the requests count after they have ended")
}

func TestBasicAuth(t *testing.T) {
	t.Parallel()
	users := map[string]string{
		"ann": "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", "bob": "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
	}
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	g.serve(guarded(table.Guard{BasicAuth: &table.BasicAuth{Realm: "the \"shop\"", Users: users}}, table.Actions{}))
	for claim, test := range map[string]struct {
		fields []string
		status int
	}{
		"no credentials":           {nil, 401},
		"another scheme":           {[]string{"Authorization: Bearer YW5uOnNlY3JldA=="}, 401},
		"not base64":               {[]string{"Authorization: Basic *"}, 401},
		"bcrypt":                   {[]string{"Authorization: Basic YW5uOnNlY3JldA=="}, 200},
		"bcrypt, once more":        {[]string{"Authorization: Basic YW5uOnNlY3JldA=="}, 200},
		"SHA-1":                    {[]string{"Authorization: Basic Ym9iOnNlY3JldA=="}, 200},
		"another password":         {[]string{"Authorization: Basic YW5uOndyb25n"}, 401},
		"a user that is not there": {[]string{"Authorization: Basic ZXZlOnNlY3JldA=="}, 401},
	} {
		res, _ := g.ask("GET", "/", "", test.fields...)
		if res.StatusCode != test.status {
			t.Errorf("%s: %d, want %d", claim, res.StatusCode, test.status)
		}
		challenge := `Basic realm="the \"shop\"", charset="UTF-8"`
		if test.status == 401 && res.Header.Get("Www-Authenticate") != challenge {
			t.Errorf("%s: WWW-Authenticate: %s, want %s", claim, res.Header.Get("Www-Authenticate"), challenge)
		}
	}
	users = map[string]string{"ann": "{SHA}0000000000000000000000000000"}
	g.serve(guarded(table.Guard{BasicAuth: &table.BasicAuth{Users: users}}, table.Actions{}))
	if res, _ := g.ask(
		"GET",
		"/",
		"",
		"Authorization: Basic YW5uOnNlY3JldA==",
	); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("the password that was changed: %d, want 401", res.StatusCode)
	}
}

// TestManyLogins has a client guess passwords of bcrypt at once: few are compared, and one that is known passes.
func TestManyLogins(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	users := map[string]string{
		"ann": "$2y$10$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", "bob": "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
	}
	g.serve(guarded(table.Guard{BasicAuth: &table.BasicAuth{Users: users}}, table.Actions{}))
	if res, _ := g.ask("GET", "/", "", "Authorization: Basic Ym9iOnNlY3JldA=="); res.StatusCode != http.StatusOK {
		t.Fatalf("login = %d", res.StatusCode)
	}
	var refused atomic.Int64
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() {
			if res, _ := g.ask(
				"GET",
				"/",
				"",
				"Authorization: Basic YW5uOndyb25n",
			); res.StatusCode == http.StatusTooManyRequests {
				refused.Add(1)
			}
		})
	}
	if res, _ := g.ask("GET", "/", "", "Authorization: Basic Ym9iOnNlY3JldA=="); res.StatusCode != http.StatusOK {
		t.Errorf("a known password = %d, want 200", res.StatusCode)
	}
	group.Wait()
	if refused.Load() == 0 {
		t.Error("all of 40 passwords were compared")
	}
}

func TestMaxBody(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	const limit = 100_000
	g.serve(guarded(table.Guard{MaxBody: limit}, table.Actions{}))
	for claim, test := range map[string]struct {
		size, status int
		chunked      bool
		expect       bool
	}{
		"no body":                             {0, 200, false, false},
		"as large as allowed":                 {limit, 200, false, false},
		"an octet more":                       {limit + 1, 413, false, false},
		"much more, of a client that waits":   {1 << 20, 413, false, true},
		"as large as allowed, chunked":        {limit, 200, true, false},
		"an octet more, chunked":              {limit + 1, 413, true, false},
		"much more, chunked":                  {8 << 20, 413, true, false},
		"short and chunked":                   {10, 200, true, false},
		"more, chunked, of one that waits":    {1 << 20, 413, true, true},
		"allowed, chunked, of one that waits": {limit, 200, true, true},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			var body io.Reader = strings.NewReader(strings.Repeat("x", test.size))
			if test.chunked {
				body = struct{ io.Reader }{body}
			}
			r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+g.addr.String()+"/", body)
			must(t, err)
			if test.expect {
				r.Header.Set("Expect", "100-continue")
			}
			res, err := (&http.Transport{ExpectContinueTimeout: time.Minute}).RoundTrip(r)
			if err != nil { // the client was sending still, and did not see the response
				if test.status != 413 {
					t.Fatalf("a body of %d octets: %v", test.size, err)
				}
				return
			}
			defer res.Body.Close()
			if res.StatusCode != test.status {
				t.Errorf("a body of %d octets = %d, want %d", test.size, res.StatusCode, test.status)
			}
		})
	}
}

// TestGuardOrder has requests that lack all that is demanded be told of the first thing.
func TestGuardOrder(t *testing.T) {
	t.Parallel()
	g := newGateway(t, trusting)
	g.web(endpoint(t, echo))
	guard := table.Guard{
		Deny:      prefixes("192.0.2.0/24"),
		Limits:    []table.RateLimit{{Key: "a", Requests: 2, Per: time.Hour}},
		BasicAuth: &table.BasicAuth{Users: map[string]string{"bob": "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}},
		MaxBody:   1,
	}
	g.serve(guarded(guard, table.Actions{
		CORS: &table.CORS{
			Origins: []string{"*"},
		},
		Redirect: &table.Redirect{Path: &table.PathChange{To: "/new"}, Status: 302},
	}))
	login := "Authorization: Basic Ym9iOnNlY3JldA=="
	preflight := []string{"Origin: http://a.test", "Access-Control-Request-Method: PUT"}
	for _, test := range []struct {
		method, body string
		fields       []string
		status       int
	}{
		{"POST", "long", []string{"X-Forwarded-For: 192.0.2.1"}, 403},
		{"POST", "long", []string{"X-Forwarded-For: 198.51.100.1"}, 401},
		{"POST", "long", []string{"X-Forwarded-For: 198.51.100.1", login}, 413},
		{"POST", "long", []string{"X-Forwarded-For: 198.51.100.1", login}, 429},
		{"POST", "", []string{"X-Forwarded-For: 198.51.100.2", login}, 302},
		{"OPTIONS", "", append([]string{"X-Forwarded-For: 198.51.100.2"}, preflight...), 204},
		{"OPTIONS", "", append([]string{"X-Forwarded-For: 192.0.2.1"}, preflight...), 403},
	} {
		if res, _ := g.ask(test.method, "/", test.body, test.fields...); res.StatusCode != test.status {
			t.Errorf("%s / with %q, %q = %d, want %d", test.method, test.body, test.fields, res.StatusCode, test.status)
		}
	}
}

// TestAnyOf has either an address or a password be enough, and a denied address never.
func TestAnyOf(t *testing.T) {
	t.Parallel()
	g := newGateway(t, trusting)
	g.web(endpoint(t, echo))
	g.serve(guarded(table.Guard{
		Allow: prefixes("192.0.2.0/24"), Deny: prefixes("192.0.2.9/32"), AnyOf: true,
		BasicAuth: &table.BasicAuth{Users: map[string]string{"bob": "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}},
	}, table.Actions{}))
	for _, test := range []struct {
		client, login string
		status        int
	}{
		{"192.0.2.1", "", 200},
		{"198.51.100.1", "", 401},
		{"198.51.100.1", "Basic Ym9iOnNlY3JldA==", 200},
		{"192.0.2.9", "Basic Ym9iOnNlY3JldA==", 403},
	} {
		res, _ := g.ask("GET", "/", "", "X-Forwarded-For: "+test.client, "Authorization: "+test.login)
		if res.StatusCode != test.status {
			t.Errorf("GET / of %s with %q = %d, want %d", test.client, test.login, res.StatusCode, test.status)
		}
	}
}

// TestStreams has the requests of one connection of HTTP/2 use up one limit.
func TestStreams(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	g.serve(guarded(table.Guard{Limits: []table.RateLimit{{Key: "a", Requests: 5, Per: time.Hour}}}, table.Actions{}))
	s := http.Server{Handler: g.proxy.At(table.Socket{Port: g.addr.Port()}), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	l := listen(t)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: new(tls.Config)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	var served, refused atomic.Int64
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/", http.NoBody)
			must(t, err)
			res, err := transport.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			switch res.StatusCode {
			case http.StatusOK:
				served.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
			}
		})
	}
	group.Wait()
	if served.Load() != 5 || refused.Load() != 15 {
		t.Errorf("%d were served and %d refused, want 5 and 15", served.Load(), refused.Load())
	}
}

// listen returns a listener on loopback.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}
