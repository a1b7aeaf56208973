package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/gateway/table"
)

// head is a head that changes: an http.Header, or upstream.Fields.
type head interface {
	Del(name string)
	Set(name, value string)
	Add(name, value string)
}

// change changes a head (HTTPHeaderFilter). What the proxy itself says of the connection and the body stays.
func change(h head, by *table.HeaderChange) {
	if by == nil {
		return
	}
	for _, name := range by.Remove {
		if !ownFields[name] {
			h.Del(name)
		}
	}
	for _, f := range by.Set {
		if !ownFields[f.Name] {
			h.Set(f.Name, f.Value)
		}
	}
	for _, f := range by.Add {
		if !ownFields[f.Name] {
			h.Add(f.Name, f.Value)
		}
	}
}

// location returns where a redirect leads.
func location(r *http.Request, x *exchange, by *table.Redirect) string {
	from := table.Target{Scheme: "http", Host: x.Host, Port: x.at.Port, Path: x.path, Query: r.URL.RawQuery}
	if r.TLS != nil {
		from.Scheme = "https"
	}
	return by.Location(&from, &x.route.Match)
}

// secure redirects a request that came without TLS to HTTPS, and reports whether it did.
func (p *Proxy) secure(w http.ResponseWriter, r *http.Request, x *exchange) bool {
	proto := r.Header["X-Forwarded-Proto"]
	switch trusted := len(proto) > 0 && p.trusts(r); {
	case trusted && proto[0] != "http", !trusted && r.TLS != nil:
		return false
	}
	target := targetOf(x.path, r)
	if !x.Rule.Secure.KeepSlash {
		target = strings.TrimSuffix(target, "/")
	}
	host := x.Host
	if strings.Contains(host, ":") && host[0] != '[' {
		host = "[" + host + "]" // an IPv6 address
	}
	x.Reason = Redirected
	w.Header().Set("Location", "https://"+host+target)
	w.WriteHeader(http.StatusPermanentRedirect)
	return true
}

// changeResponse changes the head of a response.
func changeResponse(h http.Header, x *exchange) {
	if x.granted != nil {
		for _, f := range x.granted.response {
			h.Add(f.Name, f.Value)
		}
	}
	if x.Rule.CORS != nil {
		allowOrigin(h, x.Request.Header.Get("Origin"), x.Rule.CORS)
	}
	if x.backend != nil { // which a redirect has not
		change(h, x.backend.Response)
	}
	change(h, x.Rule.Response)
}

// preflight answers a preflight request (Fetch, "CORS-preflight request"), and reports whether r is one.
func preflight(w http.ResponseWriter, r *http.Request, c *table.CORS) bool {
	method := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || r.Header.Get("Origin") == "" || method == "" {
		return false
	}
	if h := w.Header(); allowOrigin(h, r.Header.Get("Origin"), c) {
		set := func(name string, allowed []string, asked string) {
			if slices.Contains(allowed, "*") && (c.Credentials || asked != "") {
				allowed = []string{asked} // with credentials "*" would be the name of a method or header
			}
			if list := strings.Join(allowed, ", "); list != "" {
				h.Set(name, list)
			}
		}
		set("Access-Control-Allow-Methods", c.Methods, method)
		set("Access-Control-Allow-Headers", c.Headers, r.Header.Get("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", strconv.Itoa(int(c.MaxAge.Seconds())))
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// allowOrigin sets the fields that allow an origin, and reports whether it is allowed. Those of the upstream go in
// any case, and caches are told that the response depends on the origin (Fetch, "CORS protocol and HTTP caches").
func allowOrigin(h http.Header, origin string, c *table.CORS) bool {
	h.Del("Access-Control-Allow-Origin")
	h.Del("Access-Control-Allow-Credentials")
	h.Del("Access-Control-Expose-Headers")
	h.Add("Vary", "Origin")
	if origin == "" || !slices.ContainsFunc(c.Origins, func(o string) bool { return matchesOrigin(o, origin) }) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if c.Credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if exposed := strings.Join(exposed(h, c), ", "); exposed != "" {
		h.Set("Access-Control-Expose-Headers", exposed)
	}
	return true
}

// exposed returns the names of the fields that a client may read. With credentials "*" would be a name of one
// (HTTPCORSFilter.exposeHeaders), so that all of the head are listed in its place.
func exposed(h http.Header, c *table.CORS) []string {
	if !c.Credentials || !slices.Contains(c.Expose, "*") {
		return c.Expose
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(h)), func(name string) bool {
		return strings.HasPrefix(name, "Access-Control-")
	})
}

// matchesOrigin reports whether an origin is one that is allowed: "*" is all, and "*" at the beginning
// of the host stands for labels. Without a port an origin has that of its scheme (HTTPCORSFilter.allowOrigins).
func matchesOrigin(allowed, origin string) bool {
	if allowed == "*" {
		return true
	}
	allowed, origin = withoutPort(allowed), withoutPort(origin)
	before, after, wild := strings.Cut(allowed, "*")
	if !wild {
		return strings.EqualFold(allowed, origin)
	}
	labels, ok := strings.CutPrefix(origin, before)
	labels, also := strings.CutSuffix(labels, after)
	return ok && also && labels != "" && !strings.Contains(labels, ":")
}

// withoutPort returns an origin without the port if that is the one that its scheme has anyway.
func withoutPort(origin string) string {
	scheme, rest, _ := strings.Cut(origin, "://")
	port := ":443"
	if scheme == "http" {
		port = ":80"
	}
	return scheme + "://" + strings.TrimSuffix(rest, port)
}
