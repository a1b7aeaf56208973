package view

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/request"
)

// routed is a cluster with a Gateway and two Services.
const routed = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: portolan}
spec: {controllerName: portolan.dev/gateway}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: portolan}
spec: {controller: portolan.dev/ingress}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: shop, name: public}
spec:
  gatewayClassName: portolan
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: other, port: 8080, protocol: HTTP, hostname: www.other.example}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: web}]}}
  - {name: admin, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: web}]}}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}], selector: {app: web}}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: idle}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}], selector: {app: idle}}
`

// webEndpoint is the endpoint of Service web.
const webEndpoint = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.0.7]}]
`

// oldIngress is an Ingress to both.
const oldIngress = `---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: old}
spec:
  ingressClassName: portolan
  rules:
  - host: old.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
      - {path: /idle, pathType: Prefix, backend: {service: {name: idle, port: {number: 80}}}}
`

// route returns an HTTPRoute of the Gateway, with a section of a parentRef and rules.
func route(name, section, rules string) string {
	return "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {namespace: shop, name: " + name +
		"}\nspec: {hostnames: [" + name + ".shop.example], parentRefs: [{name: public" + section + "}], rules: [" + rules +
		"]}\n"
}

// routes returns a model of routed and of other objects.
func routes(t *testing.T, objects string, see func(*Model)) {
	t.Helper()
	path, store := filepath.Join(t.TempDir(), "cluster.yaml"), cluster.NewStore()
	if err := os.WriteFile(path, []byte(routed+objects), 0o600); err != nil {
		t.Fatal(err)
	}
	files := manifest.Config{Path: path, Whole: true, Store: store, Log: slog.New(slog.DiscardHandler)}
	if report, err := manifest.New(files).Load(); err != nil || len(report.Problems) > 0 {
		t.Fatal(err, report)
	}
	store.View(func(v *cluster.View) {
		cfg := compile.Config{GatewayController: "portolan.dev/gateway", IngressController: "portolan.dev/ingress"}
		w := request.NewWorld(v, cfg)
		see(&Model{View: v, Linter: &lint.Linter{View: v}, Whole: true, Gateway: func() *request.World { return w }})
	})
}

// listed returns the route of a name among all.
func (g *Gateways) listed(name string) (r ListedRoute) {
	for i := range g.Routes {
		if g.Routes[i].Name == name {
			return g.Routes[i]
		}
	}
	return r
}

// TestRouteWithoutEndpoint verifies that a route whose requests get 503 is not ok, neither among all routes nor at its
// Service.
func TestRouteWithoutEndpoint(t *testing.T) {
	t.Parallel()
	const (
		idle, web = "{backendRefs: [{name: idle, port: 80}]}", "{backendRefs: [{name: web, port: 80}]}"
		none      = "since Service shop/idle has no ready endpoint at port 80"
	)
	objects := webEndpoint + oldIngress + route("all", "", idle) + route("fine", "", web) +
		route("some", "", "{backendRefs: [{name: web, port: 80, weight: 3}, {name: idle, port: 80, weight: 1}]}") +
		route("off", "", "{backendRefs: [{name: web, port: 80}, {name: idle, port: 80, weight: 0}]}") +
		route("gone", "", "{backendRefs: [{name: gone, port: 80}]}") +
		route("two", "", web+", {matches: [{path: {value: /a}}], backendRefs: [{name: idle, port: 80}]}"+
			", {matches: [{path: {value: /b}}], backendRefs: [{name: idle, port: 80}]}") +
		route("elsewhere", "", "{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}")
	routes(t, objects, func(m *Model) {
		all := m.Gateways()
		for name, want := range map[string]struct{ state, why string }{
			"fine": {ok, ""}, "off": {ok, ""}, "elsewhere": {ok, ""},
			"all":  {broken, "spec.rules[0]: requests are answered with 503, " + none},
			"some": {broken, "spec.rules[0]: some requests (25 %) are answered with 503, " + none},
			"two":  {broken, "spec.rules[1], spec.rules[2]: requests are answered with 503, " + none},
			"gone": {broken, "BackendNotFound, Service shop/gone does not exist"},
			"old":  {broken, "spec.rules[0].http.paths[1]: requests are answered with 503, " + none},
		} {
			if r := all.listed(name); r.State != want.state || r.Why != want.why {
				t.Errorf("Gateways(): route %s is %q, %q, want %q, %q", name, r.State, r.Why, want.state, want.why)
			}
		}
		for service, want := range map[string]string{"idle": broken, "web": ok} {
			s := m.View.Service(cluster.Key{Namespace: "shop", Name: service})
			for _, r := range m.routesTo(s) {
				if r.Name == "some" || r.Name == "off" { // a rule with both
					continue
				}
				if r.State != want || (want == ok) != (r.Why == "") {
					t.Errorf("routesTo(%s): %s %s is %q, %q, want %q", service, r.Name, r.Rule, r.State, r.Why, want)
				}
			}
		}
	})
}

// TestRouteURL verifies that the URL of a route is one of a listener that it is attached to.
func TestRouteURL(t *testing.T) {
	t.Parallel()
	const web = "{backendRefs: [{name: web, port: 80}]}"
	section := func(name string) string { return ", sectionName: " + name }
	objects := webEndpoint + oldIngress + route("any", "", web) + route("plain", section("http"), web) +
		route("secure", section("https"), web) + route("admin", section("admin"), web) +
		route("gone", section("gone"), web) +
		route("path", section("https"), "{matches: [{path: {value: /v1}}], backendRefs: [{name: web, port: 80}]}") +
		strings.Replace(route("hosts", section("other"), web), "hostnames: [hosts.shop.example], ", "", 1) +
		strings.Replace(route("wide", section("https"), web), "[wide.", "['*.", 1)
	objects = strings.Replace(objects, "['*.shop.example]", "['*.shop.example']", 1)
	routes(t, objects, func(m *Model) {
		all, at := m.Gateways(), make(map[string]string)
		for _, r := range m.routesTo(m.View.Service(cluster.Key{Namespace: "shop", Name: "web"})) {
			at[r.Name] = r.URL
		}
		for name, want := range map[string]struct{ listed, service string }{
			"any": {service: "http://any.shop.example/"}, "plain": {service: "http://plain.shop.example/"},
			"secure": {service: "https://secure.shop.example/"}, "path": {service: "https://path.shop.example/v1"},
			"admin": {service: "https://admin.shop.example:8443/"}, "gone": {service: "http://gone.shop.example/"},
			"hosts": {service: "http://www.other.example:8080/"}, "old": {service: "http://old.example/"},
			"wide": {"none", "https://*.shop.example/"},
		} {
			if want.listed = cmp.Or(want.listed, want.service); want.listed == "none" {
				want.listed = ""
			}
			if got := all.listed(name).URL; got != want.listed {
				t.Errorf("Gateways(): the URL of %s is %q, want %q", name, got, want.listed)
			}
			if at[name] != want.service {
				t.Errorf("routesTo(web): the URL of %s is %q, want %q", name, at[name], want.service)
			}
		}
	})
}

// TestRouteList verifies that the table of routes says where each is served, and which Services it leads to.
func TestRouteList(t *testing.T) {
	t.Parallel()
	const both = "{backendRefs: [{name: web, port: 80}, {name: idle, port: 80}]}, {matches: [{path: {value: /a}}], " +
		"backendRefs: [{name: web, port: 80}]}"
	objects := oldIngress + route("any", "", both) + route("secure", ", sectionName: https", both) +
		route("gone", ", sectionName: gone", both)
	routes(t, objects, func(m *Model) {
		all := m.Gateways()
		for name, want := range map[string]string{
			"any": "Gateway shop/public http:80/HTTP,Gateway shop/public https:443/HTTPS," +
				"Gateway shop/public admin:8443/HTTPS,",
			"secure": "Gateway shop/public https:443/HTTPS,", "gone": "", "old": "IngressClass /portolan :80/HTTP,",
		} {
			r, got := all.listed(name), new(strings.Builder)
			for _, l := range r.Listeners {
				fmt.Fprintf(got, "%s %s/%s %s:%d/%s,", l.Kind, l.Namespace, l.Name, l.Listener, l.Port, l.Protocol)
			}
			if got.String() != want {
				t.Errorf("Gateways(): the listeners of %s are %q, want %q", name, got, want)
			}
			if want := []RouteBackend{{"shop", "web", "80"}, {"shop", "idle", "80"}}; !slices.Equal(r.Backends, want) {
				t.Errorf("Gateways(): the backends of %s are %v, want %v", name, r.Backends, want)
			}
		}
	})
}

// TestManyRoutes verifies that a route is found by its name although others fill the list, and that the broken ones of
// a Service come first and all are counted.
func TestManyRoutes(t *testing.T) {
	t.Parallel()
	const web = "{backendRefs: [{name: web, port: 80}]}"
	var objects strings.Builder
	for i := range mostListed {
		objects.WriteString(route(fmt.Sprintf("r%d", i), "", web))
	}
	objects.WriteString(webEndpoint + route("zz", "", web) + route("zz-gone", ", sectionName: gone", web) + oldIngress)
	routes(t, objects.String(), func(m *Model) {
		if g := m.Gateways(); g.More["routes"] != 3 || g.listed("zz").Name != "" {
			t.Fatalf("Gateways(): more %v and the route %+v, want that it is cut", g.More, g.listed("zz"))
		}
		g := m.GatewaysOf(cluster.Key{Namespace: "shop", Name: "zz"})
		if len(g.Routes) != 1 || g.Routes[0].Name != "zz" || len(g.More) > 0 || len(g.Gateways) != 2 {
			t.Errorf("GatewaysOf(shop/zz): %d routes, %d Gateways, more %v; want 1, 2", len(g.Routes), len(g.Gateways), g.More)
		}
		m.Linter.Node = func(*dnsconfig.Subject) (n dnsconfig.NodeSettings) { return n }
		m.Ask = func(string, dnswire.Type) []dnswire.Record { return nil }
		s := m.Service(cluster.Key{Namespace: "shop", Name: "web"})
		if len(s.Routes) != mostRoutes || s.More["routes"] != mostListed+3-mostRoutes || s.Routes[0].Name != "zz-gone" {
			t.Errorf("Service(shop/web): %d routes of which %+v is first, more %v", len(s.Routes), s.Routes[0], s.More)
		}
		if !slices.IsSortedFunc(s.Routes[1:], func(a, b Route) int { return cmp.Compare(a.Name, b.Name) }) {
			t.Errorf("Service(shop/web): the routes after the broken one are not sorted by name")
		}
	})
}

// TestRouteOfUnknownEndpoints verifies that routes are not called broken where no EndpointSlice is known, as in
// manifests of what is to be deployed.
func TestRouteOfUnknownEndpoints(t *testing.T) {
	t.Parallel()
	objects := route("all", "", "{backendRefs: [{name: idle, port: 80}]}")
	for endpoint, want := range map[string]string{"": ok, webEndpoint: broken} {
		routes(t, objects+endpoint, func(m *Model) {
			if r := m.Gateways().listed("all"); r.State != want {
				t.Errorf("Gateways() with EndpointSlices %q: %+v, want the state %s", endpoint, r, want)
			}
		})
	}
}
