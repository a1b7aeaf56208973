package compile

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// upstreams are the Service ports that rules refer to.
type upstreams struct {
	node, zone string                           // where the gateway is
	set        map[ServicePort][]netip.AddrPort // in place of the cluster's
	services   map[cluster.Key]*service
	// dirty are Services whose endpoints may have changed; gone are ports that no rule refers to any more.
	dirty map[cluster.Key]struct{}
	gone  map[table.Upstream]struct{}
}

// service is a Service that rules refer to.
type service struct {
	object *cluster.Service // nil if it does not exist
	ports  []usedPort
}

// usedPort is a port of a Service, and how many times rules refer to it.
type usedPort struct {
	table.Upstream
	users int
}

// port returns the place of a port among those that rules refer to; -1 if it is not.
func (s *service) port(up table.Upstream) int {
	return slices.IndexFunc(s.ports, func(p usedPort) bool { return p.Upstream == up })
}

// begin begins a change. With everything, or if the gateway has another zone than before, all endpoints may
// have changed.
func (u *upstreams) begin(v *cluster.View, everything bool, node string) {
	u.dirty, u.gone = make(map[cluster.Key]struct{}), make(map[table.Upstream]struct{})
	zone := ""
	if n := v.Node(node); n != nil {
		zone = n.Zone
	}
	if everything || zone != u.zone {
		for key, s := range u.services {
			if everything {
				s.object = v.Service(key)
			}
			u.dirty[key] = struct{}{}
		}
	}
	u.node, u.zone = node, zone
}

// replaced notes a change of a Service or of its endpoints, and reports whether it is one that rules must be
// compiled again for.
func (u *upstreams) replaced(v *cluster.View, key cluster.Key) bool {
	s := u.services[key]
	if s == nil {
		return true // to rules it may be one that did not exist
	}
	u.dirty[key] = struct{}{}
	was := s.object
	s.object = v.Service(key)
	return s.object != was
}

// use notes that rules refer to what their backends, mirrors and services that authorize are, and release that they do
// so no more.
func (u *upstreams) use(v *cluster.View, routes []table.Route) {
	eachUpstream(routes, func(up table.Upstream) {
		key := cluster.Key{Namespace: up.Namespace, Name: up.Service}
		s := u.services[key]
		if s == nil {
			s = &service{object: v.Service(key)}
			u.services[key] = s
		}
		n := s.port(up)
		if n < 0 {
			n, s.ports = len(s.ports), append(s.ports, usedPort{Upstream: up})
		}
		s.ports[n].users++
		u.dirty[key] = struct{}{}
		delete(u.gone, up)
	})
}

func (u *upstreams) release(routes []table.Route) {
	eachUpstream(routes, func(up table.Upstream) {
		key := cluster.Key{Namespace: up.Namespace, Name: up.Service}
		s := u.services[key]
		n := s.port(up)
		if s.ports[n].users--; s.ports[n].users > 0 {
			return
		}
		u.gone[up] = struct{}{}
		if s.ports = slices.Delete(s.ports, n, n+1); len(s.ports) == 0 {
			delete(u.services, key)
		}
	})
}

// eachUpstream calls a function for the upstreams of all rules.
func eachUpstream(routes []table.Route, do func(table.Upstream)) {
	var last *table.Rule
	of := func(a *table.Actions) {
		for i := range a.Mirrors {
			do(a.Mirrors[i].Upstream)
		}
	}
	for i := range routes {
		rule := routes[i].Rule
		if rule == last { // the rule's next match
			continue
		}
		last = rule
		of(&rule.Actions)
		if g := rule.Guard; g != nil && g.External != nil && g.External.Upstream != (table.Upstream{}) {
			do(g.External.Upstream)
		}
		for n := range rule.Backends {
			if b := &rule.Backends[n]; b.Upstream != (table.Upstream{}) {
				do(b.Upstream)
				of(&b.Actions)
			}
		}
	}
}

// endpoints returns the addresses of those that may have changed, nil for those that are gone.
func (u *upstreams) endpoints(v *cluster.View) map[table.Upstream][]netip.AddrPort {
	made := make(map[table.Upstream][]netip.AddrPort)
	for up := range u.gone {
		made[up] = nil
	}
	for key := range u.dirty {
		s := u.services[key]
		if s == nil || s.object == nil {
			continue
		}
		slicesOf := cluster.SlicesByService.Get(v, key)
		for _, p := range s.ports {
			if made[p.Upstream] = u.setFor(p.Upstream); made[p.Upstream] == nil {
				made[p.Upstream] = u.of(s.object, slicesOf, p.Upstream)
			}
		}
	}
	return made
}

// setFor returns the endpoints that are set for a port, or for all of its Service; nil if none are.
func (u *upstreams) setFor(up table.Upstream) []netip.AddrPort {
	for _, port := range []uint16{up.Port, 0} {
		if all := u.set[ServicePort{up.Namespace, up.Service, port}]; all != nil {
			return all
		}
	}
	return nil
}

// endpoint is an endpoint of a port of a Service.
type endpoint struct {
	addr                        netip.AddrPort
	ready, serving, terminating bool
	place                       *cluster.Place
}

// noPlace is the place of endpoints whose slice has none.
var noPlace cluster.Place

// of returns the addresses of a port of a Service: of the Service's first family that has any, the ready ones
// that are nearest, else those that serve while they terminate (KEP-1669).
func (u *upstreams) of(s *cluster.Service, all []*cluster.EndpointSlice, up table.Upstream) []netip.AddrPort {
	found := []netip.AddrPort{} // not nil, which is no Upstream
	transport := transportProtocol(up.Protocol)
	n := slices.IndexFunc(s.Ports, func(p cluster.Port) bool { return p.Number == up.Port && p.Protocol == transport })
	if n < 0 {
		return found
	}
	families := []cluster.AddressType{cluster.IPv4, cluster.IPv6}
	if s.Spec != nil && len(s.Spec.Families) > 0 && s.Spec.Families[0] == cluster.IPv6 {
		slices.Reverse(families)
	}
	for _, family := range families {
		endpoints := endpointsOf(all, family, &s.Ports[n])
		usable := slices.DeleteFunc(slices.Clone(endpoints), func(e endpoint) bool { return !e.ready })
		if len(usable) == 0 {
			usable = slices.DeleteFunc(endpoints, func(e endpoint) bool { return !e.serving || !e.terminating })
		} else {
			usable, _ = cluster.Nearest(usable, func(e *endpoint) *cluster.Place { return e.place }, u.node, u.zone)
		}
		for i := range usable {
			found = append(found, usable[i].addr)
		}
		if len(found) > 0 {
			break
		}
	}
	slices.SortFunc(found, netip.AddrPort.Compare)
	return slices.Compact(found)
}

// endpointsOf returns the endpoints of a port in slices of a family.
func endpointsOf(all []*cluster.EndpointSlice, family cluster.AddressType, port *cluster.Port) (found []endpoint) {
	for _, s := range all {
		places := s.Places()
		for _, p := range s.Ports {
			if s.AddressType != family || p.Name != port.Name || p.Protocol != port.Protocol || p.Number == 0 {
				continue
			}
			for i := range s.Endpoints {
				e, place := &s.Endpoints[i], &noPlace
				if places != nil {
					place = &places[i]
				}
				if place.Additional {
					continue
				}
				found = append(found, endpoint{
					netip.AddrPortFrom(e.Addr, p.Number), e.Ready, e.Serving, e.Terminating, place,
				})
			}
		}
	}
	return found
}
