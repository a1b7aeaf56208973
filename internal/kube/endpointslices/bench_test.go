package endpointslices_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/kube/endpointslices"
)

// fleet are Services and the Pods that they select, over a hundred Namespaces and
// as many Nodes in three zones.
type fleet struct {
	nodes    []*cluster.Node
	services []*cluster.Service
	pods     []*cluster.Pod
}

func newFleet(services, podsOfEach int) (f fleet) {
	for i := range 100 {
		f.nodes = append(f.nodes, &cluster.Node{Name: fmt.Sprintf("node-%d", i), Zone: fmt.Sprintf("zone-%d", i%3), Ready: true, MilliCPU: 8000})
	}
	ip, pod := netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("10.128.0.0")
	for i := range services {
		ip = ip.Next()
		key := cluster.Key{Namespace: fmt.Sprintf("ns-%d", i%100), Name: fmt.Sprintf("service-%d", i)}
		labels := map[string]string{"app": key.Name, "part-of": "fleet", "tier": "web"}
		f.services = append(f.services, &cluster.Service{
			Key: key, ClusterIPs: []netip.Addr{ip}, Selector: map[string]string{"part-of": "fleet", "app": key.Name},
			Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}, Targets: []string{"8080"},
			Spec: &cluster.ServiceSpec{Type: cluster.ClusterIP, Families: []cluster.AddressType{cluster.IPv4}, Labels: labels},
		})
		for j := range podsOfEach {
			pod = pod.Next()
			f.pods = append(f.pods, &cluster.Pod{
				Key: cluster.Key{Namespace: key.Namespace, Name: fmt.Sprintf("%s-%05x-%05x", key.Name, i*7919, j*104729)},
				IPs: []netip.Addr{pod}, Labels: labels, Node: f.nodes[(i+j)%100].Name, Ready: true, UID: fmt.Sprintf("uid-%d-%d", i, j),
			})
		}
	}
	return f
}

func (f fleet) put(tx *cluster.Tx) {
	for i := range 100 {
		tx.Put(&cluster.Namespace{Name: fmt.Sprintf("ns-%d", i)})
	}
	for _, n := range f.nodes {
		tx.Put(n)
	}
	for _, s := range f.services {
		tx.Put(s)
	}
	for _, p := range f.pods {
		tx.Put(p)
	}
	tx.SetFreshness(cluster.Live, cluster.Kinds()...)
}

// served is a model that is compiled into slices and these into a zone.
type served struct {
	store  *cluster.Store
	slices *endpointslices.Compiler
	zones  *kubezone.Compiler
	feed   *cluster.Feed
	db     *zone.DB
}

func serve(b *testing.B, f fleet) *served {
	b.Helper()
	zones, err := kubezone.New(kubezone.Config{Zones: []dnsname.Name{dnsname.MustParse("cluster.local")}, TTL: 5, Pods: kubezone.PodsVerified})
	if err != nil {
		b.Fatal(err)
	}
	s := &served{store: cluster.NewStore(), slices: newCompiler(b, 0), zones: zones}
	if s.db, err = zones.NewDB(); err != nil {
		b.Fatal(err)
	}
	s.feed = s.store.Subscribe()
	s.update(f.put)
	return s
}

func (s *served) update(change func(*cluster.Tx)) {
	s.complete(change)
	s.zones.Apply(s.store, s.feed, s.db)
}

func (s *served) complete(change func(*cluster.Tx)) {
	s.store.Update(func(tx *cluster.Tx) {
		change(tx)
		s.slices.Complete(tx)
	})
}

// BenchmarkFull: 10,000 Services with 100,000 Pods, from model objects to slices
// in the model and answers in the zone.
func BenchmarkFull(b *testing.B) {
	f := newFleet(10_000, 10)
	for b.Loop() {
		s := serve(b, f)
		s.feed.Close()
	}
}

// BenchmarkEvents: what Pods of 10,000 Services do, and of one Service with 10,000
// Pods, through model, slices and zone, in transactions of so many events: of ten,
// eight are changes of readiness, one is a Pod that goes and one is it coming back.
func BenchmarkEvents(b *testing.B) {
	for _, batch := range []int{1, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchmarkEvents(b, newFleet(10_000, 10), batch) })
	}
	b.Run("services=1/batch=1000", func(b *testing.B) { benchmarkEvents(b, newFleet(1, 10_000), 1000) })
}

func benchmarkEvents(b *testing.B, f fleet, batch int) {
	b.Helper()
	s := serve(b, f)
	pods := f.pods
	random := rand.New(rand.NewPCG(1, 2))
	var gone []int
	events := 0
	caughtUp := s.follow()
	began := time.Now()
	for b.Loop() {
		s.complete(func(tx *cluster.Tx) {
			for range batch {
				events++
				i := random.IntN(len(pods))
				switch n := events % 10; {
				case n == 0:
					tx.Delete(cluster.KindPod, pods[i].Key)
					gone = append(gone, i)
				case n == 5 && len(gone) > 0:
					tx.Put(pods[gone[0]])
					gone = gone[1:]
				default:
					p := *pods[i]
					p.Ready = !p.Ready
					pods[i] = &p
					tx.Put(&p)
				}
			}
		})
	}
	caughtUp()
	b.ReportMetric(float64(events)/time.Since(began).Seconds(), "events/s")
}

// follow compiles what changes into the zone, beside those who change it, as the
// daemon does; caughtUp ends that when the zone has all.
func (s *served) follow() (caughtUp func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-s.feed.Ready():
				s.zones.Apply(s.store, s.feed, s.db)
			case <-stop:
				s.zones.Apply(s.store, s.feed, s.db)
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// BenchmarkService: a Service comes and goes where there are 10,000.
func BenchmarkService(b *testing.B) {
	s := serve(b, newFleet(10_000, 1))
	for b.Loop() {
		s.update(func(tx *cluster.Tx) { tx.Put(web()) })
		s.update(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, webKey) })
	}
}
