// Package podcidr divides a cluster's ranges of Pod addresses among its Nodes (Kubernetes documentation, "Cluster
// Networking"; NodeSpec, podCIDRs), as the node-ipam-controller of kube-controller-manager does.
//
//	Nodes, ServiceCIDRs ──► Allocator.Update ──► Allocator.Give ──► Assignments ──► the Nodes' specs
//
// A Node without a range gets the lowest free block of each range of the cluster. A block is free if neither a range
// that a Node has, whoever gave it, nor one of Services overlaps it. The state is that of the API alone: an Allocator
// that is made anew from the Nodes with what was written gives nothing to anybody else.
package podcidr

import (
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Assignment are the ranges of a Node, one of each range of the cluster, in its order.
type Assignment struct {
	Node  string
	CIDRs []netip.Prefix
}

// Allocator gives ranges to Nodes. It is not safe for concurrent use.
type Allocator struct {
	ranges   []*blocks
	nodes    map[string]*holder
	services map[string][]netip.Prefix // by ServiceCIDR
	// fresh are Nodes without a range that Give has not looked at. freed: a block was freed since.
	fresh map[string]struct{}
	freed bool
	// waiting are Nodes that got none, for there was none.
	waiting map[string]struct{}
}

// holder is what a Node holds.
type holder struct {
	has []netip.Prefix // its podCIDRs
	// given are ranges that are, or will be, written, and that the model does not show.
	given []netip.Prefix
}

// NewAllocator returns an Allocator for ranges that pass CheckRanges.
func NewAllocator(ranges []Range) *Allocator {
	a := &Allocator{
		nodes: make(map[string]*holder), services: make(map[string][]netip.Prefix),
		fresh: make(map[string]struct{}), waiting: make(map[string]struct{}),
	}
	for _, r := range ranges {
		a.ranges = append(a.ranges, newBlocks(r))
	}
	return a
}

// Update applies changes of Nodes and ServiceCIDRs.
func (a *Allocator) Update(v *cluster.View, changes cluster.Changes) {
	if changes.Everything {
		a.updateAll(v)
		return
	}
	for ref := range changes.Objects {
		switch ref.Kind {
		case cluster.KindNode:
			a.updateNode(ref.Key.Name, v.Node(ref.Key.Name))
		case cluster.KindServiceCIDR:
			c := cluster.ServiceCIDRs.Get(v, ref.Key)
			a.updateServices(ref.Key.Name, c)
		}
	}
}

func (a *Allocator) updateAll(v *cluster.View) {
	services := make(map[string]*cluster.ServiceCIDR)
	for c := range cluster.ServiceCIDRs.All(v) {
		services[c.Name] = c
	}
	for name := range maps.Clone(a.services) {
		a.updateServices(name, services[name])
	}
	for name, c := range services {
		a.updateServices(name, c)
	}
	for name := range maps.Clone(a.nodes) {
		if v.Node(name) == nil {
			a.updateNode(name, nil)
		}
	}
	for n := range v.Nodes() {
		a.updateNode(n.Name, n)
	}
}

// updateServices sets the ranges of a ServiceCIDR; nil is one that does not exist.
func (a *Allocator) updateServices(name string, c *cluster.ServiceCIDR) {
	was := a.services[name]
	if c == nil {
		delete(a.services, name)
	} else {
		a.services[name] = c.CIDRs
		a.take(c.CIDRs)
	}
	a.free(was)
}

// updateNode sets what a Node has; nil is one that does not exist.
func (a *Allocator) updateNode(name string, n *cluster.Node) {
	known := a.nodes[name]
	if n == nil {
		if known != nil {
			a.free(known.has)
			a.free(known.given)
		}
		delete(a.nodes, name)
		delete(a.fresh, name)
		delete(a.waiting, name)
		return
	}
	if known == nil {
		known = &holder{}
		a.nodes[name] = known
	}
	was := known.has
	known.has = n.PodCIDRs
	a.take(known.has)
	a.free(was)
	if len(known.has) > 0 {
		a.free(known.given)
		known.given = nil
	}
	a.want(name, known)
}

// want notes whether a Node has to get a range.
func (a *Allocator) want(name string, n *holder) {
	if len(n.has) > 0 || len(n.given) > 0 {
		delete(a.fresh, name)
		delete(a.waiting, name)
		return
	}
	if _, waits := a.waiting[name]; !waits {
		a.fresh[name] = struct{}{}
	}
}

// Adopt notes the ranges that the API has for a Node, and that the model does not show yet. It does nothing if the
// model has ranges for it.
func (a *Allocator) Adopt(given Assignment) {
	n := a.nodes[given.Node]
	if n == nil {
		n = &holder{}
		a.nodes[given.Node] = n
	}
	if len(n.has) > 0 {
		return
	}
	was := n.given
	n.given = given.CIDRs
	a.take(n.given)
	a.free(was)
	a.want(given.Node, n)
}

// Forget frees what was given to a Node that is not in the model, and that the API does not have either.
func (a *Allocator) Forget(name string) {
	n := a.nodes[name]
	if n == nil || len(n.has) > 0 {
		return
	}
	a.free(n.given)
	delete(a.nodes, name)
	delete(a.fresh, name)
}

// Given returns the ranges that were given to a Node and that the model does not show yet; none if there are none.
func (a *Allocator) Given(name string) []netip.Prefix {
	n := a.nodes[name]
	if n == nil {
		return nil
	}
	return n.given
}

// Give gives ranges to Nodes that have none, in the order of their names. It returns them, and the Nodes that get none
// for the first time, because the ranges of a family are all taken.
func (a *Allocator) Give() (given []Assignment, missing []string) {
	wanting := slices.Sorted(maps.Keys(a.fresh))
	if a.freed {
		wanting = slices.AppendSeq(wanting, maps.Keys(a.waiting))
		slices.Sort(wanting)
	}
	a.freed = false
	for _, name := range wanting {
		cidrs, ok := a.lowest()
		if !ok {
			if _, known := a.waiting[name]; !known {
				missing = append(missing, name)
			}
			a.waiting[name] = struct{}{}
			continue
		}
		n := a.nodes[name]
		n.given = cidrs
		a.take(cidrs)
		delete(a.waiting, name)
		given = append(given, Assignment{name, cidrs})
	}
	a.fresh = make(map[string]struct{}) // a map that was large stays slow to read
	return given, missing
}

// lowest returns the first free block of each range; ok is false if one has none.
func (a *Allocator) lowest() (cidrs []netip.Prefix, ok bool) {
	for _, b := range a.ranges {
		p, ok := b.lowest()
		if !ok {
			return nil, false
		}
		cidrs = append(cidrs, p)
	}
	return cidrs, true
}

func (a *Allocator) take(all []netip.Prefix) {
	for _, p := range all {
		for _, b := range a.ranges {
			b.take(p)
		}
	}
}

func (a *Allocator) free(all []netip.Prefix) {
	for _, p := range all {
		for _, b := range a.ranges {
			if b.free(p) {
				a.freed = true
			}
		}
	}
}

// Usage is how many blocks of a range are free and taken.
type Usage struct {
	Family      cluster.AddressType
	Free, Taken int
}

// Usage returns the usage of each range.
func (a *Allocator) Usage() (all []Usage) {
	for _, b := range a.ranges {
		all = append(all, Usage{b.family(), len(b.taken) - b.used, b.used})
	}
	return all
}

// Waiting returns the number of Nodes that get no range because there is none.
func (a *Allocator) Waiting() int { return len(a.waiting) }
