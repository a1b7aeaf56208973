package endpointslices_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/endpointslices"
)

// TestUpdateReturnsAffectedServices checks which Services each kind of change affects.
func TestUpdateReturnsAffectedServices(t *testing.T) {
	service := func(name string, selector map[string]string, changes ...func(*cluster.Service)) *cluster.Service {
		changes = append([]func(*cluster.Service){func(s *cluster.Service) { s.Name, s.Selector = name, selector }}, changes...)
		return web(changes...)
	}
	front, all := map[string]string{"app": "web", "tier": "front"}, map[string]string{"app": "web"}
	auto := func(s *cluster.Service) { s.Spec = &cluster.ServiceSpec{TopologyMode: "Auto"} }
	on := func(p *cluster.Pod) { p.Node = "a" }
	for claim, tt := range map[string]struct {
		change func(tx *cluster.Tx)
		want   []string // Services
	}{
		"nothing":                       {func(*cluster.Tx) {}, nil},
		"a Pod changes":                 {func(tx *cluster.Tx) { tx.Put(pod(1, on, func(p *cluster.Pod) { p.Ready = false })) }, []string{"all", "front"}},
		"a Pod is added":                {func(tx *cluster.Tx) { tx.Put(pod(3)) }, []string{"all", "front"}},
		"a Pod is deleted":              {func(tx *cluster.Tx) { tx.Delete(cluster.KindPod, pod(1).Key) }, []string{"all", "front"}},
		"a Pod that no Service selects": {func(tx *cluster.Tx) { tx.Put(pod(3, func(p *cluster.Pod) { p.Labels = nil })) }, nil},
		"a Pod of another Namespace": {func(tx *cluster.Tx) {
			tx.Put(pod(3, func(p *cluster.Pod) { p.Namespace = "other" }))
		}, nil},
		"labels change": {func(tx *cluster.Tx) {
			tx.Put(pod(1, on, func(p *cluster.Pod) { p.Labels = map[string]string{"app": "web", "tier": "back"} }))
		}, []string{"all", "back", "front"}},
		"a Service changes":    {func(tx *cluster.Tx) { tx.Put(service("front", front, auto)) }, []string{"front"}},
		"a Service is deleted": {func(tx *cluster.Tx) { tx.Delete(cluster.KindService, service("front", front).Key) }, []string{"front"}},
		"a Node with Pods is deleted": {func(tx *cluster.Tx) { tx.Delete(cluster.KindNode, cluster.Key{Name: "a"}) },
			[]string{"all", "auto", "front"}},
		"a Node with Pods changes its zone": {func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "a", Zone: "south"}) },
			[]string{"all", "auto", "front"}},
		"a Node becomes ready":         {func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "a", Zone: "north", Ready: true}) }, []string{"auto"}},
		"a Node without Pods is added": {func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "b", Zone: "north"}) }, []string{"auto"}},
	} {
		t.Run(claim, func(t *testing.T) {
			store, index := cluster.NewStore(), endpointslices.NewIndex()
			var affected []string
			update := func(change func(tx *cluster.Tx)) {
				store.Update(func(tx *cluster.Tx) {
					change(tx)
					affected = nil
					for key := range index.Update(tx.View, tx.Changed()) {
						affected = append(affected, key.Name)
					}
					slices.Sort(affected)
				})
			}
			update(func(tx *cluster.Tx) {
				tx.Put(service("front", front))
				tx.Put(service("back", map[string]string{"tier": "back", "app": "web"}))
				tx.Put(service("all", all))
				tx.Put(service("auto", map[string]string{"app": "other"}, auto))
				tx.Put(pod(1, on))
				tx.Put(pod(2))
				tx.Put(&cluster.Node{Name: "a", Zone: "north"})
				tx.SetFreshness(cluster.Live, cluster.Kinds()...)
			})
			update(tt.change)
			if diff := cmp.Diff(tt.want, affected); diff != "" {
				t.Errorf("Update: affected Services (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodsEqualFullScan checks that after any changes, in any batches, Pods returns
// what a scan of all Pods finds.
func TestPodsEqualFullScan(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		store, index := cluster.NewStore(), endpointslices.NewIndex()
		for round := range 6 {
			store.Update(func(tx *cluster.Tx) {
				if round == 0 {
					tx.SetFreshness(cluster.Live, cluster.Kinds()...)
				}
				for range pick(w, 1, 3, 30) {
					key, now := w.event()
					putModel(t, tx, key, now)
				}
				index.Update(tx.View, tx.Changed())
				for i := range 3 {
					key := cluster.Key{Namespace: namespace, Name: fmt.Sprintf("service-%d", i)}
					want, got := make(map[string]*cluster.Pod), make(map[string]*cluster.Pod)
					for p := range tx.Pods() {
						if s := tx.Service(key); endpointslices.HasSlices(s) && s.Selects(p) {
							want[p.Name] = p
						}
					}
					for _, p := range index.Pods(key) {
						got[p.Name] = p
					}
					if !maps.Equal(want, got) {
						t.Fatalf("seed %d: round %d: Pods(%s) = %v, want %v", seed, round, key, got, want)
					}
				}
			})
		}
	}
}
