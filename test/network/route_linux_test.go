package network

import (
	"strings"
	"testing"

	"portolan.dev/portolan/internal/network/plan"
)

// TestEveryPair: every Pod reaches every Pod and every node, and nodes reach Pods, without NAT.
func TestEveryPair(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	w.checkAll()
}

// TestNodesOutside is TestEveryPair with packets of Pods to nodes that do not go through tunnels.
func TestNodesOutside(t *testing.T) {
	w := newWorld(t, func(c *plan.Config) { c.NodesOutside = true })
	if w == nil {
		return
	}
	w.checkAll()
	for _, n := range w.nodes {
		if rules := n.ip("rule") + n.ip("-6 rule"); strings.Contains(rules, "lookup 80") {
			t.Errorf("%s has rules that cost each packet time:\n%s", n.name, rules)
		}
	}
}

// TestAlwaysEncapsulated is TestEveryPair with tunnels between all nodes.
func TestAlwaysEncapsulated(t *testing.T) {
	w := newWorld(t, func(c *plan.Config) { c.Encapsulation = plan.Always })
	if w == nil {
		return
	}
	w.checkAll()
}
