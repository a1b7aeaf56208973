package migrate_test

// shape is an Ingress as charts of many programs have it.
type shape struct {
	name        string
	annotations map[string]string
	paths       []string // text and type
	tls         bool
	canary      map[string]string // annotations of a canary for the same paths
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
