package plan

import (
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// compiler compiles one Service.
type compiler struct {
	service *cluster.Service
	node    *Node
	slices  []*cluster.EndpointSlice
	out     Service
}

// compile compiles each port for each family that the Service has a cluster IP of.
func (c *compiler) compile() {
	ready := make(map[netip.Addr]struct{})
	for _, ip := range c.service.ClusterIPs {
		for i := range c.service.Ports {
			found := endpointsOf(c.slices, cluster.FamilyOf(ip), c.service.Ports[i])
			c.compilePort(ip, i, choose(found, c.node))
			for _, e := range found {
				if !e.local(c.node) {
					continue
				}
				c.out.Local = append(c.out.Local, e.addr.Addr())
				if e.ready {
					ready[e.addr.Addr()] = struct{}{}
				}
			}
		}
	}
	if spec := c.spec(); spec.HealthCheckNodePort != 0 && spec.ExternalLocal && spec.Type == cluster.LoadBalancer {
		c.out.Check = &HealthCheck{Port: spec.HealthCheckNodePort, Endpoints: len(ready)}
	}
}

// spec returns the Service's spec, which a Service without one has with defaults.
func (c *compiler) spec() *cluster.ServiceSpec {
	if c.service.Spec == nil {
		return &cluster.ServiceSpec{Type: cluster.ClusterIP}
	}
	return c.service.Spec
}

// compilePort adds the frontends of port i in the family of a cluster IP.
func (c *compiler) compilePort(ip netip.Addr, i int, chosen choice) {
	spec, port := c.spec(), c.service.Ports[i]
	protocol := protocolOf(port.Protocol)
	var affinity *frontend.Affinity
	if spec.AffinitySeconds > 0 {
		affinity = &frontend.Affinity{
			Group:   c.service.Key.String() + ":" + port.Name + "/" + protocol.String(),
			Timeout: time.Duration(spec.AffinitySeconds) * time.Second,
		}
	}
	internal := frontend.Frontend{Policy: frontend.Plain, Endpoints: chosen.cluster, Affinity: affinity}
	if spec.InternalLocal {
		internal.Endpoints = chosen.local
		if len(chosen.local) == 0 && chosen.anywhere {
			internal.Empty = frontend.Drop
		}
	}
	c.add(internal, frontend.Address{Addr: ip, Protocol: protocol, Port: port.Number})

	external := frontend.Frontend{Policy: frontend.External, Endpoints: chosen.cluster, Affinity: affinity}
	if spec.ExternalLocal {
		external.Policy, external.Local = frontend.ExternalLocal, chosen.local
	}
	if len(chosen.cluster) == 0 && chosen.anywhere {
		external.Empty = frontend.Drop
	}
	for _, addr := range spec.ExternalIPs {
		if sameFamily(addr, ip) {
			c.add(external, frontend.Address{Addr: addr, Protocol: protocol, Port: port.Number})
		}
	}
	balanced := external
	balanced.Sources = sourcesOf(spec.SourceRanges, ip)
	for _, ingress := range spec.Ingress {
		if sameFamily(ingress.Addr, ip) && !ingress.Proxy && spec.Type == cluster.LoadBalancer {
			c.addBalanced(balanced, frontend.Address{Addr: ingress.Addr, Protocol: protocol, Port: port.Number})
		}
	}
	if len(spec.NodePorts) <= i || spec.NodePorts[i] == 0 {
		return
	}
	for _, addr := range c.node.NodePorts {
		if sameFamily(addr, ip) {
			c.add(external, frontend.Address{Addr: addr, Protocol: protocol, Port: spec.NodePorts[i]})
		}
	}
}

// addBalanced adds the frontend of a load balancer's address. If its sources include one of
// the node's own addresses, connections from the load balancer's address itself are allowed:
// load balancers may give packets that source when the node connects to itself.
func (c *compiler) addBalanced(f frontend.Frontend, at frontend.Address) {
	if f.Sources != nil && slices.ContainsFunc(c.node.Addresses, func(a netip.Addr) bool {
		return slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool { return p.Contains(a) })
	}) {
		f.Sources = append(slices.Clone(f.Sources), netip.PrefixFrom(at.Addr, at.Addr.BitLen()))
	}
	c.add(f, at)
}

// add adds f at an address, once.
func (c *compiler) add(f frontend.Frontend, at frontend.Address) {
	if slices.ContainsFunc(c.out.Frontends, func(o *frontend.Frontend) bool { return o.Address == at }) {
		return
	}
	f.Address = at
	c.out.Frontends = append(c.out.Frontends, &f)
	switch {
	case len(f.Endpoints) == 0 && f.Empty == frontend.Reject:
		c.out.Verdicts = append(c.out.Verdicts, Verdict{Address: at, Reason: NoEndpoints})
	case len(f.Endpoints) == 0, f.Policy == frontend.ExternalLocal && len(f.Local) == 0:
		c.out.Verdicts = append(c.out.Verdicts, Verdict{Address: at, Reason: NoLocalEndpoints})
	}
}

// sourcesOf returns the ranges of the family of an address. Without any of it, all clients of
// that family may connect.
func sourcesOf(ranges []netip.Prefix, of netip.Addr) (sources []netip.Prefix) {
	for _, p := range ranges {
		if sameFamily(p.Addr(), of) {
			sources = append(sources, p)
		}
	}
	slices.SortFunc(sources, netip.Prefix.Compare)
	return slices.Compact(sources)
}

func sameFamily(a, b netip.Addr) bool { return a.Is4() == b.Is4() }

func protocolOf(p cluster.Protocol) frontend.Protocol {
	switch p {
	case cluster.UDP:
		return frontend.UDP
	case cluster.SCTP:
		return frontend.SCTP
	default:
		return frontend.TCP
	}
}
