package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/support/testcert"
)

// policyOf returns a RoutePolicy of an HTTPRoute.
func policyOf(name, target, more string) string {
	return "{apiVersion: portolan.dev/v1alpha1, kind: RoutePolicy, metadata: {name: " + name + ", namespace: orders}, " +
		"spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, " + target + "}], " + more + "}}"
}

func inGroup(group, kind, name, rest string) string {
	return fmt.Sprintf("{apiVersion: %s/v1, kind: %s, metadata: {name: %s, namespace: orders}, %s}", group, kind, name, rest)
}

// gatewayClass returns a GatewayClass that its controller accepted.
func gatewayClass(name, controller string) string {
	return fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: %s}, status: {conditions: [{type: Accepted, status: 'True', reason: Accepted, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]}}", name, controller)
}

func gatewayOf(class, name, rest string) string {
	return inGroup("gateway.networking.k8s.io", "Gateway", name, "spec: {gatewayClassName: "+class+", "+rest+"}")
}

func listenersOf(list ...string) string { return "listeners: [" + strings.Join(list, ", ") + "]" }

func routeOf(name, spec string) string {
	return inGroup("gateway.networking.k8s.io", "HTTPRoute", name, "spec: {"+spec+"}")
}

func ingressClass(name, annotations string) string {
	return fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: %s, annotations: {%s}}, spec: {controller: portolan.dev/ingress}}", name, annotations)
}

// tlsSecret returns a Secret with a certificate for a host that is valid until a time.
func tlsSecret(t *testing.T, name, host string, until time.Time) string {
	t.Helper()
	c, err := testcert.New(host, until)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := c.PEM()
	return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: orders}, type: kubernetes.io/tls, stringData: {tls.crt: %q, tls.key: %q}}", name, certificate, key)
}

const (
	portolan  = "portolan.dev/gateway"
	httpAt80  = "{name: http, port: 80, protocol: HTTP}"
	isDefault = "ingressclass.kubernetes.io/is-default-class: 'true'"
	atPublic  = "parentRefs: [{name: public}]"
	rulesTo   = "rules: [{backendRefs: [{name: web, port: 80}]}]"
)

// TestGatewayFindings checks the rules about Ingresses and Gateway API, in manifests and in a cluster.
func TestGatewayFindings(t *testing.T) {
	t.Parallel()
	now := time.Now()
	web := service("web", "clusterIP: 10.96.0.7, "+http) + "\n---\n" + endpoints("web", "{addresses: [192.0.2.7]}")
	ours, theirs := gatewayClass("portolan", portolan), gatewayClass("other", "example.com/other")
	public := gatewayOf("portolan", "public", listenersOf(httpAt80))
	pathOf := func(path string) string {
		return "{path: " + path + ", pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}"
	}
	withPaths := func(class string, paths ...string) string {
		return ingress("ingressClassName: " + class + ", rules: [{host: a.test, http: {paths: [" + strings.Join(paths, ", ") + "]}}]")
	}
	named := func(manifest, name string) string { return strings.Replace(manifest, "name: shop", "name: "+name, 1) }
	tlsIngress := ingress("ingressClassName: web, tls: [{hosts: [a.test], secretName: cert}], rules: [{host: a.test, http: {paths: [" + pathOf("/a") + "]}}]")
	httpsListener := "{name: https, port: 443, protocol: HTTPS, hostname: '*.a.test', tls: {certificateRefs: [{name: cert}]}}"
	withAuthority := gatewayOf("portolan", "public", listenersOf(httpsListener)+", tls: {frontend: {default: {validation: "+
		"{caCertificateRefs: [{group: '', kind: ConfigMap, name: clients}]}}}}")
	redirect := func(fields string) string {
		return "rules: [{filters: [{type: RequestRedirect, requestRedirect: {" + fields + "}}]}]"
	}
	type situation struct {
		manifests texts
		observed  bool
		want      []string // prefixes of the lines
	}
	const inCluster, inManifests = true, false
	tests := map[string]situation{
		"a class of Ingresses that manifests lack": {texts{web, withPaths("nginx", pathOf("/a"))}, inManifests, nil},
		"a class of Ingresses that a cluster lacks": {texts{web, withPaths("nginx", pathOf("/a"))}, inCluster,
			[]string{"error: ingress orders/shop: ingress-class-unserved: IngressClass nginx does not exist: nobody serves the Ingress; name an IngressClass"}},
		"a class in the annotation": {texts{web, strings.Replace(ingress("rules: [{http: {paths: ["+pathOf("/a")+"]}}]"), "namespace: orders", "namespace: orders, annotations: {kubernetes.io/ingress.class: nginx}", 1)}, inCluster,
			[]string{"warning: ingress orders/shop: ingress-class-unserved: IngressClass nginx does not exist"}},
		"no class and no default": {texts{web, ingressClass("web", ""), ingress("rules: [{http: {paths: [" + pathOf("/a") + "]}}]")}, inCluster,
			[]string{"warning: ingress orders/shop: ingress-class-unserved: it names no class, and no IngressClass is the default"}},
		"no class and a default": {texts{web, ingressClass("web", isDefault), ingress("rules: [{http: {paths: [" + pathOf("/a") + "]}}]")}, inCluster, nil},
		"no class and two defaults": {texts{web, ingressClass("web", isDefault), ingressClass("api", isDefault), ingress("rules: [{http: {paths: [" + pathOf("/a") + "]}}]")}, inManifests,
			[]string{"error: ingress orders/shop: ingress-class-unserved: it names no class, and 2 IngressClasses are the default: api, web; set ingressClassName"}},

		"equal paths of two Ingresses": {texts{web, ingressClass("web", isDefault), withPaths("web", pathOf("/a")), named(ingress("rules: [{host: a.test, http: {paths: ["+pathOf("/b")+", "+pathOf("/a")+"]}}]"), "late")}, inManifests,
			[]string{"warning: ingress orders/late: route-shadowed: ingress orders/shop, which is older, has the same match for a.test: the rule never serves it; change"}},
		"equal paths of two classes":      {texts{web, ingressClass("web", ""), ingressClass("api", ""), withPaths("web", pathOf("/a")), named(withPaths("api", pathOf("/a")), "late")}, inManifests, nil},
		"a canary":                        {texts{web, withPaths("nginx", pathOf("/a")), strings.Replace(named(withPaths("nginx", pathOf("/a")), "late"), "namespace: orders", "namespace: orders, annotations: {nginx.ingress.kubernetes.io/canary: 'true'}", 1)}, inManifests, nil},
		"paths that the controller reads": {texts{web, withPaths("nginx", strings.Replace(pathOf("/a*"), "Exact", "ImplementationSpecific", 1)), named(withPaths("nginx", strings.Replace(pathOf("/a*"), "Exact", "ImplementationSpecific", 1)), "late")}, inManifests, nil},
		"paths of an Ingress": {texts{web, withPaths("nginx", pathOf("/a/"), pathOf("/b"), pathOf("/b/"), pathOf("'/c?d=e'"), pathOf("'/f#g'"))}, inManifests,
			[]string{"note: ingress orders/shop: path-trailing-slash: the slash at the end counts: no rule serves /a; match the prefix",
				"warning: ingress orders/shop: route-never-matches: no request has the path /c?d=e: the query is no part of it; match",
				"warning: ingress orders/shop: route-never-matches: no request has the path /f#g: clients do not send the fragment; write"}},
		"a host of tls of no rule": {texts{web, ingress("tls: [{hosts: [a.test, '*.test', b.test], secretName: s}], rules: [{host: a.test, http: {paths: [" + pathOf("/a") + "]}}]")}, inManifests,
			[]string{"warning: ingress orders/shop: ingress-tls-host: no rule has the host b.test; there are rules for a.test; write the host of a rule"}},
		"a host of tls and a default backend": {texts{web, ingress("defaultBackend: {service: {name: web, port: {number: 80}}}, tls: [{hosts: [b.test], secretName: s}]")}, inManifests, nil},

		"no Secret in manifests": {texts{web, ingressClass("web", ""), tlsIngress}, inManifests, nil},
		"no Secret in a cluster": {texts{web, ingressClass("web", ""), tlsIngress}, inCluster,
			[]string{"error: ingress orders/shop: tls-secret-missing: Secret orders/cert does not exist: there is no certificate for it; create the Secret"}},
		"an expired certificate": {texts{web, ingressClass("web", ""), tlsIngress, tlsSecret(t, "cert", "a.test", now.Add(-time.Hour))}, inCluster,
			[]string{"error: ingress orders/shop: tls-secret-invalid: the certificate in Secret orders/cert expired on " + now.Add(-time.Hour).UTC().Format("2006-01-02") + "; renew"}},
		"a certificate for another host": {texts{web, ingressClass("web", ""), tlsIngress, tlsSecret(t, "cert", "b.test", now.Add(time.Hour))}, inCluster,
			[]string{"warning: ingress orders/shop: tls-certificate-names: the certificate is for b.test, not for a.test; use a certificate with a.test"}},
		"a Secret that is filled later": {texts{web, ingressClass("web", ""), tlsIngress, "{apiVersion: v1, kind: Secret, metadata: {name: cert, namespace: orders}, type: kubernetes.io/tls, stringData: {tls.crt: '', tls.key: ''}}"}, inManifests, nil},
		"a Secret without a key pair": {texts{web, ingressClass("web", ""), tlsIngress, "{apiVersion: v1, kind: Secret, metadata: {name: cert, namespace: orders}, type: kubernetes.io/tls, stringData: {tls.crt: x, tls.key: y}}"}, inManifests,
			[]string{"error: ingress orders/shop: tls-secret-invalid: Secret orders/cert has no key pair in tls.crt and tls.key: failed to find any PEM data in certificate input; write"}},
		"a listener's wildcard": {texts{ours, gatewayOf("portolan", "public", listenersOf(httpsListener)), tlsSecret(t, "cert", "*.a.test", now.Add(time.Hour))}, inCluster, nil},
		"a listener whose certificate has one name": {texts{ours, gatewayOf("portolan", "public", listenersOf(httpsListener)), tlsSecret(t, "cert", "b.a.test", now.Add(time.Hour))}, inCluster,
			[]string{"warning: gateway orders/public: tls-certificate-names: the certificate is for b.a.test, not for *.a.test"}},
		"a certificate of another namespace": {texts{ours, gatewayOf("portolan", "public", listenersOf("{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert, namespace: certs}]}}"))}, inCluster,
			[]string{"error: gateway orders/public: reference-grant-missing: no ReferenceGrant in namespace certs allows Gateways of namespace orders to refer to Secret cert: there is no certificate for it; create a ReferenceGrant in namespace certs: from Gateway"}},

		"a class of Gateways that a cluster lacks": {texts{public}, inCluster,
			[]string{"error: gateway orders/public: gateway-class-unserved: GatewayClass portolan does not exist: nobody serves the Gateway; name"}},
		"a class of Gateways that manifests lack": {texts{public}, inManifests, nil},
		"a class of Gateways that manifests with others lack": {texts{theirs, public}, inManifests,
			[]string{"warning: gateway orders/public: gateway-class-unserved: GatewayClass portolan does not exist: nobody serves the Gateway; name"}},
		"authorities of clients that a cluster lacks": {texts{ours, withAuthority, tlsSecret(t, "cert", "*.a.test", now.Add(time.Hour))}, inCluster,
			[]string{"error: gateway orders/public: tls-authority-missing: ConfigMap orders/clients does not exist: clients with certificates of its authorities are refused, all if it is the only one; create the ConfigMap"}},
		"authorities of clients that manifests lack": {texts{ours, withAuthority, tlsSecret(t, "cert", "*.a.test", now.Add(time.Hour))}, inManifests, nil},
		"a class that no controller accepted": {texts{strings.Replace(ours, "'True'", "Unknown", 1), public}, inCluster,
			[]string{"warning: gateway orders/public: gateway-class-unserved: no controller has accepted GatewayClass portolan, whose controllerName is portolan.dev/gateway; check"}},
		"Gateways that share a port": {texts{ours, public, gatewayOf("portolan", "second", listenersOf(httpAt80))}, inManifests,
			[]string{"error: gateway orders/second: listener-conflict: gateway orders/public http has the port and the hostname: it is not served; give"}},
		"Gateways of another controller": {texts{theirs, gatewayOf("other", "public", listenersOf(httpAt80)), gatewayOf("other", "second", listenersOf(httpAt80))}, inManifests, nil},
		"two protocols at a port of another controller": {texts{theirs, gatewayOf("other", "public", listenersOf(httpAt80, "{name: tls, port: 80, protocol: HTTPS, hostname: a.test, tls: {certificateRefs: [{name: c}]}}"))}, inManifests,
			[]string{"error: gateway orders/public: listener-conflict: listener tls has the port, with another protocol: it is not served", "error: gateway orders/public: listener-conflict: listener http has the port, with another protocol: it is not served"}},
		"an Ingress at a port with TLS": {texts{web, ours, ingressClass("web", ""), gatewayOf("portolan", "public", listenersOf("{name: tls, port: 80, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}")), withPaths("web", pathOf("/a"))}, inManifests,
			[]string{"error: ingress orders/shop: listener-conflict: gateway orders/public tls serves TLS at port 80: it is not served there; give the listener of the Gateway another port"}},
		"a ListenerSet of no Gateway": {texts{inGroup("gateway.networking.k8s.io", "ListenerSet", "set", "spec: {parentRef: {name: gone}, "+listenersOf(httpAt80)+"}")}, inCluster,
			[]string{"error: listenerset orders/set: listenerset-not-allowed: Gateway orders/gone does not exist; name a Gateway that exists"}},

		"a RoutePolicy that is obeyed": {texts{web, ours, public, routeOf("web", atPublic+", "+rulesTo), policyOf("a", "name: web", "")}, inCluster, nil},
		"a RoutePolicy without a route": {texts{policyOf("a", "name: web", "")}, inCluster,
			[]string{"error: routepolicy orders/a: routepolicy-not-accepted: HTTPRoute orders/web does not exist: nothing is restricted; name a route"}},
		"a RoutePolicy whose route manifests lack": {texts{policyOf("a", "name: web", "")}, inManifests, nil},
		"a RoutePolicy of a Service": {texts{web, strings.Replace(policyOf("a", "name: web", ""), "group: gateway.networking.k8s.io, kind: HTTPRoute", "group: '', kind: Service", 1)}, inManifests,
			[]string{"error: routepolicy orders/a: routepolicy-not-accepted: Service web is neither an HTTPRoute nor a GRPCRoute: nothing is restricted; name an HTTPRoute or a GRPCRoute"}},
		"a RoutePolicy without a rule": {texts{web, routeOf("web", atPublic+", "+rulesTo), policyOf("a", "name: web, sectionName: x", "")}, inManifests,
			[]string{"error: routepolicy orders/a: routepolicy-not-accepted: HTTPRoute orders/web has no rule called x: nothing is restricted; name"}},
		"two RoutePolicies of a route": {texts{web, routeOf("web", atPublic+", "+rulesTo), policyOf("a", "name: web", ""), policyOf("b", "name: web", "")}, inManifests,
			[]string{"warning: routepolicy orders/b: routepolicy-not-accepted: RoutePolicy orders/a, which is older, has the same target: this one does nothing there; leave"}},
		"a RoutePolicy without its Secret": {texts{web, ours, public, routeOf("web", atPublic+", "+rulesTo), policyOf("a", "name: web", "basicAuth: {secretRef: {name: users}}")}, inCluster,
			[]string{"error: routepolicy orders/a: routepolicy-not-accepted: Secret orders/users does not exist: requests for its targets are answered with 503; correct"}},
		"a RoutePolicy whose Secret manifests lack": {texts{web, routeOf("web", atPublic+", "+rulesTo), policyOf("a", "name: web", "basicAuth: {secretRef: {name: users}}")}, inManifests, nil},

		"a parent that manifests lack": {texts{web, routeOf("web", atPublic+", "+rulesTo)}, inManifests, nil},
		"a parent that a cluster lacks": {texts{web, routeOf("web", atPublic+", "+rulesTo)}, inCluster,
			[]string{"error: httproute orders/web: route-not-accepted: Gateway orders/public does not exist: it does not serve the route; name a Gateway that exists"}},
		"a parent with a typing error": {texts{web, ours, public, routeOf("web", "parentRefs: [{name: pubilc}], "+rulesTo)}, inManifests,
			[]string{"error: httproute orders/web: route-not-accepted: Gateway orders/pubilc does not exist (did you mean public?): it does not serve the route; write public"}},
		"a parent of another API": {texts{web, routeOf("web", "parentRefs: [{group: '', kind: Service, name: web}], "+rulesTo)}, inCluster, nil},
		"no such listener": {texts{web, theirs, gatewayOf("other", "public", listenersOf(httpAt80)), routeOf("web", "parentRefs: [{name: public, sectionName: web, port: 80}], "+rulesTo)}, inManifests,
			[]string{"error: httproute orders/web: route-not-accepted: Gateway orders/public has no listener web at port 80: it does not serve the route; correct"}},
		"one parent of two": {texts{web, ours, public, routeOf("web", "parentRefs: [{name: public}, {name: public, sectionName: web}], "+rulesTo)}, inManifests,
			[]string{"warning: httproute orders/web: route-not-accepted: Gateway orders/public has no listener web: it does not serve the route"}},
		"no hostname of the listener": {texts{web, ours, gatewayOf("portolan", "public", listenersOf("{name: http, port: 80, protocol: HTTP, hostname: '*.a.test'}")), routeOf("web", atPublic+", hostnames: [b.test], "+rulesTo)}, inManifests,
			[]string{"error: httproute orders/web: route-not-accepted: none of its hostnames is one of Gateway orders/public, which has *.a.test: it does not serve the route"}},
		"a namespace whose labels manifests lack": {texts{web, ours, strings.Replace(gatewayOf("portolan", "public", listenersOf("{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {a: b}}}}}")), "namespace: orders", "namespace: infra", 1), routeOf("web", "parentRefs: [{name: public, namespace: infra}], "+rulesTo)}, inManifests,
			[]string{"warning: httproute orders/web: route-not-accepted: no listener of Gateway infra/public allows HTTPRoutes from namespace orders"}},
		"a rule that is dropped": {texts{web, ours, public, routeOf("web", atPublic+", rules: [{backendRefs: [{name: web, port: 80}]}, {matches: [{path: {value: /x}}], filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}, {type: URLRewrite, urlRewrite: {hostname: b.test}}]}]")}, inManifests,
			[]string{"warning: httproute orders/web: route-not-accepted: a rule is not served: Dropped Rule: rule 1: RequestRedirect and URLRewrite exclude each other; correct the rule"}},
		"a rule that another controller may serve": {texts{web, theirs, gatewayOf("other", "public", listenersOf(httpAt80)), routeOf("web", atPublic+", rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}, {type: URLRewrite, urlRewrite: {hostname: b.test}}]}]")}, inManifests, nil},
		"paths of a route": {texts{web, ours, public, routeOf("web", atPublic+", rules: [{matches: [{path: {type: RegularExpression, value: 'a.*'}}, {path: {type: RegularExpression, value: '^/a.*'}}, {path: {type: RegularExpression, value: '.*[.]php'}}, {method: CONNECT}], backendRefs: [{name: web, port: 80}]}]")}, inManifests,
			[]string{"warning: httproute orders/web: route-never-matches: no request has the path a.*: a regular expression must match all of it", "warning: httproute orders/web: route-never-matches: the gateway serves no request with the method CONNECT; remove the match"}},
		"rules of a route that are equal": {texts{web, ours, public, routeOf("web", atPublic+", rules: [{backendRefs: [{name: web, port: 80}]}, {backendRefs: [{name: web, port: 80}]}]")}, inManifests,
			[]string{"warning: httproute orders/web: route-shadowed: an earlier rule of it has the same match for any host: the rule never serves it"}},

		"a redirect of a path to itself": {texts{ours, public, routeOf("web", atPublic+", hostnames: ['*.a.test'], "+redirect("path: {type: ReplacePrefixMatch, replacePrefixMatch: /}"))}, inManifests,
			[]string{"error: httproute orders/web: redirect-loop: at listener http it redirects http://a.a.test/ to itself; attach"}},
		"a redirect to another host": {texts{ours, public, routeOf("web", atPublic+", "+redirect("hostname: b.test"))}, inManifests, nil},
		"a redirect to https":        {texts{ours, public, routeOf("web", atPublic+", "+redirect("scheme: https"))}, inManifests, nil},

		"a backend of a kind that is not known": {texts{web, ours, public, routeOf("web", atPublic+", rules: [{backendRefs: [{group: example.com, kind: Bucket, name: b}]}]")}, inManifests, nil},
		"a backend that is an alias": {texts{service("alias", "type: ExternalName, externalName: www.example.com"), ours, public, routeOf("web", atPublic+", rules: [{backendRefs: [{name: alias, port: 80}]}]")}, inManifests,
			[]string{"error: httproute orders/web: route-backend-missing: Service orders/alias is of type ExternalName, to which the gateway sends no requests"}},
		"an alias of another controller": {texts{service("alias", "type: ExternalName, externalName: www.example.com"), theirs, gatewayOf("other", "public", listenersOf(httpAt80)), routeOf("web", atPublic+", rules: [{backendRefs: [{name: alias, port: 80}]}]")}, inManifests, nil},
		"a mirror": {texts{web, ours, public, routeOf("web", atPublic+", rules: [{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: wbe, port: 80}}}], backendRefs: [{name: web, port: 80}]}]")}, inManifests,
			[]string{"error: httproute orders/web: route-backend-missing: Service orders/wbe does not exist (did you mean web?): requests are not copied; write web"}},
		"a backend of a namespace that manifests lack": {texts{web, ours, public, routeOf("web", atPublic+", rules: [{backendRefs: [{name: api, namespace: other, port: 80}]}]")}, inManifests, nil},
		"a backend of a namespace without a grant": {texts{web, ours, public, routeOf("web", atPublic+", rules: [{backendRefs: [{name: api, namespace: other, port: 80}]}]")}, inCluster,
			[]string{"error: httproute orders/web: reference-grant-missing: no ReferenceGrant in namespace other allows HTTPRoutes of namespace orders to refer to Service api: its share of the requests is answered with 500; create"}},
		"a backend without endpoints": {texts{service("web", "clusterIP: 10.96.0.7, selector: {app: web}, "+http), ours, public, routeOf("web", atPublic+", "+rulesTo), ingressClass("web", isDefault), ingress("rules: [{http: {paths: [" + pathOf("/a") + "]}}]")}, inCluster,
			[]string{"warning: service orders/web: service-selects-no-pod: it selects no Pod, and no Pod or workload of namespace orders is known: its name resolves, but nothing answers at its address, and requests of httproute orders/web and ingress orders/shop are answered with 503;"}},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "manifests.yaml")
			if err := os.WriteFile(path, []byte(strings.Join(test.manifests, "\n---\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			var got []string
			load(t, path).View(func(v *cluster.View) {
				c := newCluster(v, usualNode())
				c.Observed, c.Now = test.observed, now
				c.Gateway = compile.Config{GatewayController: portolan, IngressController: "portolan.dev/ingress"}
				got = lines(slices.DeleteFunc(c.CheckAll(), func(f lint.Finding) bool { return f.Rule == lint.DNSServiceMissing }))
			})
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("CheckAll:\n%s\nwant lines that begin\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}
