package kubezone

import (
	"net/netip"
	"runtime"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/parallel"
)

// Labels of the specification's names, and of the name server's.
const (
	labelService = "svc"
	labelPod     = "pod"
	labelVersion = "dns-version"
)

var nameServer = []string{"dns", "ns"} // ns.dns.Z, outermost first

// everything compiles all objects, on all processors.
func (p *pass) everything() {
	for n := range p.Namespaces() {
		p.namespace(n.Name)
	}
	passes := []*pass{p}
	for len(passes) < runtime.GOMAXPROCS(0) {
		passes = append(passes, p.pass(p.View, func() {}))
	}
	services := slices.Collect(p.Services())
	parallel.EachBy(len(passes), len(services), func(worker, i int) { passes[worker].service(services[i].Key) })
	if p.cfg.Pods == PodsVerified {
		pods := slices.Collect(p.Pods())
		parallel.EachBy(len(passes), len(pods), func(worker, i int) { passes[worker].pod(pods[i].Key) })
	}
	for _, other := range passes[1:] {
		made := other.end()
		p.changes.Subtrees = append(p.changes.Subtrees, made.Subtrees...)
		p.changes.Hosts = append(p.changes.Hosts, made.Hosts...)
	}
}

// has reports whether an object is present.
func (p *pass) has(ch cluster.Ref) bool {
	switch ch.Kind {
	case cluster.KindNamespace:
		return p.Namespace(ch.Key.Name) != nil
	case cluster.KindService:
		return p.Service(ch.Key) != nil
	case cluster.KindPod:
		return p.Pod(ch.Key) != nil
	case cluster.KindEndpointSlice, cluster.KindNode:
	}
	return false
}

// cluster compiles what does not belong to one object: the apexes, the name
// server, the schema's version and the parents of Namespaces.
func (p *pass) cluster() {
	primary, _ := below(p.cfg.Zones[0], nameServer...)
	for _, z := range p.cfg.Zones {
		if server, ok := below(z, nameServer...); ok {
			p.begin(z)
			p.name(dnswire.TypeNS, server)
			p.add()
			p.nameServer(server)
		}
		// Specification, section 2.2.
		if n, ok := below(z, labelVersion); ok {
			p.base = n
			p.Begin(n, versionTTL)
			p.Add(dnswire.TypeTXT, dnswire.AppendTXT(nil, SchemaVersion))
			p.add()
		}
		if n, ok := below(z, labelService); ok {
			m := p.serviceParent()
			m.Stale = p.aged(p.serviceKinds)
			p.mark(n, m)
		}
		if n, ok := below(z, labelPod); ok {
			m := p.podParent()
			if p.cfg.Pods != PodsDisabled {
				m.Stale = p.aged(p.podKinds)
			}
			p.mark(n, m)
		}
	}
	for _, z := range p.reverse {
		p.begin(z)
		p.name(dnswire.TypeNS, primary)
		if !p.Loaded(p.reverseKinds...) {
			p.Metadata.Below = notLoaded
		}
		p.Metadata.Stale = p.aged(p.reverseKinds)
		p.add()
	}
}

// aged is what is said of names that need these kinds.
func (p *pass) aged(kinds []cluster.Kind) (worst *zone.Stale) {
	for _, k := range kinds {
		switch p.Freshness(k) {
		case cluster.Confirming:
			return confirming
		case cluster.Recalled:
			worst = recalled
		case cluster.Loading, cluster.Live:
		}
	}
	return worst
}

// mark gives a name marks, and nothing else.
func (p *pass) mark(name dnsname.Name, m zone.Metadata) {
	p.begin(name)
	p.Metadata = m
	p.add()
}

func (p *pass) nameServer(name dnsname.Name) {
	p.begin(name)
	p.Metadata.Exists = true
	addrs := p.cfg.DNSAddresses
	if s := p.Service(p.cfg.DNSService); s != nil && len(s.ClusterIPs) > 0 && p.Loaded(cluster.KindService) {
		addrs = s.ClusterIPs
	}
	for _, addr := range addrs {
		p.AddAddr(addr)
	}
	p.add()
}

func (p *pass) servicesLoaded() bool { return p.Loaded(cluster.KindNamespace, cluster.KindService) }

func (p *pass) serviceParent() zone.Metadata {
	if !p.servicesLoaded() {
		return zone.Metadata{Exists: true, Below: notLoaded}
	}
	return zone.Metadata{Exists: true, Below: noNamespace}
}

func (p *pass) podParent() zone.Metadata {
	switch {
	case p.cfg.Pods == PodsDisabled:
		return zone.Metadata{EDE: podsOff, Below: podsOff}
	case !p.Loaded(p.podKinds...):
		return zone.Metadata{Exists: true, Below: notLoaded}
	}
	return zone.Metadata{Exists: true, Below: noNamespace}
}

// namespace compiles the parents of a Namespace's names.
func (p *pass) namespace(name string) {
	exists := p.Namespace(name) != nil
	for _, z := range p.cfg.Zones {
		if n, ok := p.namespaceName(z, labelService, name); ok {
			var m zone.Metadata
			if exists && p.servicesLoaded() {
				m = zone.Metadata{Exists: true, Below: noService}
			}
			p.mark(n, m)
		}
		if n, ok := p.namespaceName(z, labelPod, name); ok {
			var m zone.Metadata
			if exists && p.Loaded(p.podKinds...) {
				m = p.podMarks()
			}
			p.mark(n, m)
		}
	}
}

// podMarks are those of the parent of a Namespace's Pods.
func (p *pass) podMarks() zone.Metadata {
	switch p.cfg.Pods {
	case PodsVerified:
		return zone.Metadata{Exists: true, Below: noPod, Children: zone.AnySpelling}
	case PodsInsecure:
		return zone.Metadata{Exists: true, Below: noPodAddress, Children: zone.Synthesized, ChildTTL: p.cfg.TTL}
	}
	return zone.Metadata{}
}

// pod compiles a Pod's names and the reverse names of its addresses.
func (p *pass) pod(key cluster.Key) {
	if p.cfg.Pods != PodsVerified {
		return
	}
	var addrs []netip.Addr
	if pod := p.Pod(key); pod != nil && !pod.Finished && p.Loaded(p.podKinds...) {
		addrs = pod.IPs
	}
	for i, z := range p.cfg.Zones {
		if parent, ok := p.namespaceName(z, labelPod, key.Namespace); ok {
			p.changes.Hosts = append(p.changes.Hosts, zone.Hosts{
				Parent: parent, Source: key.Name, Addrs: addrs, TTL: p.cfg.TTL,
				Reverse: i == 0 && p.Loaded(p.reverseKinds...), Rank: zone.Tier(tierPod, zone.Last),
			})
		}
	}
}
