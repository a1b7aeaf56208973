package proxy

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/gateway/table"
)

// rewrite makes the request that an upstream gets. What is for one connection only is left out of it
// already (RFC 9110, section 7.6.1).
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.In)
	p.forwarded(pr)
	out := pr.Out
	if x.Upstream.Protocol == table.H2C || carriesRequests(out.Header.Get("Upgrade")) { // HTTP/2 has no upgrades
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
	}
	out.URL.Scheme = "http"
	setPath(out.URL, x.path)
	for _, a := range []*table.Actions{&x.Rule.Actions, &x.backend.Actions} {
		change(out.Header, a.Request)
		if a.Rewrite == nil {
			continue
		}
		if a.Rewrite.Host != "" {
			out.Host = a.Rewrite.Host
		}
		setPath(out.URL, a.Rewrite.Path.Apply(x.path, &x.route.Match))
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // so that the transport adds none
	}
}

// carriesRequests reports whether one of the protocols in an Upgrade field is HTTP in another version, or
// below TLS (RFC 2817). An upstream that changed to it would get requests that no rule was found for.
func carriesRequests(upgrade string) bool {
	for protocol := range strings.SplitSeq(strings.ToLower(upgrade), ",") {
		switch name, _, _ := strings.Cut(strings.TrimSpace(protocol), "/"); name {
		case "h2c", "h2", "h3", "http", "https", "tls":
			return true
		}
	}
	return false
}

// forwarded sets X-Forwarded-For, -Host and -Proto. Those of clients that are not trusted are replaced, in any form.
func (p *Proxy) forwarded(pr *httputil.ProxyRequest) {
	trusted := false
	if at, err := netip.ParseAddrPort(pr.In.RemoteAddr); err == nil {
		trusted = slices.ContainsFunc(p.cfg.Trusted, func(of netip.Prefix) bool { return of.Contains(at.Addr().Unmap()) })
	}
	names := []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}
	for name := range pr.Out.Header {
		// Some backends take an underscore for a hyphen.
		hyphens := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		if hyphens != name && slices.Contains(names, hyphens) {
			delete(pr.Out.Header, name)
		}
	}
	if trusted {
		for _, name := range names {
			pr.Out.Header[name] = pr.In.Header[name]
		}
	}
	host, proto := pr.Out.Header["X-Forwarded-Host"], pr.Out.Header["X-Forwarded-Proto"]
	pr.SetXForwarded() // appends to X-Forwarded-For
	if len(host) > 0 {
		pr.Out.Header["X-Forwarded-Host"] = host
	}
	if len(proto) > 0 {
		pr.Out.Header["X-Forwarded-Proto"] = proto
	}
}

// setPath sets a path that is percent-encoded.
func setPath(u *url.URL, path string) {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return // a normal path is encoded rightly
	}
	u.Path, u.RawPath = plain, path
}

// change changes a head (HTTPHeaderFilter).
func change(header http.Header, by *table.HeaderChange) {
	if by == nil {
		return
	}
	for _, name := range by.Remove {
		header.Del(name)
	}
	for _, f := range by.Set {
		header.Set(f.Name, f.Value)
	}
	for _, f := range by.Add {
		header.Add(f.Name, f.Value)
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

// modifyResponse changes the head of a response.
func (p *Proxy) modifyResponse(res *http.Response) error {
	x := exchangeOf(res.Request)
	if x.Rule.CORS != nil {
		allowOrigin(res.Header, res.Request.Header.Get("Origin"), x.Rule.CORS)
	}
	change(res.Header, x.backend.Response)
	change(res.Header, x.Rule.Response)
	return nil
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

// allowOrigin sets the fields that allow an origin, in the place of those of the upstream, and reports
// whether it is allowed.
func allowOrigin(h http.Header, origin string, c *table.CORS) bool {
	if origin == "" || !slices.ContainsFunc(c.Origins, func(o string) bool { return matchesOrigin(o, origin) }) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	if c.Credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if len(c.Expose) > 0 {
		h.Set("Access-Control-Expose-Headers", strings.Join(c.Expose, ", "))
	}
	return true
}

// matchesOrigin reports whether an origin is one that is allowed: "*" is all, and "*." at the beginning
// of the host stands for labels.
func matchesOrigin(allowed, origin string) bool {
	if before, after, wild := strings.Cut(allowed, "*"); wild {
		return len(origin) > len(before)+len(after) && strings.HasPrefix(origin, before) && strings.HasSuffix(origin, after)
	}
	return strings.EqualFold(allowed, origin)
}
