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

func fitnessOf(n *cluster.Node) fitness {
	if n == nil || n.Leaving {
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

// node is a node that is not unfit.
type node struct {
	id      ID
	fitness fitness
	addrs   []netip.Addr
}

// isOn reports whether the node is on a link, as far as the addresses of its Node say.
func (n *node) isOn(link netip.Prefix) bool { return slices.ContainsFunc(n.addrs, link.Contains) }
