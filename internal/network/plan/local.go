package plan

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/network/route"
)

// What VXLAN takes of the uplink's MTU: the outer header of IP, and those of UDP, VXLAN and Ethernet (RFC 7348,
// section 5); and what WireGuard does: the outer header of IP, that of UDP, its own, and the authentication tag
// ("WireGuard: Next Generation Kernel Network Tunnel", section 5.4.6).
const (
	overhead4 = 20 + 8 + 8 + 14
	overhead6 = 40 + 8 + 8 + 14

	wireGuardOverhead4 = 20 + 8 + 16 + 16
	wireGuardOverhead6 = 40 + 8 + 16 + 16
)

// own is the own node on its host.
type own struct {
	*node
	// local are those of its addresses that the host has.
	local []netip.Addr
	// verdicts are those that do not depend on other Nodes.
	verdicts []Verdict
}

// newOwn returns the own node; nil if it is missing.
func newOwn(n *node, h *route.Host) *own {
	if n == nil {
		return nil
	}
	o := &own{node: n}
	for _, a := range n.addrs {
		if _, ok := h.Holder(a); ok {
			o.local = append(o.local, a)
		} else {
			o.verdicts = append(o.verdicts, Verdict{Reason: NotLocal, Addr: a})
		}
	}
	if len(n.ranges) == 0 {
		o.verdicts = append(o.verdicts, Verdict{Reason: NoRange})
	}
	for _, r := range n.wide {
		o.verdicts = append(o.verdicts, Verdict{Reason: RangeTooWide, Range: r})
	}
	for _, r := range n.ranges {
		if addr := o.addrIn(r, h); addr.IsValid() {
			o.verdicts = append(o.verdicts, Verdict{Reason: RangeOfHost, Range: r, Addr: addr})
		}
	}
	if len(n.addrs) == 0 {
		o.verdicts = append(o.verdicts, Verdict{Reason: NoAddress})
	}
	return o
}

// addrIn returns an address of a range that no Pod may get, of the host or of its Node; the zero Addr if there is none.
func (o *own) addrIn(r netip.Prefix, h *route.Host) netip.Addr {
	if addr := hostAddrIn(r, h); addr.IsValid() {
		return addr
	}
	if i := slices.IndexFunc(o.internal, r.Contains); i >= 0 {
		return o.internal[i]
	}
	return netip.Addr{}
}

// localAddr returns the address of a family that the host has; the zero Addr if there is none.
func (o *own) localAddr(is4 bool) netip.Addr {
	for _, a := range o.local {
		if a.Is4() == is4 {
			return a
		}
	}
	return netip.Addr{}
}

// compileLocal compiles what the own node has.
func (c *Compiler) compileLocal() (l route.Local) {
	if c.own == nil {
		return l
	}
	l.Sources = c.own.local
	uplink := 0
	for _, a := range c.own.local {
		if i, ok := c.host.Holder(a); ok && (uplink == 0 || i.MTU < uplink) {
			uplink = i.MTU
		}
	}
	l.MTU = c.mtu(uplink, c.own.localAddr(true).IsValid())
	if c.cfg.HasVXLAN() {
		for _, d := range []struct {
			name  string
			is4   bool
			needs bool
		}{
			{route.Device4, true, true},
			{route.Device6, false, c.needs6 > 0 || !c.own.localAddr(true).IsValid()},
		} {
			if local := c.own.localAddr(d.is4); local.IsValid() && d.needs {
				l.Devices = append(l.Devices, route.Device{
					Name: d.name, VNI: c.cfg.VNI, Port: c.cfg.Port, Local: local, MTU: c.mtu(uplink, d.is4), MAC: c.own.mac,
				})
			}
		}
	}
	if c.encrypts() { // it stays while the uplink has no address, and so does its key
		outer4 := c.needs6 == 0 && c.own.localAddr(true).IsValid()
		l.Devices = append(l.Devices, route.Device{Name: route.DeviceWG, MTU: c.mtu(uplink, outer4)})
	}
	l.Pods = slices.SortedFunc(slices.Values(c.own.ranges), netip.Prefix.Compare)
	for _, p := range l.Pods {
		if c.tunneled[family(p.Addr())] > 0 && !c.nodesOutside() {
			l.Rules = append(l.Rules, p)
		}
	}
	l.Asymmetric = c.tunneled[0] > 0
	l.Unreachable = slices.DeleteFunc(slices.Clone(l.Pods), func(p netip.Prefix) bool {
		return c.claims.holderOfRange(c.own.node, p) != nil || c.own.addrIn(p, &c.host).IsValid() || c.isOnLink(p)
	})
	return l
}

// isOnLink reports whether a range is one of a link of the host, where other hosts may have addresses of it.
func (c *Compiler) isOnLink(r netip.Prefix) bool {
	for _, i := range c.host.Interfaces {
		for _, p := range i.Addresses {
			if !p.IsSingleIP() && contains(p.Masked(), r) {
				return true
			}
		}
	}
	return false
}

// mtu returns what is left of an uplink's MTU with outer packets of a family.
func (c *Compiler) mtu(uplink int, outer4 bool) int {
	switch {
	case uplink == 0:
		return c.cfg.MTU
	case c.cfg.MTU > 0:
		return c.cfg.MTU
	case c.encrypts() && outer4:
		return uplink - wireGuardOverhead4
	case c.encrypts():
		return uplink - wireGuardOverhead6
	case c.cfg.Encapsulation == Never:
		return uplink
	case outer4:
		return uplink - overhead4
	}
	return uplink - overhead6
}
