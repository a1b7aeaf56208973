package kubezone

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// External configures names for clients outside the cluster: SERVICE.NAMESPACE.ZONE for
// Services, and the names that Services, Ingresses, Gateways and HTTPRoutes have, as far
// as they are in one of the zones. They have the addresses that load balancers reported,
// or an alias to their name.
type External struct {
	// Zones are their domains; names in none of them are left out.
	Zones []dnsname.Name
	// Ingresses and Gateways have names besides Services.
	Ingresses, Gateways bool
	// Addresses are those of the name server ns.dns.ZONE, as clients outside reach it.
	Addresses []netip.Addr
}

// kinds returns the kinds that the names depend on.
func (e *External) kinds() (kinds []cluster.Kind) {
	if len(e.Zones) == 0 {
		return nil
	}
	kinds = append(kinds, cluster.KindService)
	if e.Ingresses {
		kinds = append(kinds, cluster.KindIngress)
	}
	if e.Gateways {
		kinds = append(kinds, cluster.KindGateway, cluster.KindHTTPRoute)
	}
	return kinds
}

// compileHosts compiles the names in external zones that the changes may have changed.
func (p *pass) compileHosts(changed cluster.Changes) {
	hosts := make(map[dnsname.Name]struct{})
	add := func(text string) {
		if name, err := dnsname.Parse(text); err == nil {
			hosts[name] = struct{}{}
		}
	}
	for host := range changed.Hosts {
		add(host)
	}
	for ref := range changed.Objects {
		switch ref.Kind {
		case cluster.KindService:
			p.addServiceHosts(hosts, ref.Key)
		case cluster.KindGateway:
			for _, route := range cluster.RoutesByGateway.Get(p.View, ref.Key) {
				for _, host := range route.Hosts {
					add(host)
				}
			}
		}
	}
	if changed.Everything {
		p.eachHost(add)
		for s := range p.Services() {
			if s.External != nil {
				p.addServiceHosts(hosts, s.Key)
			}
		}
	}
	for name := range hosts {
		p.compileHost(name)
	}
}

// eachHost calls add with all names of all objects.
func (p *pass) eachHost(add func(string)) {
	for host := range cluster.ServicesByHost.Keys(p.View) {
		add(host)
	}
	for host := range cluster.IngressesByHost.Keys(p.View) {
		add(host)
	}
	for host := range cluster.GatewaysByHost.Keys(p.View) {
		add(host)
	}
	for host := range cluster.RoutesByHost.Keys(p.View) {
		add(host)
	}
}

// addServiceHosts adds SERVICE.NAMESPACE.ZONE for each zone.
func (p *pass) addServiceHosts(hosts map[dnsname.Name]struct{}, key cluster.Key) {
	for _, z := range p.cfg.External.Zones {
		if name, ok := below(z, key.Namespace, key.Name); ok {
			hosts[name] = struct{}{}
		}
	}
}

// compileHost compiles a name, which has a subtree of its own, from all objects that it
// is a name of.
func (p *pass) compileHost(name dnsname.Name) {
	z, ok := p.externalZone(name)
	if !ok || hasUnderscore(name) {
		return
	}
	p.beginSubtree(name)
	loaded := p.Loaded(p.externalKinds...)
	server, _ := below(z, nameServer...)
	switch name {
	case server: // objects cannot claim it
		p.Metadata.Exists = true
		for _, addr := range p.cfg.External.Addresses {
			p.AddAddr(addr)
		}
	case z:
		p.addExternalApex(z, loaded)
		if loaded { // the apex cannot be an alias
			for _, addr := range p.placesOf(name, z).addresses {
				p.AddAddr(addr)
			}
		}
	default:
		if loaded {
			p.addPlaces(name, p.placesOf(name, z))
		}
	}
	p.putSubtree()
}

// hasUnderscore reports whether a label begins with an underscore: such names are those
// of ports (RFC 8552).
func hasUnderscore(name dnsname.Name) bool {
	for ; !name.IsRoot(); name = name.Parent() {
		if strings.HasPrefix(name.Label(), "_") {
			return true
		}
	}
	return false
}

// externalZone returns the zone that contains a name.
func (p *pass) externalZone(name dnsname.Name) (z dnsname.Name, ok bool) {
	i := slices.IndexFunc(p.cfg.External.Zones, name.IsSubdomainOf)
	if i < 0 {
		return z, false
	}
	return p.cfg.External.Zones[i], true
}

func (p *pass) addExternalApex(z dnsname.Name, loaded bool) {
	if server, ok := below(z, nameServer...); ok {
		p.addName(dnswire.TypeNS, server)
	}
	if !loaded {
		p.Metadata.Below = notLoaded
	}
	p.Metadata.Stale = p.staleMetadata(p.externalKinds)
}

// places are what a name leads to.
type places struct {
	addresses []netip.Addr
	targets   []string
	service   *cluster.Service // that the name is derived from; nil for none
}

func (l *places) add(e *cluster.External) {
	l.addresses, l.targets = append(l.addresses, e.Addresses...), append(l.targets, e.Targets...)
}

// placesOf collects the places of all objects that a name in zone z is a name of.
func (p *pass) placesOf(name, z dnsname.Name) (l places) {
	host := strings.TrimSuffix(name.String(), ".")
	if name.Labels() == z.Labels()+2 {
		key := cluster.Key{Namespace: name.Parent().Label(), Name: name.Label()}
		if s := p.Service(key); s != nil && s.External != nil {
			l.service = s
			l.add(s.External)
		}
	}
	for _, s := range cluster.ServicesByHost.Get(p.View, host) {
		l.add(s.External)
	}
	if p.cfg.External.Ingresses {
		for _, f := range cluster.IngressesByHost.Get(p.View, host) {
			l.add(&f.External)
		}
	}
	if !p.cfg.External.Gateways {
		return l
	}
	for _, f := range cluster.GatewaysByHost.Get(p.View, host) {
		l.add(&f.External)
	}
	for _, r := range cluster.RoutesByHost.Get(p.View, host) {
		for _, key := range r.Gateways {
			if g := cluster.Gateways.Get(p.View, key); g != nil {
				l.add(&g.External)
			}
		}
	}
	return l
}

// addPlaces adds the addresses, or the alias if there are only names, and the SRV records
// of the Service's ports.
func (p *pass) addPlaces(name dnsname.Name, l places) {
	for _, addr := range l.addresses {
		p.AddAddr(addr)
	}
	target := name
	if len(l.addresses) == 0 {
		var ok bool
		if target, ok = firstTarget(l.targets); !ok || target == name {
			return
		}
		p.addName(dnswire.TypeCNAME, target)
	}
	if l.service == nil {
		return
	}
	wire := target.AppendWire(p.target[:0])
	for _, port := range l.service.Ports {
		rdata := dnswire.AppendSRV(p.rdata[:0], srvPriority, srvWeight, port.Number, wire)
		if target == name { // no records beside an alias
			p.Add(dnswire.TypeSRV, rdata)
		}
		if port.Name != "" {
			p.Add(dnswire.TypeSRV, rdata, "_"+port.Name, "_"+string(port.Protocol))
		}
	}
}

// firstTarget returns the first valid name, in their order as text.
func firstTarget(targets []string) (dnsname.Name, bool) {
	slices.SortFunc(targets, cmp.Compare[string])
	for _, text := range targets {
		if name, err := dnsname.Parse(text); err == nil && !name.IsRoot() {
			return name, true
		}
	}
	return dnsname.Name{}, false
}
