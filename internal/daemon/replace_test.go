package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/ops/metrics"
)

// TestReplaceLosesNoDeletion: what goes away while answers take the place of
// others is not answered by those that come.
func TestReplaceLosesNoDeletion(t *testing.T) {
	cfg := config.Default()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.log, d.metrics = slog.New(slog.DiscardHandler), metrics.New("test", d.figures)
	key := cluster.Key{Namespace: "shop", Name: "web"}
	put := func(tx *cluster.Tx) {
		tx.Put(&cluster.Service{Key: key, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.7")}})
	}
	d.store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Namespace{Name: "shop"})
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = d.keepCurrent(ctx) }) // ends with ctx
	defer func() { stop(); running.Wait() }()

	name := []byte(dnsname.MustParse("web.shop.svc.cluster.local").WireLabels())
	await := func(want zone.Outcome) {
		t.Helper()
		var s zone.Scratch
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Microsecond) {
			got := d.current.Load().db.Lookup(&s, name, dnswire.TypeA).Outcome
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("outcome %d, want %d", got, want)
			}
		}
	}
	made := d.current.Load()
	for i := range 100 {
		d.store.Update(put)
		await(zone.Found)
		var both sync.WaitGroup
		both.Go(func() { d.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, key) }) })
		cfg.DNS.UDPSize = 1232 + i
		if made, err = d.replace(cfg, made); err != nil {
			t.Fatal(err)
		}
		both.Wait()
		await(zone.NXDomain)
	}
}
