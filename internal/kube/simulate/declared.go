package simulate

import (
	"iter"
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// ours is an object that this control plane put: what is declared with what was
// filled in, or, where declared is nil, one that it made.
type ours[T any] struct{ declared, put *T }

// observe takes note of what was declared since the last time: what stands where
// an object was put and is not that one.
func (c *ControlPlane) observe(tx *cluster.Tx) {
	maps.DeleteFunc(c.pods, func(key cluster.Key, o ours[cluster.Pod]) bool { return tx.Pod(key) != o.put })
	maps.DeleteFunc(c.nodes, func(name string, o ours[cluster.Node]) bool { return tx.Node(name) != o.put })
}

// asDeclared yields Pods or Nodes of the model as they are declared. What is made
// of them starts from here each time: what was filled in never counts as declared.
func asDeclared[K comparable, T any](all iter.Seq[*T], put map[K]ours[T], key func(*T) K) iter.Seq[*T] {
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

// madeUp is the Node that Pods run on where none is declared.
const madeUp = "simulated"

// nodeNames are the Nodes that are declared, in order; the one that is made up
// where there is none.
func (c *ControlPlane) nodeNames(v *cluster.View) (names []string) {
	for n := range c.declaredNodes(v) {
		names = append(names, n.Name)
	}
	if len(names) == 0 {
		return []string{madeUp}
	}
	slices.Sort(names)
	return names
}

// placed is a Pod with what a scheduler and a kubelet would have told of it, but
// for addresses: a Node, and that it is ready.
func placed(p *cluster.Pod, nodes []string) *cluster.Pod {
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

// putNodes has the model hold the Nodes that are declared, ready where they say
// nothing of themselves, and those that Pods are on and nobody declares.
func (c *ControlPlane) putNodes(tx *cluster.Tx) {
	put, known := make(map[string]ours[cluster.Node]), make(map[string]bool)
	for n := range c.declaredNodes(tx.View) {
		known[n.Name] = true
		if !n.Ready && n.MilliCPU == 0 && len(n.Addresses) == 0 {
			ready := *n
			ready.Ready = true
			put[n.Name] = ours[cluster.Node]{n, &ready}
		}
	}
	for p := range tx.Pods() {
		if p.Node != "" && !known[p.Node] {
			known[p.Node] = true
			put[p.Node] = ours[cluster.Node]{put: &cluster.Node{Name: p.Node, Ready: true}}
		}
	}
	for name := range c.nodes {
		if !known[name] {
			tx.Delete(cluster.KindNode, cluster.Key{Name: name})
		}
	}
	for name, o := range put {
		tx.Put(o.put)
		put[name] = ours[cluster.Node]{o.declared, tx.Node(name)} // the one that was there, if it was the same
	}
	c.nodes = put
}
