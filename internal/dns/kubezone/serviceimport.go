package kubezone

import (
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// MulticlusterVersion is the version of Kubernetes DNS-Based Multicluster Service
// Discovery (KEP-1645, specification.md) that names of ServiceImports follow.
const MulticlusterVersion = "1.0.0"

// compileMulticluster compiles the names of the domain of ServiceImports that belong to
// no object: the apex, dns-version (specification, section 2.2) and svc.M.
func (p *pass) compileMulticluster(server dnsname.Name) {
	apex := p.cfg.Multicluster
	p.beginSubtree(apex)
	p.addName(dnswire.TypeNS, server)
	p.putSubtree()
	if n, ok := below(apex, labelVersion); ok {
		p.base = n
		p.Begin(n, versionTTL)
		p.Add(dnswire.TypeTXT, dnswire.AppendTXT(nil, MulticlusterVersion))
		p.putSubtree()
	}
	if n, ok := below(apex, labelService); ok {
		m := zone.Metadata{Exists: true, Below: noNamespace}
		if !p.importsLoaded() {
			m.Below = notLoaded
		}
		m.Stale = p.staleMetadata(p.importKinds)
		p.putMetadata(n, m)
	}
}

func (p *pass) importsLoaded() bool {
	return p.Loaded(cluster.KindNamespace, cluster.KindServiceImport)
}

// compileImportNamespace compiles NAMESPACE.svc.M.
func (p *pass) compileImportNamespace(name string) {
	n, ok := p.namespaceName(p.cfg.Multicluster, labelService, name)
	if !ok {
		return
	}
	var m zone.Metadata
	if p.Namespace(name) != nil && p.importsLoaded() {
		m = zone.Metadata{Exists: true, Below: noImport}
	}
	p.putMetadata(n, m)
}

// compileServiceImport compiles a ServiceImport and its endpoints.
func (p *pass) compileServiceImport(key cluster.Key) {
	if !p.isMulticluster() {
		return
	}
	parent, ok := p.namespaceName(p.cfg.Multicluster, labelService, key.Namespace)
	if !ok {
		return
	}
	base, ok := below(parent, key.Name)
	if !ok {
		return
	}
	p.beginSubtree(base)
	if s := cluster.ServiceImports.Get(p.View, key); s != nil && p.importsLoaded() {
		p.Metadata = zone.Metadata{Below: noEndpoint, Underscored: noPort}
		if s.Headless {
			p.addHeadlessImport(s)
		} else {
			p.addClusterSetIPs(s)
		}
	}
	p.putSubtree()
}

// addClusterSetIPs adds the records of a ServiceImport with clusterset IPs
// (specification, section 2.3). Its endpoints have no names (section 2.3.4).
func (p *pass) addClusterSetIPs(s *cluster.ServiceImport) {
	p.Metadata.Exists = true
	if len(s.IPs) == 0 {
		p.Metadata.EDE = noAddress
	}
	for _, addr := range s.IPs {
		p.AddAddr(addr)
		if p.Loaded(p.reverseKinds...) {
			p.AddPTR(addr, zone.Tier(tierImport, zone.First))
		}
	}
	if target, ok := p.AppendName(p.target[:0]); ok {
		for _, port := range s.Ports {
			p.addSRV(port, target)
		}
	}
}

// addHeadlessImport adds the records of a headless ServiceImport (specification, section
// 2.4).
func (p *pass) addHeadlessImport(s *cluster.ServiceImport) {
	if !p.Loaded(cluster.KindEndpointSlice) {
		p.Metadata = zone.Metadata{EDE: notLoaded, Below: notLoaded}
		return
	}
	ready, all := false, make(map[netip.Addr]struct{})
	for _, slice := range cluster.SlicesByImport.Get(p.View, s.Key) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			all[e.Addr] = struct{}{}
			if e.Ready {
				ready = true
				p.addImportEndpoint(slice, e)
			}
		}
	}
	if !ready {
		none := noneReadyEDE(len(all))
		p.Metadata = zone.Metadata{EDE: none, Below: none}
	}
}

// addImportEndpoint adds the records of a ready endpoint. Without a cluster ID it has no
// name, and so no SRV and PTR records.
func (p *pass) addImportEndpoint(slice *cluster.EndpointSlice, e *cluster.Endpoint) {
	p.AddAddr(e.Addr)
	if !isLabel(slice.Cluster) {
		return
	}
	name := e.Hostname
	if name == "" {
		name = string(dnsname.AppendDashedAddr(nil, e.Addr))
	}
	p.AddAddr(e.Addr, name, slice.Cluster)
	if p.Loaded(p.reverseKinds...) {
		p.AddPTR(e.Addr, zone.Tier(tierImportEndpoint, zone.First), name, slice.Cluster)
	}
	target, ok := p.AppendName(p.target[:0], name, slice.Cluster)
	if !ok {
		return
	}
	for _, port := range slice.Ports {
		if port.Number != 0 {
			p.addSRV(port, target)
		}
	}
}

// addSRV adds the SRV records of a port at the base and, if it is named, at
// _PORT._PROTOCOL.
func (p *pass) addSRV(port cluster.Port, target []byte) {
	rdata := dnswire.AppendSRV(p.rdata[:0], srvPriority, srvWeight, port.Number, target)
	p.Add(dnswire.TypeSRV, rdata)
	if port.Name != "" {
		p.Add(dnswire.TypeSRV, rdata, "_"+port.Name, "_"+string(port.Protocol))
	}
}
