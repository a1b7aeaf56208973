package app

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/cni"
)

// open has the world have a Registry of attachments.
func (w *world) open(t *testing.T) {
	t.Helper()
	synctest.Wait()
	var err error
	if w.registry, err = cni.OpenRegistry(t.TempDir(), w.worker, w.cfg.Log); err != nil {
		t.Fatal(err)
	}
}

// register has the Registry admit an attachment.
func (w *world) register(t *testing.T, a cni.Attachment) {
	t.Helper()
	a.Network = "pods"
	if err := w.registry.Admit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// TestAddressReused verifies that an address is that of the Pod that is attached with it last, though the DEL of
// the one before did not come, and comes late.
func TestAddressReused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		w.open(t)
		next := webPod("u2")
		next.Name = "next"
		w.load(webPod("u1"), next)
		before := attachment("web-0", "u1", "10.0.0.1")
		w.register(t, before)
		w.register(t, attachment("next", "u2", "10.0.0.1"))
		for _, when := range []string{"after ADD", "after the late DEL"} {
			if got := w.worker.nameOf(netip.MustParseAddr("10.0.0.1")); got != "shop/next" {
				t.Errorf("%s the address is that of %q, want shop/next", when, got)
			}
			if err := w.registry.Release(t.Context(), before.ID); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLostEnds verifies when an attachment ends whose DEL does not come.
func TestLostEnds(t *testing.T) {
	t.Parallel()
	const addr = "10.0.0.1"
	other := func() *cluster.Pod {
		return &cluster.Pod{
			Key: cluster.Key{Namespace: "shop", Name: "other"}, Node: "n2", UID: "u9",
			IPs: []netip.Addr{netip.MustParseAddr(addr)}, Spec: new(cluster.PodSpec),
		}
	}
	drop := func(w *world) {
		w.cfg.Store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindPod, webPod("").Key) })
	}
	finished, hostNetwork, elsewhere := other(), other(), webPod("u2")
	finished.Finished, hostNetwork.Spec.HostNetwork = true, true
	elsewhere.Node, elsewhere.IPs = "n2", other().IPs
	for claim, test := range map[string]struct {
		change func(w *world)
		after  time.Duration
		want   string // the Pod that has the address
	}{
		"nobody has its address":             {drop, time.Hour, "shop/web-0"},
		"another Pod has its address":        {func(w *world) { drop(w); w.load(other()) }, 2 * lostTime, "shop/other"},
		"another Pod has it since just now":  {func(w *world) { drop(w); w.load(other()) }, lostTime / 2, "shop/web-0"},
		"its Pod is there":                   {func(w *world) { w.load(other()) }, time.Hour, "shop/web-0"},
		"the other Pod has finished":         {func(w *world) { drop(w); w.load(finished) }, time.Hour, "shop/web-0"},
		"the other Pod is the node's":        {func(w *world) { drop(w); w.load(hostNetwork) }, time.Hour, "shop/web-0"},
		"the next Pod of its name has it":    {func(w *world) { w.load(elsewhere) }, 2 * lostTime, "shop/web-0 on n2"},
		"its Pod is replaced, and has other": {func(w *world) { w.load(webPod("u2"), other()) }, 2 * lostTime, "shop/other"},
		"the API server does not confirm it": {func(w *world) {
			drop(w)
			w.load(other())
			w.cfg.Store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Recalled, cluster.KindPod) })
		}, time.Hour, "shop/web-0"},
	} {
		t.Run(claim, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				t.Helper()
				w.open(t)
				w.load(webPod("u1"))
				w.register(t, attachment("web-0", "u1", addr))
				test.change(w)
				time.Sleep(test.after)
				synctest.Wait()
				got := w.worker.nameOf(netip.MustParseAddr(addr))
				if _, local := w.table.judges(addr); !local && got == "shop/web-0" {
					got += " on n2"
				}
				if got != test.want {
					t.Errorf("the address is that of %q, want %q", got, test.want)
				}
				want := 0
				if test.want == "shop/web-0" {
					want = 1
				}
				if all := w.registry.All(); len(all) != want {
					t.Errorf("attachments %+v, want %d", all, want)
				}
			})
		})
	}
}
