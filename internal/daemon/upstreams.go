package daemon

import (
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
)

// newOthers makes what asks other servers, where the configuration has any. What
// the answers before had is kept where its settings are the same.
func (d *Daemon) newOthers(cfg config.Config, a, before *answers) (err error) {
	if len(a.settings.DNS.Routes) == 0 {
		return nil
	}
	a.asks = asks{cfg.DNS.Forward, cfg.DNS.Cache, cfg.DNS.Listen, cfg.DNS.NameServer, cfg.DNS.Autopath.Option, cfg.DNS.Zones, cfg.Node}
	if before != nil && reflect.DeepEqual(a.asks, before.asks) {
		a.others, a.cache = before.others, before.cache
		return nil
	}
	if a.cache, err = cache.New(a.settings.DNS.Cache); err != nil {
		return err
	}
	routes := slices.Clone(a.settings.DNS.Routes)
	for i := range routes {
		routes[i].IsOwn = func(server netip.AddrPort) bool { return d.isOwn(cfg, a.settings, server) }
	}
	a.others, err = forward.New(forward.Config{
		Routes:       routes,
		Cache:        a.cache,
		SearchZone:   a.settings.DNS.Zone.Zones[0],
		SearchOption: dnswire.OptionCode(cfg.DNS.Autopath.Option),
		MaxInFlight:  cfg.DNS.Forward.MaxInFlight,
		MaxPerClient: cfg.DNS.Forward.MaxInFlightPerClient,
		StaleAfter:   time.Duration(cfg.DNS.Cache.StaleAfter),
	})
	return err
}

// asks are the settings that decide who is asked for other names.
type asks struct {
	forward    config.Forward
	cache      config.Cache
	listen     []string
	nameServer config.NameServer
	option     int
	zones      []string
	node       config.Node
}

// isOwn tells whether a server is this one: it is listened on there, or it is
// the DNS Service, which leads here as well.
func (d *Daemon) isOwn(cfg config.Config, settings *config.Compiled, server netip.AddrPort) bool {
	addr := server.Addr().WithZone("")
	for _, l := range settings.DNS.Listen {
		if l.Port() == server.Port() && (l.Addr() == addr || l.Addr().IsUnspecified() && isLocal(addr)) {
			return true
		}
	}
	if len(cfg.DNS.NameServer.Addresses) > 0 && slices.Contains(settings.DNS.Zone.DNSAddresses, addr) {
		return true
	}
	own := false
	d.store.View(func(v *cluster.View) {
		if s := v.Service(settings.DNS.Zone.DNSService); s != nil {
			own = slices.Contains(s.ClusterIPs, addr)
		}
	})
	return own
}

// isLocal tells whether an interface of this host has the address.
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
