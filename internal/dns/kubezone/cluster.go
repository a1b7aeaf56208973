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

// Labels of names in the specification.
const (
	labelService = "svc"
	labelPod     = "pod"
	labelVersion = "dns-version"
)

var nameServer = []string{"dns", "ns"} // ns.dns.Z, the label next to Z first

// compileAll compiles all objects, on all processors.
func (p *pass) compileAll() {
	for n := range p.Namespaces() {
		p.compileNamespace(n.Name)
	}
	passes := []*pass{p}
	for len(passes) < runtime.GOMAXPROCS(0) {
		passes = append(passes, p.newPass(p.View, func() {}))
	}
	services := slices.Collect(p.Services())
	parallel.EachBy(len(passes), len(services), func(worker, i int) { passes[worker].compileService(services[i].Key) })
	if p.cfg.Pods == PodsVerified {
		pods := slices.Collect(p.Pods())
		parallel.EachBy(len(passes), len(pods), func(worker, i int) { passes[worker].compilePod(pods[i].Key) })
	}
	if p.isMulticluster() {
		for s := range cluster.ServiceImports.All(p.View) {
			p.compileServiceImport(s.Key)
		}
	}
	for _, other := range passes[1:] {
		made := other.finish()
		p.changes.Subtrees = append(p.changes.Subtrees, made.Subtrees...)
		p.changes.Hosts = append(p.changes.Hosts, made.Hosts...)
	}
}

// exists reports whether an object is in the model.
func (p *pass) exists(ch cluster.Ref) bool {
	switch ch.Kind {
	case cluster.KindNamespace:
		return p.Namespace(ch.Key.Name) != nil
	case cluster.KindService:
		return p.Service(ch.Key) != nil
	case cluster.KindPod:
		return p.Pod(ch.Key) != nil
	case cluster.KindServiceImport:
		return cluster.ServiceImports.Get(p.View, ch.Key) != nil
	case cluster.KindEndpointSlice, cluster.KindNode:
	}
	return false
}

// compileCluster compiles the names that belong to no object: the apexes, the name
// server, dns-version, svc.Z and pod.Z.
func (p *pass) compileCluster() {
	primary, _ := below(p.cfg.Zones[0], nameServer...)
	for _, z := range p.cfg.Zones {
		if server, ok := below(z, nameServer...); ok {
			p.beginSubtree(z)
			p.addName(dnswire.TypeNS, server)
			p.putSubtree()
			p.compileNameServer(server)
		}
		// Specification, section 2.2.
		if n, ok := below(z, labelVersion); ok {
			p.base = n
			p.Begin(n, versionTTL)
			p.Add(dnswire.TypeTXT, dnswire.AppendTXT(nil, SchemaVersion))
			p.putSubtree()
		}
		if n, ok := below(z, labelService); ok {
			m := p.servicesMetadata()
			m.Stale = p.staleMetadata(p.serviceKinds)
			p.putMetadata(n, m)
		}
		if n, ok := below(z, labelPod); ok {
			m := p.podZoneMetadata()
			if p.cfg.Pods != PodsDisabled {
				m.Stale = p.staleMetadata(p.podKinds)
			}
			p.putMetadata(n, m)
		}
	}
	if p.isMulticluster() {
		p.compileMulticluster(primary)
	}
	for _, z := range p.cfg.External.Zones {
		p.compileHost(z)
		if server, ok := below(z, nameServer...); ok {
			p.compileHost(server)
		}
	}
	for _, z := range p.reverse {
		p.beginSubtree(z)
		p.addName(dnswire.TypeNS, primary)
		if !p.Loaded(p.reverseKinds...) {
			p.Metadata.Below = notLoaded
		}
		p.Metadata.Stale = p.staleMetadata(p.reverseKinds)
		p.putSubtree()
	}
}

// staleMetadata returns the metadata of names that depend on the kinds; nil if none of
// these is from a snapshot.
func (p *pass) staleMetadata(kinds []cluster.Kind) (worst *zone.Stale) {
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

// putMetadata puts a subtree of one name with metadata and no records.
func (p *pass) putMetadata(name dnsname.Name, m zone.Metadata) {
	p.beginSubtree(name)
	p.Metadata = m
	p.putSubtree()
}

func (p *pass) compileNameServer(name dnsname.Name) {
	p.beginSubtree(name)
	p.Metadata.Exists = true
	addrs := p.cfg.DNSAddresses
	if s := p.Service(p.cfg.DNSService); s != nil && len(s.ClusterIPs) > 0 && p.Loaded(cluster.KindService) {
		addrs = s.ClusterIPs
	}
	for _, addr := range addrs {
		p.AddAddr(addr)
	}
	p.putSubtree()
}

func (p *pass) servicesLoaded() bool { return p.Loaded(cluster.KindNamespace, cluster.KindService) }

func (p *pass) servicesMetadata() zone.Metadata {
	if !p.servicesLoaded() {
		return zone.Metadata{Exists: true, Below: notLoaded}
	}
	return zone.Metadata{Exists: true, Below: noNamespace}
}

func (p *pass) podZoneMetadata() zone.Metadata {
	switch {
	case p.cfg.Pods == PodsDisabled:
		return zone.Metadata{EDE: podsDisabled, Below: podsDisabled}
	case !p.Loaded(p.podKinds...):
		return zone.Metadata{Exists: true, Below: notLoaded}
	}
	return zone.Metadata{Exists: true, Below: noNamespace}
}

// compileNamespace compiles NAMESPACE.svc.Z and NAMESPACE.pod.Z.
func (p *pass) compileNamespace(name string) {
	exists := p.Namespace(name) != nil
	for _, z := range p.cfg.Zones {
		if n, ok := p.namespaceName(z, labelService, name); ok {
			var m zone.Metadata
			if exists && p.servicesLoaded() {
				m = zone.Metadata{Exists: true, Below: noService}
			}
			p.putMetadata(n, m)
		}
		if n, ok := p.namespaceName(z, labelPod, name); ok {
			var m zone.Metadata
			if exists && p.Loaded(p.podKinds...) {
				m = p.podsMetadata()
			}
			p.putMetadata(n, m)
		}
	}
	if p.isMulticluster() {
		p.compileImportNamespace(name)
	}
}

// podsMetadata returns the metadata of NAMESPACE.pod.Z.
func (p *pass) podsMetadata() zone.Metadata {
	switch p.cfg.Pods {
	case PodsVerified:
		return zone.Metadata{Exists: true, Below: noPod, Children: zone.AnySpelling}
	case PodsInsecure:
		return zone.Metadata{Exists: true, Below: noPodAddress, Children: zone.Synthesized, ChildTTL: p.cfg.TTL}
	}
	return zone.Metadata{}
}

// compilePod compiles the names and reverse names of a Pod's addresses.
func (p *pass) compilePod(key cluster.Key) {
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
