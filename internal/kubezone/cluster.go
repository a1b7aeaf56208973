package kubezone

import (
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/zone"
)

// Labels of the specification's names, and of the name server's.
const (
	labelService = "svc"
	labelPod     = "pod"
	labelVersion = "dns-version"
)

var nameServer = []string{"dns", "ns"} // ns.dns.Z, outermost first

// cluster compiles what does not belong to one object: the apexes, the name
// server, the schema's version and the parents of Namespaces.
func (c *Compiler) cluster(v *cluster.View) zone.Contribution {
	r := &records{ttl: c.cfg.TTL}
	primary, _ := below(c.cfg.Zones[0], nameServer...)
	for _, z := range c.cfg.Zones {
		if server, ok := below(z, nameServer...); ok {
			r.name(z, dnswire.TypeNS, server)
			r.Mark(server).Exists = true
			for _, addr := range c.serverAddresses(v) {
				r.addr(server, addr)
			}
		}
		// Specification, section 2.2.
		child(z, labelVersion, func(n dnsname.Name) {
			r.Add(n, dnswire.TypeTXT, versionTTL, dnswire.AppendTXT(nil, SchemaVersion))
		})
		child(z, labelService, func(n dnsname.Name) {
			*r.Mark(n) = zone.Marks{Exists: true, Below: noNamespace}
			if !c.servicesLoaded(v) {
				r.Mark(n).Below = notLoaded
			}
			r.Mark(n).Aged = aged(v, c.serviceKinds)
		})
		child(z, labelPod, func(n dnsname.Name) {
			*r.Mark(n) = c.podParent(v)
			r.Mark(n).Aged = aged(v, c.podKinds)
		})
	}
	for _, z := range c.reverse {
		r.name(z, dnswire.TypeNS, primary)
		if !v.Loaded(c.reverseKinds...) {
			r.Mark(z).Below = notLoaded
		}
		if g := aged(v, c.reverseKinds); g != nil {
			r.Mark(z).Aged = g
		}
	}
	return r.Contribution()
}

// aged is what is said of names that need these kinds.
func aged(v *cluster.View, kinds []cluster.Kind) (worst *zone.Aged) {
	for _, k := range kinds {
		switch v.Freshness(k) {
		case cluster.Confirming:
			return confirming
		case cluster.Recalled:
			worst = recalled
		case cluster.Loading, cluster.Live:
		}
	}
	return worst
}

func (c *Compiler) serverAddresses(v *cluster.View) []netip.Addr {
	if s := v.Service(c.cfg.DNSService); s != nil && len(s.ClusterIPs) > 0 {
		return s.ClusterIPs
	}
	return c.cfg.DNSAddresses
}

func (c *Compiler) servicesLoaded(v *cluster.View) bool {
	return v.Loaded(cluster.KindNamespace, cluster.KindService)
}

func (c *Compiler) podParent(v *cluster.View) zone.Marks {
	switch {
	case c.cfg.Pods == PodsDisabled:
		return zone.Marks{Note: podsOff, Below: podsOff}
	case !v.Loaded(c.podKinds...):
		return zone.Marks{Exists: true, Below: notLoaded}
	}
	return zone.Marks{Exists: true, Below: noNamespace}
}

// namespace compiles the parents of a Namespace's names.
func (c *Compiler) namespace(v *cluster.View, name string) zone.Contribution {
	r := &records{ttl: c.cfg.TTL}
	if v.Namespace(name) == nil {
		return zone.Contribution{}
	}
	for _, z := range c.cfg.Zones {
		if n, ok := below(z, labelService, name); ok && c.servicesLoaded(v) {
			*r.Mark(n) = zone.Marks{Exists: true, Below: noService}
		}
		if n, ok := below(z, labelPod, name); ok && c.cfg.Pods != PodsDisabled && v.Loaded(c.podKinds...) {
			*r.Mark(n) = zone.Marks{Exists: true, Below: noPod, Children: zone.AnySpelling}
			if c.cfg.Pods == PodsInsecure {
				*r.Mark(n) = zone.Marks{Exists: true, Below: noPodAddress, Children: zone.Synthesized, ChildTTL: c.cfg.TTL}
			}
		}
	}
	return r.Contribution()
}

// pod compiles a Pod's names and the reverse names of its addresses.
func (c *Compiler) pod(v *cluster.View, key cluster.Key) zone.Contribution {
	p := v.Pod(key)
	if p == nil || p.Finished || !v.Loaded(c.podKinds...) {
		return zone.Contribution{}
	}
	r := &records{ttl: c.cfg.TTL}
	for i, z := range c.cfg.Zones {
		for _, addr := range p.IPs {
			name, ok := below(z, labelPod, p.Namespace, dnsname.DashedAddr(addr))
			if !ok {
				continue
			}
			r.addr(name, addr)
			if i == 0 && v.Loaded(c.reverseKinds...) {
				r.ptr(addr, zone.Tier(tierPod, zone.Last), name)
			}
		}
	}
	return r.Contribution()
}
