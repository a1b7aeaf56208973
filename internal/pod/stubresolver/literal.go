package stubresolver

import (
	"net/netip"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// literal ends a lookup of addresses if the name is an address or localhost, and reports
// whether it did. isAddress parses addresses as the resolver does.
func (r *resolver) literal(isAddress func(string) (v4, v6 bool), isLocalhost func(string) bool) bool {
	if !r.forAddresses() {
		return false
	}
	v4, v6 := isAddress(r.Name)
	wrong := v4 && r.Type == dnswire.TypeAAAA || v6 && r.Type == dnswire.TypeA
	switch {
	case wrong:
		r.end(NoSuchName, "it is an address of the other family: no query is sent")
	case v4 || v6:
		r.end(Found, "it is an address: no query is sent")
	case isLocalhost(r.Name):
		r.end(Found, "localhost is in every Pod's /etc/hosts: no query is sent")
	default:
		return false
	}
	return true
}

// cAddress reports whether a name is an address for getaddrinfo of glibc and musl, and of
// which family: IPv4 as inet_aton(3), IPv6 with a zone.
func cAddress(name string) (v4, v6 bool) {
	if isAton(name) {
		return true, false
	}
	addr, err := netip.ParseAddr(name)
	return false, err == nil && addr.Is6()
}

// isAton reports whether inet_aton(3) accepts a text: one to four numbers, decimal, octal
// or hexadecimal, of which the last has the remaining bits of 32.
func isAton(text string) bool {
	parts := strings.Split(text, ".")
	if len(parts) > 4 {
		return false
	}
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 32 - 8*i
		}
		// ParseUint accepts more than C does: 0b, 0o, and underscores between digits.
		if part == "" || part[0] < '0' || part[0] > '9' || strings.ContainsAny(part, "_oO") ||
			strings.HasPrefix(strings.ToLower(part), "0b") {
			return false
		}
		if _, err := strconv.ParseUint(part, 0, bits); err != nil {
			return false
		}
	}
	return true
}
