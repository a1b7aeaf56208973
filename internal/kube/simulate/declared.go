package simulate

import (
	"iter"
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// owned is an object that the ControlPlane put into the model: a declared one,
// completed, or, if declared is nil, a simulated one.
type owned[T any] struct{ declared, put *T }

// dropReplaced forgets objects that the source has replaced or removed since they
// were put: the model holds another object, or none, at their key.
func (c *ControlPlane) dropReplaced(tx *cluster.Tx) {
	maps.DeleteFunc(c.pods, func(key cluster.Key, o owned[cluster.Pod]) bool { return tx.Pod(key) != o.put })
	maps.DeleteFunc(c.nodes, func(name string, o owned[cluster.Node]) bool { return tx.Node(name) != o.put })
}

// asDeclared yields the Pods or Nodes of the model as they are declared. Everything is
// computed from these, so that completed values never count as declared.
func asDeclared[K comparable, T any](all iter.Seq[*T], put map[K]owned[T], key func(*T) K) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for object := range all {
			if o, is := put[key(object)]; is {
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

// simulatedNode is the Node that Pods run on if none is declared.
const simulatedNode = "simulated"

// nodeNames returns the sorted names of the declared Nodes, or that of the simulated
// one if there are none.
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

// scheduled returns a Pod with what a scheduler and a kubelet would set, except for
// addresses: its Node and its readiness.
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

// putNodes writes to the model the declared Nodes, ready if they have no status, and
// those that Pods run on but that are not declared.
func (c *ControlPlane) putNodes(tx *cluster.Tx) {
	put, known := make(map[string]owned[cluster.Node]), make(map[string]bool)
	for n := range c.declaredNodes(tx.View) {
		known[n.Name] = true
		if !n.Ready && n.MilliCPU == 0 && len(n.Addresses) == 0 {
			ready := *n
			ready.Ready = true
			put[n.Name] = owned[cluster.Node]{n, &ready}
		}
	}
	for p := range tx.Pods() {
		if p.Node != "" && !known[p.Node] {
			known[p.Node] = true
			put[p.Node] = owned[cluster.Node]{put: &cluster.Node{Name: p.Node, Ready: true}}
		}
	}
	for name := range c.nodes {
		if !known[name] {
			tx.Delete(cluster.KindNode, cluster.Key{Name: name})
		}
	}
	for name, o := range put {
		tx.Put(o.put)
		put[name] = owned[cluster.Node]{o.declared, tx.Node(name)} // the previous one if it is equal
	}
	c.nodes = put
}
