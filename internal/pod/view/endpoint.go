package view

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/plan"
)

// Endpoint is an endpoint of a Service.
type Endpoint struct {
	Address string `json:"address"`
	// Pod is its Pod's name; empty if it has none, or if that is not known.
	Pod         string   `json:"pod,omitempty"`
	Node        string   `json:"node,omitempty"`
	Ports       []string `json:"ports"`
	Ready       bool     `json:"ready"`
	Serving     bool     `json:"serving"`
	Terminating bool     `json:"terminating"`
	// Used reports whether clients get it, and Why is why not, or which clients do.
	Used bool   `json:"used"`
	Why  string `json:"why,omitempty"`
	addr netip.Addr
}

// endpointsOf returns the endpoints of a Service by address, those that are not used first.
func (m *Model) endpointsOf(s *cluster.Service) []Endpoint {
	index := make(map[netip.Addr]int)
	var all []Endpoint
	for _, slice := range m.View.SlicesOf(s.Key) {
		places := slice.Places()
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			at, known := index[e.Addr]
			if !known {
				at = len(all)
				index[e.Addr] = at
				all = append(all, Endpoint{
					Address: e.Addr.String(), Pod: e.Pod, Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
					Ports: []string{}, addr: e.Addr,
				})
				if places != nil {
					all[at].Node = places[i].Node
				}
			}
			for _, p := range slice.Ports {
				if text := portText(p.Name, p.Number, p.Protocol); !slices.Contains(all[at].Ports, text) {
					all[at].Ports = append(all[at].Ports, text)
				}
			}
		}
	}
	if s.Headless {
		m.judgeHeadless(s, all)
	} else {
		m.judgeProxied(s, all, index)
	}
	slices.SortFunc(all, func(a, b Endpoint) int {
		if a.Used != b.Used {
			if b.Used {
				return -1
			}
			return 1
		}
		return a.addr.Compare(b.addr)
	})
	return all
}

// judgeHeadless judges the endpoints of a Service whose name has their addresses.
func (m *Model) judgeHeadless(s *cluster.Service, all []Endpoint) {
	for i := range all {
		e := &all[i]
		if e.Used = e.Ready || s.PublishNotReady; !e.Used {
			e.Why = m.unready(s, e, plan.NotReady) + "; the name does not have its address"
		}
	}
}

// judgeProxied judges the endpoints as a service proxy does that is on no certain node: an endpoint is used if
// connections to any port of the Service use it.
func (m *Model) judgeProxied(s *cluster.Service, all []Endpoint, index map[netip.Addr]int) {
	why := make([]plan.Unused, len(all))
	for _, p := range s.Ports {
		for _, family := range []cluster.AddressType{cluster.IPv4, cluster.IPv6} {
			for _, e := range plan.Endpoints(m.View, new(plan.Node), s.Key, p, family) {
				i, ok := index[e.Addr.Addr()]
				if !ok {
					continue
				}
				all[i].Used = all[i].Used || e.Cluster == ""
				why[i] = e.Cluster
			}
		}
	}
	for i := range all {
		e := &all[i]
		switch {
		case !e.Used && why[i] == "":
			e.Why = "no port of the Service leads to it"
		case !e.Used:
			e.Why = m.unready(s, e, why[i])
		case s.Spec != nil && s.Spec.InternalLocal:
			e.Why = "clients on its own node only: internalTrafficPolicy is Local"
		case s.Spec != nil && s.Spec.ExternalLocal:
			e.Why = "clients outside reach it through its own node only: externalTrafficPolicy is Local"
		}
	}
}

// unready says why an endpoint is not used, with what its Pod says.
func (m *Model) unready(s *cluster.Service, e *Endpoint, why plan.Unused) string {
	p := m.View.Pod(cluster.Key{Namespace: s.Namespace, Name: e.Pod})
	if p == nil || why != plan.NotReady {
		return string(why)
	}
	return string(why) + m.Linter.Unready(p)
}
