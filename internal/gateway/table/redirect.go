package table

import (
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Apply returns a path after the change (HTTPPathModifier). Both are normal ones, see Normalize; m is
// what matched the path. A nil PathChange changes nothing.
func (c *PathChange) Apply(path string, m *Match) string {
	if c == nil {
		return path
	}
	if !c.Prefix {
		return c.To
	}
	rest := strings.TrimPrefix(path, strings.TrimSuffix(m.Path, "/"))
	to := strings.TrimSuffix(c.To, "/")
	switch {
	case rest == "" && to == "":
		return "/"
	case rest == "":
		return c.To
	case rest[0] != '/':
		return to + "/" + rest
	}
	return to + rest
}

// Target is what a request asks for, and where it came.
type Target struct {
	Scheme, Host string // http or https; a name or an address
	Port         uint16 // that it came to
	Path, Query  string // a normal path; the query is without the question mark
}

// Location returns where a redirect leads (HTTPRequestRedirectFilter). m is what matched the request.
func (r *Redirect) Location(from *Target, m *Match) string {
	u := url.URL{Scheme: from.Scheme, RawQuery: from.Query}
	port := strconv.Itoa(int(from.Port))
	if r.Scheme != "" {
		u.Scheme, port = r.Scheme, "" // its well-known port
	}
	if r.Port != 0 {
		port = strconv.Itoa(int(r.Port))
	}
	host := from.Host
	if r.Host != "" {
		host = r.Host
	}
	if wellKnown := map[string]string{"http": "80", "https": "443"}[u.Scheme]; port == "" || port == wellKnown {
		if u.Host = host; strings.Contains(host, ":") && host[0] != '[' {
			u.Host = "[" + host + "]" // an IPv6 address
		}
	} else {
		u.Host = net.JoinHostPort(host, port)
	}
	path := r.Path.Apply(from.Path, m)
	if plain, err := url.PathUnescape(path); err == nil {
		u.Path, u.RawPath = plain, path
	} else {
		u.Path = path // which a rule has
	}
	return u.String()
}
