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
	"portolan.dev/portolan/internal/support/budget"
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
	if before != nil && reflect.DeepEqual(a.forwarded, before.forwarded) && areSameRoots(a.roots, before.roots) {
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
		Zones:        a.settings.DNS.Zone.Zones,
		SearchZone:   a.settings.DNS.Zone.Zones[0],
		SearchOption: dnswire.OptionCode(cfg.Autopath.Option),
		Limits:       forwardLimits(cfg.Forward),
		StaleAfter:   time.Duration(cfg.Cache.StaleAfter),
	})
	return err
}

// forwardShare is the share of the memory limit for queries that wait for upstreams, and
// forwardCost the memory of one in octets: three goroutines with their stacks, and a
// fourth with a second upstream.
const (
	forwardShare = 0.25
	forwardCost  = 24 << 10
)

// forwardLimits returns the limits of the settings, lowered to what the memory allows.
func forwardLimits(f dnssettings.Forward) budget.Limits {
	total := budget.Within(forwardShare, forwardCost, f.MaxInFlight)
	return budget.Limits{Total: total, PerSource: min(f.MaxInFlightPerClient, max(1, total/4))}
}

// rootsOf returns the certificate authorities of all upstreams. Their files may change
// although the settings do not.
func rootsOf(settings *config.Compiled) (all []*x509.CertPool) {
	for _, routes := range [][]forward.Route{settings.DNS.Routes, settings.Node.Routes} {
		for i := range routes {
			for _, u := range routes[i].Upstreams {
				all = append(all, u.Roots)
			}
		}
	}
	return all
}

// areSameRoots reports whether two lists have equal certificate authorities.
func areSameRoots(a, b []*x509.CertPool) bool { return slices.EqualFunc(a, b, (*x509.CertPool).Equal) }

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
