package forward

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Transport is the transport protocol for queries to an upstream.
type Transport uint8

// Transports.
const (
	UDP   Transport = iota // TCP for truncated replies
	TCP                    // TCP only
	TLS                    // RFC 7858
	HTTPS                  // RFC 8484
)

// Upstream is the address of an upstream server.
type Upstream struct {
	Addr      netip.AddrPort
	Transport Transport
	// ServerName is the name in the server's certificate, over TLS and HTTPS;
	// if empty, the certificate must be for the address.
	ServerName string
	// Path is the path of the URL, over HTTPS.
	Path string
	// Roots are the certificate authorities to trust; nil means those of the
	// system.
	Roots *x509.CertPool
}

// String returns the upstream in the syntax of the configuration.
func (u Upstream) String() string {
	name := u.ServerName
	switch u.Transport {
	case TCP:
		return "tcp://" + u.Addr.String()
	case TLS:
		if name != "" {
			name = "#" + name
		}
		return "tls://" + u.Addr.String() + name
	case HTTPS:
		if name == "" {
			return "https://" + u.Addr.String() + u.Path
		}
		return "https://" + name + u.Path + "@" + u.Addr.String()
	case UDP:
	}
	return u.Addr.String()
}

// errBadUpstream is wrapped by ParseUpstream.
var errBadUpstream = errors.New("not a server, such as 10.0.0.2, 10.0.0.2:5353, tcp://10.0.0.2, " +
	"tls://9.9.9.9#dns.quad9.net or https://dns.quad9.net/dns-query@9.9.9.9")

// ParseUpstream parses a server as String writes it. The port and the path may
// be omitted, and the port of an HTTPS URL may follow its host.
func ParseUpstream(s string) (Upstream, error) {
	u, rest, port := Upstream{}, s, uint16(dnsPort)
	fixed := false // the URL has a port
	for prefix, transport := range map[string]Transport{
		"udp://": UDP, "dns://": UDP, "tcp://": TCP, "tls://": TLS, "https://": HTTPS,
	} {
		if after, ok := strings.CutPrefix(s, prefix); ok {
			u.Transport, rest = transport, after
		}
	}
	switch u.Transport {
	case TLS:
		port = 853
		rest, u.ServerName, _ = strings.Cut(rest, "#")
	case HTTPS:
		port = 443
		url, at, ok := strings.Cut(rest, "@")
		host, path, _ := strings.Cut(url, "/")
		u.Path = "/" + path
		if path == "" {
			u.Path = "/dns-query"
		}
		if rest = host; ok {
			u.ServerName, rest = host, at
			if name, number, err := net.SplitHostPort(host); err == nil {
				n, err := strconv.ParseUint(number, 10, 16)
				if err != nil || n == 0 {
					return u, fmt.Errorf("%q is %w", s, errBadUpstream)
				}
				u.ServerName, port, fixed = name, uint16(n), true
			}
		}
	case UDP, TCP:
	}
	if addr, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		u.Addr = netip.AddrPortFrom(addr.Unmap(), port)
		return u, nil
	}
	addr, err := netip.ParseAddrPort(rest)
	if err != nil || addr.Port() == 0 {
		return u, fmt.Errorf("%q is %w", s, errBadUpstream)
	}
	if fixed && addr.Port() != port {
		return u, fmt.Errorf("%q has two ports, %d and %d", s, port, addr.Port())
	}
	u.Addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	return u, nil
}
