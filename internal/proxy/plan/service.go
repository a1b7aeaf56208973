package plan

import (
	"math"
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
	// there are the addresses of out's Frontends, once these are more than fewFrontends.
	there map[frontend.Address]struct{}
	size  int // of the Frontends, see sizeOf
}

// fewFrontends is up to how many frontends are compared one by one.
const fewFrontends = 32

// maxSize is the largest size of the frontends of a Service, about the number of elements that the
// kernel has for them. Who may create Services is not to fill the memory of all nodes with one that
// has thousands of ports at thousands of addresses. The time in which the kernel lists them grows with
// the square of the number.
const maxSize = 1 << 18

// sizeOf returns the size of a frontend. Ranges take more time and memory than other elements; an
// endpoint has a number with session affinity, and with a hash it may have spare slots.
func sizeOf(f *frontend.Frontend) int {
	const fixed, perRange = 8, 8
	perSlot := 1
	switch {
	case f.Affinity != nil:
		perSlot = 3
	case f.Choice != frontend.Random:
		perSlot = 2
	}
	return fixed + perSlot*(slotsOf(f.Endpoints, f.Shares)+slotsOf(f.Local, f.LocalShares)) + perRange*len(f.Sources)
}

func slotsOf(endpoints []netip.AddrPort, shares []uint8) (slots int) {
	if shares == nil {
		return len(endpoints)
	}
	for _, n := range shares {
		slots += int(n)
	}
	return slots
}

// MostSize returns a size that a Service does not exceed on a node with that many addresses, without compiling it.
func MostSize(v *cluster.View, s *cluster.Service, nodeAddresses int) int {
	const fixed, perRange, perSlot, lists = 8, 8, 3, 2
	spec := s.Spec
	if spec == nil {
		spec = new(cluster.ServiceSpec)
	}
	endpoints, slots := 0, 1
	for _, of := range v.SlicesOf(s.Key) {
		endpoints += len(of.Endpoints)
		if of.EndpointWeight() != "" {
			slots = math.MaxUint8
		}
	}
	if spec.SlowStart != "" {
		slots = math.MaxUint8
	}
	addresses := len(s.ClusterIPs) + len(spec.ExternalIPs) + len(spec.Ingress)
	if len(spec.NodePorts) > 0 {
		addresses += nodeAddresses
	}
	return addresses * len(s.Ports) * (fixed + perRange*len(spec.SourceRanges) + lists*perSlot*slots*endpoints)
}

// compile compiles each port for each family that the Service has a cluster IP of.
func (c *compiler) compile() {
	spec := c.spec()
	if spec.HealthCheckNodePort != 0 && spec.ExternalLocal && spec.Type == cluster.LoadBalancer {
		c.out.Check = &HealthCheck{Port: spec.HealthCheckNodePort, Endpoints: make(map[cluster.AddressType]int)}
	}
	choice := c.choice()
	if _, err := ParseSlowStart(spec.SlowStart, 0); err != nil {
		c.out.Verdicts = append(c.out.Verdicts, Verdict{Reason: InvalidSlowStart})
	}
	for _, s := range c.slices {
		if _, err := ParseWeight(s.EndpointWeight()); err != nil {
			c.out.Verdicts = append(c.out.Verdicts, Verdict{Reason: InvalidWeight})
			break
		}
	}
	for _, ip := range c.service.ClusterIPs {
		ready := make(map[netip.Addr]struct{})
		for i := range c.service.Ports {
			if c.size > maxSize {
				break
			}
			found := endpointsOf(c.slices, cluster.FamilyOf(ip), c.service.Ports[i])
			begin := len(c.out.Frontends)
			if choice == frontend.Random { // hashes are to choose alike on all nodes
				c.node.Warmup.weigh(c.service.Key, found)
			}
			c.compilePort(ip, i, choose(found, c.node), choice)
			c.noteNoLocal(cluster.FamilyOf(ip), c.out.Frontends[begin:])
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
		if c.out.Check != nil {
			c.out.Check.Endpoints[cluster.FamilyOf(ip)] = len(ready)
		}
	}
}

// noteNoLocal notes the policies for which a port, with these frontends in a family, lacks
// endpoints on the node.
func (c *compiler) noteNoLocal(family cluster.AddressType, port []*frontend.Frontend) {
	if slices.ContainsFunc(port, func(f *frontend.Frontend) bool { return f.Empty == frontend.Drop }) {
		c.out.NoLocal = append(c.out.NoLocal, NoLocal{Internal, family})
	}
	if slices.ContainsFunc(port, func(f *frontend.Frontend) bool {
		return f.Policy == frontend.ExternalLocal && len(f.Local) == 0 && len(f.Endpoints) > 0
	}) {
		c.out.NoLocal = append(c.out.NoLocal, NoLocal{External, family})
	}
}

// choice returns how endpoints are chosen: as the Service says or, if it does not, as usual on the
// node. The memory of session affinity makes a hash superfluous.
func (c *compiler) choice() frontend.Choice {
	spec, by := c.spec(), c.node.Choice
	if spec.EndpointChoice != "" {
		set, err := frontend.ParseChoice(spec.EndpointChoice)
		if err != nil {
			c.out.Verdicts = append(c.out.Verdicts, Verdict{Reason: InvalidChoice})
		} else {
			by = set
		}
	}
	if spec.AffinitySeconds > 0 {
		return frontend.Random
	}
	return by
}

// spec returns the Service's spec, which a Service without one has with defaults.
func (c *compiler) spec() *cluster.ServiceSpec {
	if c.service.Spec == nil {
		return &cluster.ServiceSpec{Type: cluster.ClusterIP}
	}
	return c.service.Spec
}

// compilePort adds the frontends of port i in the family of a cluster IP.
func (c *compiler) compilePort(ip netip.Addr, i int, chosen choice, by frontend.Choice) {
	spec, port := c.spec(), c.service.Ports[i]
	protocol := ProtocolOf(port.Protocol)
	var affinity *frontend.Affinity
	if spec.AffinitySeconds > 0 {
		affinity = &frontend.Affinity{
			Group:   c.service.String() + ":" + port.Name + "/" + protocol.String(),
			Timeout: time.Duration(spec.AffinitySeconds) * time.Second,
		}
	}
	internal := frontend.Frontend{
		Policy: frontend.Plain, Endpoints: chosen.cluster, Shares: chosen.clusterShares, Serving: chosen.serving,
		Affinity: affinity, Choice: by,
	}
	if spec.InternalLocal {
		internal.Endpoints, internal.Shares = chosen.local, chosen.localShares
		if len(chosen.local) == 0 && len(chosen.cluster) > 0 {
			internal.Empty = frontend.Drop
		}
	}
	c.add(internal, frontend.Address{Addr: ip, Protocol: protocol, Port: port.Number})

	external := frontend.Frontend{
		Policy: frontend.External, Endpoints: chosen.cluster, Shares: chosen.clusterShares, Serving: chosen.serving,
		Affinity: affinity, Choice: by,
	}
	if spec.ExternalLocal {
		external.Policy, external.Local, external.LocalShares = frontend.ExternalLocal, chosen.local, chosen.localShares
	}
	balancers := balancersOf(spec.Ingress, ip)
	balanced := external
	balanced.Sources = c.sourcesOf(spec.SourceRanges, balancers)
	for _, addr := range balancers {
		c.add(balanced, frontend.Address{Addr: addr, Protocol: protocol, Port: port.Number})
	}
	// After those of load balancers: source ranges hold for an address that is both.
	for _, addr := range spec.ExternalIPs {
		if sameFamily(addr, ip) {
			c.add(external, frontend.Address{Addr: addr, Protocol: protocol, Port: port.Number})
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

// add adds f at an address, once. The first frontend that makes the Service too large is left out, and
// so are all behind it.
func (c *compiler) add(f frontend.Frontend, at frontend.Address) {
	if c.size > maxSize || c.has(at) {
		return
	}
	if c.size += sizeOf(&f); c.size > maxSize {
		c.out.Verdicts = append(c.out.Verdicts, Verdict{Reason: TooLarge})
		return
	}
	c.out.Size = c.size
	f.Address = at
	c.out.Frontends = append(c.out.Frontends, &f)
	if c.there != nil {
		c.there[at] = struct{}{}
	}
	switch {
	case len(f.Endpoints) == 0 && f.Empty == frontend.Reject:
		c.out.Verdicts = append(c.out.Verdicts, Verdict{Address: at, Reason: NoEndpoints})
	case len(f.Endpoints) == 0, f.Policy == frontend.ExternalLocal && len(f.Local) == 0:
		c.out.Verdicts = append(c.out.Verdicts, Verdict{Address: at, Reason: NoLocalEndpoints})
	}
}

// has reports whether there is a frontend at an address.
func (c *compiler) has(at frontend.Address) bool {
	if len(c.out.Frontends) <= fewFrontends {
		return slices.ContainsFunc(c.out.Frontends, func(o *frontend.Frontend) bool { return o.Address == at })
	}
	if c.there == nil {
		c.there = make(map[frontend.Address]struct{}, 2*fewFrontends)
		for _, f := range c.out.Frontends {
			c.there[f.Address] = struct{}{}
		}
	}
	_, ok := c.there[at]
	return ok
}

// balancersOf returns the addresses of load balancers that are of the family of an address,
// and that nodes take packets for.
func balancersOf(ingress []cluster.IngressIP, of netip.Addr) (balancers []netip.Addr) {
	for _, i := range ingress {
		if sameFamily(i.Addr, of) && !i.Proxy {
			balancers = append(balancers, i.Addr)
		}
	}
	return balancers
}

// sourcesOf returns which clients may connect to load balancers, all of one family; nil is all.
// That is so if the Service has no ranges of that family, or one of all addresses.
//
// If the ranges include one of the node's own addresses, the load balancers themselves may
// connect: where the node has their addresses, its own connections to them have that source.
func (c *compiler) sourcesOf(ranges []netip.Prefix, balancers []netip.Addr) []netip.Prefix {
	if len(balancers) == 0 {
		return nil
	}
	var sources []netip.Prefix
	for _, p := range ranges {
		if !sameFamily(p.Addr(), balancers[0]) {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		sources = append(sources, p)
	}
	if slices.ContainsFunc(c.node.Addresses, func(a netip.Addr) bool {
		return slices.ContainsFunc(sources, func(p netip.Prefix) bool { return p.Contains(a) })
	}) {
		for _, a := range balancers {
			sources = append(sources, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return disjoint(sources)
}

// disjoint sorts ranges and drops those that are in another one.
func disjoint(ranges []netip.Prefix) []netip.Prefix {
	slices.SortFunc(ranges, netip.Prefix.Compare) // the larger one first
	kept := ranges[:0]
	for _, p := range ranges {
		if len(kept) == 0 || !kept[len(kept)-1].Contains(p.Addr()) {
			kept = append(kept, p)
		}
	}
	return kept
}

func sameFamily(a, b netip.Addr) bool { return a.Is4() == b.Is4() }

// ProtocolOf returns the protocol of frontends for a protocol of ports; the default is TCP.
func ProtocolOf(p cluster.Protocol) frontend.Protocol {
	switch p {
	case cluster.UDP:
		return frontend.UDP
	case cluster.SCTP:
		return frontend.SCTP
	default:
		return frontend.TCP
	}
}
