package annotation

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// reader reads the value of an annotation, which is not empty.
type reader func(p *parser, value string) error

// Known is an annotation that there is.
type Known struct {
	// Name is without Prefix.
	Name string
	// Effect and Text are the verdict on it with gateway.ingress.annotations: nginx, if its value is valid.
	Effect Effect
	Text   string
	// Outcome and Routes are what becomes of it when the Ingress is translated into routes.
	Outcome Outcome
	Routes  string
	// restricts: it restricts who is served, so that nobody is if it is invalid.
	restricts bool
	// host: nginx has it for all paths of the host, so that none is served if it closes.
	host bool
	read reader
}

// Outcome is what becomes of an annotation in a translation.
type Outcome uint8

// The outcomes. The zero value is the most severe one.
const (
	Missing Outcome = iota // there is nothing like it
	Differs                // what it becomes behaves differently
	Done
)

// String returns the outcome as a word.
func (o Outcome) String() string {
	return [...]string{Missing: "missing", Differs: "differs", Done: "done"}[o]
}

// MarshalText returns the outcome as a word.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// All returns all annotations there are, in the order of the names.
func All() []Known {
	return slices.SortedFunc(maps.Values(known), func(a, b Known) int { return strings.Compare(a.Name, b.Name) })
}

// Find returns the annotation with a name, without Prefix.
func Find(name string) (k Known, ok bool) {
	k, ok = known[name]
	return k, ok
}

// known are all annotations, by name.
var known = func() map[string]Known {
	all := make(map[string]Known)
	for _, k := range slices.Concat(
		redirects(), paths(), authentication(), restrictions(), canaries(), affinities(), backends(),
		tlsAnnotations(),
		without(), never(),
	) {
		all[k.Name] = k
	}
	return all
}()

// What becomes of what a RoutePolicy says: see gateway-policy.md.
const (
	policy   = "a RoutePolicy"
	limiting = policy + "; requests beyond it are answered with 429"
	noFilter = "no filter does the same; the rules have no backends, and answer with 500"
)

func redirects() []Known {
	const slash = "a slash at the end of the target stays, which ingress-nginx removes"
	return []Known{
		{Name: "ssl-redirect", Effect: Used, Outcome: Differs,
			Routes: "an HTTPRoute at the listener for HTTP; " + slash,
			read:   flag(func(s *Settings, b bool) { s.SSLRedirect = b })},
		{Name: "force-ssl-redirect", Effect: Used, Outcome: Differs, Routes: "as ssl-redirect",
			read: flag(func(s *Settings, b bool) { s.ForceSSLRedirect = b })},
		{Name: "preserve-trailing-slash", Effect: Used, Outcome: Done, Routes: "is what routes do",
			read: flag(func(s *Settings, b bool) { s.KeepSlash = b })},
		{Name: "permanent-redirect", Effect: Used, Outcome: Differs,
			Routes: "RequestRedirect; it keeps the query of the request, and cannot set one",
			read:   redirect(301, "permanent-redirect-code", 308)},
		{Name: "permanent-redirect-code", Effect: Used, Outcome: Done, Routes: "RequestRedirect", read: readCode},
		{Name: "temporal-redirect", Effect: Used, Outcome: Differs, Routes: "as permanent-redirect",
			read: redirect(302, "temporal-redirect-code", 307)},
		{Name: "temporal-redirect-code", Effect: Used, Outcome: Done, Routes: "RequestRedirect", read: readCode},
		{Name: "from-to-www-redirect", Effect: Used, Outcome: Differs,
			Routes: "an HTTPRoute for the other name; " + slash,
			read:   flag(func(s *Settings, b bool) { s.WWW = b })},
		{Name: "app-root", Effect: Used, Outcome: Differs,
			Routes: "a rule for / alone; it keeps the query of the request",
			read:   readAppRoot},
	}
}

func paths() []Known {
	return []Known{
		{Name: "use-regex", Effect: Used, Outcome: Done,
			Routes: "matches of type RegularExpression for all paths of the host, of all Ingresses",
			read:   flag(func(s *Settings, b bool) { s.UseRegex = b })},
		{Name: "rewrite-target", Effect: Used, Outcome: Done,
			Routes: "URLRewrite with ReplaceFullPath, or ReplacePrefixMatch where that is the same; groups such as $1 " +
				"in other forms are missing",
			read: readRewrite},
		{Name: "server-alias", Effect: Used, Outcome: Done, Routes: "hostnames of the HTTPRoute", read: readAliases},
		{Name: "upstream-vhost", Effect: Used, Outcome: Done, Routes: "URLRewrite with hostname",
			read: matching(hostText, "a host", func(s *Settings, v string) { s.Host = v })},
		{Name: "x-forwarded-prefix", Effect: Used, Outcome: Done, Routes: "RequestHeaderModifier",
			read: matching(pathText, "a path", func(s *Settings, v string) { s.Prefix = v })},
	}
}

func authentication() []Known {
	return []Known{
		{Name: "auth-type", Effect: Used, Outcome: Done, Routes: policy, restricts: true, read: readAuthType},
		{Name: "auth-secret", Effect: Used, Text: "one of another namespace closes", Outcome: Done, Routes: policy,
			restricts: true, read: readAuthSecret},
		{Name: "auth-secret-type", Effect: Used, Outcome: Done, Routes: policy, restricts: true,
			read: oneOf([]string{"auth-file", "auth-map"}, func(s *Settings, v string) {
				s.basic().Map = v == "auth-map"
			})},
		{Name: "auth-realm", Effect: Used, Outcome: Done, Routes: policy,
			read: func(p *parser, v string) error { p.settings.basic().Realm = v; return nil }},
		{Name: "auth-url", Effect: Used, Routes: noFilter, restricts: true, read: readAuthURL},
		{Name: "auth-method", Effect: Used, Routes: noFilter, restricts: true,
			read: matching(methodName, "a method", func(s *Settings, v string) { s.external().Method = v })},
		{Name: "auth-signin", Effect: Used, Routes: noFilter, read: readSignIn},
		{Name: "auth-signin-redirect-param", Effect: Used, Routes: noFilter,
			read: matching(cookieName, "a name", func(s *Settings, v string) { s.external().Param = v })},
		{Name: "auth-response-headers", Effect: Used, Routes: noFilter, restricts: true,
			read: readHeaders},
		{Name: "auth-request-redirect", Effect: Unsupported, Text: "the field X-Auth-Request-Redirect is not sent",
			Routes: "the field X-Auth-Request-Redirect is not sent"},
		{Name: "auth-proxy-set-headers", Effect: Unsupported,
			Text:   "no fields are added to the request for authorization",
			Routes: "no fields are added to the request for authorization"},
		{Name: "auth-cache-key", Effect: Unsupported, Text: "decisions are not stored: each request is asked for",
			Outcome: Differs, Routes: "decisions are not stored: each request is asked for"},
		{Name: "auth-cache-duration", Effect: Unsupported, Text: "as auth-cache-key", Outcome: Differs,
			Routes: "as auth-cache-key"},
		{Name: "auth-always-set-cookie", Effect: Unsupported,
			Text:   "cookies of the authorization server are not passed on",
			Routes: "cookies of the authorization server are not passed on"},
		{Name: "enable-global-auth", Effect: Ignored, Text: "there is no authentication for all Ingresses",
			Outcome: Done, Routes: "there is no authentication for all routes"},
		{Name: "satisfy", Effect: Used, Text: "all that is demanded of requests holds, also with any",
			Routes: "a RoutePolicy has no such choice: all that it demands holds",
			read:   oneOf([]string{"any", "all"}, func(s *Settings, v string) { s.AnyOf = v == "any" })},
	}
}

func restrictions() []Known {
	allow := ranges(func(s *Settings, all []prefix) { s.Allow = append(s.Allow, all...) })
	except := ranges(func(s *Settings, all []prefix) { s.limits().Except = append(s.limits().Except, all...) })
	// older reads a list unless it is there by its newer name, which alone counts then.
	older := func(newer string, read reader) reader {
		return func(p *parser, value string) error {
			if p.values[newer] != "" {
				return &otherError{Ignored, newer + " comes before it"}
			}
			return read(p, value)
		}
	}
	cors := func(name string, read reader) Known {
		return Known{Name: name, Effect: Used, Outcome: Done, Routes: "a filter CORS", read: read}
	}
	return []Known{
		{Name: "allowlist-source-range", Effect: Used, Outcome: Done, Routes: policy, restricts: true, read: allow},
		{Name: "whitelist-source-range", Effect: Used, Outcome: Done, Routes: policy, restricts: true,
			read: older("allowlist-source-range", allow)},
		{Name: "denylist-source-range", Effect: Used, Outcome: Done, Routes: policy, restricts: true,
			read: ranges(func(s *Settings, all []prefix) { s.Deny = append(s.Deny, all...) })},
		{Name: "limit-rps", Effect: Used, Outcome: Differs, Routes: limiting,
			read: number(0, func(s *Settings, n int) { s.limits().PerSecond = n })},
		{Name: "limit-rpm", Effect: Used, Outcome: Differs, Routes: limiting,
			read: number(0, func(s *Settings, n int) { s.limits().PerMinute = n })},
		{Name: "limit-connections", Effect: Used, Text: "counts requests under way",
			Outcome: Differs, Routes: limiting + ", and it counts requests under way",
			read: number(0, func(s *Settings, n int) { s.limits().Connections = n })},
		{Name: "limit-burst-multiplier", Effect: Used, Outcome: Done, Routes: policy,
			read: number(1, func(s *Settings, n int) { s.limits().Burst = n })},
		{Name: "limit-allowlist", Effect: Used, Outcome: Done, Routes: policy, read: except},
		{Name: "limit-whitelist", Effect: Used, Outcome: Done, Routes: policy, read: older("limit-allowlist", except)},
		{Name: "limit-rate", Effect: Unsupported, Text: "responses are sent as fast as clients take them",
			Routes: "responses are sent as fast as clients take them"},
		{Name: "limit-rate-after", Effect: Unsupported, Text: "as limit-rate", Routes: "as limit-rate"},
		{Name: "proxy-body-size", Effect: Used, Outcome: Done, Routes: policy, read: readBody},
		{Name: "enable-cors", Effect: Used, Outcome: Done, Routes: "a filter CORS",
			read: flag(func(s *Settings, _ bool) { s.cors() })},
		cors("cors-allow-origin", readOrigins),
		cors("cors-allow-methods", tokens(func(c *CORS, all []string) { c.Methods = all })),
		cors("cors-allow-headers", tokens(func(c *CORS, all []string) { c.Headers = all })),
		cors("cors-expose-headers", tokens(func(c *CORS, all []string) { c.Expose = all })),
		cors("cors-allow-credentials", flag(func(s *Settings, b bool) { s.cors().Credentials = b })),
		cors("cors-max-age", seconds(func(s *Settings, d time.Duration) { s.cors().MaxAge = d })),
	}
}

func canaries() []Known {
	backend := "backendRefs of the main Ingress' route"
	match := "matches of the main Ingress' route"
	return []Known{
		{Name: "canary", Effect: Used,
			Text: "for the paths of the main Ingress alone; in ingress-nginx it is for all that use the " +
				"same port of its Service", Outcome: Differs,
			Routes: "rules of the main Ingress' route, for its paths alone",
			read:   flag(func(s *Settings, _ bool) { s.canary() })},
		{Name: "canary-weight", Effect: Used, Outcome: Done, Routes: backend,
			read: number(0, func(s *Settings, n int) { s.canary().Weight = n })},
		{Name: "canary-weight-total", Effect: Used, Outcome: Done, Routes: backend,
			read: number(1, func(s *Settings, n int) { s.canary().Total = n })},
		{Name: "canary-by-header", Effect: Used, Outcome: Done, Routes: match,
			read: matching(headerName, "the name of a header", func(s *Settings, v string) {
				s.canary().Header = v
			})},
		{Name: "canary-by-header-value", Effect: Used, Outcome: Done, Routes: match,
			read: func(p *parser, v string) error { p.settings.canary().Value = v; return nil }},
		{Name: "canary-by-header-pattern", Effect: Used, Outcome: Done, Routes: match, read: readPattern},
		{Name: "canary-by-cookie", Effect: Used, Outcome: Done, Routes: match,
			read: matching(cookieName, "the name of a cookie", func(s *Settings, v string) {
				s.canary().Cookie = v
			})},
	}
}

func affinities() []Known {
	const session = "sessionPersistence of the HTTPRoute"
	const other = "the cookie has another value, and is for the path that matched"
	return []Known{
		{Name: "affinity", Effect: Used, Text: other, Outcome: Differs, Routes: session + "; " + other,
			read: oneOf([]string{"cookie"}, func(s *Settings, _ string) { s.affinity() })},
		{Name: "affinity-mode", Effect: Used, Text: "sessions stay at their endpoint in both modes", Outcome: Differs,
			Routes: "sessions stay at their endpoint in both modes",
			read: oneOf([]string{"balanced", "persistent"}, func(s *Settings, v string) {
				s.affinity().Persistent = v == "persistent"
			})},
		{
			Name:    "affinity-canary-behavior",
			Effect:  Used,
			Text:    "sessions stay with a canary, also with legacy",
			Outcome: Differs,
			Routes:  "sessions stay with a canary by weight; with one by header or cookie they do for requests with that alone",
			read:    readCanaryBehavior,
		},
		{Name: "session-cookie-name", Effect: Used, Outcome: Done, Routes: session,
			read: matching(cookieName, "the name of a cookie", func(s *Settings, v string) {
				s.affinity().Name = v
			})},
		{Name: "session-cookie-path", Effect: Used, Outcome: Missing,
			Routes: "the cookie is for the path that matched",
			read:   matching(pathText, "a path", func(s *Settings, v string) { s.affinity().Path = v })},
		{Name: "session-cookie-domain", Effect: Used, Outcome: Missing,
			Routes: "the cookie is for the host of the request",
			read:   matching(hostText, "a domain", func(s *Settings, v string) { s.affinity().Domain = v })},
		{Name: "session-cookie-samesite", Effect: Used, Outcome: Differs, Routes: "the cookie has SameSite=Lax",
			read: oneOf([]string{"None", "Lax", "Strict"}, func(s *Settings, v string) {
				s.affinity().SameSite = v
			})},
		{Name: "session-cookie-secure", Effect: Used, Outcome: Differs,
			Routes: "the cookie is secure if the request came over TLS",
			read:   flag(func(s *Settings, b bool) { s.affinity().Secure = &b })},
		{Name: "session-cookie-max-age", Effect: Used, Outcome: Done, Routes: session,
			read: seconds(func(s *Settings, d time.Duration) { s.affinity().MaxAge = d })},
		{Name: "session-cookie-expires", Effect: Used, Outcome: Done, Routes: session,
			read: seconds(func(s *Settings, d time.Duration) { s.affinity().MaxAge = max(s.affinity().MaxAge, d) })},
		{Name: "session-cookie-change-on-failure", Effect: Ignored,
			Text:    "the cookie always names the endpoint that answered",
			Outcome: Done, Routes: "the cookie always names the endpoint that answered"},
		{Name: "session-cookie-conditional-samesite-none", Effect: Ignored,
			Text:    "is for browsers of 2019 and before",
			Outcome: Done, Routes: "is for browsers of 2019 and before"},
	}
}

// prefix is short for a range of addresses in the tables.
type prefix = netip.Prefix
