package plan

import (
	"net/netip"

	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/wireguard"
)

// peer is what another Node was compiled into.
type peer struct {
	route.Peer
	verdicts []Verdict
	// needs6: a tunnel between both nodes has outer packets of IPv6.
	needs6 bool
	// encrypted is the encrypted tunnel to the node; the zero Peer if there is none.
	encrypted wireguard.Peer
	// keyless: the node has no key for one, and should.
	keyless bool
	// tunneled is 1 for each family in which the node has an address, and its Pods are reached through the tunnel.
	tunneled [2]int
}

// compilePeer compiles another Node.
func (c *Compiler) compilePeer(n *node) *peer {
	p := &peer{Peer: route.Peer{Name: n.name}}
	addrs := c.addrsOf(n, p)
	switch {
	case len(n.ranges) == 0:
		p.verdicts = append(p.verdicts, Verdict{Reason: NoRange})
	case len(n.addrs) == 0:
		p.verdicts = append(p.verdicts, Verdict{Reason: NoAddress})
	}
	for _, r := range n.wide {
		p.verdicts = append(p.verdicts, Verdict{Reason: RangeTooWide, Range: r})
	}
	t := c.tunnelTo(n, addrs)
	p.needs6 = t.device != "" && !t.to.Is4()
	p.keyless = c.encrypts() && len(n.ranges) > 0 && c.isKeyless(n)
	for _, r := range n.ranges {
		if holder := c.claims.holderOfRange(n, r); holder != nil {
			p.verdicts = append(p.verdicts, Verdict{Reason: RangeTaken, Range: r, Other: holder.name})
			continue
		}
		if addr := hostAddrIn(r, &c.host); addr.IsValid() {
			p.verdicts = append(p.verdicts, Verdict{Reason: RangeOfHost, Range: r, Addr: addr})
			continue
		}
		if t.required {
			p.Unreachable = append(p.Unreachable, r)
		}
		if len(addrs) > 0 {
			c.compileRange(p, r, addrs, t)
		}
	}
	if t.device == route.DeviceWG {
		p.setEncrypted(n, addrs, netip.AddrPortFrom(t.to, c.cfg.WireGuardPort))
	}
	return p
}

// hostAddrIn returns an address of a host in a range; the zero Addr if there is none.
func hostAddrIn(r netip.Prefix, h *route.Host) netip.Addr {
	for _, i := range h.Interfaces {
		for _, p := range i.Addresses {
			if r.Contains(p.Addr()) {
				return p.Addr()
			}
		}
	}
	return netip.Addr{}
}

// addrsOf returns the addresses of n that no older Node has.
func (c *Compiler) addrsOf(n *node, p *peer) (addrs []netip.Addr) {
	for _, a := range n.addrs {
		if holder := c.claims.addrs[a][0]; holder.name != n.name {
			p.verdicts = append(p.verdicts, Verdict{Reason: AddressTaken, Addr: a, Other: holder.name})
			continue
		}
		addrs = append(addrs, a)
	}
	return addrs
}

// tunnel is one to a node.
type tunnel struct {
	device string // empty if there is none
	to     netip.Addr
	mac    route.MAC
	// problem says why there is none.
	problem Verdict
	// required: there is no other way to the node.
	required bool
}

// tunnelTo returns the tunnel to a node with these addresses.
func (c *Compiler) tunnelTo(n *node, addrs []netip.Addr) tunnel {
	if c.encrypts() && (c.cfg.Keyless != Unencrypted || !c.isKeyless(n)) {
		return c.encryptedTo(n, addrs)
	}
	if c.cfg.Encapsulation == Never {
		return tunnel{problem: Verdict{Reason: OffLink}}
	}
	if n.mac == c.own.mac {
		return tunnel{problem: Verdict{Reason: MACTaken, Other: c.own.name}}
	}
	if holder := c.claims.macs[n.mac][0]; holder.name != n.name {
		return tunnel{problem: Verdict{Reason: MACTaken, Other: holder.name}}
	}
	switch to := c.outerAddr(addrs); {
	case !to.IsValid():
		return tunnel{problem: Verdict{Reason: NoCommonFamily}}
	case to.Is4():
		return tunnel{device: route.Device4, to: to, mac: n.mac}
	default:
		return tunnel{device: route.Device6, to: to, mac: n.mac}
	}
}

// outerAddr returns the address of a node with these addresses that outer packets go to: of the first family that both
// nodes have, IPv4 first; the zero Addr if there is none.
func (c *Compiler) outerAddr(addrs []netip.Addr) netip.Addr {
	for _, is4 := range []bool{true, false} {
		for _, a := range addrs {
			if a.Is4() == is4 && c.own.localAddr(is4).IsValid() {
				return a
			}
		}
	}
	return netip.Addr{}
}

// compileRange adds how the Pods of a range of n are reached: by the link that both nodes share, or by a tunnel.
func (c *Compiler) compileRange(p *peer, r netip.Prefix, addrs []netip.Addr, t tunnel) {
	is4 := r.Addr().Is4()
	source := c.own.localAddr(is4)
	var addr netip.Addr // of the range's family
	for _, a := range addrs {
		if a.Is4() == is4 {
			addr = a
		}
	}
	if c.cfg.Encapsulation != Always && !t.required && addr.IsValid() {
		if device := c.linkTo(addr); device != "" {
			p.Routes = append(p.Routes, route.Route{To: r, Via: addr, Device: device, Source: source})
			return
		}
	}
	if t.device == "" {
		problem := t.problem
		problem.Range = r
		p.verdicts = append(p.verdicts, problem)
		return
	}
	via := t.mac.LinkLocal()
	if is4 && addr.IsValid() {
		via = addr
	}
	through := route.Route{To: r, Via: via, Device: t.device, OnLink: true, Source: source}
	p.Routes = append(p.Routes, through)
	if !t.required {
		p.addTunnel(t, via)
	}
	if addr.IsValid() && p.tunneled[family(addr)] == 0 {
		p.tunneled[family(addr)] = 1
		if !c.nodesOutside() {
			through.To, through.Table = netip.PrefixFrom(addr, addr.BitLen()), route.Table
			p.Routes = append(p.Routes, through)
		}
	}
}

// addTunnel adds what the kernel has to know to send through a tunnel of VXLAN to a next hop.
func (p *peer) addTunnel(t tunnel, via netip.Addr) {
	for _, n := range p.Neighbors {
		if n.Addr == via {
			return
		}
	}
	p.Neighbors = append(p.Neighbors, route.Neighbor{Device: t.device, Addr: via, MAC: t.mac})
	if len(p.Forwards) == 0 {
		p.Forwards = append(p.Forwards, route.Forward{Device: t.device, MAC: t.mac, To: t.to})
	}
}

// linkTo returns the interface whose link has an address: of those that are up, the one with the longest prefix,
// then the one that has the own node's address; empty if there is none.
func (c *Compiler) linkTo(addr netip.Addr) string {
	best, rank := "", [3]int{}
	for _, i := range c.host.Interfaces {
		for _, p := range i.Addresses {
			if p.IsSingleIP() || !p.Contains(addr) || p.Addr() == addr {
				continue
			}
			r := [3]int{0, p.Bits() + 1, 0}
			if i.Up {
				r[0] = 1
			}
			if p.Addr() == c.own.localAddr(addr.Is4()) {
				r[2] = 1
			}
			if best == "" || less(rank, r) {
				best, rank = i.Name, r
			}
		}
	}
	return best
}

func less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
