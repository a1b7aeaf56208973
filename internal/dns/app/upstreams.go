package app

import (
	"crypto/x509"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

// forwardFor sets the forwarder, if the configuration has routes. It reuses that of
// before if the settings are the same.
func (d *DNS) forwardFor(root config.Config, a, before *answers) (err error) {
	if len(a.settings.DNS.Routes) == 0 {
		return nil
	}
	cfg := root.DNS
	a.forwarded = forwardSettings{
		cfg.Forward, cfg.Cache, cfg.Listen, cfg.NameServer, cfg.Autopath.Option, cfg.Zones, root.Node,
	}
	if before != nil && reflect.DeepEqual(a.forwarded, before.forwarded) && a.hasRootsOf(before) {
		a.upstreams, a.cache = before.upstreams, before.cache
		return nil
	}
	if a.cache, err = cache.New(a.settings.DNS.Cache); err != nil {
		return err
	}
	routes := slices.Clone(a.settings.DNS.Routes)
	for i := range routes {
		routes[i].IsOwn = func(server netip.AddrPort) bool { return d.isOwn(cfg, a.settings, server) }
	}
	a.upstreams, err = forward.New(forward.Config{
		Routes:       routes,
		Cache:        a.cache,
		SearchZone:   a.settings.DNS.Zone.Zones[0],
		SearchOption: dnswire.OptionCode(cfg.Autopath.Option),
		MaxInFlight:  cfg.Forward.MaxInFlight,
		MaxPerClient: cfg.Forward.MaxInFlightPerClient,
		StaleAfter:   time.Duration(cfg.Cache.StaleAfter),
	})
	return err
}

// hasRootsOf reports whether the certificate authorities of all upstreams are those of
// before. Their files may have changed, although the settings did not.
func (a *answers) hasRootsOf(before *answers) bool {
	roots := func(a *answers) (all []*x509.CertPool) {
		for i := range a.settings.DNS.Routes {
			for _, u := range a.settings.DNS.Routes[i].Upstreams {
				all = append(all, u.Roots)
			}
		}
		return all
	}
	return slices.EqualFunc(roots(a), roots(before), (*x509.CertPool).Equal)
}

// forwardSettings are the settings that forwarding depends on.
type forwardSettings struct {
	forward    dnssettings.Forward
	cache      dnssettings.Cache
	listen     []string
	nameServer dnssettings.NameServer
	option     int
	zones      []string
	node       dnssettings.Node
}

// isOwn reports whether server is this server: an address that it listens on, or the
// cluster IP of the DNS Service.
func (d *DNS) isOwn(cfg dnssettings.DNS, settings *config.Compiled, server netip.AddrPort) bool {
	addr := server.Addr().WithZone("")
	for _, l := range settings.DNS.Listen {
		if l.Port() == server.Port() && (l.Addr() == addr || l.Addr().IsUnspecified() && isLocal(addr)) {
			return true
		}
	}
	if len(cfg.NameServer.Addresses) > 0 && slices.Contains(settings.DNS.Zone.DNSAddresses, addr) {
		return true
	}
	own := false
	d.cfg.Store.View(func(v *cluster.View) {
		if s := v.Service(settings.DNS.Zone.DNSService); s != nil {
			own = slices.Contains(s.ClusterIPs, addr)
		}
	})
	return own
}

// isLocal reports whether an interface of this host has the address.
func isLocal(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr() == addr {
			return true
		}
	}
	return false
}
