package view

import (
	"cmp"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// Service is the view of a Service.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Type is as the API spells it, or Headless; empty if it is not read.
	Type       string     `json:"type"`
	Names      []Name     `json:"names"`
	Addresses  []Address  `json:"addresses"`
	Endpoints  []Endpoint `json:"endpoints"`
	PolicyIn   []Policy   `json:"policiesIn"`
	PolicyOut  []Policy   `json:"policiesOut"`
	Routes     []Route    `json:"routes"`
	Failures   []any      `json:"failures"`
	Findings   []Finding  `json:"findings"`
	PodsJudged int        `json:"podsJudged"` // to how many Pods PolicyIn and PolicyOut apply; More has the others
	NotRead    []NotRead  `json:"notRead,omitempty"`
	More       More       `json:"more,omitempty"`
	// Involved are those of whose failures the view has the last ones, which the model does not know.
	Involved Involved `json:"-"`
}

// Address is an address of a Service.
type Address struct {
	// Address is an IP address, "node" for those of nodes, or the name of a load balancer or of another
	// server.
	Address string   `json:"address"`
	Kind    string   `json:"kind"`
	Ports   []string `json:"ports"`
}

// Service returns the view of a Service; nil if it does not exist.
func (m *Model) Service(key cluster.Key) *Service {
	s := m.View.Service(key)
	if s == nil {
		return nil
	}
	made := &Service{Namespace: s.Namespace, Name: s.Name, Type: typeOf(s), Addresses: addressesOf(s)}
	made.NotRead = append(m.lacks(
		cluster.KindEndpointSlice, cluster.KindPod, cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy,
		cluster.KindNamespace, cluster.KindIngress, cluster.KindHTTPRoute,
	), m.partly("node ports and labels", cluster.KindService, cluster.KindPod)...)
	made.Names = m.namesOf(s, &made.More)
	all := m.endpointsOf(s)
	made.Endpoints = cut(&made.More, "endpoints", all, mostEndpoints)
	ends := m.endsOf(s, all, &made.More)
	made.PodsJudged = len(ends)
	made.PolicyIn, made.PolicyOut = m.bothWays(ends, &made.More)
	made.Routes = cut(&made.More, "routes", m.routesTo(s), mostRoutes)
	made.Findings = cut(&made.More, "findings", m.findingsOf(s), mostFindings)
	made.involve()
	return made
}

// involve sets whose failures the view has.
func (s *Service) involve() {
	for _, n := range s.Names {
		if !slices.Contains(s.Involved.Names, n.Name) {
			s.Involved.Names = append(s.Involved.Names, n.Name)
		}
	}
	for _, a := range s.Addresses {
		s.Involved.Addresses = append(s.Involved.Addresses, a.Address)
	}
	for i := range s.Endpoints {
		s.Involved.Addresses = append(s.Involved.Addresses, s.Endpoints[i].Address)
	}
}

// typeOf returns the type of a Service; empty if it is not read.
func typeOf(s *cluster.Service) string {
	switch {
	case s.Headless:
		return "Headless"
	case s.ExternalName != "":
		return string(cluster.ExternalName)
	case s.Spec == nil:
		return ""
	}
	return cmp.Or(string(s.Spec.Type), string(cluster.ClusterIP))
}

// addressesOf returns the addresses of a Service with the ports that it has there.
func addressesOf(s *cluster.Service) []Address {
	all := []Address{}
	var ports, nodePorts []string
	for i, p := range s.Ports {
		ports = append(ports, portText(p.Name, p.Number, p.Protocol))
		if s.Spec != nil && i < len(s.Spec.NodePorts) && s.Spec.NodePorts[i] != 0 {
			nodePorts = append(nodePorts, portText(p.Name, s.Spec.NodePorts[i], p.Protocol))
		}
	}
	add := func(kind string, addrs ...netip.Addr) {
		for _, a := range addrs {
			all = append(all, Address{Address: a.String(), Kind: kind, Ports: append([]string{}, ports...)})
		}
	}
	add("ClusterIP", s.ClusterIPs...)
	if s.ExternalName != "" {
		all = append(all, Address{Address: s.ExternalName, Kind: "ExternalName", Ports: append([]string{}, ports...)})
	}
	if s.Spec == nil {
		return all
	}
	add("ExternalIP", s.Spec.ExternalIPs...)
	for _, at := range s.Spec.Ingress {
		add("LoadBalancer", at.Addr)
	}
	if len(nodePorts) > 0 {
		all = append(all, Address{Address: "node", Kind: "NodePort", Ports: nodePorts})
	}
	return all
}

// endsOf returns the Pods behind a Service as policies see them, by name, up to mostJudged: those that
// it selects or, without a selector, those of its endpoints.
func (m *Model) endsOf(s *cluster.Service, all []Endpoint, more *More) (ends []*semantics.End) {
	if !m.reads(cluster.KindPod) {
		return nil
	}
	var pods []*cluster.Pod
	for p := range m.View.Pods() {
		if !p.Finished && s.Selects(p) {
			pods = append(pods, p)
		}
	}
	for i := range all {
		if p := m.View.Pod(cluster.Key{Namespace: s.Namespace, Name: all[i].Pod}); len(s.Selector) == 0 && p != nil {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *cluster.Pod) int { return a.Compare(b.Key) })
	pods = slices.Compact(pods)
	for _, p := range cut(more, "podsJudged", pods, mostJudged) {
		ends = append(ends, semantics.EndOf(p))
	}
	return ends
}

// bothWays returns the policies of Pods for ingress and for egress; none if they are not read.
func (m *Model) bothWays(ends []*semantics.End, more *More) (in, out []Policy) {
	if !m.View.Loaded(cluster.KindNetworkPolicy) {
		return []Policy{}, []Policy{}
	}
	return cut(more, "policiesIn", m.policiesOf(ends, ruleset.Ingress), mostPolicies),
		cut(more, "policiesOut", m.policiesOf(ends, ruleset.Egress), mostPolicies)
}

// findingsOf returns what is wrong with a Service and its EndpointSlices.
func (m *Model) findingsOf(s *cluster.Service) []Finding {
	if !m.Whole {
		return nil
	}
	all := append([]lint.Finding{}, m.Linter.CheckService(s)...)
	for _, slice := range m.View.SlicesOf(s.Key) {
		all = append(all, m.Linter.CheckEndpointSlice(slice)...)
	}
	return findings(all)
}
