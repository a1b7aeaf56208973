package request

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/gateway/table"
)

// Message is an HTTP request as a client sends it.
type Message struct {
	Method string
	Scheme string // http or https
	// Name is the host of the URL, which the client resolves and, with https, sends as the server's name;
	// Host is that of the request, which is another one if there is a field Host. Both are in lower case.
	Name, Host string
	// Rooted: the host of the URL ends with a dot, so that it is looked up without the search list.
	Rooted bool
	Port   uint16
	// Path is a normal one, see table.Normalize, and Query has no question mark. BadPath: the path is none
	// that a gateway takes, and Path is as in the URL.
	Path, Query string
	BadPath     bool
	// Header has canonical names, and no Host.
	Header map[string][]string
}

// ParseMessage parses a method, the URL of a request and its fields, each "NAME: VALUE". The URL's scheme
// is http or https; a fragment is no part of a request.
func ParseMessage(method, text string, fields []string) (m Message, err error) {
	m.Method = method
	if !isToken(method) {
		return m, fmt.Errorf("%q is not a method, such as GET", method)
	}
	u, err := url.Parse(text)
	if err != nil {
		if broken, ok := errors.AsType[*url.Error](err); ok {
			err = broken.Err
		}
		return m, fmt.Errorf("%q is not a URL: %w", text, err)
	}
	m.Scheme, m.Name, m.Query = u.Scheme, hostname(u.Hostname()), u.RawQuery
	switch {
	case m.Scheme != "http" && m.Scheme != "https":
		return m, fmt.Errorf("%q does not begin with http:// or https://", text)
	case m.Name == "":
		return m, fmt.Errorf("%q has no host", text)
	case u.User != nil:
		return m, fmt.Errorf("%q has a user; give a field instead: --header 'Authorization: ...'", text)
	case !isASCII(m.Name):
		return m, fmt.Errorf("the host %q is not in its ASCII form, xn--... (RFC 5891)", m.Name)
	}
	m.Host = m.Name
	m.Rooted = strings.HasSuffix(u.Hostname(), ".")
	m.Port = map[string]uint16{"http": 80, "https": 443}[m.Scheme]
	if u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || n == 0 {
			return m, fmt.Errorf("port %s is not from 1 to 65535", u.Port())
		}
		m.Port = uint16(n)
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if m.Path, err = table.Normalize(path); err != nil {
		m.Path, m.BadPath = path, true
	}
	return m, m.setFields(fields)
}

// setFields sets the fields of the head.
func (m *Message) setFields(fields []string) error {
	m.Header = make(map[string][]string)
	for _, f := range fields {
		name, value, ok := strings.Cut(f, ":")
		if !ok || !isToken(name) {
			return fmt.Errorf("%q is not NAME: VALUE, such as 'X-Env: test'", f)
		}
		value = strings.TrimSpace(value)
		if name = textproto.CanonicalMIMEHeaderKey(name); name != "Host" {
			m.Header[name] = append(m.Header[name], value)
			continue
		}
		if host, _, err := net.SplitHostPort(value); err == nil {
			value = host
		}
		m.Host = hostname(strings.Trim(value, "[]"))
	}
	return nil
}

// Lookup returns the host of the URL as the client looks it up.
func (m *Message) Lookup() string {
	if m.Rooted {
		return m.Name + "."
	}
	return m.Name
}

// URL returns the URL of the request, without a port that the scheme has by default.
func (m *Message) URL() string {
	u := url.URL{Scheme: m.Scheme, Host: m.Lookup(), RawQuery: m.Query, Path: m.Path}
	if plain, err := url.PathUnescape(m.Path); err == nil {
		u.Path, u.RawPath = plain, m.Path
	}
	if wellKnown := map[string]uint16{"http": 80, "https": 443}[m.Scheme]; m.Port != wellKnown {
		u.Host = net.JoinHostPort(m.Lookup(), strconv.Itoa(int(m.Port)))
	} else if strings.Contains(m.Name, ":") {
		u.Host = "[" + m.Name + "]"
	}
	return u.String()
}

// fields returns the fields of the head, in order.
func (m *Message) fields() (all []string) {
	if m.Host != m.Name {
		all = append(all, "Host: "+m.Host)
	}
	for name, values := range m.Header {
		for _, v := range values {
			all = append(all, name+": "+v)
		}
	}
	slices.Sort(all)
	return all
}

// addr returns the address that the host of the URL is, if it is one.
func (m *Message) addr() (addr netip.Addr, ok bool) {
	addr, err := netip.ParseAddr(m.Name)
	return addr.Unmap(), err == nil
}

// serverName returns the name that the client sends in a TLS handshake; an address is none (RFC 6066, section 3).
func (m *Message) serverName() string {
	if m.HasAddress() {
		return ""
	}
	return m.Name
}

// HasAddress reports whether the host of the URL is an address, which is not looked up.
func (m *Message) HasAddress() bool {
	_, ok := m.addr()
	return ok
}

// request returns what routes look at.
func (m *Message) request() *table.Request {
	return &table.Request{Method: m.Method, Path: m.Path, Query: m.Query, Header: m.Header}
}

// hostname returns a name in lower case and without a dot at the end.
func hostname(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 })
}

// isToken reports whether text is a token (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	const delimiters = "\"(),/:;<=>?@[\\]{}"
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(delimiters, r)
	})
}
