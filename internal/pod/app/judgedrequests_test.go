package app

import (
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
)

// served are objects behind gateways: two Services with a Pod each.
const served = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: portolan}, spec: {controllerName: portolan.dev/gateway}}
---
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: portolan}, spec: {controller: portolan.dev/ingress}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web}, spec: {clusterIP: 10.96.1.1, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: other}, spec: {clusterIP: 10.96.1.2, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.244.1.5], targetRef: {kind: Pod, namespace: shop, name: web-0}}]}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: shop, name: other-1, labels: {kubernetes.io/service-name: other}}, addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.244.1.5], targetRef: {kind: Pod, namespace: shop, name: web-0}}]}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web-0, labels: {app: web}}, spec: {containers: [{name: m}]}, status: {phase: Running, podIPs: [{ip: 10.244.1.5}], conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: client}, spec: {containers: [{name: m}]}, status: {phase: Running, podIPs: [{ip: 10.244.1.6}]}}
---
`

// gatewayOf returns a Gateway with one listener, and an HTTPRoute of it.
func gatewayOf(name, spec, listener, route string) string {
	return "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: shop, name: " + name + "}, spec: {gatewayClassName: portolan, " +
		spec + "listeners: [" + listener + "]}}\n---\n" + "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: shop, name: " + name +
		"}, spec: {parentRefs: [{name: " + name + "}], " + route + "}}\n---\n"
}

// TestJudgedRequests: what clients get of gateways where it is easily judged by something else than their request.
func TestJudgedRequests(t *testing.T) {
	t.Parallel()
	const (
		plain   = "{name: http, port: 80, protocol: HTTP}"
		secured = "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: none}]}}"
		moved   = "hostnames: [www.shop.example], rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: new.example}}]}]"
		toWeb   = "backendRefs: [{name: web, port: 80}]"
		first   = "addresses: [{type: IPAddress, value: 192.0.2.10}], "
		second  = "addresses: [{type: IPAddress, value: 192.0.2.20}], "
	)
	anyHost := gatewayOf("any", "", plain, "rules: [{"+toWeb+"}]")
	two := gatewayOf("a", first, plain, "hostnames: [www.shop.example], rules: [{"+toWeb+"}]") +
		gatewayOf("b", second, plain, "hostnames: [www.shop.example], rules: [{backendRefs: [{name: other, port: 80}]}]")
	narrow := gatewayOf("a", first, plain, "rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: any.example}}]}]") +
		gatewayOf("b", second, plain, "hostnames: [www.shop.example], rules: [{"+toWeb+"}]")
	ingress := "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web, annotations: {nginx.ingress.kubernetes.io/enable-cors: 'true', " +
		"nginx.ingress.kubernetes.io/force-ssl-redirect: 'true'}}, spec: {ingressClassName: portolan, rules: [{host: api.shop.example, http: {paths: [{path: /, " +
		"pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}\n"
	for claim, test := range map[string]struct{ manifests, tests, why string }{
		"a redirect of a gateway without an address": {
			gatewayOf("www", "", plain, moved), "{from: [outside, node, 198.51.100.7], to: 'http://www.shop.example/', expect: {redirect: 'http://new.example/'}}", "",
		},
		"a redirect behind a handshake that fails": {
			gatewayOf("www", "", secured, moved), "{from: outside, to: 'https://www.shop.example/', expect: {redirect: 'https://new.example/'}}", "got no answer: tls",
		},
		"a redirect at a port with TLS": {
			gatewayOf("www", "", secured, moved), "{from: outside, to: 'http://www.shop.example:443/', expect: {redirect: 'http://new.example:443/'}}", "got status 400: tls",
		},
		"a Service, where a route takes any host":                {anyHost, "{from: shop/client, to: 'http://web/', expect: {backend: shop/web}}", ""},
		"a Pod, where a route takes any host":                    {anyHost, "{from: shop/client, to: 'http://10.244.1.5:80/', expect: {backend: shop/web}}", "no Service has"},
		"an address outside, where a route takes any host":       {anyHost, "{from: shop/client, to: 'http://203.0.113.77/', expect: {backend: shop/web}}", "no Service has"},
		"a name outside, where a route takes any host":           {anyHost, "{from: shop/client, to: 'http://www.example.org/', expect: {backend: shop/web}}", ""},
		"a host of two Gateways":                                 {two, "{from: outside, to: 'http://www.shop.example/', expect: {backend: shop/web}}", "Service shop/other may serve it"},
		"a host of a Gateway, and one for any host":              {narrow, "{from: outside, to: 'http://www.shop.example/', expect: {backend: shop/web}}", ""},
		"what the one for any host would do":                     {narrow, "{from: outside, to: 'http://www.shop.example/', expect: {redirect: 'http://any.example/'}}", "got backend"},
		"a preflight, where plain HTTP is redirected":            {ingress, "{from: outside, to: 'http://api.shop.example/', method: OPTIONS, headers: {Origin: 'https://x', Access-Control-Request-Method: POST}, expect: {redirect: 'https://api.shop.example'}}", ""},
		"a request that the same Ingress redirects for its path": {ingress, "{from: outside, to: 'http://api.shop.example/a', expect: {redirect: 'https://api.shop.example/a'}}", ""},
	} {
		c := config.Default()
		c.Gateway.Pool = []string{"192.0.2.10", "192.0.2.20"}
		c.Gateway.Publish.Addresses = []string{"192.0.2.5"}
		c.Gateway.Ingress.Annotations = "nginx"
		checkJudgedOf(t, c, claim, served+test.manifests, test.tests, test.why)
	}
}

// TestPassedOnByServerName: the server name of a handshake decides who has the connection, whatever host is asked for on it.
func TestPassedOnByServerName(t *testing.T) {
	t.Parallel()
	manifests := served + "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: shop, name: both}, spec: {gatewayClassName: portolan, listeners: [" +
		"{name: ended, port: 443, protocol: HTTPS, hostname: a.shop.example, tls: {certificateRefs: [{name: none}]}}, " +
		"{name: passed, port: 443, protocol: TLS, hostname: p.shop.example, tls: {mode: Passthrough}}]}}\n---\n" +
		"{apiVersion: gateway.networking.k8s.io/v1, kind: TLSRoute, metadata: {namespace: shop, name: p}, spec: {parentRefs: [{name: both}], hostnames: [p.shop.example], rules: [{backendRefs: [{name: web, port: 80}]}]}}\n"
	w := worldOf(t, config.Default(), manifests, func(*cluster.Tx) {})
	for url, test := range map[string]struct {
		host    string
		status  int
		service string
	}{
		"https://p.shop.example/": {"a.shop.example", 0, "shop/web"},
		"https://a.shop.example/": {"p.shop.example", 421, ""},
	} {
		told, err := w.Tell(t.Context(), Asked{Target: url, Headers: []string{"Host: " + test.host}})
		if err != nil {
			t.Fatal(err)
		}
		a := told.Request.Answer()
		if a.Status != test.status || test.service != "" && (len(a.Backends) != 1 || a.Backends[0].Service != test.service) {
			t.Errorf("%s with Host %s: %+v, want status %d and Service %q", url, test.host, a, test.status, test.service)
		}
	}
}
