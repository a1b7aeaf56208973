package endpointslices_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/kube/object"
)

var seed = flag.Uint64("seed", 0, "run only the sequence of this seed")

// sequences is how many random sequences of events are tried: what the environment
// variable SEQUENCES says, which is to be 10000 where time does not matter.
func sequences(t *testing.T) uint64 {
	t.Helper()
	if text := os.Getenv("SEQUENCES"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEQUENCES: %v", err)
		}
		return n
	}
	if raceEnabled || testing.Short() {
		return 300
	}
	return 2000
}

// TestDifferential checks that after any changes, in any batches, the Compiler's slices
// equal those of the library, driven event by event: the same endpoints with the same
// ports, families, labels and hints. The distribution of endpoints over slices and the
// zones of hints by the topology annotation depend on the order of events: of hints only
// their presence is compared, and the distribution is not. An empty slice may remain
// beside others of its family, so it is compared only if it is the only one.
func TestDifferential(t *testing.T) {
	if *seed != 0 {
		compareSequence(t, *seed)
		return
	}
	n := sequences(t)
	var wg sync.WaitGroup
	workers := uint64(runtime.GOMAXPROCS(0))
	for i := range workers {
		wg.Go(func() {
			for s := i + 1; s <= n && !t.Failed(); s += workers {
				compareSequence(t, s)
			}
		})
	}
	wg.Wait()
}

func compareSequence(t *testing.T, seed uint64) {
	t.Helper()
	w := newWorld(seed)
	most := pick(w, 1, 2, 3, 5, 100)
	ref := newReference(int32(most))
	compiler := newCompiler(t, most)
	store := cluster.NewStore()
	batch := func(change func(tx *cluster.Tx)) {
		store.Update(func(tx *cluster.Tx) {
			change(tx)
			compiler.Complete(tx)
		})
	}
	batch(func(tx *cluster.Tx) {
		node := w.node(nil, "node-0")
		w.nodes["node-0"] = node
		ref.apply(cluster.Key{Name: "node-0"}, node)
		putModel(t, tx, cluster.Key{Name: "node-0"}, node)
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	var log []string
	for round := range 5 {
		batch(func(tx *cluster.Tx) {
			for range pick(w, 1, 1, 2, 5, 20) {
				key, now := w.event()
				log = append(log, fmt.Sprintf("%T %s", now, key))
				ref.apply(key, now)
				putModel(t, tx, key, now)
			}
		})
		for name := range 3 {
			key := cluster.Key{Namespace: namespace, Name: fmt.Sprintf("service-%d", name)}
			service := w.services[key.Name]
			got, want := describe(service, compiler.Slices(key)), describe(service, ref.of(key))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-seed %d: round %d: %s (-library +Compiler):\n%s\nafter %s", seed, round, key, diff, strings.Join(log, ", "))
				return
			}
			checkStored(t, seed, store, key, compiler.Slices(key), most)
		}
	}
}

// putModel makes the model's object what the API's is now.
func putModel(t *testing.T, tx *cluster.Tx, key cluster.Key, now any) {
	t.Helper()
	switch now := now.(type) {
	case *corev1.Service:
		if now == nil {
			tx.Delete(cluster.KindService, key)
			return
		}
		s, errs := object.Service(now)
		if len(errs) > 0 {
			t.Errorf("Service(%+v): %v", now, errs)
		}
		tx.Put(s)
	case *corev1.Pod:
		if now == nil {
			tx.Delete(cluster.KindPod, key)
			return
		}
		p, errs := object.Pod(now)
		if len(errs) > 0 {
			t.Errorf("Pod(%+v): %v", now, errs)
		}
		tx.Put(p)
	case *corev1.Node:
		if now == nil {
			tx.Delete(cluster.KindNode, key)
			return
		}
		n, _ := object.Node(now)
		tx.Put(n)
	}
}

// describe says what slices have, as a sorted list of lines: the families with
// ports, and the endpoints of each.
func describe(of *corev1.Service, all []*discoveryv1.EndpointSlice) (lines []string) {
	filled := make(map[discoveryv1.AddressType]bool)
	for _, s := range all {
		filled[s.AddressType] = filled[s.AddressType] || len(s.Endpoints) > 0
	}
	for _, s := range all {
		if len(s.Endpoints) == 0 && filled[s.AddressType] {
			continue
		}
		var ports []string
		for _, p := range s.Ports {
			app := "-"
			if p.AppProtocol != nil {
				app = *p.AppProtocol
			}
			ports = append(ports, fmt.Sprintf("%s/%s/%d/%s", *p.Name, *p.Protocol, *p.Port, app))
		}
		slices.Sort(ports)
		group := fmt.Sprintf("%s %v labels %v", s.AddressType, ports, s.Labels)
		lines = append(lines, group)
		for i := range s.Endpoints {
			lines = append(lines, group+": "+describeEndpoint(of, &s.Endpoints[i]))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func describeEndpoint(of *corev1.Service, e *discoveryv1.Endpoint) string {
	text := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	addresses := slices.Sorted(slices.Values(e.Addresses))
	return fmt.Sprintf("%v ready %t serving %t terminating %t hostname %s node %s zone %s of %s %s/%s %s hints %s",
		addresses, *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating, text(e.Hostname), text(e.NodeName), text(e.Zone),
		e.TargetRef.Kind, e.TargetRef.Namespace, e.TargetRef.Name, e.TargetRef.UID, describeHints(of, e))
}

func describeHints(of *corev1.Service, e *discoveryv1.Endpoint) string {
	switch {
	case e.Hints == nil:
		return "-"
	case of.Annotations[corev1.AnnotationTopologyMode] == "Auto":
		return fmt.Sprintf("%d zones, nodes %v", len(e.Hints.ForZones), e.Hints.ForNodes)
	}
	return fmt.Sprintf("%v %v", e.Hints.ForZones, e.Hints.ForNodes)
}

// checkStored checks that the Store has the slices that the Compiler says it
// made, none fuller than it may be and none twice.
func checkStored(t *testing.T, seed uint64, store *cluster.Store, key cluster.Key, made []*discoveryv1.EndpointSlice, most int) {
	t.Helper()
	var want, got []*cluster.EndpointSlice
	for _, s := range made {
		m, errs := object.EndpointSlice(s)
		if len(errs) > 0 || len(s.Endpoints) > most || m.ManagedBy() != endpointslices.ManagedBy {
			t.Errorf("-seed %d: %s: slice with %d endpoints: %v", seed, key, len(s.Endpoints), errs)
		}
		want = append(want, m)
	}
	store.View(func(v *cluster.View) { got = slices.Clone(v.SlicesOf(key)) })
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-seed %d: %s: in the store (-made +there):\n%s", seed, key, diff)
	}
}
