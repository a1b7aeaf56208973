package app

import (
	"net"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Advertised reports whether an EndpointSlice of the cluster lists one of the server's
// UDP sockets as serving. While it does, service proxies keep the flows that lead here,
// also where the endpoint terminates (kube-proxy deletes conntrack entries of endpoints
// that do not serve). Manifests never change that, so it is false for them.
func (d *DNS) Advertised() bool {
	server := d.server.Load()
	if server == nil || d.cfg.Settings.Manifests != "" {
		return false
	}
	sockets := served(server.Addrs())
	advertised := false
	d.cfg.Store.View(func(v *cluster.View) {
		for s := range v.EndpointSlices() {
			advertised = advertised || lists(s, sockets)
		}
	})
	return advertised
}

// served returns the addresses that packets to the sockets can have: for an unspecified
// address those of the host, without loopback.
func served(sockets []netip.AddrPort) (all []netip.AddrPort) {
	host, _ := net.InterfaceAddrs() // none if the system does not say
	for _, socket := range sockets {
		if !socket.Addr().IsUnspecified() {
			all = append(all, socket)
			continue
		}
		for _, a := range host {
			prefix, err := netip.ParsePrefix(a.String())
			if err == nil && !prefix.Addr().IsLoopback() {
				all = append(all, netip.AddrPortFrom(prefix.Addr(), socket.Port()))
			}
		}
	}
	return all
}

// lists reports whether s has one of the sockets as a serving endpoint over UDP.
func lists(s *cluster.EndpointSlice, sockets []netip.AddrPort) bool {
	return slices.ContainsFunc(s.Endpoints, func(e cluster.Endpoint) bool {
		return e.Serving && slices.ContainsFunc(s.Ports, func(p cluster.Port) bool {
			return p.Protocol == cluster.UDP && slices.Contains(sockets, netip.AddrPortFrom(e.Addr, p.Number))
		})
	})
}
