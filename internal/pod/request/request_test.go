package request_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/request"
	"portolan.dev/portolan/internal/support/testcert"
)

// base is the cluster of the tests: its classes, namespaces and Services.
const base = "testdata/cluster.yaml"

// endpoints are those of Services shop/web and admin/web.
const endpoints = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.0.7], targetRef: {kind: Pod, name: web-0, namespace: shop}}, {addresses: [10.244.0.8]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: admin, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.244.0.9]}]
`

// load reads the cluster and some objects.
func load(t *testing.T, objects string) *cluster.Store {
	t.Helper()
	cluster0, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	dir, store := t.TempDir(), cluster.NewStore()
	for name, text := range map[string]string{"a.yaml": string(cluster0), "b.yaml": endpoints, "c.yaml": objects} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	report, err := manifest.New(manifest.Config{Path: dir, Whole: true, Store: store, Log: slog.New(slog.DiscardHandler)}).Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	return store
}

// controllers are those of the classes of base.
func controllers() compile.Config {
	return compile.Config{GatewayController: "portolan.dev/gateway", IngressController: "portolan.dev/ingress"}
}

// explained explains "[METHOD] URL [NAME:VALUE ...]" in a store; dns may be nil.
func explained(t *testing.T, store *cluster.Store, line string, dns *explain.Explanation) (e *request.Explanation) {
	t.Helper()
	words := strings.Fields(line)
	if strings.Contains(words[0], "://") {
		words = append([]string{"GET"}, words...)
	}
	m, err := request.ParseMessage(words[0], words[1], words[2:])
	if err != nil {
		t.Fatal(err)
	}
	store.View(func(v *cluster.View) {
		l := &lint.Linter{
			View: v, Domains: []string{"cluster.local"},
			Node: func(*dnsconfig.Subject) dnsconfig.NodeSettings { return dnsconfig.NodeSettings{} },
		}
		e = request.Explain(&request.Request{
			World: request.NewWorld(v, controllers()), Linter: l, Message: m, DNS: dns, Now: time.Now(),
		})
	})
	return e
}

// text returns the explanation as a terminal shows it.
func text(t *testing.T, e *request.Explanation) string {
	t.Helper()
	var b strings.Builder
	if err := e.WriteText(&b, explain.Style{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func gateway(name, listeners string) string {
	return "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {namespace: shop, name: " + name +
		"}\nspec: {gatewayClassName: portolan, listeners: [" + listeners + "]}\n"
}

func route(name, spec string) string {
	return "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {namespace: shop, name: " + name + "}\nspec: {" + spec + "}\n"
}

func ingress(name, spec string) string {
	return "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: shop, name: " + name + "}\nspec: {" + spec + "}\n"
}

func all(objects ...string) string { return strings.Join(objects, "---\n") }

const (
	http80  = "{name: http, port: 80, protocol: HTTP}"
	toWeb   = "backendRefs: [{name: web, port: 80}]"
	atGW    = "parentRefs: [{name: gw}]"
	pathsTo = "{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}"
)

// TestExplain checks what becomes of requests: the outcome, and parts of what the text says.
func TestExplain(t *testing.T) {
	t.Parallel()
	filter := func(of string) string {
		return all(gateway("gw", http80), route("r", atGW+", rules: [{"+toWeb+", filters: ["+of+"]}]"))
	}
	tests := map[string]struct {
		objects, request string
		outcome          string
		has              []string
	}{
		"a backend": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{name: all, "+toWeb+"}]")), "http://a.test/x",
			"served by Service shop/web, port 80",
			[]string{"port 80: gateway shop/gw http\n", "1. httproute shop/r rule 0 (all), /: takes the request\n", "  10.244.0.7:8080 (Pod shop/web-0)\n  10.244.0.8:8080\n"},
		},
		"backends by weight, one of them missing": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{backendRefs: [{name: web, port: 80, weight: 3}, {name: wbe, port: 80}, {name: api, port: 80, weight: 0}]}]")), "http://a.test/",
			"served by Service shop/web, port 80 (75 %); 500 from the gateway (25 %): Service shop/wbe does not exist",
			[]string{"cure: write web, or create the Service", "Service shop/api, port 80, 0 % of the requests: 503"},
		},
		"no weight": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{backendRefs: [{name: web, port: 80, weight: 0}]}]")), "http://a.test/",
			"500 from the gateway: no backend", []string{"all backends of httproute shop/r rule 0 have weight 0"},
		},
		"no backends": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{}]")), "http://a.test/",
			"500 from the gateway: no backend", []string{"cure: add backendRefs, or a redirect"},
		},
		"no such port": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{backendRefs: [{name: web, port: 81}]}]")), "http://a.test/",
			"500 from the gateway: Service shop/web has no TCP port 81", []string{"write a port of the Service; it has 80 http, 9090 metrics"},
		},
		"an ExternalName": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{backendRefs: [{name: ext, port: 80}]}]")), "http://a.test/",
			"500 from the gateway: Service shop/ext is of type ExternalName, which is not supported", []string{"cure: name a Service of type ClusterIP; "},
		},
		"no grant": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{backendRefs: [{name: web, namespace: admin, port: 80}]}]")), "http://a.test/",
			"500 from the gateway: no ReferenceGrant in namespace admin allows HTTPRoutes of namespace shop to refer to Service web",
			[]string{"cure: create a ReferenceGrant in namespace admin from HTTPRoutes of namespace shop to Service web"},
		},
		"no endpoint": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{backendRefs: [{name: api, port: 80}]}]")), "http://a.test/",
			"503 from the gateway: no ready endpoint", []string{"why:  service shop/api: it has no selector, and no EndpointSlice with endpoints"},
		},
		"the method": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{method: POST}], "+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no rule matches", []string{"/ POST: the method is GET", "cure: use POST (--method POST), or add a rule for GET"},
		},
		"no header": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{headers: [{name: x-env, value: b}]}], "+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no rule matches", []string{"there is no header X-Env", `cure: give the header X-Env "b", or`},
		},
		"another header": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{headers: [{name: x-env, type: RegularExpression, value: b+}]}], "+toWeb+"}]")), "http://a.test/ X-Env:a",
			"404 from the gateway: no rule matches", []string{`the header X-Env is "a"`, "cure: give the header X-Env a value as "},
		},
		"a query parameter": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{queryParams: [{name: v, value: '2'}]}], "+toWeb+"}]")), "http://a.test/?v=1",
			"404 from the gateway: no rule matches", []string{`the query parameter v is "1"`, `cure: give the query parameter v "2"`},
		},
		"the nearest rule": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{path: {value: /a}, method: PUT}, {path: {type: Exact, value: /b}}, {path: {value: /B/c}}], "+toWeb+"}]")), "http://a.test/b/",
			"404 from the gateway: no rule matches", []string{"the nearest rule is httproute shop/r rule 0, = /b: the slash at the end counts in an exact path", "cure: ask for /b, or add a rule for /b/"},
		},
		"the slash that an exact path has": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{path: {type: Exact, value: /b/}}], "+toWeb+"}]")), "http://a.test/b",
			"404 from the gateway: no rule matches", []string{"a slash at the end is missing, which counts in an exact path"},
		},
		"half an element": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{path: {value: /ab}}], "+toWeb+"}]")), "http://a.test/abc",
			"404 from the gateway: no rule matches", []string{"a prefix matches whole elements of the path"},
		},
		"case": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{path: {value: /Ab}}], "+toWeb+"}]")), "http://a.test/ab/c",
			"404 from the gateway: no rule matches", []string{"upper and lower case differ", "ask for /Ab, or"},
		},
		"no path is near": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{path: {value: /a}}, {path: {type: RegularExpression, value: /b.}}], "+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no rule matches", []string{"no rule of the host has the path /; there are rules for /b., /a"},
		},
		"a rule that comes later, and one that is shadowed": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{"+toWeb+"}, {matches: [{path: {value: /a}}], "+toWeb+"}]"), route("s", atGW+", rules: [{matches: [{path: {value: /a}}], "+toWeb+"}]")), "http://a.test/a",
			"served by Service shop/web, port 80",
			[]string{"2. httproute shop/s rule 0, /a: it has the same match as httproute shop/r rule 1, which comes first: it never serves", "3. httproute shop/r rule 0, /: it matches, too, and comes later"},
		},
		"a redirect": {
			filter("{type: RequestRedirect, requestRedirect: {scheme: https}}"), "http://a.test/x?y",
			"302 from the gateway: redirect to https://a.test/x?y", nil,
		},
		"a redirect to itself": {
			filter("{type: RequestRedirect, requestRedirect: {hostname: a.test}}"), "http://a.test/x",
			"302 from the gateway: redirect to http://a.test/x", []string{"httproute shop/r rule 0 redirects to the URL itself"},
		},
		"a rewrite": {
			filter("{type: URLRewrite, urlRewrite: {hostname: b.test, path: {type: ReplacePrefixMatch, replacePrefixMatch: /z}}}, {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}], remove: [c]}}, {type: RequestMirror, requestMirror: {backendRef: {name: api, port: 80}, percent: 5}}"),
			"http://a.test/x", "served by Service shop/web, port 80",
			[]string{"the host becomes b.test\n  the path becomes /z/x\n  the header C is removed\n  the header A: b is added\n  5 of 100 requests are copied to Service shop/api, port 80\n"},
		},
		"a preflight request": {
			filter("{type: CORS, cors: {allowOrigins: ['https://b.test']}}"), "OPTIONS http://a.test/x Origin:https://b.test Access-Control-Request-Method:PUT",
			"204 from the gateway: it is a CORS preflight request", nil,
		},
		"a filter that is unknown": {
			filter("{type: ExtensionRef, extensionRef: {group: a.test, kind: F, name: f}}"), "http://a.test/x",
			"500 from the gateway: unknown filter", []string{"httproute shop/r rule 0: unknown filter"},
		},
		"a policy that cannot be obeyed": {
			filter("{type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}}") +
				"---\napiVersion: portolan.dev/v1alpha1\nkind: RoutePolicy\nmetadata: {namespace: shop, name: p}\n" +
				"spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}], " +
				"basicAuth: {secretRef: {name: none}}}\n", "http://a.test/x",
			"503 from the gateway: RoutePolicy shop/p: Secret shop/none does not exist",
			[]string{"correct the RoutePolicy"},
		},
		"CONNECT":    {gateway("gw", http80), "CONNECT http://a.test/", "405 from the gateway: CONNECT is not served", nil},
		"a bad path": {gateway("gw", http80), "http://a.test/%00", "400 from the gateway: the path is not valid", []string{"that of a NUL"}},
		"no gateway": {
			"", "http://a.test/", "no connection: no Gateway or Ingress is served at port 80",
			[]string{"cure: create a GatewayClass with the controllerName portolan.dev/gateway and a Gateway of it, or"},
		},
		"no such port of a gateway": {
			all(gateway("gw", http80+", {name: alt, port: 8080, protocol: HTTP}"), ingress("i", "ingressClassName: portolan, rules: [{host: b.test, http: {paths: ["+pathsTo+"]}}]")), "http://a.test:81/",
			"no connection: no Gateway or Ingress is served at port 81",
			[]string{"why:  the gateway listens on 80 (Ingress, gateway shop/gw http) and 8080 (gateway shop/gw alt)"},
		},
		"a listener that is not served": {
			gateway("gw", "{name: tcp, port: 81, protocol: example.com/other}, "+http80), "http://a.test:81/",
			"no connection: no Gateway or Ingress is served at port 81", []string{"gateway shop/gw tcp, which has port 81, is not served: UnsupportedProtocol, "},
		},
		"another controller's port": {
			strings.Replace(gateway("gw", http80), "portolan", "other", 1), "http://a.test/",
			"not this gateway's: port 80 is that of Gateway shop/gw", []string{"gateway shop/gw http has port 80, and is of GatewayClass other, whose controller is example.com/other"},
		},
		"a class that does not exist": {
			strings.Replace(gateway("gw", http80), "portolan", "gone", 1), "http://a.test/",
			"not this gateway's: port 80 is that of Gateway shop/gw", []string{"is of GatewayClass gone, which does not exist: nobody serves it"},
		},
		"TLS to a listener without": {gateway("gw", http80), "https://a.test:80/", "no answer: the port does not speak TLS", []string{"cure: use http://, or"}},
		"no listener has the host": {
			gateway("gw", "{name: http, port: 80, protocol: HTTP, hostname: b.test}"), "http://a.test/",
			"404 from the gateway: no listener has the host", []string{"there are those for b.test (gateway shop/gw http)"},
		},
		"no route at all": {gateway("gw", http80), "http://a.test/", "404 from the gateway: no route has the host", []string{"gateway shop/gw http has no routes"}},
		"another host": {
			all(gateway("gw", http80), route("r", atGW+", hostnames: [shop.test], rules: [{"+toWeb+"}]")), "http://shpo.test/",
			"404 from the gateway: no route has the host", []string{"cure: use the host shop.test, or add shpo.test to the hostnames of a route"},
		},
		"the field Host": {
			all(gateway("gw", http80), route("r", atGW+", hostnames: [shop.test], rules: [{"+toWeb+"}]")), "http://192.0.2.1/ Host:Shop.test:80",
			"served by Service shop/web, port 80", []string{"GET http://192.0.2.1/\n  Host: shop.test\n"},
		},
		"a hostname that the listener lacks": {
			all(gateway("gw", "{name: http, port: 80, protocol: HTTP, hostname: '*.b.test'}"), route("r", atGW+", hostnames: [a.test], rules: [{"+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no listener has the host",
			[]string{"httproute shop/r matches the request, and does not serve it: none of its hostnames is one of a listener of Gateway shop/gw, which has *.b.test (NoMatchingListenerHostname)"},
		},
		"a namespace that is not allowed": {
			all(gateway("gw", http80), strings.Replace(route("r", "parentRefs: [{name: gw, namespace: shop}], rules: [{"+toWeb+"}]"), "namespace: shop", "namespace: admin", 1)), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"(NotAllowedByListeners)", "cure: let allowedRoutes.namespaces of a listener select namespace admin"},
		},
		"a kind that is not allowed": {
			all(gateway("gw", "{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}]}}"), route("r", atGW+", rules: [{"+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"cure: let allowedRoutes.kinds of a listener have HTTPRoute"},
		},
		"a listener of another name": {
			all(gateway("gw", http80), route("r", "parentRefs: [{name: gw, sectionName: web, port: 80}], rules: [{"+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"Gateway shop/gw has no listener web at port 80; it has http at port 80", "cure: correct sectionName and port of the parentRef"},
		},
		"a parent that does not exist": {
			all(gateway("gw", http80), route("r", "parentRefs: [{name: gone}], rules: [{"+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"its parent Gateway shop/gone does not exist"},
		},
		"a parent of another controller": {
			all(gateway("gw", http80), strings.Replace(gateway("theirs", "{name: alt, port: 81, protocol: HTTP}"), "portolan", "other", 1), route("r", "parentRefs: [{name: theirs}], rules: [{"+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"its parent Gateway shop/theirs is of GatewayClass other, whose controller is example.com/other"},
		},
		"no parent": {
			all(gateway("gw", http80), route("r", "rules: [{"+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"it has no parentRefs"},
		},
		"the Gateway of a ListenerSet does not exist": {
			all(gateway("gw", http80), "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {namespace: shop, name: set}\nspec: {parentRef: {name: gone}, listeners: ["+http80+"]}\n",
				route("r", "parentRefs: [{kind: ListenerSet, name: set}], rules: [{"+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"the Gateway of its parent ListenerSet shop/set does not exist"},
		},
		"a route at another port": {
			all(gateway("gw", http80+", {name: alt, port: 8080, protocol: HTTP}"), route("r", "parentRefs: [{name: gw, sectionName: alt}], rules: [{"+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"it is attached at port 8080, not at 80"},
		},
		"a route at a listener that is less specific": {
			all(gateway("gw", http80+", {name: a, port: 80, protocol: HTTP, hostname: a.test}"), route("r", "parentRefs: [{name: gw, sectionName: http}], rules: [{"+toWeb+"}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"its listener gateway shop/gw http is less specific for the host than another one, whose routes alone serve it"},
		},
		"a rule that was dropped": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{path: {value: /x}}], "+toWeb+"}, {"+toWeb+", filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}, {type: URLRewrite, urlRewrite: {hostname: b.test}}]}]")), "http://a.test/",
			"404 from the gateway: no rule matches", []string{"Dropped Rule: rule 1: RequestRedirect and URLRewrite exclude each other"},
		},
		"an Ingress": {
			ingress("i", "ingressClassName: portolan, rules: [{host: a.test, http: {paths: ["+pathsTo+"]}}]"), "http://a.test/x",
			"served by Service shop/web, port 80", []string{"port 80: Ingresses\nrules for a.test,", "1. ingress shop/i rules[0].paths[0], /: takes the request"},
		},
		"the default backend of an Ingress": {
			ingress("i", "ingressClassName: portolan, defaultBackend: {service: {name: web, port: {number: 80}}}, rules: [{host: a.test, http: {paths: [{path: /y, pathType: Exact, backend: {service: {name: api, port: {number: 80}}}}]}}]"), "http://a.test/x",
			"served by Service shop/web, port 80", []string{"ingress shop/i defaultBackend, /: takes the request"},
		},
		"an Ingress of a Service that does not exist": {
			ingress("i", "ingressClassName: portolan, rules: [{host: a.test, http: {paths: ["+strings.Replace(pathsTo, "web", "wbe", 1)+"]}}]"), "http://a.test/x",
			"503 from the gateway: Service shop/wbe does not exist", []string{"cure: write web, or create the Service"},
		},
		"an Ingress of another class": {
			all(gateway("gw", http80), ingress("i", "ingressClassName: other, rules: [{host: '*.test', http: {paths: ["+pathsTo+"]}}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"ingress shop/i matches the request, and does not serve it: it is of IngressClass other, whose controller is example.com/other"},
		},
		"an Ingress of a class that does not exist": {
			all(gateway("gw", http80), ingress("i", "ingressClassName: gone, rules: [{http: {paths: ["+pathsTo+"]}}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"it is of IngressClass gone, which does not exist: nobody serves it"},
		},
		"an Ingress without a class": {
			all(gateway("gw", http80), ingress("i", "rules: [{http: {paths: ["+pathsTo+"]}}]")), "http://a.test/",
			"404 from the gateway: no route has the host", []string{"it has no class, and none of ours is the default"},
		},
		"an Ingress at another port": {
			all(gateway("gw", "{name: alt, port: 8080, protocol: HTTP}"), ingress("i", "ingressClassName: portolan, rules: [{http: {paths: ["+pathsTo+"]}}]")), "http://a.test:8080/",
			"404 from the gateway: no route has the host", []string{"Ingresses are served at port 80, and with TLS at 443"},
		},
		"an Ingress behind a listener": {
			all(gateway("gw", http80), route("r", atGW+", rules: [{matches: [{path: {value: /y}}], "+toWeb+"}]"), ingress("i", "ingressClassName: portolan, rules: [{http: {paths: ["+pathsTo+"]}}]")), "http://a.test/",
			"404 from the gateway: no rule matches", []string{"a listener of a Gateway has routes for the host, which alone serve it"},
		},
		"no Ingress has the host": {
			ingress("i", "ingressClassName: portolan, rules: [{host: a.test, http: {paths: ["+pathsTo+"]}}]"), "http://b.other.test/",
			"404 from the gateway: no route has the host", []string{"no Ingress has the host b.other.test; there is a.test"},
		},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			e := explained(t, load(t, test.objects), test.request, nil)
			got := text(t, e)
			if e.Outcome != test.outcome || e.Served() != (strings.HasPrefix(test.outcome, "served") && !strings.Contains(test.outcome, ";")) {
				t.Errorf("%s: %q, served %v; want %q\n%s", test.request, e.Outcome, e.Served(), test.outcome, got)
			}
			for _, want := range test.has {
				if !strings.Contains(got, want) {
					t.Errorf("%s: want %q in\n%s", test.request, want, got)
				}
			}
			if !e.Served() && e.Answers != nil && len(e.Diagnoses) == 0 && !strings.Contains(e.Outcome, "redirect") {
				t.Errorf("%s: no diagnosis of %q", test.request, e.Outcome)
			}
		})
	}
}

// TestAddresses checks what is said of the address that the host resolves to.
func TestAddresses(t *testing.T) {
	t.Parallel()
	gw := gateway("gw", http80) + "status: {addresses: [{value: 192.0.2.1}]}\n"
	theirs := strings.Replace(gateway("theirs", http80), "portolan", "other", 1) + "status: {addresses: [{value: 192.0.2.2}]}\n"
	nginx := ingress("i", "ingressClassName: other, rules: [{http: {paths: ["+pathsTo+"]}}]") + "status: {loadBalancer: {ingress: [{ip: 192.0.2.3}]}}\n"
	balancer := "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: lb}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.4}]}}\n"
	node := "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.5}]}\n"
	store := load(t, all(gw, theirs, nginx, balancer, node, route("r", atGW+", rules: [{"+toWeb+"}]")))
	bare := load(t, all(gateway("gw", http80), balancer, route("r", atGW+", rules: [{"+toWeb+"}]")))
	found := func(addrs ...string) *explain.Explanation {
		e := &explain.Explanation{Outcome: "found"}
		for _, a := range addrs {
			of := "A"
			if netip.MustParseAddr(a).Is6() {
				of = "AAAA"
			}
			e.Records = append(e.Records, dnswire.Record{Type: of, Data: a})
		}
		return e
	}
	const served = "served by Service shop/web, port 80"
	tests := map[string]struct {
		store   *cluster.Store
		url     string
		dns     *explain.Explanation
		outcome string
		has     string
	}{
		"the Gateway's":              {store, "http://a.test/", found("192.0.2.1"), served, ""},
		"the Gateway's, in the URL":  {store, "http://192.0.2.1/", nil, served, ""},
		"another controller's":       {store, "http://a.test/", found("192.0.2.2"), "not this gateway's: the address is that of Gateway shop/theirs", "a.test resolves to 192.0.2.2, the address of Gateway shop/theirs, which is of GatewayClass other, whose controller is example.com/other"},
		"another Ingress controller": {store, "http://a.test/", found("192.0.2.3"), "not this gateway's: the address is that of Ingress shop/i", "is of IngressClass other"},
		"a load balancer's":          {store, "http://a.test/", found("192.0.2.4"), "no gateway: the connection is to Service shop/lb", "an address of Service shop/lb"},
		"a cluster IP":               {store, "http://a.test/", found("10.96.0.10"), "no gateway: the connection is to Service shop/web", "see portolan explain a.test:80; or let the name lead to an address of the gateway (Gateway shop/gw has 192.0.2.1)"},
		"a node's":                   {store, "http://a.test/", found("192.0.2.5"), "not this gateway's: no Gateway has the address 192.0.2.5", "an address of node n1"},
		"nobody's":                   {store, "http://a.test/", found("192.0.2.1", "2001:db8::1"), "not this gateway's: no Gateway has the address 2001:db8::1", "a.test resolves to 2001:db8::1, which no Gateway and no Ingress has"},
		"no Gateway's is known":      {bare, "http://a.test/", found("192.0.2.9"), served, ""},
		"a load balancer's, where no Gateway's is known": {bare, "http://a.test/", found("192.0.2.4"), served, ""},
		"a cluster IP, where no Gateway's is known":      {bare, "http://a.test/", found("10.96.0.10"), "no gateway: the connection is to Service shop/web", ""},
		"outside the cluster":                            {store, "http://a.test/", &explain.Explanation{Outcome: "not known"}, served, "note: a.test is outside the cluster and was not looked up"},
		"no such name": {
			store, "http://a.test/", &explain.Explanation{Outcome: "no such name", Diagnoses: []explain.Diagnosis{{Why: "it is gone", Cure: "ask for another"}}},
			"no request: a.test does not resolve in the Pod: no such name", "why:  it is gone",
		},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			e := explained(t, test.store, test.url, test.dns)
			if got := text(t, e); e.Outcome != test.outcome || e.Served() != (test.outcome == served) || !strings.Contains(got, test.has) {
				t.Errorf("%s: %q, served %v; want %q, and %q in\n%s", test.url, e.Outcome, e.Served(), test.outcome, test.has, got)
			}
		})
	}
}

// secret returns a Secret with a certificate for a name, valid until a time.
func secret(t *testing.T, name, host string, until time.Time) string {
	t.Helper()
	c, err := testcert.New(host, until)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := c.PEM()
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {namespace: shop, name: %s}\nstringData: {tls.crt: %q, tls.key: %q}\n", name, certificate, key)
}

// TestTLS checks what is said of https://.
func TestTLS(t *testing.T) {
	t.Parallel()
	tomorrow := time.Now().Add(12 * time.Hour)
	listener := func(name, hostname string) string {
		return "{name: " + name + ", port: 443, protocol: HTTPS, hostname: " + hostname + ", tls: {certificateRefs: [{name: " + name + "}]}}"
	}
	gw := gateway("gw", strings.Join([]string{listener("a", "a.test"), listener("b", "b.test"), listener("gone", "gone.test"), listener("old", "old.test"), listener("other", "other.test")}, ", "))
	store := load(t, all(gw, secret(t, "a", "a.test", tomorrow), secret(t, "b", "b.test", tomorrow), secret(t, "old", "old.test", time.Now().Add(-time.Hour)), secret(t, "other", "another.test", tomorrow),
		route("r", atGW+", rules: [{"+toWeb+"}]")))
	withTLS := load(t, all(secret(t, "a", "a.test", tomorrow), ingress("i", "ingressClassName: portolan, tls: [{hosts: [a.test], secretName: a}], rules: [{host: a.test, http: {paths: ["+pathsTo+"]}}, {host: b.test, http: {paths: ["+pathsTo+"]}}]")))
	without := load(t, ingress("i", "ingressClassName: portolan, rules: [{host: a.test, http: {paths: ["+pathsTo+"]}}]"))
	refusing := load(t, all(secret(t, "a", "a.test", tomorrow), route("r", atGW+", rules: [{"+toWeb+"}]"), strings.Replace(
		gateway("gw", listener("a", "a.test")), "listeners:",
		"tls: {frontend: {default: {validation: {caCertificateRefs: [{group: \"\", kind: ConfigMap, name: gone}]}}}}, listeners:", 1)))
	const served = "served by Service shop/web, port 80"
	tests := map[string]struct {
		store            *cluster.Store
		request, outcome string
		has              string
	}{
		"a listener":                      {store, "https://a.test/", served, "port 443: gateway shop/gw a, hostname a.test"},
		"http:// at a port with TLS":      {store, "http://a.test:443/", "400 from the gateway: HTTP instead of a TLS handshake", "cure: use https://"},
		"the host of another listener":    {store, "https://a.test/ Host:b.test", "421 from the gateway: another listener has the host", "the TLS connection is for a.test, and gateway shop/gw b serves the host b.test on connections for it only"},
		"the host of no listener":         {store, "https://c.test/", "no answer: no listener has the host, and the gateway ends the TLS handshake", "why:  httproute shop/r matches the request, and does not serve it: no listener that it is attached to is for the host"},
		"the server name of no listener":  {store, "https://c.test/ Host:a.test", "no answer: no listener has the host, and the gateway ends the TLS handshake", "no listener of port 443 is for the server name c.test"},
		"no server name":                  {store, "https://192.0.2.1/ Host:a.test", "no answer: no listener has the host, and the gateway ends the TLS handshake", "no listener of port 443 is for a handshake without a server name"},
		"a Secret that does not exist":    {store, "https://gone.test/", "no answer: there is no certificate", "gateway shop/gw gone has no certificate for gone.test: Secret shop/gone does not exist"},
		"a certificate that expired":      {store, "https://old.test/", "no answer: clients refuse the certificate", "cure: renew the certificate in Secret shop/old"},
		"a certificate of another name":   {store, "https://other.test/", "no answer: clients refuse the certificate", "the certificate of gateway shop/gw other is for another.test, not for other.test"},
		"no authority of clients":         {refusing, "https://a.test/", "no answer: the listener refuses all clients", "gateway shop/gw a refuses all clients: NoValidCACertificate, ConfigMap shop/gone does not exist"},
		"an Ingress":                      {withTLS, "https://a.test/", served, "port 443: Ingresses"},
		"an Ingress without a Secret":     {withTLS, "https://b.test/", "no answer: there is no certificate", "Ingress has no certificate for b.test"},
		"no Ingress with a certificate":   {without, "https://a.test/", "no connection: no Gateway or Ingress is served at port 443", "ingress shop/i matches the request, and does not serve it: it has no spec.tls, and so no certificate"},
		"an Ingress at a port of neither": {without, "http://a.test:81/", "no connection: no Gateway or Ingress is served at port 81", "Ingresses are served at port 80, and with TLS at 443"},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			e := explained(t, test.store, test.request, nil)
			if got := text(t, e); e.Outcome != test.outcome || e.Served() != (test.outcome == served) || !strings.Contains(got, test.has) {
				t.Errorf("%s: %q, served %v; want %q, and %q in\n%s", test.request, e.Outcome, e.Served(), test.outcome, test.has, got)
			}
		})
	}
}

// TestParseMessage checks what is a request and what is not.
func TestParseMessage(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"GET http://A.test.":            "http://a.test./",
		"GET https://a.test:443/b#c":    "https://a.test/b",
		"GET http://a.test:443/%41/./b": "http://a.test:443/A/b",
		"GET http://[FD00::1]?q=%20":    "http://[fd00::1]/?q=%20",
		"GET http://[fd00::1]:81/%2F":   "http://[fd00::1]:81/%2F",
		"G(T http://a.test/":            `"G(T" is not a method, such as GET`,
		"GET ftp://a.test/":             `"ftp://a.test/" does not begin with http:// or https://`,
		"GET http:///a":                 `"http:///a" has no host`,
		"GET http://a:b@a.test/":        `"http://a:b@a.test/" has a user; give a field instead: --header 'Authorization: ...'`,
		"GET http://ä.test/":            `the host "ä.test" is not in its ASCII form, xn--... (RFC 5891)`,
		"GET http://a.test:0/":          "port 0 is not from 1 to 65535",
		"GET http://a.test/%zz":         `"http://a.test/%zz" is not a URL: invalid URL escape "%zz"`,
		"GET http://a.test/ x":          `"x" is not NAME: VALUE, such as 'X-Env: test'`,
		"GET http://a.test/ (:x":        `"(:x" is not NAME: VALUE, such as 'X-Env: test'`,
	} {
		words := strings.Fields(line)
		m, err := request.ParseMessage(words[0], words[1], words[2:])
		got := m.URL()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("ParseMessage(%s) = %s, want %s", line, got, want)
		}
	}
}

// TestNotRead checks that what could not be read is not taken for what does not exist.
func TestNotRead(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore()
	kinds := slices.DeleteFunc(cluster.Kinds(), func(k cluster.Kind) bool { return k == cluster.KindGateway })
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, kinds...) })
	e := explained(t, store, "http://a.test/", nil)
	if want := "not known: this command may not read Gateways"; e.Outcome != want || e.Served() || len(e.Diagnoses) != 1 {
		t.Errorf("Explain = %q, %v, want %q and one diagnosis", e.Outcome, e.Diagnoses, want)
	}
}

// TestExpiredIsListed checks that lists of Gateways and Ingresses say which certificates have expired, and when.
func TestExpiredIsListed(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Hour)
	store := load(t, all(
		secret(t, "a", "a.test", end),
		gateway("gw", "{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: a}]}}"),
		ingress("i", "ingressClassName: portolan, tls: [{hosts: [a.test], secretName: a}]"),
	))
	want := "the certificate in Secret shop/a expired on " + end.UTC().Format(time.DateOnly)
	for claim, test := range map[string]struct {
		now  time.Time
		says bool
	}{
		"before it expires":    {end.Add(-time.Minute), false},
		"after it has expired": {end.Add(time.Minute), true},
	} {
		store.View(func(v *cluster.View) {
			w := request.NewWorld(v, controllers())
			gateways, ingresses := w.Gateways(test.now), w.Ingresses(test.now)
			if got := slices.Contains(gateways[0].Problems, "listener a: "+want); got != test.says {
				t.Errorf("%s: Gateways(%v) has the problems %q", claim, test.now, gateways[0].Problems)
			}
			if got := slices.Contains(ingresses[0].Problems, want); got != test.says {
				t.Errorf("%s: Ingresses(%v) has the problems %q", claim, test.now, ingresses[0].Problems)
			}
		})
	}
}
