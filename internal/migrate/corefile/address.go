package corefile

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// site is a key of a server block: a zone, the transport and the port.
type site struct {
	transport string // dns, tls, https, or another one of CoreDNS
	text      string // the zone as written
	zone      string
	port      string
}

// ports has the default ports of transports.
var ports = map[string]string{"tls": "853", "quic": "853", "https": "443", "https3": "443", "grpc": "443"}

// parseSite parses a key: [TRANSPORT://]ZONE[:PORT]. A range of addresses stands for its
// reverse zones.
func parseSite(key, port string) (sites []site, err error) {
	transport, rest, ok := strings.Cut(key, "://")
	if !ok {
		transport, rest = "dns", key
	}
	if p, known := ports[transport]; known {
		port = p
	}
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		n, err := strconv.ParseUint(rest[i+1:], 10, 16)
		switch {
		case err == nil:
			rest, port = rest[:i], strconv.FormatUint(n, 10)
		case !strings.Contains(rest, "/"): // and not an IPv6 range
			return nil, fmt.Errorf("%q is not a port", rest[i+1:])
		}
	}
	zones, err := parseZone(rest)
	if err != nil {
		return nil, err
	}
	for _, z := range zones {
		sites = append(sites, site{transport, rest, z, port})
	}
	return sites, nil
}

// parseZone parses a zone, or a range of addresses, which stands for its reverse zones.
func parseZone(text string) ([]string, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix.Bits() == 0 {
			return nil, fmt.Errorf("%q is all addresses; write in-addr.arpa or ip6.arpa", text)
		}
		reverse, err := dnsname.ReverseZones(prefix.Masked())
		if err != nil {
			return nil, err
		}
		var zones []string
		for _, z := range reverse {
			zones = append(zones, zoneText(z))
		}
		return zones, nil
	}
	if text == "" || text == "." {
		return []string{""}, nil
	}
	name, err := dnsname.Parse(text)
	if err != nil {
		return nil, err
	}
	return []string{zoneText(name)}, nil
}

// zoneText returns a zone in the form of the configuration; the root is "".
func zoneText(name dnsname.Name) string { return strings.TrimSuffix(name.String(), ".") }

// isBelow reports whether a zone is another zone or below it.
func isBelow(zone, other string) bool {
	return other == "" || zone == other || strings.HasSuffix(zone, "."+other)
}

// isReverse reports whether a zone is a reverse zone, and returns its range, which has no
// bits if it covers all addresses.
func isReverse(zone string) (prefix netip.Prefix, is bool) {
	name, err := dnsname.Parse(zone)
	if err != nil {
		return prefix, false
	}
	return dnsname.ParseReverse([]byte(name.WireLabels()))
}

// zonesOf returns the zones in the arguments, or those of the block if there are none.
func (t *translator) zonesOf(b *block, s *statement, args []string) []string {
	if len(args) == 0 {
		return b.zones
	}
	var zones []string
	for _, a := range args {
		parsed, err := parseZone(a)
		if err != nil {
			t.fail(s, "%w", err)
		}
		for _, z := range parsed {
			if !slices.Contains(zones, z) {
				zones = append(zones, z)
			}
		}
	}
	return zones
}

// listenAddr parses an address and port in the form of the configuration and Go's net.
func listenAddr(text string) (netip.AddrPort, error) {
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address and port", text)
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not a port", digits)
	}
	addr := netip.IPv4Unspecified()
	switch host {
	case "":
	case "localhost":
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		if addr, err = netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, fmt.Errorf("%q is not an address", host)
		}
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}
