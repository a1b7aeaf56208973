// Package peer parses how commands and suites of tests name the ends of connections: clients (--from), and what they
// connect to.
package peer

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// ParseTarget parses HOST:PORT or HOST:PORT/PROTOCOL, of which HOST may be NAMESPACE/SERVICE, and
// reports whether text has that form; other texts are names to resolve.
func ParseTarget(text string) (t connection.Target, ok bool, err error) {
	if lacksPort(text) {
		return t, true, fmt.Errorf("%q has no port, which a protocol needs, as in ADDRESS:PORT/udp", text)
	}
	rest, protocol, _ := strings.Cut(Dotted(text), "/")
	if strings.Count(rest, ":") != 1 && !strings.HasPrefix(rest, "[") || strings.Contains(text, "//") {
		return t, false, nil // a name, an IPv6 address or a URL
	}
	t.Protocol = frontend.TCP
	if t.Host, t.Port, err = net.SplitHostPort(rest); err != nil || t.Host == "" || t.Port == "" {
		return t, true, fmt.Errorf("%q is not HOST:PORT, such as web.shop:80 or [fd00::1]:80", text)
	}
	if isNoPort(t.Port) {
		return t, true, fmt.Errorf("port %s is not from 1 to 65535", t.Port)
	}
	switch strings.ToLower(protocol) {
	case "", "tcp":
	case "udp":
		t.Protocol = frontend.UDP
	case "sctp":
		t.Protocol = frontend.SCTP
	default:
		return t, true, fmt.Errorf("protocol %q is not tcp, udp or sctp", protocol)
	}
	return t, true, nil
}

// isNoPort reports whether text is a number, but not one of a port.
func isNoPort(text string) bool {
	if strings.Trim(text, "0123456789") != "" {
		return false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return err != nil || n == 0
}

// lacksPort reports whether text is a host and a protocol without a port. NAMESPACE/udp is such a text:
// a Service with the name of a protocol is written as udp.NAMESPACE.
func lacksPort(text string) bool {
	if strings.Contains(text, "//") {
		return false // a URL
	}
	host, _, slash := strings.Cut(text, "/")
	if slash && IsAddress(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")) {
		return true
	}
	end := strings.LastIndex(text, "/")
	if end < 0 || strings.Contains(text[:end], ":") {
		return false
	}
	switch strings.ToLower(text[end+1:]) {
	case "tcp", "udp", "sctp":
		return true
	}
	return false
}

// Dotted returns a text that begins with NAMESPACE/SERVICE with SERVICE.NAMESPACE instead.
func Dotted(text string) string {
	namespace, rest, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || strings.ContainsAny(namespace, ":[") {
		return text
	}
	end := strings.IndexAny(rest+":", ":/")
	return rest[:end] + "." + namespace + rest[end:]
}

// The names of clients that are no Pods.
const (
	// Node is a program on a node.
	Node = "node"
	// Outside is a client that is neither a Pod nor a node.
	Outside = "outside"
)

// ParseClient parses the names of clients that are no Pods, and reports whether text is one: node, outside, and
// addresses of clients outside. The client is on a node, or its packets arrive there; "" is the only one.
func ParseClient(text, node string) (c connection.Client, ok bool) {
	c.Node = node
	switch addr, err := netip.ParseAddr(text); {
	case err == nil:
		c.Place, c.Addr = connection.Outside, addr.Unmap()
	case text == Outside:
		c.Place = connection.Outside
	case text == Node:
		c.Place = connection.OnNode
	default:
		return c, false
	}
	return c, true
}

// Peer is what a client connects to: a target, or a Pod or Service at the target's port.
type Peer struct {
	connection.Target
	// Pod is nil, and Service the zero key, if the target has a host.
	Pod     *dnsconfig.Reference
	Service cluster.Key
}

// Parse parses NAMESPACE/POD:PORT, NAMESPACE/KIND/NAME:PORT, svc/NAMESPACE/NAME:PORT,
// or what ParseTarget does without NAMESPACE/SERVICE.
func Parse(text string) (p Peer, err error) {
	host, port := text, ""
	if at := strings.LastIndex(text, ":"); at >= 0 {
		host, port = text[:at], text[at+1:]
	}
	if port == "" || IsAddress(text) {
		return p, fmt.Errorf(
			"%q has no port, as in shop/db-0:5432, svc/shop/db:5432, db.shop:5432/udp or [fd00::1]:443",
			text,
		)
	}
	kind, name, slash := strings.Cut(host, "/")
	if !slash {
		var ok bool
		if p.Target, ok, err = ParseTarget(text); err == nil && !ok {
			err = fmt.Errorf("%q is not HOST:PORT, such as web.shop:80 or [fd00::1]:80", text)
		}
	} else if p.Target, _, err = ParseTarget("pod:" + port); err == nil {
		p.Host = host
		switch kind {
		case "svc", "service", "services":
			namespace, name, ok := strings.Cut(name, "/")
			if p.Service = (cluster.Key{Namespace: namespace, Name: name}); !ok || name == "" || namespace == "" {
				err = fmt.Errorf("%q is not svc/NAMESPACE/NAME:PORT, such as svc/shop/db:5432", text)
			}
		default:
			var r dnsconfig.Reference
			r, err = dnsconfig.ParseReference(host)
			p.Pod = &r
		}
	}
	return p, err
}

// IsURL reports whether a text is a URL, and not a name or a target.
func IsURL(text string) bool { return strings.Contains(text, "://") }

// IsAddress reports whether a text is an IP address.
func IsAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
