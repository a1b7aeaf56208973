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
	if c.Expression != nil {
		return c.substitute(path)
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

// substitute returns To with the groups of the Expression in a path, which is Decoded for that; the path, if that has
// none.
func (c *PathChange) substitute(path string) string {
	plain := Decoded(path)
	at := c.Expression.FindStringSubmatchIndex(plain)
	if at == nil {
		return path
	}
	var b strings.Builder
	for rest := c.To; ; {
		before, after, found := strings.Cut(rest, "$")
		b.WriteString(before)
		if !found {
			break
		}
		if after == "" || after[0] < '1' || after[0] > '9' {
			b.WriteByte('$')
			rest = after
			continue
		}
		if n := 2 * int(after[0]-'0'); n+1 < len(at) && at[n] >= 0 {
			b.WriteString(plain[at[n]:at[n+1]])
		}
		rest = after[1:]
	}
	made := b.String()
	if !strings.HasPrefix(made, "/") {
		made = "/" + made
	}
	made = (&url.URL{Path: made}).EscapedPath()
	if normal, err := Normalize(made); err == nil {
		return normal // a group may make a segment of dots
	}
	return made
}

// Target is what a request asks for, and where it came.
type Target struct {
	Scheme, Host string // http or https; a name or an address
	Port         uint16 // that it came to
	Path, Query  string // a normal path; the query is without the question mark
}

// Location returns where a redirect leads (HTTPRequestRedirectFilter). m is what matched the request.
func (r *Redirect) Location(from *Target, m *Match) string {
	if r.URL != "" {
		return r.URL
	}
	u := url.URL{Scheme: from.Scheme, RawQuery: from.Query}
	if r.NoQuery {
		u.RawQuery = ""
	}
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
