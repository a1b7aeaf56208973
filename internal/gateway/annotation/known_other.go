package annotation

import "time"

func backends() []Known {
	const none = "there is no limit for it here"
	const retries = "requests without a response go to another endpoint, three at most, if they were not sent, or have " +
		"no body and are neither POST nor PATCH"
	return []Known{
		{Name: "backend-protocol", Effect: Used, Outcome: Done,
			Routes: "HTTPS and GRPCS: a BackendTLSPolicy; GRPC and GRPCS: an HTTPRoute, and missing unless the port of " +
				"the Service has the appProtocol kubernetes.io/h2c",
			read: readProtocol},
		{Name: "proxy-connect-timeout", Effect: Used, Text: "for connections over HTTP/1.1",
			Outcome: Differs,
			Routes:  "the gateway has its own time for connections",
			read:    seconds(func(s *Settings, d time.Duration) { s.ConnectTimeout = d })},
		{Name: "proxy-read-timeout", Effect: Unsupported, Text: none, Outcome: Differs,
			Routes: none + ": set timeouts.request of the HTTPRoute if a response must end",
			read:   seconds(func(s *Settings, d time.Duration) { s.ReadTimeout = d })},
		{Name: "proxy-send-timeout", Effect: Unsupported, Text: none, Outcome: Differs, Routes: "as proxy-read-timeout",
			read: seconds(func(s *Settings, d time.Duration) { s.SendTimeout = d })},
		{Name: "proxy-next-upstream", Effect: Used,
			Text:    "error, timeout and invalid_header are the same; bodies of more than 64 KiB are sent once",
			Outcome: Differs, Routes: retries + "; never after a response",
			read: readNext},
		{Name: "proxy-next-upstream-tries", Effect: Used, Text: "11 at most", Outcome: Differs, Routes: retries,
			read: number(0, func(s *Settings, n int) { s.Retry.Tries = &n })},
		{Name: "proxy-next-upstream-timeout", Effect: Used, Outcome: Differs, Routes: none,
			read: seconds(func(s *Settings, d time.Duration) { s.Retry.Timeout = d })},
		{Name: "service-upstream", Effect: Ignored, Text: "requests go to endpoints, with the same responses",
			Outcome: Done,
			Routes:  "requests go to endpoints, with the same responses"},
		{Name: "load-balance", Effect: Ignored,
			Text:    "the gateway chooses the endpoint with the fewest requests of two",
			Outcome: Done, Routes: "the gateway chooses the endpoint with the fewest requests of two"},
		{Name: "upstream-hash-by", Effect: Unsupported,
			Text:   "requests are not bound to endpoints by a hash: use affinity",
			Routes: "requests are not bound to endpoints by a hash: use sessionPersistence"},
		{Name: "upstream-hash-by-subset", Effect: Unsupported, Text: "as upstream-hash-by",
			Routes: "as upstream-hash-by"},
		{Name: "upstream-hash-by-subset-size", Effect: Unsupported, Text: "as upstream-hash-by",
			Routes: "as upstream-hash-by"},
		{Name: "default-backend", Effect: Unsupported, Text: "without a ready endpoint the response is 503",
			Routes: "without a ready endpoint the response is 503"},
		{Name: "custom-http-errors", Effect: Unsupported, Text: "responses of backends pass as they are",
			Routes: "responses of backends pass as they are"},
		{Name: "disable-proxy-intercept-errors", Effect: Ignored, Text: "responses of backends pass as they are",
			Outcome: Done,
			Routes:  "responses of backends pass as they are"},
		{Name: "mirror-target", Effect: Unsupported,
			Text:   "copies go to Services only: use an HTTPRoute with RequestMirror",
			Routes: "copies go to Services only: add a filter RequestMirror"},
		{Name: "mirror-host", Effect: Unsupported, Text: "as mirror-target", Routes: "as mirror-target"},
		{Name: "mirror-request-body", Effect: Unsupported, Text: "as mirror-target", Routes: "as mirror-target"},
		{Name: "custom-headers", Effect: Unsupported,
			Text:   "ConfigMaps are not read: use an HTTPRoute with ResponseHeaderModifier",
			Routes: "ConfigMaps are not read: add a filter ResponseHeaderModifier with the fields of the ConfigMap"},
		{Name: "proxy-cookie-domain", Effect: Unsupported, Text: "cookies of backends pass as they are",
			Routes: "cookies of backends pass as they are"},
		{Name: "proxy-cookie-path", Effect: Unsupported, Text: "cookies of backends pass as they are",
			Routes: "cookies of backends pass as they are"},
		{Name: "proxy-redirect-from", Effect: Unsupported, Text: "Location fields of backends pass as they are",
			Routes: "Location fields of backends pass as they are"},
		{Name: "proxy-redirect-to", Effect: Unsupported, Text: "as proxy-redirect-from",
			Routes: "as proxy-redirect-from"},
		{Name: "fastcgi-index", Effect: Unsupported, Text: "backends cannot speak FastCGI",
			Routes: "backends cannot speak FastCGI"},
		{Name: "fastcgi-params-configmap", Effect: Unsupported, Text: "as fastcgi-index", Routes: "as fastcgi-index"},
	}
}

func tlsAnnotations() []Known {
	const clients = "client certificates are validated for a Gateway: spec.tls.frontend"
	const upstreams = "use a BackendTLSPolicy"
	missing := func(name, text, routes string) Known {
		return Known{Name: name, Effect: Unsupported, Text: text, Routes: routes}
	}
	return []Known{
		{Name: "auth-tls-secret", Effect: Unsupported, Text: clients + "; no request for the host is served",
			Routes: clients + "; the rules of the host have no backends", restricts: true, host: true,
			read: readClientTLS},
		missing("auth-tls-verify-client", "as auth-tls-secret", "as auth-tls-secret"),
		missing("auth-tls-verify-depth", "as auth-tls-secret", "as auth-tls-secret"),
		missing("auth-tls-error-page", "as auth-tls-secret", "as auth-tls-secret"),
		missing("auth-tls-pass-certificate-to-upstream", "as auth-tls-secret", "as auth-tls-secret"),
		{Name: "auth-tls-match-cn", Effect: Unsupported, Text: clients + "; no request for the host is served",
			Routes: clients + "; the rules of the host have no backends", restricts: true, host: true},
		missing("proxy-ssl-secret", upstreams,
			"a BackendTLSPolicy needs a ConfigMap with the certificates of the authorities: "+
				"make one of the Secret's ca.crt; a client certificate is spec.tls.backend of the Gateway"),
		missing("proxy-ssl-verify", upstreams, "certificates of backends are always verified"),
		missing("proxy-ssl-verify-depth", upstreams, "chains may have any length"),
		missing("proxy-ssl-name", upstreams, "set validation.hostname of the BackendTLSPolicy"),
		missing("proxy-ssl-server-name", upstreams, "SNI is always sent"),
		missing("proxy-ssl-ciphers", upstreams, "the gateway has its own list"),
		missing("proxy-ssl-protocols", upstreams, "TLS 1.2 and 1.3"),
		{Name: "ssl-passthrough", Effect: Unsupported, Text: "use a TLSRoute with a listener of mode Passthrough",
			Routes: "use a TLSRoute with a listener of mode Passthrough"},
		missing("ssl-ciphers", "the gateway has one list for all hosts", "the gateway has one list for all hosts"),
		{Name: "ssl-prefer-server-ciphers", Effect: Ignored, Text: "the gateway always prefers its own order",
			Outcome: Done,
			Routes:  "the gateway always prefers its own order"},
	}
}

// readClientTLS has no request be served, unless certificates are off. With optional ones nginx serves clients that
// have none, and tells backends so by fields that clients could make up here.
func readClientTLS(p *parser, value string) error {
	if err := readClientSecret(p, value); err != nil {
		return err
	}
	if p.values["auth-tls-verify-client"] != "off" {
		p.denyHost("auth-tls-secret", "is not supported")
	}
	return nil
}

// without are annotations that change nothing here.
func without() []Known {
	none := func(text string, names ...string) (all []Known) {
		for _, name := range names {
			all = append(all, Known{Name: name, Effect: Ignored, Text: text, Outcome: Done, Routes: text})
		}
		return all
	}
	var all []Known
	all = append(all, none("requests and responses are passed on as they come, and never stored",
		"proxy-buffering", "proxy-request-buffering", "proxy-buffer-size", "proxy-buffers-number",
		"proxy-busy-buffers-size",
		"proxy-max-temp-file-size", "client-body-buffer-size")...)
	all = append(all, none("connections to authorization servers are always kept", "auth-keepalive",
		"auth-keepalive-requests", "auth-keepalive-timeout", "auth-keepalive-share-vars")...)
	all = append(all, none("backends get HTTP/1.1, or HTTP/2 by their appProtocol", "proxy-http-version")...)
	all = append(all, none("the gateway manages its connections, and upgrades such as WebSockets pass",
		"connection-proxy-header")...)
	all = append(all, none("browsers no longer take pushed responses", "http2-push-preload")...)
	all = append(all, none("see gateway.accessLog", "enable-access-log")...)
	all = append(all, none("there is no log of rewriting: portolan explain URL says what is done",
		"enable-rewrite-log")...)
	all = append(all, none("see gateway.tracing", "enable-opentelemetry", "opentelemetry-trust-incoming-span",
		"opentelemetry-operation-name")...)
	all = append(all, none("redirects name no port", "use-port-in-redirects")...)
	all = append(all, none("redirects are absolute, which clients follow alike", "relative-redirects")...)
	return all
}

// never are annotations that there will never be.
func never() (all []Known) {
	const closed = "; as it may restrict requests, none is served"
	const snippet = "snippets are configuration of nginx and are never run: look for the annotation or the " +
		"filter that does it"
	for _, name := range []string{"configuration-snippet", "auth-snippet"} {
		text := snippet + closed
		all = append(all, Known{Name: name, Effect: Unsupported, Text: text, Routes: text, restricts: true})
	}
	server := snippet + "; as it may restrict requests, none for the host is served"
	all = append(all, Known{
		Name: "server-snippet", Effect: Unsupported, Text: server, Routes: server, restricts: true, host: true,
	})
	all = append(all, Known{Name: "stream-snippet", Effect: Unsupported, Text: snippet, Routes: snippet})
	const waf = "there is no web application firewall: run one as a backend, before the Service"
	for _, name := range []string{"enable-modsecurity", "modsecurity-snippet"} {
		text := waf + closed
		all = append(all, Known{Name: name, Effect: Unsupported, Text: text, Routes: text, restricts: true})
	}
	for _, name := range []string{"enable-owasp-core-rules", "modsecurity-transaction-id"} {
		all = append(all, Known{Name: name, Effect: Unsupported, Text: waf, Routes: waf})
	}
	return all
}
