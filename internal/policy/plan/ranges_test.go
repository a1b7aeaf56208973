package plan

import (
	"net/netip"
	"slices"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// TestSharedRanges checks that no range is enforced in which a Pod of another node has an address, and that
// the others are.
func TestSharedRanges(t *testing.T) {
	t.Parallel()
	own := &cluster.Node{Name: "n1", PodCIDRs: prefixesOf("10.1.0.0/24", "fd01::/64")}
	finished, inHost := shopPod("remote", "n2", "10.1.0.9", nil), shopPod("remote", "n2", "10.1.0.9", nil)
	finished.Finished, inHost.Spec.HostNetwork = true, true
	for claim, test := range map[string]struct {
		ranges []netip.Prefix // of the configuration
		remote *cluster.Pod
		want   string // what becomes of a packet from 10.1.0.9
		in     []netip.Prefix
		shared int
	}{
		"of the Node, with a Pod of this node": {
			remote: shopPod("remote", "n1", "10.1.0.8", nil), want: "egress: no Pod has this address", in: own.PodCIDRs,
		},
		"of the Node, with one of another": {
			remote: shopPod("remote", "n2", "10.1.0.9", nil), want: "allowed", in: prefixesOf("fd01::/64"), shared: 1,
		},
		"of the Node, with a neighbor of one": {
			remote: shopPod("remote", "n2", "10.1.0.8", nil), want: "allowed", in: prefixesOf("fd01::/64"), shared: 1,
		},
		"configured": {
			ranges: prefixesOf("10.0.0.0/8"), remote: shopPod("remote", "n2", "10.2.0.9", nil), want: "allowed", shared: 1,
		},
		"one of two that are adjacent": {
			ranges: prefixesOf("10.1.0.0/24", "10.1.1.0/24"), remote: shopPod("remote", "n2", "10.1.0.9", nil), want: "allowed",
			in: prefixesOf("10.1.1.0/24"), shared: 1,
		},
		"with one that has finished": {remote: finished, want: "egress: no Pod has this address", in: own.PodCIDRs},
		"with one in the network of its node": {
			remote: inHost, want: "egress: no Pod has this address", in: own.PodCIDRs,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			// What is compiled first is the first that the kernel gets.
			n := newNode(t, Config{Ranges: test.ranges}, own, shopPod("local", "n1", "10.1.0.2", nil), test.remote)
			if got := n.judge("10.1.0.9", "10.1.0.2", 80); got != test.want {
				t.Errorf("a packet from 10.1.0.9 is %s, want %s", got, test.want)
			}
			if got := n.Ranges(); !slices.Equal(got, test.in) {
				t.Errorf("ranges %v, want %v", got, test.in)
			}
			got := n.SharedRanges()
			if len(got) != test.shared {
				t.Errorf("shared ranges %v, want %d", got, test.shared)
			}
			want := Foreign{test.remote.IPs[0], test.remote.Key, "n2"}
			if len(got) > 0 && n.ForeignIn(got[0]) != want {
				t.Errorf("ForeignIn(%s) = %v, want %v", got[0], n.ForeignIn(got[0]), want)
			}
			n.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindPod, test.remote.Key) })
			if d := n.apply(); d.Ranges != (test.shared > 0) || len(n.SharedRanges()) > 0 {
				t.Errorf("without the Pod the ranges changed: %t, and %v are shared", d.Ranges, n.SharedRanges())
			}
			if got, want := n.judge("10.1.0.9", "10.1.0.2", 80), "egress: no Pod has this address"; got != want {
				t.Errorf("without the Pod a packet from 10.1.0.9 is %s, want %s", got, want)
			}
		})
	}
}

func prefixesOf(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
