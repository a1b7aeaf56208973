package network

import (
	"syscall"
	"testing"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// TestMovedCluster: with externalTrafficPolicy Cluster, no connection is lost when an address moves as planned.
func TestMovedCluster(t *testing.T) { testMoved(t, frontend.External) }

// TestMovedLocal: the same with externalTrafficPolicy Local, whose endpoints are others at each node.
func TestMovedLocal(t *testing.T) { testMoved(t, frontend.ExternalLocal) }

func testMoved(t *testing.T, policy frontend.Policy) {
	t.Helper()
	w := newBalancerWorld(t, policy)
	if w == nil {
		return
	}
	const connections = 50
	for claim, way := range map[string]struct{ leave, undo func(*balancerNode) }{
		"cordoned": {
			func(n *balancerNode) { w.command("cordon " + n.name) }, func(n *balancerNode) { w.command("return " + n.name) },
		},
		"its agent ends": {func(n *balancerNode) { n.end(syscall.SIGTERM) }, func(n *balancerNode) { n.start(t) }},
	} {
		for _, a := range balancerAddrs {
			first, second := w.ranked(a)
			w.untilAt(a, first)
			before := w.connect(a, connections)
			way.leave(first)
			w.untilAt(a, second)
			if got := alive(before); got != connections {
				t.Errorf("%s, %s: %d of %d connections go on", a, claim, got, connections)
			}
			between := w.connect(a, connections)
			way.undo(first)
			w.untilAt(a, first)
			if got := alive(before); got != connections {
				t.Errorf("%s, %s and back: %d of %d connections from before go on", a, claim, got, connections)
			}
			if got := alive(between); got != connections {
				t.Errorf("%s, %s and back: %d of %d connections from meanwhile go on", a, claim, got, connections)
			}
		}
	}
}
