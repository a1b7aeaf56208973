// Package route programs what lies between the nodes of a Pod network into the kernel: one route to each range of
// Pods of another node, through the link that both nodes share, through a VXLAN tunnel (RFC 7348) with its neighbors
// and forwarding entries, or through the device of WireGuard, which package wireguard configures. Addresses of the own
// ranges that no Pod has are unreachable. Nothing is learned from packets: everything follows from a Plan.
//
//	Plan, Changes ──► router.go: what the kernel should have ──► sync.go ──► kernel
//	kernel ──► watch.go: what others changed ──► sync.go
//	kernel ──► host.go ──► Host, which package plan compiles from
//
// Routes and rules of the package have the protocol 80, so that "ip route show proto 80" lists them; those to Pods
// of the own node, which have no next hop and are not unreachable, are others'. Its devices are known by their names.
// All of it stays when the process ends; Remove removes it.
package route

import (
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"
)

// Protocol is the protocol of routes and rules (RTA_PROTOCOL and FRA_PROTOCOL of rtnetlink(7)): who made them.
const Protocol = 80

// Table is the table with the addresses of nodes that Pods reach through the tunnel, and RulePriority that of the
// rules that have packets of Pods look there first.
const (
	Table        = 80
	RulePriority = 80
)

// Device4 and Device6 are the names of the devices of VXLAN whose tunnels have outer packets of IPv4 and IPv6, and
// DeviceWG that of WireGuard.
const (
	Device4  = "portolan-vxlan"
	Device6  = "portolan-vxlan6"
	DeviceWG = "portolan-wg"
)

// MAC is the address of a node's end of tunnels.
type MAC [6]byte

// MACOf returns the MAC of a node, which follows from its name: a locally administered unicast address (IEEE 802,
// section 8.2) with 46 bits of the name's SHA-256.
func MACOf(node string) MAC {
	sum := sha256.Sum256([]byte(node))
	m := MAC(sum[:6])
	m[0] = m[0]&^1 | 2
	return m
}

// String returns it as in 0a:58:0a:f4:01:07.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// LinkLocal returns the address of IPv6 that stands for a node as the next hop in a tunnel (RFC 4291, appendix A).
// Nobody has it: it is only the key of a neighbor. The kernel refuses a node's own address of IPv6 as next hop in a
// tunnel if a route leads to it by another device.
func (m MAC) LinkLocal() netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}

// Device is a device of tunnels: of VXLAN, or of WireGuard, which has only a name and an MTU. The zero Device is none.
type Device struct {
	Name string
	VNI  uint32
	Port uint16
	// Local is the source of outer packets.
	Local netip.Addr
	// MTU is that of inner packets; 0 leaves it as it is.
	MTU int
	MAC MAC
}

// Local is what the own node has.
type Local struct {
	// Devices are those of tunnels, at most one of each name.
	Devices []Device
	// MTU is that of Pods; 0 if the own node has no usable address.
	MTU int
	// Sources are the own addresses for packets to Pods, one of a family at most.
	Sources []netip.Addr
	// Pods are the ranges of own Pods, sorted.
	Pods []netip.Prefix
	// Rules are the ranges of own Pods whose packets look for nodes in Table.
	Rules []netip.Prefix
	// Asymmetric: packets of IPv4 come by the uplink whose answers go through a tunnel.
	Asymmetric bool
	// Unreachable are the ranges of own Pods of which an address that no Pod has is unreachable. Without that, packets
	// to it follow the default route.
	Unreachable []netip.Prefix
}

// Source returns the own address of the family of another one; the zero Addr if there is none.
func (l *Local) Source(of netip.Addr) netip.Addr {
	for _, a := range l.Sources {
		if a.Is4() == of.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// Equal reports whether both are the same.
func (l *Local) Equal(o *Local) bool {
	return l.MTU == o.MTU && l.Asymmetric == o.Asymmetric && slices.Equal(l.Devices, o.Devices) &&
		slices.Equal(l.Sources, o.Sources) && slices.Equal(l.Pods, o.Pods) && slices.Equal(l.Rules, o.Rules) &&
		slices.Equal(l.Unreachable, o.Unreachable)
}

// Route is a route to Pods of another node, or to its address.
type Route struct {
	To netip.Prefix
	// Table is the main one (RT_TABLE_MAIN), if it is 0, or Table.
	Table int
	// Via is the next hop, of either family.
	Via    netip.Addr
	Device string
	// OnLink: the device reaches the next hop, whatever routes say.
	OnLink bool
	// Source is the source of the node's own packets; the zero Addr leaves it to the kernel.
	Source netip.Addr
}

// Neighbor says which MAC a next hop has in a tunnel.
type Neighbor struct {
	Device string
	Addr   netip.Addr
	MAC    MAC
}

// Forward says which node has a MAC in a tunnel.
type Forward struct {
	Device string
	MAC    MAC
	To     netip.Addr
}

// Peer is another node.
type Peer struct {
	Name      string
	Routes    []Route
	Neighbors []Neighbor
	Forwards  []Forward
	// Unreachable are ranges that are unreachable where Routes do not lead, also while their device is gone: packets to
	// them must not follow the default route.
	Unreachable []netip.Prefix
}

// Equal reports whether both are the same.
func (p *Peer) Equal(o *Peer) bool {
	return p.Name == o.Name && slices.Equal(p.Routes, o.Routes) && slices.Equal(p.Neighbors, o.Neighbors) &&
		slices.Equal(p.Forwards, o.Forwards) && slices.Equal(p.Unreachable, o.Unreachable)
}

// Plan is everything between a node and the others.
type Plan struct {
	Local Local
	// Peers are sorted by name. No two of them have a route, a neighbor or a forwarding entry with the same key.
	Peers []Peer
}

// Changes are those of a Plan.
type Changes struct {
	// Local is nil if it did not change.
	Local *Local
	// Put are peers that are new or changed, and Delete the names of those that are gone, both sorted.
	Put    []Peer
	Delete []string
}

// Empty reports whether nothing changed.
func (c *Changes) Empty() bool { return c.Local == nil && len(c.Put) == 0 && len(c.Delete) == 0 }

// Host is what is known of the own host.
type Host struct {
	// Interfaces are sorted by index. Those without addresses that matter are left out, and so are the devices of
	// tunnels.
	Interfaces []Interface
}

// Interface is an interface of the own host.
type Interface struct {
	Name  string
	Index int
	MTU   int
	Up    bool
	// Addresses are those of either family but link-local ones of IPv6, sorted.
	Addresses []netip.Prefix
}

// Equal reports whether both are the same.
func (h *Host) Equal(o *Host) bool {
	return slices.EqualFunc(h.Interfaces, o.Interfaces, func(a, b Interface) bool {
		return a.Name == b.Name && a.Index == b.Index && a.MTU == b.MTU && a.Up == b.Up &&
			slices.Equal(a.Addresses, b.Addresses)
	})
}

// Holder returns the interface that has an address; ok is false if none has.
func (h *Host) Holder(addr netip.Addr) (i Interface, ok bool) {
	for _, i := range h.Interfaces {
		if slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == addr }) {
			return i, true
		}
	}
	return Interface{}, false
}
