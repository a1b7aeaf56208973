package proxy_test

import (
	"io"
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

// retrying returns a route of all paths to web with a Retry.
func retrying(r table.Retry) table.Route {
	route := to("/", table.Actions{})
	route.Rule.Retry = &r
	return route
}

// failing is an endpoint that answers with a status some times, then with 200 and the body that it got.
func failing(t *testing.T, times int64, status int) (netip.AddrPort, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	return endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if asked.Add(1) <= times {
			w.Header().Set("X-Failed", "yes")
			w.WriteHeader(status)
			return
		}
		_, _ = w.Write(body)
	}), &asked
}

func TestRetry(t *testing.T) {
	t.Parallel()
	const large = 100_000 // is not held, and held says how much is
	for claim, test := range map[string]struct {
		retry        table.Retry
		fails        int64
		code         int
		method, body string
		status       int
		asked        int64
	}{
		"a code that is listed":         {table.Retry{Codes: []int{500}, Attempts: 3}, 2, 500, "GET", "", 200, 3},
		"more failures than attempts":   {table.Retry{Codes: []int{500}, Attempts: 3}, 9, 500, "GET", "", 500, 4},
		"a code that is not":            {table.Retry{Codes: []int{500}, Attempts: 3}, 9, 503, "GET", "", 503, 1},
		"a POST with a body":            {table.Retry{Codes: []int{503}, Attempts: 1}, 1, 503, "POST", "text", 200, 2},
		"a body of many packets":        {table.Retry{Codes: []int{503}, Attempts: 2}, 2, 503, "POST", strings.Repeat("x", 60_000), 200, 3},
		"a body that is too long":       {table.Retry{Codes: []int{503}, Attempts: 1}, 9, 503, "POST", strings.Repeat("x", large), 503, 1},
		"a POST, of idempotent ones":    {table.Retry{Codes: []int{503}, Attempts: 1, Idempotent: true}, 1, 503, "POST", "text", 503, 1},
		"a PUT, of idempotent ones":     {table.Retry{Codes: []int{503}, Attempts: 1, Idempotent: true}, 1, 503, "PUT", "text", 200, 2},
		"never":                         {table.Retry{Codes: []int{503}}, 1, 503, "GET", "", 503, 1},
		"no time for another":           {table.Retry{Codes: []int{503}, Attempts: 1, Within: time.Nanosecond}, 1, 503, "GET", "", 503, 1},
		"after a while, longer by time": {table.Retry{Codes: []int{503}, Attempts: 2, Backoff: 5 * time.Millisecond}, 2, 503, "GET", "", 200, 3},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil)
			at, asked := failing(t, test.fails, test.code)
			g.web(at)
			g.serve(retrying(test.retry))
			began := time.Now()
			res, body := g.ask(test.method, "/", test.body)
			if res.StatusCode != test.status || asked.Load() != test.asked {
				t.Errorf("%+v: %d after %d attempts, want %d after %d",
					test.retry, res.StatusCode, asked.Load(), test.status, test.asked)
			}
			if res.StatusCode == http.StatusOK && (body != test.body || res.Header.Get("X-Failed") != "") {
				t.Errorf("%+v: the response has %d octets and fields %v", test.retry, len(body), res.Header)
			}
			if test.retry.Backoff > 0 && time.Since(began) < 3*test.retry.Backoff {
				t.Errorf("%+v: took %v", test.retry, time.Since(began))
			}
			if g.last().Attempts != int(test.asked) {
				t.Errorf("the record has %d attempts, want %d", g.last().Attempts, test.asked)
			}
		})
	}
}

// TestRetryOthers sends a request that no endpoint answers, or not in time, to others, also one that is not idempotent.
func TestRetryOthers(t *testing.T) {
	t.Parallel()
	broken := endpoint(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	slow := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // else the server does not see that the client is gone
		<-r.Context().Done()
	})
	good := endpoint(t, echo)
	for claim, test := range map[string]struct {
		endpoints []netip.AddrPort
		rule      func(*table.Rule)
		status    int
		reason    table.Reason
	}{
		"no response":         {[]netip.AddrPort{broken, good}, func(*table.Rule) {}, 200, ""},
		"no response in time": {[]netip.AddrPort{slow, good}, func(r *table.Rule) { r.BackendRequest = 20 * time.Millisecond }, 200, ""},
		"no response at all":  {[]netip.AddrPort{broken}, func(*table.Rule) {}, 502, proxy.Unreachable},
		"no time for another": {
			[]netip.AddrPort{slow},
			func(r *table.Rule) { r.Request, r.BackendRequest = 60*time.Millisecond, 20*time.Millisecond },
			504, proxy.TimedOut,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil)
			g.web(test.endpoints...)
			route := retrying(table.Retry{Attempts: 3})
			test.rule(route.Rule)
			g.serve(route)
			for range 5 {
				res, _ := g.ask("POST", "/", "text")
				if res.StatusCode != test.status || g.last().Reason != test.reason {
					t.Errorf("POST / = %d, %q, want %d, %q", res.StatusCode, g.last().Reason, test.status, test.reason)
				}
			}
		})
	}
}

// TestRetryFailures asks first for an endpoint that gives no response.
func TestRetryFailures(t *testing.T) {
	t.Parallel()
	broken := endpoint(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	unreachable := netip.MustParseAddrPort("127.0.0.1:1")
	good := endpoint(t, echo)
	for claim, test := range map[string]struct {
		retry  table.Retry
		first  netip.AddrPort
		method string
		again  bool
	}{
		"a GET":                           {table.Retry{Attempts: 1, Idempotent: true}, broken, "GET", true},
		"a POST that was sent":            {table.Retry{Attempts: 1, Idempotent: true}, broken, "POST", false},
		"a POST that was not":             {table.Retry{Attempts: 1, Idempotent: true}, unreachable, "POST", true},
		"no failure, if codes only count": {table.Retry{Attempts: 1, CodesOnly: true}, unreachable, "GET", false},
		"none":                            {table.Retry{}, unreachable, "GET", false},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			failed := false
			for !failed { // which endpoint is first is chosen at random
				g := newGateway(t, nil)
				g.web(test.first, good)
				g.serve(retrying(test.retry))
				res, _ := g.ask(test.method, "/", "")
				failed = g.last().Attempts > 1 || res.StatusCode != http.StatusOK
				if failed && (res.StatusCode == http.StatusOK) != test.again {
					t.Errorf("%s / with %+v = %d after %d attempts", test.method, test.retry, res.StatusCode, g.last().Attempts)
				}
			}
		})
	}
}

// TestSession sends the requests of a session where the first one went, at every gateway, until the endpoint is gone.
func TestSession(t *testing.T) {
	t.Parallel()
	for claim, rule := range map[string]table.Persistence{
		"cookie": {Name: "session", Key: table.PersistenceKey("uid")},
		"header": {Name: "X-Session", Header: true, Key: table.PersistenceKey("uid")},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			first, second := newGateway(t, nil), newGateway(t, nil)
			all := make(map[string]netip.AddrPort)
			var ofWeb, ofOther []netip.AddrPort
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				all[name] = endpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
				if name < "d" {
					ofWeb = append(ofWeb, all[name])
				} else {
					ofOther = append(ofOther, all[name])
				}
			}
			route := to("/", table.Actions{})
			route.Rule.Persistence = &rule
			route.Rule.Backends = []table.Backend{{Upstream: web, Weight: 1}, {Upstream: other, Weight: 1}}
			for _, g := range []*gateway{first, second} {
				g.pools.Update(map[table.Upstream][]netip.AddrPort{web: ofWeb, other: ofOther})
				g.serve(route)
			}
			res, at := first.ask("GET", "/", "")
			token := tokenOf(t, res, &rule)
			for range 10 {
				for _, g := range []*gateway{first, second} {
					res, got := g.ask("GET", "/", "", token)
					if got != at {
						t.Fatalf("a request of the session at %s went to %s", at, got)
					}
					if !rule.Header && res.Header.Get("Set-Cookie") != "" {
						t.Errorf("a request of the session got Set-Cookie: %s", res.Header.Get("Set-Cookie"))
					}
				}
			}
			weightless := *route.Rule
			weightless.Backends = []table.Backend{{Upstream: web}, {Upstream: other, Weight: 1}}
			if at >= "d" {
				weightless.Backends = []table.Backend{{Upstream: web, Weight: 1}, {Upstream: other}}
			}
			first.serve(table.Route{Match: route.Match, Rule: &weightless})
			if _, got := first.ask("GET", "/", "", token); got != at {
				t.Errorf("a request of a session at a backend with weight 0 went to %s", got)
			}
			first.serve(route)
			without := func(all []netip.AddrPort, gone netip.AddrPort) (made []netip.AddrPort) {
				for _, a := range all {
					if a != gone {
						made = append(made, a)
					}
				}
				return made
			}
			first.pools.Update(map[table.Upstream][]netip.AddrPort{
				web: without(ofWeb, all[at]), other: without(ofOther, all[at]),
			})
			res, at = first.ask("GET", "/", "", token)
			if token = tokenOf(t, res, &rule); token == "" {
				t.Fatal("the session went on at another endpoint without another token")
			}
			for range 10 {
				if _, got := first.ask("GET", "/", "", token); got != at {
					t.Errorf("after the endpoint was gone a request of the session at %s went to %s", at, got)
				}
			}
		})
	}
}

// tokenOf returns the field that a client sends after a response.
func tokenOf(t *testing.T, res *http.Response, rule *table.Persistence) string {
	t.Helper()
	if rule.Header {
		return rule.Name + ": " + res.Header.Get(rule.Name)
	}
	cookies := res.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].Path != "/" {
		t.Fatalf("Set-Cookie: %q", res.Header["Set-Cookie"])
	}
	return "Cookie: other=1; " + cookies[0].Name + "=" + cookies[0].Value
}

// TestForgedSessions has tokens that no gateway made lead anywhere a new session does, and be replaced.
func TestForgedSessions(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	rule := table.Persistence{Name: "session", Key: table.PersistenceKey("uid")}
	route := to("/", table.Actions{})
	route.Rule.Persistence = &rule
	g.serve(route)
	for _, token := range []string{
		"", "x", "127.0.0.1:80", "AAAAAAAAAAAAAAAA", "________________", "****************", strings.Repeat("A", 5000),
		"AAAAAAAAAAAAAAAA; session=AAAAAAAAAAAAAAAA; session=AAAAAAAAAAAAAAAA; session=x; session=y; session=z",
	} {
		res, _ := g.ask("GET", "/", "", "Cookie: session="+token)
		if res.StatusCode != http.StatusOK || len(res.Cookies()) != 1 || res.Cookies()[0].Value == token {
			t.Errorf("GET / with session=%s = %d, %q", token, res.StatusCode, res.Header["Set-Cookie"])
		}
	}
}

// TestSessionCookie looks at attributes, and at sessions that are over.
func TestSessionCookie(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, echo))
	route := to("/", table.Actions{})
	route.Rule.Persistence = &table.Persistence{
		Name:     "s",
		Absolute: time.Nanosecond,
		MaxAge:   time.Hour,
		Path:     "/a",
		Domain:   "shop.example",
		SameSite: "Strict",
		Secure:   true,
	}
	g.serve(route)
	res, _ := g.ask("GET", "/", "")
	set := res.Header.Get("Set-Cookie")
	_, attributes, _ := strings.Cut(set, "; ")
	if want := "Path=/a; Domain=shop.example; Max-Age=3600; HttpOnly; Secure; SameSite=Strict"; attributes != want {
		t.Errorf("Set-Cookie: %s, want %s", set, want)
	}
	value, _, _ := strings.Cut(set, ";")
	if res, _ := g.ask("GET", "/", "", "Cookie: "+value); res.Header.Get("Set-Cookie") == "" {
		t.Error("a session that is over goes on")
	}
}

// TestHeldBodies has requests with bodies be sent again at once, and nothing be held after them.
func TestHeldBodies(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	at, _ := failing(t, 20, 503)
	g.web(at)
	g.serve(retrying(table.Retry{Codes: []int{503}, Attempts: 30}))
	body := strings.Repeat("x", 50_000)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if res, got := g.ask("POST", "/", body); res.StatusCode != http.StatusOK || got != body {
				t.Errorf("POST / = %d, %d octets", res.StatusCode, len(got))
			}
		})
	}
	group.Wait()
	for end := time.Now().Add(time.Minute); g.proxy.Held() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d octets are held after all requests", g.proxy.Held())
		}
	}
}

// TestRetryBudget limits what is sent again to a Service with a budget, whether a rule demands it or not.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	const requests, least = 20, 3
	for claim, test := range map[string]struct {
		retry  *table.Retry
		budget *table.RetryBudget
		status int // of the endpoint; 0 for none
		within int // status of requests whose retries are allowed
		sent   int64
	}{
		"of a rule, with a budget": {
			&table.Retry{Codes: []int{500}, Attempts: 1}, &table.RetryBudget{Interval: time.Hour, Least: least, Per: time.Hour},
			500, 500, requests + least,
		},
		"of a rule, with a share": {
			&table.Retry{Codes: []int{500}, Attempts: 1},
			&table.RetryBudget{Percent: 50, Interval: time.Hour, Least: 1, Per: time.Hour}, 500, 500, requests + requests/2,
		},
		"of a rule, without a budget": {&table.Retry{Codes: []int{500}, Attempts: 1}, nil, 500, 500, 2 * requests},
		"of the proxy itself, with a budget": {
			nil, &table.RetryBudget{Interval: time.Hour, Least: least, Per: time.Hour}, 0, 502, requests + least,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil)
			var asked atomic.Int64
			answer := func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				if test.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(test.status)
			}
			g.web(endpoint(t, answer), endpoint(t, answer))
			route := to("/", table.Actions{})
			route.Rule.Retry, route.Rule.Backends[0].Retries = test.retry, test.budget
			g.serve(route)
			refused := int64(0)
			for range requests {
				res, _ := g.ask("GET", "/", "")
				switch {
				case res.StatusCode == http.StatusServiceUnavailable && g.last().Reason == proxy.RetryLimit:
					refused++
				case res.StatusCode != test.within:
					t.Errorf("the status is %d because of %q, want %d", res.StatusCode, g.last().Reason, test.within)
				}
			}
			if sent := asked.Load(); sent != test.sent || refused != 2*requests-sent {
				t.Errorf("%d requests were sent %d times, and %d refused; want %d times, and all others refused",
					requests, sent, refused, test.sent)
			}
		})
	}
}
