package translate

import (
	"encoding/json"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/annotation"
)

// ingress returns an Ingress of the host x.test. Paths are text and type.
func ingress(name string, annotations map[string]string, paths ...string) *cluster.Frontend {
	all := make(map[string]string)
	for name, value := range annotations {
		all[annotation.Prefix+name] = value
	}
	rule := cluster.IngressRule{Host: "x.test"}
	for i := 0; i < len(paths); i += 2 {
		rule.Paths = append(rule.Paths, cluster.IngressPath{
			Path: paths[i], Type: cluster.PathType(paths[i+1]),
			Backend: cluster.IngressBackend{Backend: cluster.Backend{Service: name, Number: 80}},
		})
	}
	return &cluster.Frontend{
		Kind: cluster.KindIngress, Key: cluster.Key{Namespace: "a", Name: name},
		Ingress: &cluster.IngressSpec{Class: "nginx", Rules: []cluster.IngressRule{rule}, Annotations: all},
	}
}

// withTLS adds a Secret for the host.
func withTLS(f *cluster.Frontend) *cluster.Frontend {
	f.Ingress.TLS = []cluster.IngressTLS{{Hosts: []string{"x.test"}, Secret: "cert"}}
	return f
}

// withDefault adds a default backend, and withoutRules takes the rules away.
func withDefault(f *cluster.Frontend) *cluster.Frontend {
	f.Ingress.Default = &cluster.IngressBackend{Backend: cluster.Backend{Service: f.Name, Number: 80}}
	return f
}

func withoutRules(f *cluster.Frontend) *cluster.Frontend {
	f.Ingress.Rules = nil
	return f
}

// h2c returns a Service that speaks HTTP/2 without TLS.
func h2c(name string) *cluster.Service {
	protocol := "kubernetes.io/h2c"
	return &cluster.Service{
		Key: cluster.Key{Namespace: "a", Name: name}, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}},
		Spec: &cluster.ServiceSpec{AppProtocols: []*string{&protocol}},
	}
}

func TestIngresses(t *testing.T) {
	t.Parallel()
	const prefix, exact, specific = "Prefix", "Exact", "ImplementationSpecific"
	type annotations = map[string]string
	for claim, test := range map[string]struct {
		of   []*cluster.Frontend
		has  []string // of the objects in JSON
		not  []string
		note string // of the notes, one of them

		services []*cluster.Service
	}{
		"paths keep their types": {
			of: []*cluster.Frontend{ingress("a", nil, "/a", exact, "/b", prefix)},
			has: []string{`"path":{"type":"Exact","value":"/a"}`, `"path":{"type":"PathPrefix","value":"/b"}`,
				`"hostnames":["x.test"]`},
			not: []string{"RequestRedirect", "RegularExpression"},
		},
		"one Ingress turns expressions on for all": {
			of: []*cluster.Frontend{
				ingress("a", nil, "/a", exact), ingress("b", annotations{"use-regex": "true"}, "/b.+", specific),
			},
			has: []string{`"value":"(?i:/a)(?s:.*)"`, `"value":"(?i:/b.+)(?s:.*)"`}, not: []string{`"Exact"`},
		},
		"a whole path is replaced": {
			of:  []*cluster.Frontend{ingress("a", annotations{"rewrite-target": "/new"}, "/old", prefix)},
			has: []string{`{"replaceFullPath":"/new","type":"ReplaceFullPath"}`, `"value":"(?i:/old)(?s:.*)"`},
		},
		"groups that there are not are empty": {
			of:  []*cluster.Frontend{ingress("a", annotations{"rewrite-target": "/$1"}, "/old", prefix)},
			has: []string{`{"replaceFullPath":"/","type":"ReplaceFullPath"}`},
		},
		"the rest after a prefix": {
			of: []*cluster.Frontend{ingress("a", annotations{"rewrite-target": "/v2/$2"}, "/old(/|$)(.*)", specific,
				"/x", prefix)},
			has: []string{`{"replacePrefixMatch":"/v2","type":"ReplacePrefixMatch"}`,
				`{"type":"PathPrefix","value":"/old"}`},
			not: []string{"RegularExpression"}, note: "rewrite-target: differs: paths of the host become prefixes",
		},
		"the rest after a prefix, of another Ingress": {
			of: []*cluster.Frontend{
				ingress("a", nil, "/a", prefix), ingress("b", annotations{"rewrite-target": "/$2"}, "/old(/|$)(.*)", specific),
			}, note: "a: spec.rules: differs: paths of the host become prefixes of elements",
		},
		"each path is told": {
			of:   []*cluster.Frontend{ingress("a", nil, "/a", specific, "/b", specific)},
			note: "/b is a prefix of elements, not of characters; /a is a prefix of elements, not of characters",
		},
		"groups elsewhere are missing, and closed": {
			of:  []*cluster.Frontend{ingress("a", annotations{"rewrite-target": "/$2/$1"}, "/(a|b)/(.*)", specific)},
			not: []string{"backendRefs", "URLRewrite"}, note: "rewrite-target: missing: /$2/$1 for",
		},
		"lookaround is missing": {
			of:  []*cluster.Frontend{ingress("a", annotations{"use-regex": "true"}, "/(?!a)", specific)},
			not: []string{"backendRefs"}, note: "spec.rules: missing: /(?!a) is not a regular expression of RE2",
		},
		"a host with TLS redirects": {
			of: []*cluster.Frontend{withTLS(ingress("a", nil, "/", prefix))},
			has: []string{
				`"name":"a-to-https"`, `{"scheme":"https","statusCode":308}`, `"sectionName":"x-test"`,
				`"certificateRefs":[{"name":"cert"}]`,
			},
		},
		"unless it shall not": {
			of:  []*cluster.Frontend{withTLS(ingress("a", annotations{"ssl-redirect": "false"}, "/", prefix))},
			has: []string{`"sectionName":"http"`, `"sectionName":"x-test"`}, not: []string{"RequestRedirect"},
		},
		"a forced redirect without TLS is missing": {
			of:   []*cluster.Frontend{ingress("a", annotations{"force-ssl-redirect": "true"}, "/", prefix)},
			note: "force-ssl-redirect: missing: x.test has no tls", not: []string{"RequestRedirect"},
		},
		"a canary by a cookie": {
			of: []*cluster.Frontend{
				ingress("a", nil, "/", prefix), ingress("b", annotations{"canary": "true", "canary-by-cookie": "c"}, "/",
					prefix),
			},
			has: []string{`"value":"(.*;\\s*)?c=always(\\s*;.*)?"`, `"value":"(.*;\\s*)?c=never(\\s*;.*)?"`},
		},
		"a canary that has all requests": {
			of: []*cluster.Frontend{
				ingress("a", nil, "/", prefix), ingress("b", annotations{"canary": "true", "canary-weight": "100"}, "/", prefix),
			},
			has: []string{`"backendRefs":[{"name":"b"`}, not: []string{`"name":"a","port"`, `"weight"`},
		},
		"a snippet, which may restrict requests": {
			of:   []*cluster.Frontend{ingress("a", annotations{"configuration-snippet": "deny all;"}, "/", prefix)},
			note: "configuration-snippet: missing: ", not: []string{`"name":"a","port"`},
		},
		"a canary without a main Ingress": {
			of:   []*cluster.Frontend{ingress("b", annotations{"canary": "true", "canary-weight": "1"}, "/", prefix)},
			note: "canary: missing: no other Ingress has the path / of x.test", not: []string{"HTTPRoute"},
		},
		"passwords": {
			of: []*cluster.Frontend{ingress("a", annotations{
				"auth-type": "basic", "auth-secret": "users", "auth-realm": "Staff",
			}, "/", prefix)},
			has: []string{
				`"basicAuth":{"format":"File","realm":"Staff","secretRef":{"name":"users"}}`, `"backendRefs":[{"name":"a"`,
				`"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","name":"a"}]}},{"apiVersion":` +
					`"gateway.networking.k8s.io/v1","kind":"HTTPRoute"`, // the policy is applied before the route
			},
			note: "auth-secret: done: a RoutePolicy",
		},
		"a realm that no policy can have": {
			of: []*cluster.Frontend{ingress("a", annotations{
				"auth-type": "basic", "auth-secret": "users", "auth-realm": "Büro",
			}, "/", prefix)},
			has: []string{`"basicAuth":{"format":"File","secretRef":{"name":"users"}}`}, note: "auth-realm: differs",
		},
		"limits": {
			of: []*cluster.Frontend{ingress("a", annotations{
				"limit-rps": "5", "limit-rpm": "100", "limit-connections": "7", "limit-burst-multiplier": "3",
				"limit-whitelist": "10.0.0.0/8", "denylist-source-range": "192.0.2.1",
			}, "/", prefix)},
			has: []string{
				`{"burst":15,"except":["10.0.0.0/8"],"per":"1s","requests":5}`, `"per":"1m","requests":100}`,
				`"concurrentRequests":{"except":["10.0.0.0/8"],"max":7}`, `"deny":["192.0.2.1/32"]`,
			},
			note: "limit-connections: differs",
		},
		"more ranges than a policy can have close": {
			of: []*cluster.Frontend{ingress("a", annotations{
				"denylist-source-range": strings.Repeat("192.0.2.1,", maxRanges+1),
			}, "/", prefix)},
			not: []string{"backendRefs", "RoutePolicy"}, note: "spec.rules: missing: a RoutePolicy has at most 1024 ranges",
		},
		"more exceptions than a policy can have": {
			of: []*cluster.Frontend{ingress("a", annotations{
				"limit-rps": "5", "limit-whitelist": strings.Repeat("192.0.2.1,", maxRanges+1),
			}, "/", prefix)},
			has: []string{`"requests":5`}, note: "limit-whitelist: differs: a RoutePolicy has at most 1024 ranges of clients",
		},
		"a redirect of the root is not restricted": {
			of: []*cluster.Frontend{ingress("a", annotations{"app-root": "/ui", "whitelist-source-range": "10.0.0.0/8"}, "/", prefix)},
			has: []string{
				`"name":"a-app-root"`, `"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","name":"a"}]`,
			},
		},
		"client certificates close all of the host": {
			of: []*cluster.Frontend{
				ingress("a", nil, "/", prefix), ingress("b", annotations{"auth-tls-secret": "a/ca"}, "/b", prefix),
			}, not: []string{"backendRefs"}, note: "spec.rules: missing: auth-tls-secret of Ingress a/b",
		},
		"a default backend is restricted": {
			of: []*cluster.Frontend{
				withDefault(ingress("a", annotations{"whitelist-source-range": "10.0.0.0/8"}, "/a", prefix)),
				withoutRules(withDefault(ingress("b", annotations{"whitelist-source-range": "10.0.0.0/8"}))),
			},
			has: []string{
				`"spec":{"allow":["10.0.0.0/8"],"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","name":"a"}]}`,
				`"spec":{"allow":["10.0.0.0/8"],"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","name":"b"}]}`,
			}, note: "whitelist-source-range: done",
		},
		"digest closes": {
			of: []*cluster.Frontend{ingress("a", annotations{"auth-type": "digest", "auth-secret": "u"}, "/",
				prefix)},
			not: []string{"backendRefs"}, note: "auth-type: missing",
		},
		"external authentication closes": {
			of:  []*cluster.Frontend{ingress("a", annotations{"auth-url": "https://auth.test/check"}, "/", prefix)},
			not: []string{"backendRefs"}, note: "auth-url: missing",
		},
		"any size needs nothing": {
			of:  []*cluster.Frontend{ingress("a", annotations{"proxy-body-size": "0"}, "/", prefix)},
			not: []string{"RoutePolicy"}, note: "proxy-body-size: done",
		},
		"TLS to backends": {
			of:   []*cluster.Frontend{ingress("a", annotations{"backend-protocol": "HTTPS"}, "/", prefix)},
			has:  []string{`"validation":{"hostname":"a.a.svc","wellKnownCACertificates":"System"}`},
			note: "backend-protocol: differs",
		},
		"gRPC needs the protocol of the Service": {
			of:  []*cluster.Frontend{ingress("a", annotations{"backend-protocol": "GRPC"}, "/", prefix)},
			has: []string{`"kind":"HTTPRoute"`}, not: []string{"GRPCRoute"},
			note: "backend-protocol: missing: set appProtocol kubernetes.io/h2c at port 80 of Service a/a",
		},
		"gRPC over TLS needs it, too": {
			of:   []*cluster.Frontend{ingress("a", annotations{"backend-protocol": "GRPCS"}, "/", prefix)},
			has:  []string{`"kind":"HTTPRoute"`, `"kind":"BackendTLSPolicy"`},
			note: "backend-protocol: missing: set appProtocol kubernetes.io/h2c at port 80 of Service a/a",
		},
		"gRPC with the protocol of the Service": {
			of:       []*cluster.Frontend{ingress("a", annotations{"backend-protocol": "GRPC"}, "/", prefix)},
			services: []*cluster.Service{h2c("a")},
			has:      []string{`"kind":"HTTPRoute"`}, note: "backend-protocol: done",
		},
		"a session of a canary by header": {
			of: []*cluster.Frontend{
				ingress("a", annotations{"affinity": "cookie"}, "/", prefix),
				ingress("b", annotations{"canary": "true", "canary-by-header": "x-c"}, "/", prefix),
			}, note: "b: canary: differs: a session holds for requests with the same header or cookie of the canary alone",
		},
		"the other name": {
			of: []*cluster.Frontend{ingress("a", annotations{"from-to-www-redirect": "true", "server-alias": "y.test"},
				"/", prefix)},
			has: []string{`"hostnames":["www.x.test"]`, `{"hostname":"x.test","statusCode":308}`,
				`"hostnames":["x.test","y.test"]`},
		},
		"more rules than a route can have": {
			of: []*cluster.Frontend{ingress("a", nil,
				"/1", prefix, "/2", prefix, "/3", prefix, "/4", prefix, "/5", prefix, "/6", prefix, "/7", prefix, "/8",
				prefix,
				"/9", prefix, "/10", prefix, "/11", prefix, "/12", prefix, "/13", prefix, "/14", prefix, "/15",
				prefix,
				"/16", prefix, "/17", prefix,
			)}, has: []string{`"name":"a-2"`},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := cluster.NewStore()
			store.Update(func(tx *cluster.Tx) {
				for _, f := range test.of {
					tx.Put(f)
				}
				for _, s := range test.services {
					tx.Put(s)
				}
			})
			var made *Result
			store.View(func(v *cluster.View) { made = Ingresses(v, Config{Class: "nginx", GatewayClass: "c"}) })
			text, err := json.Marshal(made.Objects)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range test.has {
				if !strings.Contains(string(text), part) {
					t.Errorf("Ingresses: no %s in\n%s", part, text)
				}
			}
			for _, part := range test.not {
				if strings.Contains(string(text), part) {
					t.Errorf("Ingresses: %s in\n%s", part, text)
				}
			}
			var notes []string
			for _, n := range made.Notes {
				notes = append(notes, n.String())
			}
			if !strings.Contains(strings.Join(notes, "\n"), test.note) {
				t.Errorf("Ingresses: no note %q in %q", test.note, notes)
			}
		})
	}
}
