package plan

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// labelExcluded is the label of nodes that take no traffic of load balancers, whatever its value
// (k8s.io/api/core/v1, LabelNodeExcludeBalancers).
const labelExcluded = "node.kubernetes.io/exclude-from-external-load-balancers"

// fitness is whether a node may announce addresses.
type fitness uint8

const (
	unfit fitness = iota
	// notReady: only if no node is ready. If the nodes cannot reach the API, none is, and all still serve.
	notReady
	ready
)

func (c *Config) fitnessOf(n *cluster.Node) fitness {
	if n == nil || n.Leaving || !c.selects(n) {
		return unfit
	}
	if _, excluded := n.Labels[labelExcluded]; excluded {
		return unfit
	}
	if n.Ready {
		return ready
	}
	return notReady
}

// selects reports whether a Node has all labels of the selector.
func (c *Config) selects(n *cluster.Node) bool {
	for name, value := range c.NodeSelector {
		if v, has := n.Labels[name]; !has || v != value {
			return false
		}
	}
	return true
}

// node is a node that is not unfit.
type node struct {
	id      ID
	fitness fitness
	// cordoned: it is after the nodes that are not. It forwards as before, but is likely to be rebooted soon.
	cordoned bool
	addrs    []netip.Addr
}

// isOn reports whether the node is on a link, as far as the addresses of its Node say.
func (n *node) isOn(link netip.Prefix) bool { return slices.ContainsFunc(n.addrs, link.Contains) }

func (n node) equal(o node) bool {
	return n.id == o.id && n.fitness == o.fitness && n.cordoned == o.cordoned && slices.Equal(n.addrs, o.addrs)
}

// rank returns the node, whose name is given, as a candidate of an address.
func (n *node) rank(a netip.Addr, name string) ranked {
	return ranked{cordoned: n.cordoned, score: Score(a, n.id), name: name}
}
