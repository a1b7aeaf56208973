package policy

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestPoolOfAllNodes has a Pod range of which a Pod of another node has an address. What this Pod sends and
// gets passes, also when the agent starts anew; so does what its neighbor sends, which the API does not have.
func TestPoolOfAllNodes(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.API.Put(theNode("10.244.0.0/16"))
	lab := w.newProber(t, []string{"10.244.1.0/24"}, []string{"10.244.2.0/24"}, port)
	local := w.launch(t, "local", app("local"), "10.244.1.11")
	lab.join(t, local, port)
	addr := netip.MustParseAddr("10.244.2.5")
	probes := []probe{{addr, local.Addr(), port}, {local.Addr(), addr, port}, {addr.Next(), local.Addr(), port}}
	// check sends probes, which pass, or else do not.
	check := func(when string, pass bool) {
		t.Helper()
		lab.renew(t)
		for i, passed := range lab.pass(t, probes, func(int) bool { return pass }) {
			if passed != pass {
				t.Errorf("%s: %s passed: %t, want %t", when, probes[i], passed, pass)
			}
		}
	}
	enforced := func() bool { return strings.Contains(ruleset(t), "10.244.0.0/16") }
	until(t, "the range is enforced", enforced)
	check("no Pod of another node", false)
	remote := object("remote", app("remote"))
	remote.Spec.NodeName = "node-2"
	remote.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr.String(), PodIPs: []corev1.PodIP{{IP: addr.String()}}}
	w.API.Put(remote)
	until(t, "the range is not enforced", func() bool { return !enforced() })
	check("a Pod of another node", true)
	w.Stop()
	check("without an agent", true)
	w.Start(t)
	check("with the next agent", true)
	w.API.Delete(remote)
	until(t, "the range is enforced again", enforced)
	check("the Pod is gone", false)
}
