package api

import (
	"net/http"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/internal/kube/object"
)

// TestAbsentKind checks that a cluster without the CustomResourceDefinition of a kind has
// none of its objects, and that nothing waits for them.
func TestAbsentKind(t *testing.T) {
	t.Parallel()
	for claim, watchList := range map[string]bool{"lists": false, "lists as watches": true} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cfg.Kinds, w.cfg.WatchList = append(kindsRead(), cluster.KindServiceImport), watchList
			w.api.Misbehave(apitest.Fault{Status: http.StatusNotFound, Resource: "serviceimports"})
			w.start()
			w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
			if st := w.status(cluster.KindServiceImport); st.Problem != nil || st.Staleness != 0 {
				t.Errorf("Status of an absent kind = %+v, want no problem, and nothing stale", st)
			}
		})
	}
}

// TestEveryKind checks that all kinds of the model are listed, and that watches
// tell of what is deleted.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kinds, w.cfg.Detail = cluster.Kinds(), All
	var all []object.API
	for _, k := range object.Kinds {
		o := k.New()
		o.SetName("every")
		if k.Model.Namespaced() {
			o.SetNamespace("shop")
		}
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
			slice.AddressType = discoveryv1.AddressTypeIPv4 // required
		}
		all = append(all, o)
		w.api.Put(o)
	}
	w.start()
	w.awaitFreshness(cluster.Live, cluster.Kinds()...)
	present := func(k cluster.Kind) (yes bool) {
		key := cluster.Key{Name: "every"}
		if k.Namespaced() {
			key.Namespace = "shop"
		}
		w.store.View(func(v *cluster.View) { yes = v.Object(k, key) != nil })
		return yes
	}
	for _, k := range cluster.Kinds() {
		if !present(k) {
			t.Errorf("%s every is not in the model", k)
		}
	}
	for _, o := range all {
		w.api.Delete(o)
	}
	for _, k := range cluster.Kinds() {
		w.await(k.String()+" every is deleted", func() bool { return !present(k) })
	}
}
