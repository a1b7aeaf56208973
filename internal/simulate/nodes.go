package simulate

import (
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// madeUp is the Node that Pods run on where none is declared.
const madeUp = "simulated"

// completeNodes makes Nodes ready that are declared without a status.
func (c *ControlPlane) completeNodes(tx *cluster.Tx) {
	for _, n := range slices.Collect(tx.Nodes()) {
		if !n.Ready && n.MilliCPU == 0 && len(n.Addresses) == 0 {
			ready := *n
			ready.Ready = true
			tx.PutNode(&ready)
		}
	}
}

// declaredNodes are the names of the Nodes that were not made up, in order; the
// one that is made up where there is none.
func (c *ControlPlane) declaredNodes(v *cluster.View) (names []string) {
	for n := range v.Nodes() {
		if c.nodes[n.Name] != n {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return []string{madeUp}
	}
	slices.Sort(names)
	return names
}

// implyNodes makes up the Nodes that Pods are on and nobody declares, and takes
// back those that no Pod is on any more.
func (c *ControlPlane) implyNodes(tx *cluster.Tx) {
	used := make(map[string]bool)
	for p := range tx.Pods() {
		used[p.Node] = p.Node != ""
	}
	for name, n := range c.nodes {
		if now := tx.Node(name); now != n {
			delete(c.nodes, name)
		} else if !used[name] {
			delete(c.nodes, name)
			tx.DeleteNode(name)
		}
	}
	for name, is := range used {
		if is && tx.Node(name) == nil {
			c.nodes[name] = &cluster.Node{Name: name, Ready: true}
			tx.PutNode(c.nodes[name])
		}
	}
}
