package kubezone_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/zone"
)

// sizes are clusters of one kind of object each, and the number of objects.
var sizes = map[string]struct {
	count int
	store func(count int) *cluster.Store
}{
	"Service without endpoints":   {10000, func(n int) *cluster.Store { return syntheticCluster(n, 0) }},
	"Service of 3 endpoints":      {10000, func(n int) *cluster.Store { return syntheticCluster(n, 3) }},
	"endpoint of 100 a Service":   {20000, func(n int) *cluster.Store { return syntheticCluster(n/100, 100) }},
	"headless endpoint of 20":     {10000, func(n int) *cluster.Store { return headlessCluster(n, false) }},
	"headless endpoint with name": {10000, func(n int) *cluster.Store { return headlessCluster(n, true) }},
	"Pod":                         {100000, podCluster},
	"cluster of 10500 Services":   {1, func(int) *cluster.Store { return mixedCluster() }},
}

// mixedCluster has 10,000 Services of 3 endpoints and 500 headless ones of 20.
func mixedCluster() *cluster.Store {
	store := syntheticCluster(10000, 3)
	store.Update(func(tx *cluster.Tx) { addHeadless(tx, 10000, false) })
	return store
}

// headlessCluster has headless Services of 20 endpoints each.
func headlessCluster(endpoints int, hostnames bool) *cluster.Store {
	store := syntheticCluster(0, 0)
	store.Update(func(tx *cluster.Tx) { addHeadless(tx, endpoints, hostnames) })
	return store
}

func addHeadless(tx *cluster.Tx, endpoints int, hostnames bool) {
	ports := []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}
	addr := netip.MustParseAddr("10.200.0.0")
	for i := range endpoints / 20 {
		key := cluster.Key{Namespace: fmt.Sprintf("ns-%d", i%100), Name: fmt.Sprintf("headless-%d", i)}
		tx.Put(&cluster.Service{Key: key, Headless: true, Ports: ports})
		slice := &cluster.EndpointSlice{Key: key, Service: key.Name, AddressType: cluster.IPv4, Ports: ports}
		for j := range 20 {
			addr = addr.Next()
			e := cluster.Endpoint{Addr: addr, Ready: true}
			if hostnames {
				e.Hostname = fmt.Sprintf("%s-%d", key.Name, j)
			}
			slice.Endpoints = append(slice.Endpoints, e)
		}
		tx.Put(slice)
	}
}

// podCluster has Pods in a hundred Namespaces.
func podCluster(pods int) *cluster.Store {
	store := syntheticCluster(0, 0)
	store.Update(func(tx *cluster.Tx) {
		addr := netip.MustParseAddr("10.128.0.0")
		for i := range pods {
			addr = addr.Next()
			key := cluster.Key{Namespace: fmt.Sprintf("ns-%d", i%100), Name: fmt.Sprintf("application-5d7c9b-%d", i)}
			tx.Put(&cluster.Pod{Key: key, IPs: []netip.Addr{addr}})
		}
	})
	return store
}

// BenchmarkMemory measures the heap that the zone uses per object. Its time is that of a
// full compilation.
func BenchmarkMemory(b *testing.B) {
	for object, size := range sizes {
		b.Run(object, func(b *testing.B) {
			store := size.store(size.count)
			var taken uint64
			var objects int
			for b.Loop() {
				b.StopTimer()
				before := heapOctets()
				db := newDB(b, newCompiler(b, benchmarkConfig))
				b.StartTimer()
				compile(b, store, db)
				b.StopTimer()
				taken += heapOctets() - before
				objects += size.count
				runtime.KeepAlive(db)
				b.StartTimer()
			}
			runtime.KeepAlive(store)
			b.ReportMetric(float64(taken)/float64(objects), "B/object")
		})
	}
}

// compile compiles all objects of a store.
func compile(b *testing.B, store *cluster.Store, db *zone.DB) {
	b.Helper()
	feed := store.Subscribe()
	defer feed.Close()
	newCompiler(b, benchmarkConfig).Apply(store, feed, db)
}

// heapOctets returns the size of the heap in use.
func heapOctets() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
