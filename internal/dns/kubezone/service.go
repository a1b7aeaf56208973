package kubezone

import (
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// endpoint is one address of a ready endpoint. Its name in SRV and PTR records
// (specification, section 2.1, "hostname") is its hostname, else the name of
// its Pod, else its address; empty ones do not count.
type endpoint struct {
	addr          netip.Addr
	hostname, pod string
	ports         []cluster.Port
}

// label returns the endpoint's name; empty when that is its address.
func (e *endpoint) label() string {
	if e.hostname != "" {
		return e.hostname
	}
	return e.pod
}

// service compiles a Service and its endpoints.
func (p *pass) service(key cluster.Key) {
	s := p.Service(key)
	exists := s != nil && p.servicesLoaded()
	endpointsLoaded := p.Loaded(cluster.KindEndpointSlice)
	p.ready = p.ready[:0]
	if exists && endpointsLoaded {
		p.collect(s)
	}
	for i, z := range p.cfg.Zones {
		parent, ok := p.namespaceName(z, labelService, key.Namespace)
		if !ok {
			continue
		}
		base, ok := below(parent, key.Name)
		if !ok {
			continue
		}
		p.begin(base)
		if exists {
			sc := serviceCompiler{pass: p, Service: s, endpointsLoaded: endpointsLoaded}
			sc.forward()
			if i == 0 && p.Loaded(p.reverseKinds...) {
				sc.reverse()
			}
		}
		p.add()
	}
}

// collect merges the ready endpoints of all slices (specification, section
// 2.1, "ready"). Duplicates are dropped where they become records.
func (p *pass) collect(s *cluster.Service) {
	for _, slice := range p.SlicesOf(s.Key) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if !e.Ready && !s.PublishNotReady {
				continue
			}
			made := endpoint{addr: e.Addr, hostname: e.Hostname, ports: slice.Ports}
			if p.cfg.EndpointPodNames && isLabel(e.Pod) {
				made.pod = e.Pod
			}
			p.ready = append(p.ready, made)
		}
	}
}

// isLabel reports whether a Pod's name, which may have dots, is one label.
func isLabel(name string) bool {
	return name != "" && len(name) <= dnsname.MaxLabel && !strings.Contains(name, ".")
}

// serviceCompiler compiles one Service under one zone.
type serviceCompiler struct {
	*pass // whose ready endpoints are the Service's
	*cluster.Service
	endpointsLoaded bool
}

func (sc *serviceCompiler) forward() {
	sc.Metadata = zone.Metadata{Below: noEndpoint, Underscored: noPort}
	if !sc.endpointsLoaded {
		sc.Metadata.Below = notLoaded
	}
	switch {
	case sc.ExternalName != "":
		sc.external()
	case sc.Headless:
		sc.headless()
	default:
		sc.clusterIP()
	}
	sc.endpointNames()
}

// external: specification, section 2.5.
func (sc *serviceCompiler) external() {
	target, err := dnsname.Parse(sc.ExternalName)
	switch _, notAddr := netip.ParseAddr(strings.TrimSuffix(sc.ExternalName, ".")); {
	case notAddr == nil:
		sc.deny(targetAddress)
	case err != nil:
		sc.deny(targetInvalid)
	default:
		sc.Add(dnswire.TypeCNAME, target.AppendWire(nil))
	}
}

// deny says why the Service's own name does not exist, and what is below it.
// While endpoints are not loaded there is no denial: they might make it exist.
func (sc *serviceCompiler) deny(n *zone.EDE) {
	if !sc.endpointsLoaded {
		n = notLoaded
	}
	sc.Metadata = zone.Metadata{EDE: n, Below: n}
}

// clusterIP: specification, sections 2.3.1 and 2.3.2. A Service that waits for
// its address exists without one.
func (sc *serviceCompiler) clusterIP() {
	sc.Metadata.Exists = true
	if len(sc.ClusterIPs) == 0 {
		sc.Metadata.EDE = noAddress
	}
	for _, addr := range sc.ClusterIPs {
		sc.AddAddr(addr)
	}
	if target, ok := sc.AppendName(sc.target[:0]); ok {
		sc.ports(sc.Ports, target)
	}
}

// headless: specification, sections 2.4.1 and 2.4.2.
func (sc *serviceCompiler) headless() {
	if len(sc.ready) == 0 {
		sc.deny(noneReady(sc.endpoints()))
		return
	}
	for i := range sc.ready {
		e := &sc.ready[i]
		sc.AddAddr(e.addr)
		if target, ok := sc.appendEndpoint(sc.target[:0], e); ok {
			sc.ports(e.ports, target)
		}
	}
}

// appendEndpoint appends the name of e in wire form.
func (sc *serviceCompiler) appendEndpoint(wire []byte, e *endpoint) (appended []byte, ok bool) {
	if label := e.label(); label != "" {
		return sc.AppendName(wire, label)
	}
	return sc.AppendHostName(wire, e.addr)
}

// endpoints counts the addresses of all endpoints, ready or not.
func (sc *serviceCompiler) endpoints() int {
	all := make(map[netip.Addr]struct{})
	for _, slice := range sc.SlicesOf(sc.Key) {
		for i := range slice.Endpoints {
			all[slice.Endpoints[i].Addr] = struct{}{}
		}
	}
	return len(all)
}

// ports adds the SRV records of ports: at the Service's name and, when a port
// has a name, at its own. A port of an endpoint without number has none.
func (sc *serviceCompiler) ports(ports []cluster.Port, target []byte) {
	for i := range ports {
		p := &ports[i]
		if p.Number == 0 && sc.Headless {
			continue
		}
		rdata := dnswire.AppendSRV(sc.rdata[:0], srvPriority, srvWeight, p.Number, target)
		sc.Add(dnswire.TypeSRV, rdata)
		if p.Name != "" {
			sc.Add(dnswire.TypeSRV, rdata, "_"+p.Name, "_"+string(p.Protocol))
		}
	}
}

// endpointNames: specification, section 2.4.1, for every Service.
func (sc *serviceCompiler) endpointNames() {
	if len(sc.ready) > 0 {
		sc.Metadata.Children = zone.AnySpelling
	}
	for i := range sc.ready {
		e := &sc.ready[i]
		sc.AddHost(e.addr)
		if e.hostname != "" {
			sc.AddAddr(e.addr, e.hostname)
		}
		if e.pod != "" {
			sc.AddAddr(e.addr, e.pod)
		}
	}
}

// reverse: specification, sections 2.3.3 and 2.4.3.
func (sc *serviceCompiler) reverse() {
	for _, addr := range sc.ClusterIPs {
		sc.AddPTR(addr, zone.Tier(tierClusterIP, zone.First))
	}
	tier := uint8(tierEndpoint)
	if sc.Headless {
		tier = tierHeadless
	}
	for i := range sc.ready {
		e := &sc.ready[i]
		switch label := e.label(); {
		case label == "":
			sc.AddHostPTR(e.addr, zone.Tier(tier, zone.Last))
		case e.hostname == "":
			sc.AddPTR(e.addr, zone.Tier(tier, zone.Last), label)
		default:
			sc.AddPTR(e.addr, zone.Tier(tier, zone.First), label)
		}
	}
}
