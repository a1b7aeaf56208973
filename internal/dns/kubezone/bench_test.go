package kubezone_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/kubezone"
)

// syntheticCluster returns a cluster with a number of Services with a cluster IP, and a
// number of endpoints each, in a hundred Namespaces.
func syntheticCluster(services, endpoints int) *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for i := range 100 {
			tx.Put(&cluster.Namespace{Name: fmt.Sprintf("ns-%d", i)})
		}
		pod := netip.MustParseAddr("10.128.0.0")
		ip := netip.MustParseAddr("10.0.0.0")
		for i := range services {
			ip = ip.Next()
			key := cluster.Key{Namespace: fmt.Sprintf("ns-%d", i%100), Name: fmt.Sprintf("service-%d", i)}
			ports := []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}
			tx.Put(&cluster.Service{Key: key, ClusterIPs: []netip.Addr{ip}, Ports: ports})
			slice := &cluster.EndpointSlice{Key: cluster.Key{Namespace: key.Namespace, Name: key.Name + "-x"}, Service: key.Name, AddressType: cluster.IPv4, Ports: ports}
			for range endpoints {
				pod = pod.Next()
				slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: pod, Ready: true})
			}
			tx.Put(slice)
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return store
}

var benchmarkConfig = kubezone.Config{Zones: []dnsname.Name{dnsname.MustParse("cluster.local")}, TTL: 5, Pods: kubezone.PodsVerified}

// BenchmarkFull compiles 10,000 Services with 40,000 endpoints from scratch.
func BenchmarkFull(b *testing.B) {
	store := syntheticCluster(10000, 4)
	c := newCompiler(b, benchmarkConfig)
	for b.Loop() {
		feed := store.Subscribe()
		db, err := c.NewDB()
		if err != nil {
			b.Fatal(err)
		}
		c.Apply(store, feed, db)
		feed.Close()
	}
}

// BenchmarkChange replaces one EndpointSlice among many. Its cost must not depend on
// their number.
func BenchmarkChange(b *testing.B) {
	for _, services := range []int{1000, 10000, 100000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			store := syntheticCluster(services, 2)
			c := newCompiler(b, benchmarkConfig)
			db, err := c.NewDB()
			if err != nil {
				b.Fatal(err)
			}
			feed := store.Subscribe()
			defer feed.Close()
			c.Apply(store, feed, db)
			slices := []*cluster.EndpointSlice{}
			for i := range 2 {
				slices = append(slices, &cluster.EndpointSlice{
					Key: cluster.Key{Namespace: "ns-0", Name: "service-0-x"}, Service: "service-0", AddressType: cluster.IPv4,
					Endpoints: []cluster.Endpoint{{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Ready: true}},
				})
			}
			runtime.GC()
			i := 0
			for b.Loop() {
				i++
				store.Update(func(tx *cluster.Tx) { tx.Put(slices[i%2]) })
				c.Apply(store, feed, db)
			}
		})
	}
}
