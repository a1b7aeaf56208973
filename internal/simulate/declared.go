package simulate

import (
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// declared are Pods and Nodes as they are declared. What is made of them starts
// from here each time: what was filled in never counts as declared.
type declared struct {
	pods  map[cluster.Key]*cluster.Pod
	nodes map[string]*cluster.Node
}

// observe takes note of what a transaction was asked to hold by its changes: all
// that is not what was put here.
func (c *ControlPlane) observe(tx *cluster.Tx, changes cluster.Changes) {
	if changes.Everything || c.declared.pods == nil {
		c.declared = declared{pods: make(map[cluster.Key]*cluster.Pod), nodes: make(map[string]*cluster.Node)}
		for p := range tx.Pods() {
			c.observePod(p.Key, p)
		}
		for n := range tx.Nodes() {
			c.observeNode(n.Name, n)
		}
		return
	}
	for ch := range changes.Objects {
		switch ch.Kind {
		case cluster.KindPod:
			c.observePod(ch.Key, tx.Pod(ch.Key))
		case cluster.KindNode:
			c.observeNode(ch.Key.Name, tx.Node(ch.Key.Name))
		}
	}
}

func (c *ControlPlane) observePod(key cluster.Key, p *cluster.Pod) {
	switch {
	case p == nil:
		delete(c.declared.pods, key)
	case p != c.pods[key]:
		c.declared.pods[key] = p
	}
}

func (c *ControlPlane) observeNode(name string, n *cluster.Node) {
	switch {
	case n == nil:
		delete(c.declared.nodes, name)
	case n != c.nodes[name]:
		c.declared.nodes[name] = n
	}
}

// madeUp is the Node that Pods run on where none is declared.
const madeUp = "simulated"

// nodeNames are the Nodes that are declared, in order; the one that is made up
// where there is none.
func (d *declared) nodeNames() (names []string) {
	for name := range d.nodes {
		names = append(names, name)
	}
	if len(names) == 0 {
		return []string{madeUp}
	}
	slices.Sort(names)
	return names
}

// placed are the Pods with what a scheduler and a kubelet would have told of them,
// but for addresses: a Node, and that they are ready.
func (d *declared) placed(nodes []string) map[cluster.Key]*cluster.Pod {
	placed := make(map[cluster.Key]*cluster.Pod, len(d.pods))
	for key, p := range d.pods {
		if !p.Finished && p.Scheduled() && (p.Node == "" || !p.Ready && len(p.Unmet) == 0) {
			full := *p
			if full.Node == "" {
				full.Node = nodes[hash(key)%uint64(len(nodes))]
			}
			full.Ready = len(p.Unmet) == 0
			p = &full
		}
		placed[key] = p
	}
	return placed
}

// putNodes has the model hold the Nodes that are declared, ready where they say
// nothing of themselves, and those that Pods are on and nobody declares.
func (c *ControlPlane) putNodes(tx *cluster.Tx) {
	wanted := make(map[string]*cluster.Node)
	for name, n := range c.declared.nodes {
		if !n.Ready && n.MilliCPU == 0 && len(n.Addresses) == 0 {
			ready := *n
			ready.Ready = true
			n = &ready
		}
		wanted[name] = n
	}
	for p := range tx.Pods() {
		if p.Node != "" && wanted[p.Node] == nil {
			wanted[p.Node] = &cluster.Node{Name: p.Node, Ready: true}
		}
	}
	for name, n := range c.nodes {
		if wanted[name] == nil && tx.Node(name) == n {
			tx.DeleteNode(name)
		}
	}
	clear(c.nodes)
	for name, n := range wanted {
		tx.PutNode(n)
		c.nodes[name] = tx.Node(name)
	}
}
