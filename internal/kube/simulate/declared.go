package simulate

import (
	"iter"
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// owned is an object that the ControlPlane wrote to the model: the declared object,
// completed, or, if declared is nil, a simulated one.
type owned[T any] struct{ declared, stored *T }

// dropReplaced removes objects from c that the source has replaced or deleted since: the
// model has a different object or none at their key.
func (c *ControlPlane) dropReplaced(tx *cluster.Tx) {
	maps.DeleteFunc(c.pods, func(key cluster.Key, o owned[cluster.Pod]) bool { return tx.Pod(key) != o.stored })
	maps.DeleteFunc(c.nodes, func(name string, o owned[cluster.Node]) bool { return tx.Node(name) != o.stored })
}

// asDeclared yields the Pods or Nodes of the model as declared. Simulation starts from
// these, so that completed values never count as declared.
func asDeclared[K comparable, T any](all iter.Seq[*T], stored map[K]owned[T], key func(*T) K) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for object := range all {
			if o, is := stored[key(object)]; is {
				object = o.declared
			}
			if object != nil && !yield(object) {
				return
			}
		}
	}
}

func (c *ControlPlane) declaredPods(v *cluster.View) iter.Seq[*cluster.Pod] {
	return asDeclared(v.Pods(), c.pods, func(p *cluster.Pod) cluster.Key { return p.Key })
}

func (c *ControlPlane) declaredNodes(v *cluster.View) iter.Seq[*cluster.Node] {
	return asDeclared(v.Nodes(), c.nodes, func(n *cluster.Node) string { return n.Name })
}

// simulatedNode is the name of the Node on which Pods run if none is declared.
const simulatedNode = "simulated"

// nodeNames returns the sorted names of the declared Nodes, or that of the simulated Node
// if there are none.
func (c *ControlPlane) nodeNames(v *cluster.View) (names []string) {
	for n := range c.declaredNodes(v) {
		names = append(names, n.Name)
	}
	if len(names) == 0 {
		return []string{simulatedNode}
	}
	slices.Sort(names)
	return names
}

// scheduled returns a Pod with the Node that a scheduler and the readiness that a kubelet
// would set.
func scheduled(p *cluster.Pod, nodes []string) *cluster.Pod {
	if p.Finished || !p.Scheduled() || p.Node != "" && (p.Ready || len(p.Unmet) > 0) {
		return p
	}
	full := *p
	if full.Node == "" {
		full.Node = nodes[hash(p.Key)%uint64(len(nodes))]
	}
	full.Ready = len(p.Unmet) == 0
	return &full
}

// putNodes writes the declared Nodes to the model, ready if they have no status, and a
// simulated Node for each other name in spec.nodeName.
func (c *ControlPlane) putNodes(tx *cluster.Tx) {
	stored, known := make(map[string]owned[cluster.Node]), make(map[string]bool)
	for n := range c.declaredNodes(tx.View) {
		known[n.Name] = true
		if !n.Ready && n.MilliCPU == 0 && len(n.Addresses) == 0 {
			ready := *n
			ready.Ready = true
			stored[n.Name] = owned[cluster.Node]{n, &ready}
		}
	}
	for p := range tx.Pods() {
		if p.Node != "" && !known[p.Node] {
			known[p.Node] = true
			stored[p.Node] = owned[cluster.Node]{stored: &cluster.Node{Name: p.Node, Ready: true}}
		}
	}
	for name := range c.nodes {
		if !known[name] {
			tx.Delete(cluster.KindNode, cluster.Key{Name: name})
		}
	}
	for name, o := range stored {
		tx.Put(o.stored)
		stored[name] = owned[cluster.Node]{o.declared, tx.Node(name)} // the Store retains the previous object if it is equal
	}
	c.nodes = stored
}
