package nft

import "net/netip"

// Ranges say which packets get an address of the node as source, and which are taken out of the tunnel. Each list is
// sorted, and none of its ranges contains another.
type Ranges struct {
	// Pods are the ranges of the node's own Pods.
	Pods []netip.Prefix
	// Cluster are destinations inside of the cluster, to which Pods keep their address.
	Cluster []netip.Prefix
	// Nodes are the addresses of all nodes, which alone send through tunnels.
	Nodes []netip.Addr
}

// RangeChanges are those of Ranges, in the same order.
type RangeChanges struct {
	AddPods, DeletePods       []netip.Prefix
	AddCluster, DeleteCluster []netip.Prefix
	AddNodes, DeleteNodes     []netip.Addr
}

// Empty reports whether nothing changed.
func (c *RangeChanges) Empty() bool {
	return len(c.AddPods)+len(c.DeletePods)+len(c.AddCluster)+len(c.DeleteCluster)+
		len(c.AddNodes)+len(c.DeleteNodes) == 0
}
