// Package connection explains connections to Services (Kubernetes, "Virtual IPs and Service
// Proxies"): which addresses a node's service proxy serves, which endpoints connections to
// them use and why not the others, and what a client sees. It evaluates connections as the
// kernel does, with package frontend.
//
//	cluster.View ─► plan: frontends of a node ─► frontend.Evaluator: verdict ─► diagnose.go: why
//	                   │                           services.go, noendpoint.go: of Services ◄─┤
//	                   │    judged.go ─► policy.go, domains.go, vacancy.go: by policies ◄────┘
//	                   └─► table.go: VIPs, backends
package connection

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// Settings are those of the service proxy.
type Settings struct {
	// NodePorts are the ranges of the addresses of node ports; none is the Node's InternalIPs.
	NodePorts     []netip.Prefix
	MasqueradeAll bool
	// Choice is how endpoints are chosen of Services that do not say so.
	Choice frontend.Choice
	// Pods recognizes Pods on a node.
	Pods frontend.Pods
	// PodCIDRs: Pods are recognized by the Node's ranges, not by Pods.
	PodCIDRs bool
	// PodRanges are what the Pods of the node have addresses of, for its policies; none are the Node's.
	PodRanges []netip.Prefix
	// Resolvers are addresses at which the node agent answers DNS on port 53.
	Resolvers []netip.Addr
}

// nodeOf returns the node of a name for the plan. Without its Node object, it has a name only.
func (s *Settings) nodeOf(v *cluster.View, name string) plan.Node {
	node := plan.Node{Name: name, Choice: s.Choice}
	n := v.Node(name)
	if n == nil {
		return node
	}
	node.Zone, node.Addresses, node.NodePorts = n.Zone, n.Addresses, plan.Primary(n.InternalIPs)
	if len(s.NodePorts) > 0 {
		node.NodePorts = nil
		for _, a := range n.Addresses {
			if !a.IsLoopback() && slices.ContainsFunc(s.NodePorts, func(p netip.Prefix) bool { return p.Contains(a) }) {
				node.NodePorts = append(node.NodePorts, a)
			}
		}
	}
	return node
}

// proxy is what the service proxy of a node does with some addresses, or with all.
type proxy struct {
	view     *cluster.View
	node     plan.Node
	compiler *plan.Compiler
	kernel   *frontend.Evaluator
	// services are those that may have the addresses, sorted.
	services []*cluster.Service
}

// newProxy returns what the service proxy of a node does.
func newProxy(v *cluster.View, s *Settings, node string) *proxy {
	all := slices.SortedFunc(v.Services(), compareServices)
	p, of := proxyOf(v, s, node), plan.NewCompiler(plan.Node{})
	p.serve(s, of, of.All(v, p.node), all)
	return p
}

// newProxyAt returns what the service proxy of a node does with the addresses of some Services, which are sorted. It is
// what newProxy returns with regard to these addresses, if the proxy has room for all Services.
func newProxyAt(v *cluster.View, s *Settings, node string, services []*cluster.Service) *proxy {
	p, of := proxyOf(v, s, node), plan.NewCompiler(plan.Node{})
	p.serve(s, of, of.Some(v, p.node, services), services)
	return p
}

func proxyOf(v *cluster.View, s *Settings, node string) *proxy {
	return &proxy{view: v, node: s.nodeOf(v, node)}
}

func (p *proxy) serve(s *Settings, c *plan.Compiler, state *frontend.State, services []*cluster.Service) {
	p.compiler, p.services = c, services
	of := frontend.Node{Addresses: p.node.Addresses, MasqueradeAll: s.MasqueradeAll, Pods: s.Pods}
	if n := p.view.Node(p.node.Name); n != nil && s.PodCIDRs {
		of.Pods.CIDRs = n.PodCIDRs
	}
	p.kernel = frontend.NewEvaluator(of, state)
}

func compareServices(a, b *cluster.Service) int { return a.Compare(b.Key) }

// claims are the Services by the addresses that they may have.
type claims struct {
	at map[netip.Addr][]*cluster.Service
	// atNodes are those with node ports, which may have addresses of nodes.
	atNodes []*cluster.Service
	nodes   map[netip.Addr]bool
	// fit: a proxy has room for all Services, whatever its node is.
	fit bool
}

func newClaims(v *cluster.View) *claims {
	c := &claims{at: make(map[netip.Addr][]*cluster.Service, v.Len(cluster.KindService)), nodes: make(map[netip.Addr]bool)}
	most := 0
	for n := range v.Nodes() {
		most = max(most, len(n.Addresses))
		for _, a := range n.Addresses {
			c.nodes[a] = true
		}
	}
	size := 0
	for s := range v.Services() {
		for _, a := range slices.Concat(s.ClusterIPs, externalAddresses(s)) {
			c.at[a] = append(c.at[a], s)
		}
		if len(nodePorts(s)) > 0 {
			c.atNodes = append(c.atNodes, s)
		}
		size += plan.MostSize(v, s, most)
	}
	c.fit = size <= plan.DefaultRoom
	return c
}

// of returns the Services that may have an address, sorted.
func (c *claims) of(at netip.Addr) []*cluster.Service {
	all := slices.Clone(c.at[at])
	if c.nodes[at] {
		all = append(all, c.atNodes...)
	}
	slices.SortFunc(all, compareServices)
	return slices.Compact(all)
}

// isTaken reports whether, by the verdicts on a Service, another one has its address.
func isTaken(verdicts []plan.Verdict, at frontend.Address) bool {
	return slices.ContainsFunc(verdicts, func(v plan.Verdict) bool { return v.Address == at && v.Reason == plan.Taken })
}

// rivals returns the Services, sorted, that have an address whose connections are another one's.
func (p *proxy) rivals(at frontend.Address) (all []*cluster.Service) {
	for _, s := range p.services {
		if isTaken(p.compiler.Service(s.Key).Verdicts, at) {
			all = append(all, s)
		}
	}
	return all
}

// owner returns the Service whose connections at an address are, and which port; nil if there
// is none.
func (p *proxy) owner(at frontend.Address) (s *cluster.Service, port int, kind plan.AddressKind) {
	for _, s := range p.services {
		port, kind, ok := plan.Describe(s, at)
		if !ok {
			continue
		}
		of := p.compiler.Service(s.Key)
		has := slices.ContainsFunc(of.Frontends, func(f *frontend.Frontend) bool { return f.Address == at })
		if has && !isTaken(of.Verdicts, at) {
			return s, port, kind
		}
	}
	return nil, 0, ""
}
