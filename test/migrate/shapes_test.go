package migrate_test

// shape is an Ingress as charts of many programs have it.
type shape struct {
	name        string
	annotations map[string]string
	paths       []string // text and type
	tls         bool
	canary      map[string]string // annotations of a canary for the same paths
	others      []other
}

type pairs = map[string]string

// The types of paths.
const prefix, exact, specific = "Prefix", "Exact", "ImplementationSpecific"

// shapes are those that are compared, each for several hosts.
var shapes = []shape{
	{name: "plain", paths: []string{"/", prefix}},
	{name: "grafana", annotations: pairs{"rewrite-target": "/$1"}, paths: []string{"/grafana/?(.*)", specific}},
	{name: "gitlab", annotations: pairs{
		"proxy-body-size": "512m", "proxy-read-timeout": "3600", "proxy-connect-timeout": "15", "service-upstream": "true",
	}, paths: []string{"/", prefix}, tls: true},
	{name: "harbor", annotations: pairs{"proxy-body-size": "0", "ssl-redirect": "true"}, paths: []string{
		"/api/", prefix, "/service/", prefix, "/v2/", prefix, "/c/", prefix, "/", prefix,
	}, tls: true},
	{name: "keycloak", annotations: pairs{"proxy-buffer-size": "128k", "proxy-buffers-number": "4"}, paths: []string{"/", prefix}},
	{name: "argocd", annotations: pairs{"force-ssl-redirect": "true", "ssl-passthrough": "true"}, paths: []string{"/", prefix}, tls: true},
	{name: "jenkins", annotations: pairs{"proxy-body-size": "50m", "proxy-request-buffering": "off"}, paths: []string{"/jenkins", specific}},
	{name: "nextcloud", annotations: pairs{"proxy-body-size": "4g", "enable-cors": "true", "cors-allow-headers": "X-Forwarded-For"}, paths: []string{"/", prefix}},
	{name: "registry", annotations: pairs{"proxy-body-size": "0", "proxy-read-timeout": "600"}, paths: []string{"/v2/", prefix}},
	{name: "websocket", annotations: pairs{"proxy-read-timeout": "3600", "proxy-send-timeout": "3600"}, paths: []string{"/ws", prefix, "/", prefix}},
	{name: "api", annotations: pairs{"rewrite-target": "/$2"}, paths: []string{"/api(/|$)(.*)", specific}},
	{name: "versions", annotations: pairs{"rewrite-target": "/v2/$2"}, paths: []string{"/old(/|$)(.*)", specific, "/older(/|$)(.*)", specific}},
	{name: "groups", annotations: pairs{"rewrite-target": "/$2/$1"}, paths: []string{"/(a|b)/(.*)", specific}},
	{name: "regex", annotations: pairs{"use-regex": "true"}, paths: []string{"/users/[0-9]+", specific, "/", prefix}},
	{name: "regexcase", annotations: pairs{"use-regex": "true"}, paths: []string{"/Static/.*", specific, "/Exact", exact}},
	{name: "replace", annotations: pairs{"rewrite-target": "/"}, paths: []string{"/app", prefix, "/app/deep", prefix}},
	{name: "approot", annotations: pairs{"app-root": "/ui"}, paths: []string{"/", prefix}},
	{name: "moved", annotations: pairs{"permanent-redirect": "https://new.example/start"}, paths: []string{"/", prefix}},
	{name: "movedquery", annotations: pairs{"temporal-redirect": "https://new.example/start?from=old"}, paths: []string{"/", prefix}},
	{name: "moved308", annotations: pairs{"permanent-redirect": "https://new.example", "permanent-redirect-code": "308"}, paths: []string{"/", prefix}},
	{name: "www", annotations: pairs{"from-to-www-redirect": "true"}, paths: []string{"/", prefix}},
	{name: "vhost", annotations: pairs{"upstream-vhost": "inner.example"}, paths: []string{"/", prefix}},
	{name: "prefixed", annotations: pairs{"rewrite-target": "/$2", "x-forwarded-prefix": "/sub"}, paths: []string{"/sub(/|$)(.*)", specific}},
	{name: "cors", annotations: pairs{"enable-cors": "true", "cors-allow-origin": "https://a.example,https://*.b.example"}, paths: []string{"/", prefix}},
	{name: "allow", annotations: pairs{"whitelist-source-range": "10.0.0.0/8"}, paths: []string{"/", prefix}},
	{name: "allowall", annotations: pairs{"whitelist-source-range": "0.0.0.0/0"}, paths: []string{"/", prefix}},
	{name: "deny", annotations: pairs{"denylist-source-range": "192.0.2.0/24"}, paths: []string{"/", prefix}},
	{name: "basic", annotations: pairs{"auth-type": "basic", "auth-secret": "users", "auth-realm": "Staff"}, paths: []string{"/", prefix}},
	{name: "digest", annotations: pairs{"auth-type": "digest", "auth-secret": "none"}, paths: []string{"/", prefix}},
	{name: "limits", annotations: pairs{"limit-rpm": "1", "limit-burst-multiplier": "4", "limit-connections": "100"}, paths: []string{"/", prefix}},
	{name: "snippet", annotations: pairs{"configuration-snippet": "more_set_headers 'a: b';"}, paths: []string{"/", prefix}},
	{name: "exact", paths: []string{"/health", exact, "/", prefix}},
	{name: "specific", paths: []string{"/foo", specific, "/foo/bar", prefix}},
	{name: "slashes", paths: []string{"/a/", prefix, "/a/b", prefix}},
	{name: "header", paths: []string{"/", prefix}, canary: pairs{"canary": "true", "canary-by-header": "x-canary"}},
	{name: "cookie", paths: []string{"/", prefix}, canary: pairs{"canary": "true", "canary-by-cookie": "canary"}},
	{name: "value", paths: []string{"/", prefix}, canary: pairs{"canary": "true", "canary-by-header": "x-canary", "canary-by-header-value": "beta"}},
	{name: "weight", paths: []string{"/", prefix}, canary: pairs{"canary": "true", "canary-weight": "100"}},
	{name: "tls", paths: []string{"/", prefix, "/deep/", prefix}, tls: true},
	{name: "buffers", annotations: pairs{"proxy-buffering": "on", "client-body-buffer-size": "1m"}, paths: []string{"/x", prefix}},
}

// other is a further Ingress of a shape's host.
type other struct {
	annotations pairs
	paths       []string
	tls         bool
}

// shared are shapes of which several Ingresses have the host.
var shared = []shape{
	{name: "leak", paths: []string{"/", prefix}, others: []other{{pairs{"use-regex": "true"}, []string{"/users/[0-9]+", specific}, false}}},
	{name: "leakcase", paths: []string{"/STATIC", prefix, "/", prefix}, others: []other{{pairs{"use-regex": "true"}, []string{"/users/[0-9]+", specific}, false}}},
	{name: "leakexact", paths: []string{"/exact", exact}, others: []other{{pairs{"use-regex": "true"}, []string{"/users/[0-9]+", specific}, false}}},
	{name: "leakprefix", paths: []string{"/foo", prefix}, others: []other{{pairs{"rewrite-target": "/in"}, []string{"/api", prefix}, false}}},
	{name: "leakdots", paths: []string{"/a.b", prefix, "/", prefix}, others: []other{{pairs{"use-regex": "true"}, []string{"/old/.+", specific}, false}}},
	{name: "leakgroups", paths: []string{"/foo", prefix, "/GRAFANA", prefix}, others: []other{{pairs{"rewrite-target": "/$2"}, []string{"/old(/|$)(.*)", specific}, false}}},
	{name: "leakslash", paths: []string{"/users/", prefix, "/", exact}, others: []other{{pairs{"rewrite-target": "/$1"}, []string{"/app/(.*)", specific}, false}}},
	{name: "leakthree", paths: []string{"/", prefix}, others: []other{
		{pairs{"use-regex": "true"}, []string{"/a/.*/c", specific}, false}, {nil, []string{"/a/b", exact, "/Foo", prefix}, false},
	}},
	{name: "tworewrites", annotations: pairs{"rewrite-target": "/$2"}, paths: []string{"/api(/|$)(.*)", specific}, others: []other{
		{pairs{"rewrite-target": "/v1/$2"}, []string{"/old(/|$)(.*)", specific}, false},
	}},
	{name: "groupsother", paths: []string{"/", prefix}, others: []other{{pairs{"rewrite-target": "/$2/$1"}, []string{"/(a|b)/(.*)", specific}, false}}},
	{name: "rewriteroot", annotations: pairs{"rewrite-target": "/"}, paths: []string{"/", prefix}, others: []other{{nil, []string{"/api/x", prefix}, false}}},
	{name: "lookahead", paths: []string{"/", prefix}, others: []other{{pairs{"use-regex": "true"}, []string{"/users/(?!13)", specific}, false}}},
	{name: "lookaheadleak", paths: []string{"/users/(?!13)", specific}, others: []other{{pairs{"use-regex": "true"}, []string{"/", prefix}, false}}},
	{name: "headershared", paths: []string{"/api", prefix}, canary: pairs{"canary": "true", "canary-by-header": "x-canary"}, others: []other{{nil, []string{"/", prefix}, false}}},
	{name: "cookieshared", paths: []string{"/", prefix}, canary: pairs{"canary": "true", "canary-by-cookie": "canary"}, others: []other{{nil, []string{"/api", prefix}, false}}},
	{name: "weightshared", paths: []string{"/", prefix}, canary: pairs{"canary": "true", "canary-weight": "100"}, others: []other{{nil, []string{"/old", prefix}, false}}},
	{name: "headerregex", paths: []string{"/", prefix}, canary: pairs{"canary": "true", "canary-by-header": "x-canary"}, others: []other{{pairs{"use-regex": "true"}, []string{"/users/[0-9]+", specific}, false}}},
	{name: "canaryauth", annotations: pairs{"auth-type": "basic", "auth-secret": "users"}, paths: []string{"/", prefix}, canary: pairs{"canary": "true", "canary-weight": "100"}, others: []other{{nil, []string{"/api", prefix}, false}}},
	{name: "basicone", paths: []string{"/", prefix}, others: []other{{pairs{"auth-type": "basic", "auth-secret": "users"}, []string{"/api", prefix}, false}}},
	{name: "allowone", paths: []string{"/", prefix}, others: []other{{pairs{"whitelist-source-range": "10.0.0.0/8"}, []string{"/static", prefix}, false}}},
	{name: "allowmain", annotations: pairs{"whitelist-source-range": "192.0.2.0/24"}, paths: []string{"/", prefix}, others: []other{{nil, []string{"/static", prefix}, false}}},
	{name: "externalone", paths: []string{"/", prefix}, others: []other{{pairs{"auth-url": "http://127.0.0.1:1/check"}, []string{"/api", prefix}, false}}},
	{name: "snippetone", paths: []string{"/", prefix}, others: []other{{pairs{"configuration-snippet": "deny all;"}, []string{"/api", prefix}, false}}},
	{name: "serversnippet", paths: []string{"/", prefix}, others: []other{{pairs{"server-snippet": "deny all;"}, []string{"/api", prefix}, false}}},
	{name: "certificates", paths: []string{"/", prefix}, others: []other{{pairs{"auth-tls-secret": "apps/ca"}, []string{"/api", prefix}, false}}},
	{name: "corsone", paths: []string{"/", prefix}, others: []other{{pairs{"enable-cors": "true", "cors-allow-origin": "https://a.example"}, []string{"/api", prefix}, false}}},
	{name: "movedone", paths: []string{"/", prefix}, others: []other{{pairs{"permanent-redirect": "https://new.example/start"}, []string{"/old", prefix}, false}}},
	{name: "approotone", paths: []string{"/ui", prefix}, others: []other{{pairs{"app-root": "/ui"}, []string{"/api", prefix}, false}}},
	{name: "tlsone", paths: []string{"/", prefix}, others: []other{{nil, []string{"/api", prefix}, true}}},
	{name: "tlsunless", paths: []string{"/", prefix}, tls: true, others: []other{{pairs{"ssl-redirect": "false"}, []string{"/api", prefix}, false}}},
	{name: "twice", paths: []string{"/", prefix, "/api", prefix}, others: []other{{nil, []string{"/api", prefix, "/old", prefix}, false}}},
	{name: "exactone", paths: []string{"/foobar", prefix}, others: []other{{nil, []string{"/foobar", exact, "/", prefix}, false}}},
	{name: "specificone", paths: []string{"/foo", specific}, others: []other{{nil, []string{"/", prefix}, false}}},
	{name: "specificlonger", paths: []string{"/foo", specific, "/foobar", prefix}, others: []other{{nil, []string{"/static", specific, "/", prefix}, false}}},
	{name: "vhostone", paths: []string{"/", prefix}, others: []other{{pairs{"upstream-vhost": "inner.example"}, []string{"/api", prefix}, false}}},
	{name: "timesone", annotations: pairs{"proxy-read-timeout": "600"}, paths: []string{"/", prefix}, others: []other{{pairs{"proxy-body-size": "1m"}, []string{"/api", prefix}, false}}},
	{name: "limitsone", paths: []string{"/", prefix}, others: []other{{pairs{"limit-rps": "1000"}, []string{"/api", prefix}, false}}},
	{name: "wwwone", paths: []string{"/", prefix}, others: []other{{pairs{"from-to-www-redirect": "true"}, []string{"/api", prefix}, false}}},
	{name: "prefixedone", paths: []string{"/", prefix}, others: []other{{pairs{"rewrite-target": "/$2", "x-forwarded-prefix": "/sub"}, []string{"/api(/|$)(.*)", specific}, false}}},
	{name: "longer", annotations: pairs{"use-regex": "true"}, paths: []string{"/users/.*", specific}, others: []other{{nil, []string{"/users/12/x", exact, "/users", prefix}, false}}},
}
