package app

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/plan"
)

// TestNodeReturns checks that the log says when the Node of the agent is missing, and when it is there again, as it may
// have other ranges then.
func TestNodeReturns(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, plan.Kinds()...) })
	w := &worker{cfg: &Config{Store: store, Node: "n1", Log: slog.New(slog.NewTextHandler(&log, nil))}}
	want := func(claim string, known bool, line string) {
		t.Helper()
		for range 2 { // the second time nothing has changed
			if got := w.known(); got != known {
				t.Errorf("%s: known() = %v, want %v", claim, got, known)
			}
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, line) {
			t.Errorf("%s: the log has %q, want one line with %q", claim, got, line)
		}
		log.Reset()
	}
	want("without the Node", false, "the cluster has no Node of this name")
	node := &cluster.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.7.0/24")}}
	store.Update(func(tx *cluster.Tx) { tx.Put(node) })
	want("with it", true, `msg="the cluster has the Node" node=n1 ranges=[10.244.7.0/24]`)
}
