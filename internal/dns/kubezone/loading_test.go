package kubezone_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// TestLoadedWhileCompiling checks that a name is never denied when its kind becomes
// loaded between two passes or during one.
func TestLoadedWhileCompiling(t *testing.T) {
	const services = 200
	name := []byte(dnsname.MustParse(fmt.Sprintf("s%d.shop.svc.cluster.local", services-1)).WireLabels())
	for range 100 {
		store := cluster.NewStore()
		feed := store.Subscribe()
		c := newCompiler(t, benchmarkConfig)
		db, err := c.NewDB()
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var tasks sync.WaitGroup
		tasks.Go(func() { // the compiler
			for {
				select {
				case <-stop:
					return
				case <-feed.Ready():
					c.Apply(store, feed, db)
				}
			}
		})
		tasks.Go(func() { // a client
			for {
				select {
				case <-stop:
					return
				default:
					if a := db.Lookup(new(zone.Scratch), name, dnswire.TypeA); a.Outcome == zone.NXDomain {
						t.Error("denied while it is loaded")
						return
					}
				}
			}
		})
		for i := range 50 { // other changes, so that passes are under way
			store.Update(func(tx *cluster.Tx) { tx.Put(&cluster.Namespace{Name: fmt.Sprintf("ns-%d", i)}) })
		}
		store.Update(func(tx *cluster.Tx) {
			tx.Put(&cluster.Namespace{Name: "shop"})
			for i := range services {
				tx.Put(&cluster.Service{
					Key:        cluster.Key{Namespace: "shop", Name: fmt.Sprintf("s%d", i)},
					ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})},
				})
			}
			tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		})
		for db.Lookup(new(zone.Scratch), name, dnswire.TypeA).Outcome != zone.Found && !t.Failed() {
			runtime.Gosched()
		}
		close(stop)
		tasks.Wait()
		feed.Close()
		if t.Failed() {
			return
		}
	}
}
