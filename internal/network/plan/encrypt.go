package plan

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/wireguard"
)

// Encryption is how packets to another node's Pods are encrypted.
type Encryption string

// The ways.
const (
	NoEncryption Encryption = "none"
	// WireGuard: all of them go through tunnels of WireGuard, whatever Encapsulation says.
	WireGuard Encryption = "wireguard"
)

// Keyless is what becomes of packets to a Node that has no key for an encrypted tunnel.
type Keyless string

// The ways.
const (
	// Unreachable: they are refused, so that none leaves unencrypted.
	Unreachable Keyless = "unreachable"
	// Unencrypted: they go as without encryption, while nodes move to it.
	Unencrypted Keyless = "unencrypted"
)

// encrypts reports whether anything is encrypted.
func (c *Compiler) encrypts() bool { return c.cfg.Encryption == WireGuard }

// HasVXLAN reports whether there may be tunnels of VXLAN: the node has their device then, and its port.
func (c *Config) HasVXLAN() bool {
	return c.Encapsulation != Never && (c.Encryption != WireGuard || c.Keyless == Unencrypted)
}

// nodesOutside reports whether Pods reach the addresses of nodes outside of tunnels. What is encrypted never does.
func (c *Compiler) nodesOutside() bool { return c.cfg.NodesOutside && !c.encrypts() }

// isKeyless reports whether a node has no key of its own.
func (c *Compiler) isKeyless(n *node) bool {
	return n.key == wireguard.Key{} || c.claims.keys[n.key][0].name != n.name
}

// encryptedTo returns the encrypted tunnel to a node with these addresses.
func (c *Compiler) encryptedTo(n *node, addrs []netip.Addr) tunnel {
	t := tunnel{required: true}
	to := c.outerAddr(addrs)
	switch {
	case n.key == wireguard.Key{}:
		t.problem = Verdict{Reason: NoKey}
	case c.isKeyless(n):
		t.problem = Verdict{Reason: KeyTaken, Other: c.claims.keys[n.key][0].name}
	case !to.IsValid():
		t.problem = Verdict{Reason: NoCommonFamily}
	default:
		t.device, t.to, t.mac = route.DeviceWG, to, n.mac
	}
	return t
}

// setEncrypted notes what the device of an encrypted tunnel has to know of a node: packets from its Pods have their
// addresses, and those from itself its own.
func (p *peer) setEncrypted(n *node, addrs []netip.Addr, to netip.AddrPort) {
	p.encrypted = wireguard.Peer{Name: n.name, Key: n.key, Endpoint: to, Allowed: slices.Clone(p.Unreachable)}
	for _, a := range addrs {
		p.encrypted.Allowed = append(p.encrypted.Allowed, netip.PrefixFrom(a, a.BitLen()))
	}
}
