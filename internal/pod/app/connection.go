package app

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
)

// proxySettings returns the settings of the service proxy.
func (i *Inspector) proxySettings() *connection.Settings {
	p := &i.compiled.Proxy
	return &connection.Settings{
		NodePorts: p.NodePorts, MasqueradeAll: p.Table.MasqueradeAll, Pods: p.Table.Pods, PodCIDRs: p.PodCIDRs,
		Choice: p.Choice, PodRanges: i.compiled.Policy.PodRanges, Resolvers: i.resolvers(),
	}
}

// resolvers returns the addresses of the node agent's DNS.
func (i *Inspector) resolvers() (addrs []netip.Addr) {
	for _, at := range i.compiled.Node.Listen {
		if !at.Addr().IsUnspecified() && !at.Addr().IsLoopback() {
			addrs = append(addrs, at.Addr())
		}
	}
	return addrs
}

// VIPs returns the addresses of Services that a node serves.
func (i *Inspector) VIPs(node string) (all []connection.VIP) {
	i.store.View(func(v *cluster.View) { all = connection.VIPs(v, i.proxySettings(), node) })
	return all
}

// Backends returns the endpoints of the Services that a node serves.
func (i *Inspector) Backends(node string) (all []connection.Backend) {
	i.store.View(func(v *cluster.View) { all = connection.Backends(v, i.proxySettings(), node) })
	return all
}

// Served returns the addresses that a node serves, with their names.
func (i *Inspector) Served(node string) (s *connection.Served) {
	i.store.View(func(v *cluster.View) { s = connection.NewServed(v, i.proxySettings(), node) })
	return s
}

// HasNode reports whether the cluster has a Node of a name.
func (i *Inspector) HasNode(name string) (has bool) {
	i.store.View(func(v *cluster.View) { has = v.Node(name) != nil })
	return has
}

// KnowsPolicies reports whether the NetworkPolicies of the cluster were read.
func (i *Inspector) KnowsPolicies() (known bool) {
	i.store.View(func(v *cluster.View) { known = v.Loaded(cluster.KindNetworkPolicy) })
	return known
}

// located completes where a client is: a Pod has an address and a node, and the others are on the
// only node unless they are on a certain one. A client with an address in the Pods' ranges is a
// Pod, which need not be known.
func located(v *cluster.View, s *connection.Settings, c *connection.Client) error {
	if c.Place == connection.Outside && c.Addr.IsValid() {
		owner, inside := podRange(v, s, c.Addr)
		if inside {
			c.Place = connection.AtPodAddress
		}
		c.Node = cmp.Or(c.Node, owner)
	}
	if p := c.Subject.Pod; c.Place == connection.InPod && p != nil {
		if len(p.IPs) > 0 {
			c.Addr = p.IPs[0]
		}
		if p.Node != "" {
			c.Node = p.Node
		}
	}
	nodes := slices.Collect(v.Nodes())
	switch {
	case c.Node != "":
	case len(nodes) == 1:
		c.Node = nodes[0].Name
	case len(nodes) > 1 && c.Place != connection.InPod:
		return errSeveralNodes
	}
	if c.Place != connection.OnNode || c.Node == "" {
		return nil
	}
	if n := v.Node(c.Node); n != nil && len(n.InternalIPs) > 0 {
		c.Addr = n.InternalIPs[0]
	}
	return checkNode(v, c.Node)
}

// errSeveralNodes is the error of a client that is on no node that is known.
var errSeveralNodes = errors.New(
	"there are several nodes; name the one that handles the connection: --node NAME")

// CheckNode returns an error if the cluster has no Node of the name. If no Node is known, as manifests may have none,
// the nodes of Pods and of endpoints count.
func (i *Inspector) CheckNode(name string) (err error) {
	i.store.View(func(v *cluster.View) { err = checkNode(v, name) })
	return err
}

func checkNode(v *cluster.View, name string) error {
	if v.Node(name) != nil {
		return nil
	}
	nodes := slices.SortedFunc(v.Nodes(), func(a, b *cluster.Node) int { return cmp.Compare(a.Name, b.Name) })
	switch {
	case len(nodes) > 0:
		return fmt.Errorf("there is no Node %q; name one that exists, such as %s: --node NAME", name, nodes[0].Name)
	case isOccupied(v, name):
		return nil
	}
	return fmt.Errorf("no Node is known, and no Pod or endpoint is on a node %q", name)
}

// isOccupied reports whether a Pod or an endpoint is on a node.
func isOccupied(v *cluster.View, node string) bool {
	for p := range v.Pods() {
		if p.Node == node {
			return true
		}
	}
	for s := range v.EndpointSlices() {
		if s.Spec != nil && slices.ContainsFunc(s.Spec.Places, func(p cluster.Place) bool { return p.Node == node }) {
			return true
		}
	}
	return false
}

// PodRanges returns the ranges of Pods, by the Nodes and by the settings, merged where they meet; none
// if neither has any.
func (i *Inspector) PodRanges() []netip.Prefix {
	ranges := slices.Clone(i.proxySettings().Pods.CIDRs)
	i.store.View(func(v *cluster.View) {
		for n := range v.Nodes() {
			ranges = append(ranges, n.PodCIDRs...)
		}
	})
	return merged(ranges)
}

// merged returns the fewest ranges with the same addresses.
func merged(ranges []netip.Prefix) (all []netip.Prefix) {
	for _, p := range slices.SortedFunc(slices.Values(ranges), netip.Prefix.Compare) {
		if n := len(all); n > 0 && all[n-1].Overlaps(p) { // the larger one is first
			continue
		}
		all = append(all, p.Masked())
		for n := len(all); n > 1 && parent(all[n-2]) == parent(p) && all[n-2].Bits() == p.Bits(); n-- {
			p = parent(p)
			all = append(all[:n-2], p)
		}
	}
	return all
}

// parent returns the range that is twice as large.
func parent(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(p.Addr(), max(0, p.Bits()-1)).Masked()
}

// podRange reports whether an address is in a range of Pods, by the Nodes or by the settings, and
// returns the node whose range it is, "" if it is not known.
func podRange(v *cluster.View, s *connection.Settings, addr netip.Addr) (node string, ok bool) {
	has := func(p netip.Prefix) bool { return p.Contains(addr) }
	for n := range v.Nodes() {
		if slices.ContainsFunc(n.PodCIDRs, has) {
			return n.Name, true
		}
	}
	return "", slices.ContainsFunc(s.Pods.CIDRs, has)
}
