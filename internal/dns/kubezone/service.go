package kubezone

import (
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// endpoint is an address of a ready endpoint. Its name in SRV and PTR records
// (specification, section 2.1, "hostname") is its hostname, else the name of its Pod,
// else its address.
type endpoint struct {
	addr          netip.Addr
	hostname, pod string
	ports         []cluster.Port
}

// label returns the endpoint's name, or "" if that is its address.
func (e *endpoint) label() string {
	if e.hostname != "" {
		return e.hostname
	}
	return e.pod
}

// compileService compiles a Service and its endpoints.
func (p *pass) compileService(key cluster.Key) {
	s := p.Service(key)
	exists := s != nil && p.servicesLoaded()
	endpointsLoaded := p.Loaded(cluster.KindEndpointSlice)
	p.ready = p.ready[:0]
	if exists && endpointsLoaded {
		p.collectReady(s)
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
		p.beginSubtree(base)
		if exists {
			sc := serviceCompiler{pass: p, Service: s, endpointsLoaded: endpointsLoaded}
			sc.addForward()
			if i == 0 && p.Loaded(p.reverseKinds...) {
				sc.addReverse()
			}
		}
		p.putSubtree()
	}
}

// collectReady collects the ready endpoints of all slices (specification, section 2.1,
// "ready"). zone.Builder drops duplicates.
func (p *pass) collectReady(s *cluster.Service) {
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

// isLabel reports whether a Pod's name is a single label. Such names may contain dots.
func isLabel(name string) bool {
	return name != "" && len(name) <= dnsname.MaxLabel && !strings.Contains(name, ".")
}

// serviceCompiler compiles one Service in one zone.
type serviceCompiler struct {
	*pass // with the Service's ready endpoints
	*cluster.Service
	endpointsLoaded bool
}

// addForward adds all records except PTR records.
func (sc *serviceCompiler) addForward() {
	sc.Metadata = zone.Metadata{Below: noEndpoint, Underscored: noPort}
	if !sc.endpointsLoaded {
		sc.Metadata.Below = notLoaded
	}
	switch {
	case sc.ExternalName != "":
		sc.addExternalName()
	case sc.Headless:
		sc.addHeadless()
	default:
		sc.addClusterIPs()
	}
	sc.addEndpointNames()
}

// addExternalName adds the CNAME record of an ExternalName Service (specification,
// section 2.5).
func (sc *serviceCompiler) addExternalName() {
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

// deny sets the error with which the Service's name and the names below it are denied.
// While endpoints are not loaded, these names are not denied, because they may exist.
func (sc *serviceCompiler) deny(n *zone.EDE) {
	if !sc.endpointsLoaded {
		n = notLoaded
	}
	sc.Metadata = zone.Metadata{EDE: n, Below: n}
}

// addClusterIPs adds the records of a Service with cluster IPs (specification, sections
// 2.3.1 and 2.3.2). The name of a Service without an address yet exists.
func (sc *serviceCompiler) addClusterIPs() {
	sc.Metadata.Exists = true
	if len(sc.ClusterIPs) == 0 {
		sc.Metadata.EDE = noAddress
	}
	for _, addr := range sc.ClusterIPs {
		sc.AddAddr(addr)
	}
	if target, ok := sc.AppendName(sc.target[:0]); ok {
		sc.addPorts(sc.Ports, target)
	}
}

// addHeadless adds the records of a headless Service (specification, sections 2.4.1 and
// 2.4.2).
func (sc *serviceCompiler) addHeadless() {
	if len(sc.ready) == 0 {
		sc.deny(noneReadyEDE(sc.countEndpoints()))
		return
	}
	for i := range sc.ready {
		e := &sc.ready[i]
		sc.AddAddr(e.addr)
		if target, ok := sc.appendEndpoint(sc.target[:0], e); ok {
			sc.addPorts(e.ports, target)
		}
	}
}

// appendEndpoint appends the name of an endpoint in wire format.
func (sc *serviceCompiler) appendEndpoint(wire []byte, e *endpoint) (appended []byte, ok bool) {
	if label := e.label(); label != "" {
		return sc.AppendName(wire, label)
	}
	return sc.AppendHostName(wire, e.addr)
}

// countEndpoints returns the number of addresses of all endpoints, ready or not.
func (sc *serviceCompiler) countEndpoints() int {
	all := make(map[netip.Addr]struct{})
	for _, slice := range sc.SlicesOf(sc.Key) {
		for i := range slice.Endpoints {
			all[slice.Endpoints[i].Addr] = struct{}{}
		}
	}
	return len(all)
}

// addPorts adds the SRV records of ports at the Service's name and, for a named port, at
// _PORT._PROTOCOL. Ports without a number of headless Services have none.
func (sc *serviceCompiler) addPorts(ports []cluster.Port, target []byte) {
	for i := range ports {
		p := &ports[i]
		if p.Number == 0 && sc.Headless {
			continue
		}
		sc.addSRV(*p, target)
	}
}

// addEndpointNames adds the addresses at the names of endpoints (specification, section
// 2.4.1), for all Services.
func (sc *serviceCompiler) addEndpointNames() {
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

// addReverse adds PTR records (specification, sections 2.3.3 and 2.4.3).
func (sc *serviceCompiler) addReverse() {
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
