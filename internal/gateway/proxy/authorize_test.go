package proxy_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

var authService = table.Upstream{Namespace: "auth", Service: "check", Port: 80}

// authorized starts a gateway whose requests a service decides on, and returns what the backend got.
func authorized(t *testing.T, auth table.ExternalAuth, service netip.AddrPort) (*gateway, *atomic.Int64) {
	t.Helper()
	g := newGateway(t, nil)
	var served atomic.Int64
	backend := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		echo(w, r)
	})
	g.pools.Update(map[table.Upstream][]netip.AddrPort{web: {backend}, auth.Upstream: {service}})
	g.serve(guarded(table.Guard{External: &auth}, table.Actions{}))
	return g, &served
}

func parse(t *testing.T, text string) table.Template {
	t.Helper()
	made, err := table.ParseTemplate(text)
	must(t, err)
	return made
}

// TestAuthHTTP has a service that knows a token decide (HTTPExternalAuthFilter, HTTP).
func TestAuthHTTP(t *testing.T) {
	t.Parallel()
	var asked atomic.Pointer[http.Request]
	service := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r)
		body, _ := io.ReadAll(r.Body)
		switch r.Header.Get("Authorization") {
		case "Bearer good":
			w.Header().Set("X-User", "ann")
			w.Header().Set("X-Body", string(body))
			w.Header().Set("Content-Type", "text/of-the-service")
		case "Bearer moved":
			w.Header().Set("Location", "/login")
			w.WriteHeader(http.StatusFound)
		case "Bearer created":
			w.WriteHeader(http.StatusCreated)
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("X-Internal", "secret")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "who are you?")
		}
	})
	auth := table.ExternalAuth{
		Upstream: authService, Path: "/check", RequestHeaders: []string{"X-Tenant"},
		ResponseHeaders: []string{"X-User", "X-Body", "X-Role"}, MaxBody: 10,
	}
	g, served := authorized(t, auth, service)
	res, body := g.ask(
		"POST",
		"/a?b=c",
		"text",
		"Authorization: Bearer good",
		"X-Tenant: shop",
		"X-Other: 1",
		"X_User: eve",
		"X-User: eve",
		"X-Role: admin",
		"Cookie: a=b",
		"Host: shop.test",
	)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("an allowed request = %d, %s", res.StatusCode, body)
	}
	for _, want := range []string{"X-User: ann", "X-Body: text", "body text", "X-Other: 1"} {
		if !strings.Contains(body, want) {
			t.Errorf("the backend got\n%s\nwant %s", body, want)
		}
	}
	for _, not := range []string{"eve", "admin", "of-the-service"} {
		if strings.Contains(body, not) {
			t.Errorf("the backend got\n%s\nnot %s", body, not)
		}
	}
	r := asked.Load()
	if r.Method != http.MethodPost || r.RequestURI != "/check/a?b=c" || r.Host != "shop.test" || r.ContentLength != 4 {
		t.Errorf("the service was asked %s %s of %s, %d octets", r.Method, r.RequestURI, r.Host, r.ContentLength)
	}
	if r.Header.Get("X-Tenant") != "shop" || r.Header.Get("X-Other") != "" || r.Header.Get("Cookie") != "" {
		t.Errorf("the service got the fields %v", r.Header)
	}
	before := served.Load()
	for claim, test := range map[string]struct {
		fields, body string
		status       int
		want         string
		reason       table.Reason
	}{
		"its status and body":        {"Authorization: Bearer bad", "", 401, "who are you?", proxy.Refused},
		"its redirect":               {"Authorization: Bearer moved", "", 302, "", proxy.Refused},
		"its 2xx that is no consent": {"Authorization: Bearer created", "", 403, "", proxy.Refused},
		"a body that is too large":   {"Authorization: Bearer good", "0123456789a", 413, "", proxy.BodyTooLarge},
	} {
		res, got := g.ask("POST", "/", test.body, test.fields)
		if res.StatusCode != test.status || !strings.Contains(got, test.want) || g.last().Reason != test.reason {
			t.Errorf(
				"%s: %d %q, %q, want %d %q, %q",
				claim,
				res.StatusCode,
				got,
				g.last().Reason,
				test.status,
				test.want,
				test.reason,
			)
		}
		if res.Header.Get("X-Internal") != "" {
			t.Errorf("%s: the client got %v", claim, res.Header)
		}
	}
	if served.Load() != before {
		t.Errorf("%d refused requests reached the backend", served.Load()-before)
	}
}

// TestAuthUnreachable refuses requests when their service does not answer.
func TestAuthUnreachable(t *testing.T) {
	t.Parallel()
	slow := endpoint(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	breaks := endpoint(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	closed := listen(t)
	closed.Close()
	nobody := netip.MustParseAddrPort(closed.Addr().String())
	fails := endpoint(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	for claim, test := range map[string]struct {
		auth    table.ExternalAuth
		service netip.AddrPort
		status  int
	}{
		"slow":                  {table.ExternalAuth{Upstream: authService, Timeout: 20 * time.Millisecond}, slow, 503},
		"breaks off":            {table.ExternalAuth{Upstream: authService}, breaks, 503},
		"nobody listens":        {table.ExternalAuth{Upstream: authService}, nobody, 503},
		"no endpoint":           {table.ExternalAuth{Upstream: table.Upstream{Service: "other"}}, nobody, 503},
		"an invalid Service":    {table.ExternalAuth{Reason: "no Service"}, nobody, 500},
		"fails":                 {table.ExternalAuth{Upstream: authService}, fails, 500},
		"fails, of nginx":       {table.ExternalAuth{Upstream: authService, Kind: table.AuthSubrequest, URL: parse(t, "http://a.test/")}, fails, 500},
		"a host without a name": {table.ExternalAuth{Kind: table.AuthSubrequest, URL: parse(t, "http:///a")}, nobody, 503},
		"no gRPC":               {table.ExternalAuth{Upstream: authService, Kind: table.AuthGRPC}, fails, 503},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g, served := authorized(t, test.auth, test.service)
			if test.auth.Upstream.Service == "other" {
				g.pools.Update(map[table.Upstream][]netip.AddrPort{test.auth.Upstream: nil})
			}
			res, body := g.ask("GET", "/", "")
			if res.StatusCode != test.status || served.Load() != 0 {
				t.Errorf("GET / = %d %s, want %d", res.StatusCode, body, test.status)
			}
		})
	}
}

// TestAuthSubrequest has a service decide as with auth-url of ingress-nginx, in a Service and outside.
func TestAuthSubrequest(t *testing.T) {
	var asked atomic.Pointer[http.Request]
	service := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r)
		w.Header().Set("Set-Cookie", "session=1")
		w.Header().Set("X-User", "ann")
		if strings.Contains(r.Header.Get("Cookie"), "good") {
			w.WriteHeader(http.StatusAccepted)
		} else {
			w.Header().Set("WWW-Authenticate", "Login")
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	for claim, test := range map[string]struct {
		up  table.Upstream
		url string
	}{
		"in a Service": {authService, "http://auth.test/check?host=$host"},
		"outside":      {table.Upstream{}, "http://" + service.String() + "/check?host=$host"},
	} {
		t.Run(claim, func(t *testing.T) {
			auth := table.ExternalAuth{
				Kind: table.AuthSubrequest, Upstream: test.up, URL: parse(t, test.url), ResponseHeaders: []string{"X-User"},
			}
			g, _ := authorized(t, auth, service)
			res, body := g.ask("POST", "/a?b=c", "text", "Host: shop.test", "Cookie: good", "X-User: eve")
			if res.StatusCode != http.StatusOK || !strings.Contains(body, "X-User: ann") || strings.Contains(body, "eve") ||
				!strings.Contains(body, "body text") || res.Header.Get("Set-Cookie") != "session=1" {
				t.Errorf("an allowed request = %d, %v\n%s", res.StatusCode, res.Header, body)
			}
			r := asked.Load()
			if r.Method != http.MethodGet || r.RequestURI != "/check?host=shop.test" ||
				r.Header.Get("X-Original-Url") != "http://shop.test/a?b=c" || r.Header.Get("X-Original-Method") != "POST" ||
				r.Header.Get("X-Auth-Request-Redirect") != "/a?b=c" || r.ContentLength != 0 {
				t.Errorf("the service was asked %s %s, %d octets, %v", r.Method, r.RequestURI, r.ContentLength, r.Header)
			}
			res, _ = g.ask("GET", "/a?b=c", "", "Host: shop.test")
			if res.StatusCode != http.StatusUnauthorized || res.Header.Get("Www-Authenticate") != "Login" ||
				g.last().Reason != proxy.Refused {
				t.Errorf("a refused request = %d, %v", res.StatusCode, res.Header)
			}
			for url, want := range map[string]string{
				"https://auth.test/start":             "https://auth.test/start?rd=http%3A%2F%2Fshop.test%2Fa%3Fb%3Dc",
				"https://auth.test/start?x=1":         "https://auth.test/start?x=1&rd=http%3A%2F%2Fshop.test%2Fa%3Fb%3Dc",
				"https://$host/start?rd=$request_uri": "https://shop.test/start?rd=/a?b=c",
			} {
				auth.SignIn = &table.SignIn{URL: parse(t, url)}
				g.serve(guarded(table.Guard{External: &auth}, table.Actions{}))
				res, _ = g.ask("GET", "/a?b=c", "", "Host: shop.test")
				if res.StatusCode != http.StatusFound || res.Header.Get("Location") != want || g.last().Reason != proxy.SignIn {
					t.Errorf("auth-signin %s = %d, %s, want %s", url, res.StatusCode, res.Header.Get("Location"), want)
				}
			}
		})
	}
}

// field encodes a field of a message of protobuf.
func field(number protowire.Number, content string) string {
	b := protowire.AppendTag(nil, number, protowire.BytesType)
	return string(protowire.AppendString(b, content))
}

// number encodes a field that is a number.
func number(of protowire.Number, value uint64) string {
	return string(protowire.AppendVarint(protowire.AppendTag(nil, of, protowire.VarintType), value))
}

// envoy is a service that answers Check with a message, and keeps what it was asked.
func envoy(t *testing.T, answer, status string) (netip.AddrPort, *atomic.Pointer[string]) {
	t.Helper()
	var asked atomic.Pointer[string]
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(new(r.URL.Path + string(body)))
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(answer))))
		_, _ = io.WriteString(w, answer)
		w.Header().Set("Grpc-Status", status)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String()), &asked
}

func TestAuthGRPC(t *testing.T) {
	t.Parallel()
	option := func(name, value, appends string) string {
		return field(1, field(1, name)+field(2, value)) + appends
	}
	ok := field(1, number(1, 0))
	for claim, test := range map[string]struct {
		answer, grpc string
		status       int
		want, not    string // in what the client gets, with the backend's echo
	}{
		"an empty status":        {"", "0", 200, "X-User: eve", ""},
		"allowed, with a field":  {ok + field(3, field(2, option("x-user", "ann", ""))), "0", 200, "X-User: ann", "eve"},
		"allowed, field added":   {ok + field(3, field(2, option("x-user", "ann", field(2, number(1, 1))))), "0", 200, "X-User: ann", ""},
		"allowed, field removed": {ok + field(3, field(5, "x-user")), "0", 200, "body text", "eve"},
		"denied":                 {field(1, number(1, 7)), "0", 403, "Forbidden", ""},
		"denied, with all": {
			field(1, number(1, 16)) + field(2, field(1, number(1, 401))+field(2, option("www-authenticate", "Who", ""))+field(3, "no!")),
			"0", 401, "no!", "",
		},
		"denied, with a status of success": {field(1, number(1, 7)) + field(2, field(1, number(1, 200))), "0", 403, "", ""},
		"an error of gRPC":                 {"", "14", 503, "", ""},
		"no message":                       {"\x0a\xff", "0", 503, "", ""},
		"an invalid name of a field":       {ok + field(3, field(2, option("x user", "ann", ""))), "0", 503, "", ""},
		"what cannot be done":              {ok + field(3, field(8, "query")), "0", 503, "", ""},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			up := authService
			up.Protocol = table.H2C
			service, asked := envoy(t, test.answer, test.grpc)
			g, served := authorized(t, table.ExternalAuth{Kind: table.AuthGRPC, Upstream: up, MaxBody: 100}, service)
			res, body := g.ask("POST", "/a?b=c", "text", "X-User: eve", "Host: shop.test")
			if res.StatusCode != test.status || !strings.Contains(body, test.want) ||
				test.not != "" && strings.Contains(body, test.not) {
				t.Errorf("Check answered %q: %d, %s", test.answer, res.StatusCode, body)
			}
			if (served.Load() == 0) != (test.status != 200) {
				t.Errorf("Check answered %q: the backend got %d requests", test.answer, served.Load())
			}
			for _, part := range []string{
				"/envoy.service.auth.v3.Authorization/Check", field(2, "POST"), field(4, "/a?b=c"), field(5, "shop.test"),
				field(6, "http"), field(12, "text"), field(3, field(1, "x-user")+field(2, "eve")), field(2, "127.0.0.1"),
			} {
				if !strings.Contains(*asked.Load(), part) {
					t.Errorf("Check was asked %q, want %q", *asked.Load(), part)
				}
			}
		})
	}
}
