package api

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sizes are objects as they are in a cluster, of one sort each.
var sizes = map[string]func(i int) metav1.Object{
	"Service": func(i int) metav1.Object {
		s := service(named(i, "service"), address(i))
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
		s.Spec.Selector = map[string]string{"app": s.Name}
		return s
	},
	"EndpointSlice of 3 endpoints":   func(i int) metav1.Object { return sliceOf(3, i) },
	"EndpointSlice of 100 endpoints": func(i int) metav1.Object { return sliceOf(100, i) },
	"Pod": func(i int) metav1.Object {
		p := pod(named(i, "application-5d7c9b"), address(i), corev1.PodRunning)
		p.Labels = map[string]string{"app": "application", "pod-template-hash": "5d7c9b"}
		return p
	},
}

// named is the name of object i, in one of 100 Namespaces.
func named(i int, name string) string { return fmt.Sprintf("ns-%d/%s-%d", i%100, name, i) }

// address is the one numbered i.
func address(i int) string {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String()
}

func sliceOf(endpoints, i int) *discoveryv1.EndpointSlice {
	s := slice(named(i, "service"), "")
	service, port, protocol := s.Name, int32(8080), corev1.ProtocolTCP
	s.Name += "-x2k4p"
	s.Labels[discoveryv1.LabelServiceName] = service
	s.Ports = []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}}
	s.Endpoints = nil
	for e := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address(endpoints*i + e)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-%d", service, e)},
		})
	}
	return s
}

// BenchmarkModel tells how much of the heap the model takes for each object that
// is read from the API.
func BenchmarkModel(b *testing.B) {
	const count = 5000
	for sort, object := range sizes {
		b.Run(sort, func(b *testing.B) {
			var taken uint64
			for b.Loop() {
				w := newWorld(b)
				for i := range count {
					w.api.Put(object(i))
				}
				before := heap()
				w.live()
				w.end()
				taken += heap() - before
				runtime.KeepAlive(w)
			}
			b.ReportMetric(float64(taken)/float64(b.N)/count, "B/object")
		})
	}
}

// heap is how many octets of the heap are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
