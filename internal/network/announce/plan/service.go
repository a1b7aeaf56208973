package plan

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// service is what candidates depend on of a Service with addresses.
type service struct {
	addrs []netip.Addr
	// local: externalTrafficPolicy is Local, so that only nodes with an endpoint serve it.
	local bool
	// endpoints are the nodes with one, by family, sorted; for policy Local only.
	endpoints map[cluster.AddressType][]string
}

// compileService returns nil if the Service has no address to announce.
func compileService(v *cluster.View, cfg *Config, key cluster.Key) *service {
	s := v.Service(key)
	if s == nil || s.Spec == nil || s.Spec.Type != cluster.LoadBalancer || cfg.Ours != nil && !cfg.Ours(s) {
		return nil
	}
	out := &service{local: s.Spec.ExternalLocal}
	for _, ip := range s.Spec.Ingress {
		if !ip.Proxy {
			out.addrs = append(out.addrs, ip.Addr.Unmap())
		}
	}
	if len(out.addrs) == 0 {
		return nil
	}
	slices.SortFunc(out.addrs, netip.Addr.Compare)
	out.addrs = slices.Compact(out.addrs)
	if out.local {
		out.endpoints = make(map[cluster.AddressType][]string)
		for _, family := range []cluster.AddressType{cluster.IPv4, cluster.IPv6} {
			out.endpoints[family] = nodesWithEndpoint(v.SlicesOf(key), family)
		}
	}
	return out
}

// nodesWithEndpoint returns the nodes that have a ready endpoint; if none has, those with one that serves while it
// terminates. It is sorted.
func nodesWithEndpoint(all []*cluster.EndpointSlice, family cluster.AddressType) []string {
	var ready, serving []string
	for _, s := range all {
		places := s.Places()
		if s.AddressType != family || places == nil {
			continue
		}
		for i := range s.Endpoints {
			e, p := &s.Endpoints[i], &places[i]
			switch {
			case p.Node == "" || p.Additional:
			case e.Ready:
				ready = append(ready, p.Node)
			case e.Serving && e.Terminating:
				serving = append(serving, p.Node)
			}
		}
	}
	nodes := ready
	if len(nodes) == 0 {
		nodes = serving
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
