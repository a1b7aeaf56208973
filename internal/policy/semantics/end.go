package semantics

import (
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
)

// EndOf returns the end that a Pod is.
func EndOf(p *cluster.Pod) *End {
	e := &End{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Addrs: p.IPs, Node: p.Node}
	if p.Spec != nil {
		e.Ports, e.HostNetwork = p.Spec.Ports, p.Spec.HostNetwork
	}
	return e
}

// EndOfWorkload returns the end that the Pods of a workload are, of which no address is known.
func EndOfWorkload(w *cluster.Workload) *End {
	return &End{Namespace: w.Namespace, Labels: w.Labels, Ports: w.Spec.Ports, HostNetwork: w.Spec.HostNetwork}
}

// Ends finds the ends at addresses of a view without a search.
type Ends struct {
	pods  map[netip.Addr]*cluster.Pod
	nodes map[netip.Addr]string
}

// NewEnds collects the addresses of a view.
func NewEnds(v *cluster.View) *Ends {
	x := &Ends{pods: make(map[netip.Addr]*cluster.Pod), nodes: make(map[netip.Addr]string)}
	for p := range v.Pods() {
		if p.Finished || p.Spec == nil || p.Spec.HostNetwork {
			continue
		}
		for _, a := range p.IPs {
			if other := x.pods[a]; other == nil || p.Compare(other.Key) < 0 {
				x.pods[a] = p
			}
		}
	}
	for n := range v.Nodes() {
		for _, a := range n.Addresses {
			if other := x.nodes[a]; other == "" || n.Name < other {
				x.nodes[a] = n.Name
			}
		}
	}
	return x
}

// At returns the end at an address: a Pod that has it and has not finished, of several the first by namespace and name,
// otherwise a node, otherwise an address outside the cluster. Pods in the network of their node are the node.
func (x *Ends) At(addr netip.Addr) *End {
	if p := x.pods[addr]; p != nil {
		return EndOf(p)
	}
	return &End{Addrs: []netip.Addr{addr}, Node: x.nodes[addr]}
}
