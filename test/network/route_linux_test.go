package network

import (
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

// TestAlwaysEncapsulated is TestEveryPair with tunnels between all nodes.
func TestAlwaysEncapsulated(t *testing.T) {
	w := newWorld(t, func(c *plan.Config) { c.Encapsulation = plan.Always })
	if w == nil {
		return
	}
	w.checkAll()
}
