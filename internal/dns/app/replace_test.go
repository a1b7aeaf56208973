package app

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
)

// TestReplaceLosesNoDeletion checks that new answers do not contain a Service that was
// deleted while they were made.
func TestReplaceLosesNoDeletion(t *testing.T) {
	cfg := config.Default()
	store := cluster.NewStore()
	d, err := New(Config{Settings: cfg, Store: store, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	key := cluster.Key{Namespace: "shop", Name: "web"}
	put := func(tx *cluster.Tx) {
		tx.Put(&cluster.Service{Key: key, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.7")}})
	}
	store.Update(func(tx *cluster.Tx) {
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
	for i := range 100 {
		store.Update(put)
		await(zone.Found)
		var both sync.WaitGroup
		both.Go(func() { store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, key) }) })
		cfg.DNS.UDPSize = 1232 + i
		if err := d.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
		both.Wait()
		await(zone.NXDomain)
	}
}
