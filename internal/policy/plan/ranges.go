package plan

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// podRange is a range that the node's Pods get addresses of, with how many of its addresses are foreign. With
// one it is shared, and not enforced: an address that no Pod of this node has may be that of a Pod of another
// node, of one that the model does not have yet, too.
type podRange struct {
	netip.Prefix
	foreign int
}

// Foreign is an address of another node.
type Foreign struct {
	Addr netip.Addr
	Pod  cluster.Key // whose it is; zero if it is the node's own
	Node string
}

// compare orders by Pod, node and address.
func (f *Foreign) compare(o *Foreign) int {
	return cmp.Or(f.Pod.Compare(o.Pod), strings.Compare(f.Node, o.Node), f.Addr.Compare(o.Addr))
}

// foreign yields all addresses of Pods of other nodes, and of these nodes, in no order.
func (c *Compiler) foreign() iter.Seq[Foreign] {
	return func(yield func(Foreign) bool) {
		for name, n := range c.nodes {
			for _, addr := range c.nodeAddrs(n) {
				if !yield(Foreign{Addr: addr, Node: name}) {
					return
				}
			}
		}
		for key, p := range c.pods {
			for _, addr := range p.foreign() {
				if !yield(Foreign{addr, key, p.source.Node}) {
					return
				}
			}
		}
	}
}

// foreign returns the addresses of a Pod of another node.
func (p *pod) foreign() []netip.Addr {
	if p.local != nil {
		return nil
	}
	return p.wanted
}

// nodeAddrs returns the addresses of another Node than this; nil is none.
func (c *Compiler) nodeAddrs(n *cluster.Node) []netip.Addr {
	if n == nil || n.Name == c.config.Node {
		return nil
	}
	return n.Addresses
}

// setPodRanges replaces the ranges that the node's Pods get addresses of.
func (c *Compiler) setPodRanges(prefixes []netip.Prefix) {
	if slices.EqualFunc(c.podRanges, prefixes, func(r podRange, p netip.Prefix) bool { return r.Prefix == p }) {
		return
	}
	c.podRanges = nil
	for _, p := range prefixes {
		c.podRanges = append(c.podRanges, podRange{Prefix: p})
	}
	for f := range c.foreign() {
		c.countForeign([]netip.Addr{f.Addr}, 1)
	}
}

// countForeign notes that foreign addresses came, by 1, or went, by -1.
func (c *Compiler) countForeign(addrs []netip.Addr, by int) {
	for i := range c.podRanges {
		for _, addr := range addrs {
			if r := &c.podRanges[i]; r.Contains(addr) {
				r.foreign += by
			}
		}
	}
}

// enforced returns the ranges that are not shared.
func (c *Compiler) enforced() []netip.Prefix {
	var own []netip.Prefix
	for _, r := range c.podRanges {
		if r.foreign == 0 {
			own = append(own, r.Prefix)
		}
	}
	return union(own)
}

// SharedRanges returns the ranges of the node's Pods that are not among Ranges, as they have addresses of Pods of
// other nodes, or of other nodes.
func (c *Compiler) SharedRanges() (shared []netip.Prefix) {
	for _, r := range c.podRanges {
		if r.foreign > 0 {
			shared = append(shared, r.Prefix)
		}
	}
	return shared
}

// ForeignIn returns an address of a range that makes it one of SharedRanges; the zero Foreign if none does. It looks
// at all Pods.
func (c *Compiler) ForeignIn(r netip.Prefix) (first Foreign) {
	for f := range c.foreign() {
		if r.Contains(f.Addr) && (first == Foreign{} || f.compare(&first) < 0) {
			first = f
		}
	}
	return first
}
