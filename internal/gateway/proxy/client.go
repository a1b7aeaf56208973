package proxy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Client returns the address of the client of a request: that of the connection, or if that is trusted, the last one in
// X-Forwarded-For that is not. It is not valid if the request has none.
func Client(r *http.Request, trusted []netip.Prefix) netip.Addr {
	trusts := func(a netip.Addr) bool {
		return slices.ContainsFunc(trusted, func(of netip.Prefix) bool { return of.Contains(a) })
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	client := peer.Addr().Unmap()
	if err != nil || len(trusted) == 0 || !trusts(client) {
		return client
	}
	for _, field := range slices.Backward(r.Header["X-Forwarded-For"]) {
		for _, text := range slices.Backward(strings.Split(field, ",")) {
			addr, err := forwardedAddr(strings.TrimSpace(text))
			if err != nil {
				return client
			}
			if client = addr.Unmap(); !trusts(client) {
				return client
			}
		}
	}
	return client
}

// forwardedAddr reads an element of X-Forwarded-For: an address, to which some proxies add a port (RFC 7239,
// section 6).
func forwardedAddr(text string) (netip.Addr, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr(), nil
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	return netip.ParseAddr(text)
}
