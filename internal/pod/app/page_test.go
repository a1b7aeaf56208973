package app_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	dnsapp "portolan.dev/portolan/internal/dns/app"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/view"
)

// newPage returns the views of a page of a model that is completely read.
func newPage(tb testing.TB, store *cluster.Store) http.Handler {
	tb.Helper()
	return viewsOf(openPage(tb, store, nil))
}

// pageSettings are those of the page of openPage.
func pageSettings() config.Config {
	settings := config.Default()
	settings.Manifests = "manifests"
	settings.Admin.Page = config.PageCluster
	return settings
}

func openPage(tb testing.TB, store *cluster.Store, failures func(view.Involved) []any) *app.Page {
	tb.Helper()
	settings := pageSettings()
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	log := slog.New(slog.DiscardHandler)
	zones, err := dnsapp.NewOnDemand(dnsapp.Config{Settings: settings, Store: store, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	return app.NewPage(app.PageConfig{
		Settings: settings, Store: store, Zones: zones, Whole: true, Alone: true, Failures: failures, Log: log,
	})
}

func viewsOf(p *app.Page) http.Handler {
	mux := http.NewServeMux()
	for path, h := range p.Views() {
		mux.Handle("GET "+path, h)
	}
	return mux
}

// ask requests a path.
func ask(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w
}

// hostile are texts that somebody might put into a URL or an object.
var hostile = []string{
	"<script>alert(1)</script>", "\x00\x1b[31m", strings.Repeat("a", 300), "../../etc/passwd", "' OR 1=1 --", "\u202egnp.exe",
	"\xff\xfe", "%", "a\r\nX-Evil: 1", strings.Repeat("a.", 200), "[::1]:99999", "10.0.0.1/33", ":", "/", "//", "shop/", "/web",
}

// TestFindingsAreKept: findings are not computed anew in each request, and changes are found after a second.
func TestFindingsAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := cluster.NewStore()
		h := newPage(t, store)
		finds := func() bool { return strings.Contains(ask(h, "/api/v1/findings").Body.String(), "service shop/lost") }
		if finds() {
			t.Fatal("a Service is found that does not exist")
		}
		store.Update(func(tx *cluster.Tx) {
			tx.Put(&cluster.Namespace{Name: "shop"})
			tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "lost"}, ExternalName: "10.0.0.1", Spec: &cluster.ServiceSpec{}})
		})
		if finds() {
			t.Error("findings are computed anew at once")
		}
		time.Sleep(time.Second)
		if !finds() {
			t.Error("what changed is not found after a second")
		}
	})
}

func TestPageViews(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore()
	files := source.Files{Paths: []string{"../../../examples/gateway-trouble", "../../../examples/policies"}}
	if _, err := source.ReadFiles(files, store); err != nil {
		t.Fatal(err)
	}
	store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "evil", Name: hostile[0]}, ExternalName: "\"><img src=x>"})
	})
	h := newPage(t, store)
	for claim, test := range map[string]struct {
		path   string
		status int
		words  string
	}{
		"the overview":                  {"/api/v1/overview", 200, `"reads":"cluster"`},
		"gateways":                      {"/api/v1/gateways", 200, `"kind":"Gateway"`},
		"a route":                       {"/api/v1/gateways?route=shop/api", 200, `"routes":[{"kind":"HTTPRoute",`},
		"a route that does not exist":   {"/api/v1/gateways?route=shop/none", 200, `"routes":[]`},
		"no route":                      {"/api/v1/gateways?route=shop", 400, "NAMESPACE/NAME"},
		"nothing to search":             {"/api/v1/search", 200, `"items":[]`},
		"a name that nothing has":       {"/api/v1/search?q=nothing.example", 200, `"kind":"name"`},
		"an address that nothing has":   {"/api/v1/search?q=192.0.2.77", 200, `"kind":"address"`},
		"a search that is too long":     {"/api/v1/search?q=" + strings.Repeat("a", 257), 400, "256 octets"},
		"parameters that are too long":  {"/api/v1/search?q=a&x=" + strings.Repeat("a", 9000), 414, "octets"},
		"a limit of nothing":            {"/api/v1/search?q=a&limit=0", 400, "limit"},
		"a limit that is too high":      {"/api/v1/search?q=a&limit=101", 400, "limit"},
		"a limit that is no number":     {"/api/v1/search?q=a&limit=all", 400, "limit"},
		"a Service that does not exist": {"/api/v1/services/shop/nothing", 404, "there is no Service shop/nothing"},
		"a Pod that does not exist":     {"/api/v1/pods/shop/nothing", 404, "there is no Pod shop/nothing"},
		"a policy that does not exist":  {"/api/v1/policies/shop/nothing", 404, "there is no NetworkPolicy shop/nothing"},
		"a policy of the cluster":       {"/api/v1/policies/nothing", 404, "there is no ClusterNetworkPolicy nothing"},
		"findings":                      {"/api/v1/findings", 200, `"href":"#/service/shop/`},
		"a misspelled name":             {"/api/v1/search?q=chekout", 200, `has a similar name: checkout`},
		"no target":                     {"/api/v1/explain", 400, "target"},
		"no client":                     {"/api/v1/explain?target=web.shop", 400, "client"},
		"a width":                       {"/api/v1/explain?target=a:80&from=outside&width=0", 400, "width"},
		"an output":                     {"/api/v1/explain?target=10.0.0.1:80&from=outside&output=xml", 400, "text or json"},
		"many headers":                  {"/api/v1/explain?target=a" + strings.Repeat("&header=a:b", 65), 400, "headers"},
		"a hostile name": {
			"/api/v1/services/evil/" + url.PathEscape(hostile[0]), 200, `"type":"ExternalName"`,
		},
	} {
		w := ask(h, test.path)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.words) || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: GET %.80s: %d %.300s, want %d and %s", claim, test.path, w.Code, w.Body, test.status, test.words)
		}
	}
	for _, text := range hostile {
		for _, path := range []string{
			"/api/v1/search?q=" + url.QueryEscape(text), "/api/v1/services/shop/" + url.PathEscape(text),
			"/api/v1/pods/" + url.PathEscape(text) + "/web", "/api/v1/policies/shop/" + url.PathEscape(text),
			"/api/v1/policies/" + url.PathEscape(text), "/api/v1/explain?from=outside&target=" + url.QueryEscape(text),
			"/api/v1/explain?target=web.shop:80&from=" + url.QueryEscape(text),
		} {
			w := ask(h, path)
			if w.Code >= 500 || w.Body.Len() > 0 && w.Code != http.StatusMovedPermanently && w.Code != http.StatusTemporaryRedirect &&
				!json.Valid(w.Body.Bytes()) && w.Code != http.StatusNotFound {
				t.Errorf("GET %s: %d %.200s, want JSON and no failure", path, w.Code, w.Body)
			}
			if strings.Contains(w.Body.String(), "\x1b") {
				t.Errorf("GET %s: %q has a control character", path, w.Body)
			}
		}
	}
}

// TestCuresOfServer checks that a server does not advise a flag that is refused where a server explains.
func TestCuresOfServer(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore()
	if _, err := source.ReadFiles(source.Files{Paths: []string{"../../../examples/shop"}}, store); err != nil {
		t.Fatal(err)
	}
	h := newPage(t, store)
	for _, target := range []string{"www.example.org", "www.example.org:80", "http://www.example.org/"} {
		for _, output := range []string{"text", "json", ""} {
			path := "/api/v1/explain?from=shop/deployment/web&target=" + url.QueryEscape(target) + "&output=" + output
			text := ask(h, path).Body.String()
			if strings.Contains(text, "use --live to") || !strings.Contains(text, "with --live and without --admin") {
				t.Errorf("GET %s: %s, want a cure that does not go with --admin", path, text)
			}
		}
	}
}

// TestReconfigurePage verifies that views use the settings in force, also those that are computed meanwhile.
func TestReconfigurePage(t *testing.T) {
	t.Parallel()
	p := openPage(t, cluster.NewStore(), nil)
	h, settings := viewsOf(p), pageSettings()
	settings.Admin.Page = config.PageProcess
	var running sync.WaitGroup
	for _, path := range []string{"/api/v1/overview", "/api/v1/search?q=web"} {
		running.Go(func() { ask(h, path) })
	}
	if err := p.Reconfigure(settings); err != nil {
		t.Fatalf("Reconfigure() = %v", err)
	}
	running.Wait()
	const path, want = "/api/v1/overview", `"reads":"process"`
	if w := ask(h, path); !strings.Contains(w.Body.String(), want) {
		t.Errorf("GET %s after Reconfigure: %d %s, want %s", path, w.Code, w.Body, want)
	}
}

// TestFailuresOutsideTheModel: other parts of the process name the Pods of failures, and may wait until the model
// changes, which it does not while a view of it is computed.
func TestFailuresOutsideTheModel(t *testing.T) {
	t.Parallel()
	store, key := cluster.NewStore(), cluster.Key{Namespace: "shop", Name: "web"}
	store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Service{Key: key, ExternalName: "web.example.com"})
		tx.Put(&cluster.Pod{Key: key, Spec: new(cluster.PodSpec)})
	})
	p := openPage(t, store, func(view.Involved) []any {
		store.Update(func(tx *cluster.Tx) { tx.Put(&cluster.Namespace{Name: "shop"}) })
		return []any{"a failure"}
	})
	h, answered := viewsOf(p), make(chan string, 2)
	go func() {
		for _, path := range []string{"/api/v1/services/shop/web", "/api/v1/pods/shop/web"} {
			answered <- ask(h, path).Body.String()
		}
	}()
	for range 2 {
		select {
		case body := <-answered:
			if !strings.Contains(body, `"failures":["a failure"]`) {
				t.Errorf("the view is %.300s, want the failure", body)
			}
		case <-time.After(time.Minute):
			t.Fatal("a view waits for the model, and the model for the view")
		}
	}
}

// TestViewThatPanics: a fault of a view is told to who asks and in the log, and the next view is served.
func TestViewThatPanics(t *testing.T) {
	t.Parallel()
	store, key := cluster.NewStore(), cluster.Key{Namespace: "shop", Name: "web"}
	store.Update(func(tx *cluster.Tx) { tx.Put(&cluster.Pod{Key: key, Spec: new(cluster.PodSpec)}) })
	h := viewsOf(openPage(t, store, func(view.Involved) []any { panic("a fault") }))
	for path, want := range map[string]int{"/api/v1/pods/shop/web": http.StatusInternalServerError, "/api/v1/overview": http.StatusOK} {
		if w := ask(h, path); w.Code != want || !json.Valid(w.Body.Bytes()) {
			t.Errorf("GET %s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
}

// FuzzPageParameters verifies that no parameters make a view fail, or answer with something that is no JSON.
func FuzzPageParameters(f *testing.F) {
	store := cluster.NewStore()
	if _, err := source.ReadFiles(source.Files{Paths: []string{"../../../examples/gateway"}}, store); err != nil {
		f.Fatal(err)
	}
	h := newPage(f, store)
	for _, text := range append([]string{
		"q=web&limit=5", "target=web.shop:80&from=outside", "target=http://shop.example.com/&method=GET&header=a:b",
		"target=shop/web&to=svc/shop/web:80", "target=web&from=shop/web&libc=musl&type=A&node=n", "width=10&color=true",
	}, hostile...) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, path := range []string{"/api/v1/search", "/api/v1/explain"} {
			r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			r.URL.RawQuery = query
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError {
				t.Errorf("GET %s?%q: %d %s", path, query, w.Code, w.Body)
			}
			if text := w.Header().Get("Content-Type"); text == "application/json" && !json.Valid(w.Body.Bytes()) {
				t.Errorf("GET %s?%q: %s is no JSON", path, query, w.Body)
			}
		}
	})
}

// largeCluster returns a cluster with as many Services, each with a Pod, and one Service with all Pods.
func largeCluster(n int) *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		all := cluster.Key{Namespace: "shop", Name: "all"}
		tx.Put(&cluster.Namespace{Name: "shop"})
		tx.Put(&cluster.Service{
			Key: all, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, 1})}, Selector: map[string]string{"of": "all"},
			Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}, Spec: new(cluster.ServiceSpec),
		})
		for i := range n {
			name, low := fmt.Sprintf("web-%d", i), [2]byte{byte(i >> 8), byte(i)}
			key := cluster.Key{Namespace: "shop", Name: name}
			at := netip.AddrFrom4([4]byte{10, 244, low[0], low[1]})
			tx.Put(&cluster.Service{
				Key: key, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 97, low[0], low[1]})},
				Selector: map[string]string{"app": name}, Spec: new(cluster.ServiceSpec),
				Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}},
			})
			tx.Put(&cluster.Pod{
				Key: key, IPs: []netip.Addr{at}, Labels: map[string]string{"app": name, "of": "all"}, Node: "n1", Ready: true,
				Spec: new(cluster.PodSpec),
			})
			for _, service := range []cluster.Key{key, all} {
				tx.Put(&cluster.EndpointSlice{
					Key: cluster.Key{Namespace: "shop", Name: service.Name + "-" + name}, Service: service.Name, AddressType: cluster.IPv4,
					Ports:     []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 8080}},
					Endpoints: []cluster.Endpoint{{Addr: at, Pod: name, Ready: true, Serving: true}},
				})
			}
		}
	})
	return store
}

// TestPageOfLargeCluster verifies that views of a large cluster are small, and that many clients get answers or a refusal
// which says when to come again.
func TestPageOfLargeCluster(t *testing.T) {
	t.Parallel()
	const n, most = 2000, 256 << 10
	h := newPage(t, largeCluster(n))
	for _, path := range []string{
		"/api/v1/overview", "/api/v1/search?q=web&limit=100", "/api/v1/services/shop/all", "/api/v1/pods/shop/web-7",
	} {
		if w := ask(h, path); w.Code != http.StatusOK || w.Body.Len() > most || !json.Valid(w.Body.Bytes()) {
			t.Errorf("GET %s: %d with %d octets, want 200 with at most %d", path, w.Code, w.Body.Len(), most)
		}
	}
	const left = `"more":{"endpoints":1500,"podsJudged":1900}`
	if w := ask(h, "/api/v1/services/shop/all"); !strings.Contains(w.Body.String(), left) {
		t.Errorf("GET /api/v1/services/shop/all: %.200s, want %s", w.Body, left)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	statuses := make(map[int]int)
	for range 100 {
		wait.Go(func() {
			w := ask(h, "/api/v1/search?q=web&limit=100")
			mu.Lock()
			defer mu.Unlock()
			statuses[w.Code]++
			if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
				t.Error("GET /api/v1/search: 503 without Retry-After")
			}
		})
	}
	wait.Wait()
	if statuses[http.StatusOK] == 0 || statuses[http.StatusOK]+statuses[http.StatusServiceUnavailable] != 100 {
		t.Errorf("100 clients at once: statuses %v, want 200 and 503 only", statuses)
	}
}

// BenchmarkPage measures views of a cluster with 10,000 Services and Pods.
func BenchmarkPage(b *testing.B) {
	h := newPage(b, largeCluster(10_000))
	for name, path := range map[string]string{
		"overview": "/api/v1/overview", "search": "/api/v1/search?q=web-77", "searchAll": "/api/v1/search?q=web",
		"address": "/api/v1/search?q=10.97.3.4", "service": "/api/v1/services/shop/web-77", "large": "/api/v1/services/shop/all",
		"pod": "/api/v1/pods/shop/web-77", "gateways": "/api/v1/gateways",
		"explain": "/api/v1/explain?target=web-77:80&from=shop/web-78",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if w := ask(h, path); w.Code != http.StatusOK {
					b.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
				}
			}
		})
	}
}
