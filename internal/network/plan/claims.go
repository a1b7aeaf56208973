package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/wireguard"
)

// node is what matters of a Node.
type node struct {
	name   string
	age    cluster.Age
	ranges []netip.Prefix
	// wide are podCIDRs that are ignored, those with less bits than minBits.
	wide []netip.Prefix
	// addrs are the first usable InternalIPs of each family.
	addrs []netip.Addr
	// internal are all InternalIPs.
	internal []netip.Addr
	mac      route.MAC
	key      wireguard.Key
}

// minBits returns the length of the shortest prefix that a range of a node may have. That of IPv4 is 8: 10.0.0.0/8 is
// the widest of those that are for private networks (RFC 1918). That of IPv6 is 32: a site has a /48 (RFC 4193, section
// 3.1; RFC 6177), and only networks of many sites have more.
func minBits(of netip.Prefix) int {
	if of.Addr().Is4() {
		return 8
	}
	return 32
}

// newNode returns what matters of a Node; nil if there is none.
func (c *Compiler) newNode(of *cluster.Node) *node {
	if of == nil {
		return nil
	}
	n := &node{name: of.Name, age: cluster.Age{Created: of.Created}, mac: c.cfg.mac(of.Name), key: of.WireGuardKey}
	for _, p := range of.PodCIDRs {
		switch p = p.Masked(); {
		case p.Bits() < minBits(p):
			n.wide = append(n.wide, p)
		case !slices.Contains(n.ranges, p):
			n.ranges = append(n.ranges, p)
		}
	}
	for _, a := range of.InternalIPs {
		usable := a.IsGlobalUnicast()
		if usable && !slices.ContainsFunc(n.addrs, func(o netip.Addr) bool { return o.Is4() == a.Is4() }) {
			n.addrs = append(n.addrs, a)
		}
		if usable && !slices.Contains(n.internal, a) {
			n.internal = append(n.internal, a)
		}
	}
	return n
}

func (n *node) equal(o *node) bool {
	if n == nil || o == nil {
		return n == o
	}
	return n.age == o.age && n.key == o.key && slices.Equal(n.ranges, o.ranges) && slices.Equal(n.wide, o.wide) &&
		slices.Equal(n.internal, o.internal)
}

// older orders claims: the older Node has what several claim.
func older(a, b *node) int { return cmp.Or(a.age.Compare(b.age), cmp.Compare(a.name, b.name)) }

// claims are those of all Nodes, the oldest first. Nobody claims the zero key.
type claims struct {
	ranges *prefixes[[]*node]
	addrs  map[netip.Addr][]*node
	macs   map[route.MAC][]*node
	keys   map[wireguard.Key][]*node
}

func newClaims() claims {
	return claims{
		newPrefixes[[]*node](), make(map[netip.Addr][]*node), make(map[route.MAC][]*node), make(map[wireguard.Key][]*node),
	}
}

// insert adds the claims of a Node, and remove removes them. To insert the new ones first moves nothing that stays.
func (c *claims) insert(n *node) {
	if n == nil {
		return
	}
	with := func(all []*node) []*node {
		i, _ := slices.BinarySearchFunc(all, n, older)
		return slices.Insert(slices.Clone(all), i, n)
	}
	for _, p := range n.ranges {
		c.ranges.put(p, with(c.ranges.values[p]))
	}
	for _, a := range n.addrs {
		c.addrs[a] = with(c.addrs[a])
	}
	c.macs[n.mac] = with(c.macs[n.mac])
	if n.key != (wireguard.Key{}) {
		c.keys[n.key] = with(c.keys[n.key])
	}
}

func (c *claims) remove(n *node) {
	if n == nil {
		return
	}
	without := func(all []*node) []*node {
		return slices.DeleteFunc(slices.Clone(all), func(o *node) bool { return o == n })
	}
	for _, p := range n.ranges {
		if left := without(c.ranges.values[p]); len(left) > 0 {
			c.ranges.put(p, left)
		} else {
			c.ranges.remove(p)
		}
	}
	for _, a := range n.addrs {
		if c.addrs[a] = without(c.addrs[a]); len(c.addrs[a]) == 0 {
			delete(c.addrs, a)
		}
	}
	if c.macs[n.mac] = without(c.macs[n.mac]); len(c.macs[n.mac]) == 0 {
		delete(c.macs, n.mac)
	}
	if c.keys[n.key] = without(c.keys[n.key]); len(c.keys[n.key]) == 0 {
		delete(c.keys, n.key)
	}
}

// rivals calls use with the names of all Nodes that claim the same as n.
func (c *claims) rivals(n *node, use func(name string)) {
	if n == nil {
		return
	}
	each := func(all []*node) {
		for _, o := range all {
			use(o.name)
		}
	}
	for _, p := range n.ranges {
		for _, all := range c.ranges.containing(p) {
			each(all)
		}
		for _, all := range c.ranges.within(p) {
			each(all)
		}
	}
	for _, a := range n.addrs {
		each(c.addrs[a])
	}
	each(c.macs[n.mac])
	each(c.keys[n.key])
}

// holderOfRange returns the oldest other Node that claims a range that overlaps one of n, if it is older than n.
func (c *claims) holderOfRange(n *node, p netip.Prefix) (holder *node) {
	each := func(all []*node) {
		for _, o := range all {
			if o.name != n.name && older(o, n) < 0 && (holder == nil || older(o, holder) < 0) {
				holder = o
			}
		}
	}
	for _, all := range c.ranges.containing(p) {
		each(all)
	}
	for _, all := range c.ranges.within(p) {
		each(all)
	}
	return holder
}
