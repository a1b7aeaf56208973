package nft

import "net/netip"

// Ranges say which packets get an address of the node as source. Each list is sorted, and none of its ranges
// contains another.
type Ranges struct {
	// Pods are the ranges of the node's own Pods.
	Pods []netip.Prefix
	// Cluster are destinations inside of the cluster, to which Pods keep their address.
	Cluster []netip.Prefix
}

// RangeChanges are those of Ranges, in the same order.
type RangeChanges struct {
	AddPods, DeletePods       []netip.Prefix
	AddCluster, DeleteCluster []netip.Prefix
}

// Empty reports whether nothing changed.
func (c *RangeChanges) Empty() bool {
	return len(c.AddPods)+len(c.DeletePods)+len(c.AddCluster)+len(c.DeleteCluster) == 0
}
