package cluster

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
)

// benchmarkSlices are the EndpointSlices of 10,000 Services, with ten endpoints
// each.
func benchmarkSlices() (slices []*EndpointSlice) {
	addr := netip.MustParseAddr("10.128.0.0")
	for i := range 10_000 {
		s := &EndpointSlice{
			Key:     Key{fmt.Sprintf("ns-%d", i%100), fmt.Sprintf("service-%d-x", i)},
			Service: fmt.Sprintf("service-%d", i), AddressType: IPv4,
		}
		for range 10 {
			addr = addr.Next()
			s.Endpoints = append(s.Endpoints, Endpoint{Addr: addr, Ready: true})
		}
		slices = append(slices, s)
	}
	return slices
}

// benchmarkPods are 100,000 Pods with one address each.
func benchmarkPods() (pods []*Pod) {
	addr := netip.MustParseAddr("10.128.0.0")
	for i := range 100_000 {
		addr = addr.Next()
		pods = append(pods, &Pod{Key: Key{fmt.Sprintf("ns-%d", i%100), fmt.Sprintf("pod-%d", i)}, IPs: []netip.Addr{addr}})
	}
	return pods
}

// BenchmarkStoreMemory reports the heap that the Store takes for 10,000 Services
// with 100,000 endpoints and for 100,000 Pods, without the objects themselves
// ("B/store") and with them ("B/total").
func BenchmarkStoreMemory(b *testing.B) {
	for b.Loop() {
		start := heapInUse()
		slices, pods := benchmarkSlices(), benchmarkPods()
		objects := heapInUse()
		store := NewStore()
		store.Update(func(tx *Tx) {
			for _, s := range slices {
				tx.Put(&Service{Key: Key{s.Namespace, s.Service}})
				tx.Put(s)
			}
			for _, p := range pods {
				tx.Put(p)
			}
			tx.SetFreshness(Live, Kinds()...)
		})
		end := heapInUse()
		b.ReportMetric(float64(end-objects), "B/store")
		b.ReportMetric(float64(end-start), "B/total")
		runtime.KeepAlive(store)
		runtime.KeepAlive(slices)
		runtime.KeepAlive(pods)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkPut replaces one Pod, or one slice, of many.
func BenchmarkPut(b *testing.B) {
	store := NewStore()
	slices, pods := benchmarkSlices(), benchmarkPods()
	store.Update(func(tx *Tx) {
		for _, s := range slices {
			tx.Put(s)
		}
		for _, p := range pods {
			tx.Put(p)
		}
		tx.SetFreshness(Live, Kinds()...)
	})
	b.Run("Pod", func(b *testing.B) {
		other := *pods[7]
		other.Finished = true
		versions := [2]*Pod{&other, pods[7]}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			store.Update(func(tx *Tx) { tx.Put(versions[i%2]) })
			i++
		}
	})
	b.Run("EndpointSlice", func(b *testing.B) {
		other := *slices[7]
		other.Ports = []Port{{Number: 80}}
		versions := [2]*EndpointSlice{&other, slices[7]}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			store.Update(func(tx *Tx) { tx.Put(versions[i%2]) })
			i++
		}
	})
}

// BenchmarkGet looks up a Pod by its key, and the slices of a Service.
func BenchmarkGet(b *testing.B) {
	store := NewStore()
	slices, pods := benchmarkSlices(), benchmarkPods()
	store.Update(func(tx *Tx) {
		for _, s := range slices {
			tx.Put(s)
		}
		for _, p := range pods {
			tx.Put(p)
		}
	})
	store.View(func(v *View) {
		b.Run("Pod", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = v.Pod(pods[7].Key)
			}
		})
		b.Run("SlicesOf", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = v.SlicesOf(Key{slices[7].Namespace, slices[7].Service})
			}
		})
	})
}
