package kubezone

import (
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/zone"
)

// endpoint is one address of a ready endpoint.
type endpoint struct {
	addr netip.Addr
	// names are the labels that it has beside its address, the first of which
	// is its name; explicit tells that the first is its hostname.
	names    []string
	explicit bool
	ports    []cluster.Port
}

// name is the endpoint's name in SRV and PTR records: the specification's
// hostname (section 2.1).
func (e *endpoint) name() string {
	if len(e.names) > 0 {
		return e.names[0]
	}
	return dnsname.DashedAddr(e.addr)
}

// service compiles a Service and its endpoints.
func (c *Compiler) service(v *cluster.View, key cluster.Key) zone.Contribution {
	s := v.Service(key)
	if s == nil || !c.servicesLoaded(v) {
		return zone.Contribution{}
	}
	sc := &serviceCompiler{records: records{ttl: c.cfg.TTL}, Service: s, podNames: c.cfg.EndpointPodNames}
	sc.endpointsLoaded = v.Loaded(cluster.KindEndpointSlice)
	if sc.endpointsLoaded {
		sc.collect(v.SlicesOf(key))
	}
	for i, z := range c.cfg.Zones {
		base, ok := below(z, labelService, s.Namespace, s.Name)
		if !ok {
			continue
		}
		sc.base = base
		sc.forward()
		if i == 0 && v.Loaded(c.reverseKinds...) {
			sc.reverse()
		}
	}
	return sc.Contribution()
}

// serviceCompiler compiles one Service under one zone after another.
type serviceCompiler struct {
	records
	*cluster.Service
	podNames bool         // endpoints have their Pods' names
	base     dnsname.Name // of the Service, in the zone in hand

	endpointsLoaded bool
	ready           []endpoint
	addresses       int // of all endpoints, ready or not
}

// collect merges the endpoints of all slices (specification, section 2.1,
// "ready"). Duplicates are dropped where they become records.
func (sc *serviceCompiler) collect(slices []*cluster.EndpointSlice) {
	all := make(map[netip.Addr]struct{})
	for _, slice := range slices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			for _, addr := range e.Addresses {
				all[addr] = struct{}{}
			}
			if e.Ready || sc.PublishNotReady {
				sc.addReady(e, slice.Ports)
			}
		}
	}
	sc.addresses = len(all)
}

func (sc *serviceCompiler) addReady(e *cluster.Endpoint, ports []cluster.Port) {
	var names []string
	if e.Hostname != "" {
		names = append(names, e.Hostname)
	}
	if sc.podNames && isLabel(e.Pod) && e.Pod != e.Hostname {
		names = append(names, e.Pod)
	}
	for _, addr := range e.Addresses {
		sc.ready = append(sc.ready, endpoint{addr, names, e.Hostname != "", ports})
	}
}

// isLabel tells whether a Pod's name, which may have dots, is one label.
func isLabel(name string) bool {
	return name != "" && len(name) <= dnsname.MaxLabel && !strings.Contains(name, ".")
}

func (sc *serviceCompiler) forward() {
	*sc.Mark(sc.base) = zone.Marks{Below: noEndpoint, Underscored: noPort}
	if !sc.endpointsLoaded {
		sc.Mark(sc.base).Below = notLoaded
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
		sc.name(sc.base, dnswire.TypeCNAME, target)
	}
}

// deny says why the Service's own name does not exist, and what is below it.
// While endpoints are not loaded there is no denial: they might make it exist.
func (sc *serviceCompiler) deny(n *zone.Note) {
	if !sc.endpointsLoaded {
		n = notLoaded
	}
	*sc.Mark(sc.base) = zone.Marks{Note: n, Below: n}
}

// clusterIP: specification, sections 2.3.1 and 2.3.2. A Service that waits for
// its address exists without one.
func (sc *serviceCompiler) clusterIP() {
	sc.Mark(sc.base).Exists = true
	if len(sc.ClusterIPs) == 0 {
		sc.Mark(sc.base).Note = noAddress
	}
	for _, addr := range sc.ClusterIPs {
		sc.addr(sc.base, addr)
	}
	for _, p := range sc.Ports {
		sc.port(p, sc.base)
	}
}

// headless: specification, sections 2.4.1 and 2.4.2.
func (sc *serviceCompiler) headless() {
	if len(sc.ready) == 0 {
		sc.deny(noneReady(sc.addresses))
		return
	}
	for i := range sc.ready {
		e := &sc.ready[i]
		sc.addr(sc.base, e.addr)
		child(sc.base, e.name(), func(target dnsname.Name) {
			for _, p := range e.ports {
				if p.Number != 0 {
					sc.port(p, target)
				}
			}
		})
	}
}

// port adds the SRV records of a port: at the Service's name and, when the
// port has a name, at its own.
func (sc *serviceCompiler) port(p cluster.Port, target dnsname.Name) {
	sc.srv(sc.base, p.Number, target)
	if p.Name == "" {
		return
	}
	if name, ok := below(sc.base, "_"+string(p.Protocol), "_"+p.Name); ok {
		sc.srv(name, p.Number, target)
	}
}

// endpointNames: specification, section 2.4.1, for every Service.
func (sc *serviceCompiler) endpointNames() {
	if len(sc.ready) > 0 {
		sc.Mark(sc.base).Children = zone.AnySpelling
	}
	for i := range sc.ready {
		e := &sc.ready[i]
		add := func(n dnsname.Name) { sc.addr(n, e.addr) }
		child(sc.base, dnsname.DashedAddr(e.addr), add)
		for _, label := range e.names {
			child(sc.base, label, add)
		}
	}
}

// reverse: specification, sections 2.3.3 and 2.4.3.
func (sc *serviceCompiler) reverse() {
	for _, addr := range sc.ClusterIPs {
		sc.ptr(addr, zone.Tier(tierClusterIP, zone.First), sc.base)
	}
	tier := uint8(tierEndpoint)
	if sc.Headless {
		tier = tierHeadless
	}
	for i := range sc.ready {
		e := &sc.ready[i]
		order := zone.Last
		if e.explicit {
			order = zone.First
		}
		child(sc.base, e.name(), func(target dnsname.Name) {
			sc.ptr(e.addr, zone.Tier(tier, order), target)
		})
	}
}
