package connection

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// VIP is an address at which a node serves a port of a Service.
type VIP struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	Port      string `json:"port"` // name; empty without one
	Address   string `json:"address"`
	Protocol  string `json:"protocol"`
	Kind      string `json:"kind"`
	// Policy is Cluster or Local, internalTrafficPolicy for cluster IPs, externalTrafficPolicy
	// for the others.
	Policy string `json:"policy"`
	// Endpoints and Local are how many endpoints connections use: those of clients for which
	// the policy does not count, and those on the node.
	Endpoints int `json:"endpoints"`
	Local     int `json:"local"`
	// Note is what happens to connections without endpoints, or which Service has the address.
	Note string `json:"note,omitempty"`
}

// Backend is an endpoint of a port of a Service.
type Backend struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	Port      string `json:"port"`
	Protocol  string `json:"protocol"`
	Endpoint  string `json:"endpoint"`
	Pod       string `json:"pod,omitempty"`
	Node      string `json:"node,omitempty"`
	// Used is which clients use it: all, inside (those of the cluster), outside or none.
	Used string `json:"used"`
	// Why is why not all use it.
	Why string `json:"why,omitempty"`
}

// The values of Backend.Used.
const (
	usedByAll     = "all"
	usedByInside  = "inside"
	usedByOutside = "outside"
	usedByNone    = "none"
)

// VIPs returns the addresses that a node serves, by Service and address.
func VIPs(v *cluster.View, s *Settings, node string) (all []VIP) {
	p := newProxy(v, s, node)
	for _, service := range p.services {
		of := p.compiler.Service(service.Key)
		frontends := of.Frontends
		if has(of.Verdicts, plan.NoRoom) {
			frontends = plan.Compile(v, &p.node, service.Key).Frontends
		}
		for _, f := range frontends {
			port, kind, ok := plan.Describe(service, f.Address)
			if !ok {
				continue
			}
			local := 0
			for _, e := range plan.Endpoints(v, &p.node, service.Key, service.Ports[port], cluster.FamilyOf(f.Addr)) {
				if e.Local == "" {
					local++
				}
			}
			vip := VIP{
				Namespace: service.Namespace, Service: service.Name, Port: service.Ports[port].Name,
				Address: netip.AddrPortFrom(f.Addr, f.Port).String(), Protocol: strings.ToUpper(f.Protocol.String()),
				Kind: string(kind), Policy: policyOf(service, kind), Endpoints: len(f.Endpoints), Local: local,
			}
			vip.Note = noteOf(of.Verdicts, f.Address)
			all = append(all, vip)
		}
	}
	return all
}

// has reports whether there is a verdict for a reason.
func has(verdicts []plan.Verdict, reason plan.Reason) bool {
	return slices.ContainsFunc(verdicts, func(v plan.Verdict) bool { return v.Reason == reason })
}

// noteOf returns what verdicts say of an address.
func noteOf(verdicts []plan.Verdict, at frontend.Address) (note string) {
	for _, v := range verdicts {
		switch {
		case v.Reason == plan.InvalidChoice:
			note = "the annotation " + cluster.AnnotationEndpointChoice + " has no known value"
		case v.Reason == plan.InvalidSlowStart:
			note = "the annotation " + cluster.AnnotationSlowStart + " is no duration from 0s to 1h"
		case v.Reason == plan.InvalidWeight:
			note = "an annotation " + cluster.AnnotationEndpointWeight + " is no number from 0 to 1000"
		case v.Reason == plan.TooLarge:
			note = "some addresses are left out: the Service has too many ports, addresses and endpoints"
		case v.Reason == plan.NoRoom:
			return "not served: the proxy has no room"
		case v.Address != at:
		case v.Reason == plan.Taken:
			return "the address is that of Service " + v.Other.String()
		case v.Reason == plan.NoEndpoints:
			note = "refused: no endpoint"
		case v.Reason == plan.NoLocalEndpoints:
			note = "dropped: no endpoint on the node"
		}
	}
	return note
}

// policyOf returns the traffic policy for an address of a Service.
func policyOf(s *cluster.Service, kind plan.AddressKind) string {
	local := s.Spec != nil && s.Spec.ExternalLocal
	if kind == plan.ClusterIP {
		local = s.Spec != nil && s.Spec.InternalLocal
	}
	if local {
		return "Local"
	}
	return "Cluster"
}

// Backends returns the endpoints of the Services that a node serves, by Service, port and
// address.
func Backends(v *cluster.View, s *Settings, node string) (all []Backend) {
	p := newProxy(v, s, node)
	for _, service := range p.services {
		if len(p.compiler.Service(service.Key).Frontends) == 0 {
			continue
		}
		for _, port := range service.Ports {
			for _, ip := range service.ClusterIPs {
				for _, e := range plan.Endpoints(v, &p.node, service.Key, port, cluster.FamilyOf(ip)) {
					b := Backend{
						Namespace: service.Namespace, Service: service.Name, Port: port.Name, Protocol: string(port.Protocol),
						Endpoint: e.Addr.String(), Pod: e.Pod, Node: e.Node,
					}
					b.Used, b.Why = use(service, &e)
					all = append(all, b)
				}
			}
		}
	}
	return all
}

// use returns which clients use an endpoint, and why not all.
func use(s *cluster.Service, e *plan.Endpoint) (by, why string) {
	inside, outside := e.Cluster, e.Cluster
	if s.Spec != nil && s.Spec.InternalLocal {
		inside = e.Local
	}
	if s.Spec != nil && s.Spec.ExternalLocal {
		outside = e.Local
	}
	if !reachedFromOutside(s) {
		outside = inside
	}
	switch {
	case inside == "" && outside == "":
		return usedByAll, ""
	case inside == "":
		return usedByInside, string(outside)
	case outside == "":
		return usedByOutside, string(inside)
	}
	return usedByNone, string(inside)
}

// reachedFromOutside reports whether a Service has addresses besides cluster IPs.
func reachedFromOutside(s *cluster.Service) bool {
	return s.Spec != nil && (len(s.Spec.NodePorts) > 0 || len(s.Spec.ExternalIPs) > 0 || len(s.Spec.Ingress) > 0)
}
