package plan

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// Unused is why connections do not use an endpoint.
type Unused string

// The reasons.
const (
	// NotReady: its condition ready is false.
	NotReady Unused = "not ready"
	// Terminating: it terminates, and others are ready, or it does not serve.
	Terminating Unused = "terminating"
	// OtherNode and OtherZone: its hints are for others, and endpoints for this node or zone
	// are ready.
	OtherNode Unused = "hinted for another node"
	OtherZone Unused = "hinted for another zone"
	// NotOnNode: it is not on the node, and the traffic policy is Local.
	NotOnNode Unused = "not on the node"
	// NoWeight: its weight is 0, and others have one.
	NoWeight Unused = "weight 0"
	// Additional: the address is not the first of its endpoint.
	Additional Unused = "additional address"
)

// Endpoint is an endpoint of a port of a Service, for explanations.
type Endpoint struct {
	Addr netip.AddrPort
	Pod  string // empty without one
	Node string // empty if it is not known
	// Cluster and Local are why connections do not use it with traffic policy Cluster and
	// Local; empty if they do.
	Cluster, Local Unused
	// Weight is how many connections it gets, against the others.
	Weight int
}

// Endpoints returns the endpoints of a port of a Service in one family, sorted by address.
// Those that frontends use are those that Compile chooses.
func Endpoints(v *cluster.View, node *Node, key cluster.Key, port cluster.Port, family cluster.AddressType) []Endpoint {
	of := v.SlicesOf(key)
	found := endpointsOf(of, family, port)
	chosen := choose(found, node)
	all := additional(of, family, port)
	anywhere, here := setOf(chosen.cluster), setOf(chosen.local)
	for i := range found {
		e := &found[i]
		made := Endpoint{Addr: e.addr, Pod: e.pod, Node: e.place.Node, Weight: e.weight}
		if !anywhere[e.addr] {
			made.Cluster = chosen.whyNotCluster(e)
		}
		if !here[e.addr] {
			made.Local = e.whyNotLocal(node)
		}
		all = append(all, made)
	}
	slices.SortStableFunc(all, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	return all
}

// setOf returns a set of addresses: a Service may have thousands.
func setOf(addrs []netip.AddrPort) map[netip.AddrPort]bool {
	set := make(map[netip.AddrPort]bool, len(addrs))
	for _, a := range addrs {
		set[a] = true
	}
	return set
}

// whyNotCluster returns why an endpoint is not chosen with the traffic policy Cluster.
func (c *choice) whyNotCluster(e *endpoint) Unused {
	switch {
	case e.ready && e.weight == 0:
		return NoWeight
	case e.ready:
		return c.hints
	}
	return e.unready()
}

// whyNotLocal returns why an endpoint is not chosen with the traffic policy Local.
func (e *endpoint) whyNotLocal(node *Node) Unused {
	switch {
	case !e.local(node):
		return NotOnNode
	case e.ready:
		return NoWeight
	}
	return e.unready()
}

// unready returns why an endpoint is not ready.
func (e *endpoint) unready() Unused {
	if e.terminating {
		return Terminating
	}
	return NotReady
}

// additional returns the addresses of a port that are not the first of their endpoint.
func additional(of []*cluster.EndpointSlice, family cluster.AddressType, port cluster.Port) (all []Endpoint) {
	for _, s := range of {
		places := s.Places()
		if s.AddressType != family || places == nil {
			continue
		}
		for _, p := range s.Ports {
			if p.Name != port.Name || p.Protocol != port.Protocol || p.Number == 0 {
				continue
			}
			for i := range s.Endpoints {
				if e := &s.Endpoints[i]; places[i].Additional {
					all = append(all, Endpoint{
						Addr: netip.AddrPortFrom(e.Addr, p.Number), Pod: e.Pod, Node: places[i].Node, Weight: weightOf(s),
						Cluster: Additional, Local: Additional,
					})
				}
			}
		}
	}
	return all
}

// AddressKind is what an address of a Service is.
type AddressKind string

// The kinds of addresses.
const (
	ClusterIP    AddressKind = "ClusterIP"
	ExternalIP   AddressKind = "ExternalIP"
	LoadBalancer AddressKind = "LoadBalancer"
	NodePort     AddressKind = "NodePort"
)

// Describe returns which port of a Service an address is for, as an index, and what the address
// is. ok is false if Compile does not make the address of the Service.
func Describe(s *cluster.Service, at frontend.Address) (port int, kind AddressKind, ok bool) {
	spec := s.Spec
	if spec == nil {
		spec = new(cluster.ServiceSpec)
	}
	balanced := func(i cluster.IngressIP) bool { return i.Addr == at.Addr && !i.Proxy }
	for i, p := range s.Ports {
		if ProtocolOf(p.Protocol) != at.Protocol {
			continue
		}
		switch {
		case p.Number == at.Port && slices.Contains(s.ClusterIPs, at.Addr):
			return i, ClusterIP, true
		case p.Number == at.Port && slices.Contains(spec.ExternalIPs, at.Addr):
			return i, ExternalIP, true
		case p.Number == at.Port && slices.ContainsFunc(spec.Ingress, balanced):
			return i, LoadBalancer, true
		}
	}
	for i, number := range spec.NodePorts {
		if number == at.Port && number != 0 && i < len(s.Ports) && ProtocolOf(s.Ports[i].Protocol) == at.Protocol {
			return i, NodePort, true
		}
	}
	return 0, "", false
}
