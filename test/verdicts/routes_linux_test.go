package verdicts

import (
	"fmt"
	"slices"
	"testing"
)

// The fields of responses that routes set: which rule took the request, and which Service it was sent to.
const (
	ruleField    = "X-World-Rule"
	serviceField = "X-World-Service"
)

// The hosts and paths of routes and of requests, of which some have no route.
var (
	routeHosts = []string{"w0.example", "w1.example", "w2.example", "w3.example"}
	urlPaths   = []string{"/", "/a", "/a/b", "/ab", "/c", "/c/d?x=1", "/old/e"}
	urlHeaders = []string{"", "X-Env: test", "X-Env: prod"}
	urlMethods = []string{"GET", "POST"}
)

// routes adds the Gateway, HTTPRoutes and Ingresses.
func (c *randomCluster) routes(t *testing.T) {
	t.Helper()
	c.secret(t, "infra", "wild", "*.example")
	c.add("gateway.networking.k8s.io/v1", "GatewayClass", object{"name": "portolan"}, object{
		"spec": object{"controllerName": "portolan.dev/gateway"},
	})
	c.add("networking.k8s.io/v1", "IngressClass", object{"name": "portolan"}, object{
		"spec": object{"controller": "portolan.dev/ingress"},
	})
	all := object{"namespaces": object{"from": "All"}}
	certificates := list{object{"name": "wild"}}
	if c.chance(6) {
		certificates = list{object{"name": "missing"}}
	}
	c.add("gateway.networking.k8s.io/v1", "Gateway", object{"namespace": "infra", "name": "public"}, object{
		"spec": object{"gatewayClassName": "portolan", "listeners": list{
			object{"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": all},
			object{
				"name": "https", "port": 443, "protocol": "HTTPS", "hostname": "*.example", "allowedRoutes": all,
				"tls": object{"certificateRefs": certificates},
			},
		}},
		"status": object{"addresses": list{object{"type": "IPAddress", "value": gatewayAddr.String()}}},
	})
	for i, namespace := range namespaces {
		for k := range 1 + c.IntN(2) {
			c.httpRoute(namespace, fmt.Sprintf("r%d", k), routeHosts[i])
		}
		if c.chance(2) {
			c.grant(namespace)
		}
	}
	c.ingress(t, pick(c, namespaces...), routeHosts[3])
	c.hosts = append(slices.Clone(routeHosts), "none.outside.example")
}

// backend draws a Service that a route of a namespace refers to.
func (c *randomCluster) backend(namespace string) *service {
	for {
		if s := pick(c, c.services...); s.alias == "" && (s.namespace == namespace || c.chance(4)) {
			return s
		}
	}
}

// httpRoute adds an HTTPRoute.
func (c *randomCluster) httpRoute(namespace, name, host string) {
	var rules list
	for i := range 1 + c.IntN(4) {
		rule := object{}
		if !c.chance(5) {
			rule["matches"] = list{c.match()}
		}
		filters := list{object{"type": "ResponseHeaderModifier", "responseHeaderModifier": object{
			"set": list{object{"name": ruleField, "value": fmt.Sprintf("httproute %s/%s rule %d", namespace, name, i)}},
		}}}
		switch c.IntN(8) {
		case 0:
			redirect := object{"scheme": pick(c, "http", "https"), "statusCode": pick(c, 301, 302)}
			if c.chance(2) {
				redirect["path"] = object{"type": "ReplaceFullPath", "replaceFullPath": "/new"}
			}
			if c.chance(2) {
				redirect["hostname"] = "moved.example"
			}
			rule["filters"] = append(filters, object{"type": "RequestRedirect", "requestRedirect": redirect})
			rules = append(rules, rule)
			continue
		case 1:
			filters = append(filters, object{"type": "URLRewrite", "urlRewrite": object{
				"path": object{"type": "ReplaceFullPath", "replaceFullPath": "/rewritten"},
			}})
		}
		rule["filters"] = filters
		if !c.chance(10) {
			rule["backendRefs"] = c.backendRefs(namespace)
		}
		rules = append(rules, rule)
	}
	c.add("gateway.networking.k8s.io/v1", "HTTPRoute", object{
		"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z",
	}, object{"spec": object{
		"parentRefs": list{object{"namespace": "infra", "name": "public"}}, "hostnames": list{host}, "rules": rules,
	}})
}

// match draws what a rule matches.
func (c *randomCluster) match() object {
	m := object{}
	if !c.chance(4) {
		m["path"] = object{"type": pick(c, "PathPrefix", "Exact", "PathPrefix"), "value": pick(c, "/", "/a", "/a/b", "/c", "/old")}
	}
	if c.chance(4) {
		m["headers"] = list{object{"name": "X-Env", "value": pick(c, "test", "prod")}}
	}
	if c.chance(5) {
		m["method"] = pick(c, urlMethods...)
	}
	if c.chance(6) {
		m["queryParams"] = list{object{"name": "x", "value": pick(c, "1", "2")}}
	}
	return m
}

// backendRefs draws backends, each of which says so in its responses.
func (c *randomCluster) backendRefs(namespace string) (all list) {
	for range pick(c, 1, 1, 2) {
		s := c.backend(namespace)
		ref := object{
			"name": s.name, "port": pick(c, 80, 80, 80, 80, metricsPort), "weight": pick(c, 1, 1, 1, 0),
			"filters": list{object{"type": "ResponseHeaderModifier", "responseHeaderModifier": object{
				"set": list{object{"name": serviceField, "value": s.String()}},
			}}},
		}
		if s.namespace != namespace {
			ref["namespace"] = s.namespace
		}
		all = append(all, ref)
	}
	return all
}

// grant lets routes of other namespaces refer to Services of one.
func (c *randomCluster) grant(namespace string) {
	var from list
	for _, other := range namespaces {
		if other != namespace && c.chance(2) {
			from = append(from, object{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": other})
		}
	}
	if len(from) > 0 {
		c.add("gateway.networking.k8s.io/v1", "ReferenceGrant", object{"namespace": namespace, "name": "routes"}, object{
			"spec": object{"from": from, "to": list{object{"group": "", "kind": "Service"}}},
		})
	}
}

// ingress adds an Ingress.
func (c *randomCluster) ingress(t *testing.T, namespace, host string) {
	t.Helper()
	var paths list
	for _, path := range []string{"/", "/a", "/c"} {
		if c.chance(3) {
			continue
		}
		s := c.backend(namespace)
		for s.namespace != namespace {
			s = c.backend(namespace)
		}
		paths = append(paths, object{
			"path": path, "pathType": pick(c, "Prefix", "Exact"),
			"backend": object{"service": object{"name": s.name, "port": pick(c, object{"number": 80}, object{"name": "http"})}},
		})
	}
	if len(paths) == 0 {
		return
	}
	spec := object{
		"ingressClassName": "portolan", "rules": list{object{"host": host, "http": object{"paths": paths}}},
	}
	if c.chance(2) {
		c.secret(t, namespace, "ingress-tls", host)
		spec["tls"] = list{object{"hosts": list{host}, "secretName": "ingress-tls"}}
	}
	c.add("networking.k8s.io/v1", "Ingress", object{"namespace": namespace, "name": "old"}, object{
		"spec":   spec,
		"status": object{"loadBalancer": object{"ingress": list{object{"ip": gatewayAddr.String()}}}},
	})
}
