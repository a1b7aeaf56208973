// Package hostaddrs reads the addresses of this host.
package hostaddrs

import (
	"net"
	"net/netip"
	"slices"
)

// All returns the addresses of the host's interfaces, sorted.
func All() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil {
			all = append(all, prefix.Addr().Unmap().WithZone(""))
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}
