package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

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
			w.api.Uninstall("serviceimports")
			w.start()
			w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
			if st := w.status(cluster.KindServiceImport); st.Problem != nil || st.Staleness != 0 {
				t.Errorf("Status of an absent kind = %+v, want no problem, and nothing stale", st)
			}
		})
	}
}

// TestAbsentKindOfPresentGroup checks that a kind is absent if discovery lists its API
// group and version without it.
func TestAbsentKindOfPresentGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kinds = append(kindsRead(), cluster.KindGateway, cluster.KindHTTPRoute)
	w.api.Uninstall("httproutes")
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	w.await("only HTTPRoutes are absent", func() bool {
		return len(w.log.lines("no such resource", "httproutes")) == 1 && len(w.log.lines("no such resource")) == 1
	})
}

// TestUnconfirmedAbsence checks that "not found" alone does not count as an empty list: an
// API server that has just started may answer so.
func TestUnconfirmedAbsence(t *testing.T) {
	t.Parallel()
	notFound := func(discovery int) apitest.Fault {
		return apitest.Fault{Refuse: func(_, path string) int {
			switch {
			case strings.HasSuffix(path, "/serviceimports"):
				return http.StatusNotFound
			case path == "/apis/multicluster.x-k8s.io/v1alpha1":
				return discovery
			}
			return 0
		}}
	}
	for claim, test := range map[string]struct {
		discovery int
		problem   string
	}{
		"discovery lists the kind": {0, "told to refuse GET"},
		"discovery fails":          {http.StatusInternalServerError, "GET /apis/multicluster.x-k8s.io/v1alpha1: "},
		"discovery is forbidden": {http.StatusForbidden,
			"{nonResourceURLs: [/apis/multicluster.x-k8s.io/v1alpha1], verbs: [get]}"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cfg.Kinds = append(kindsRead(), cluster.KindServiceImport)
			w.api.Put(serviceImport("web"))
			w.api.Misbehave(notFound(test.discovery))
			w.start()
			w.awaitRequests("serviceimports", 0, 4)
			if w.freshness(cluster.KindServiceImport) == cluster.Live {
				t.Error("ServiceImports are live, and none were read")
			}
			st := w.status(cluster.KindServiceImport)
			if st.Problem == nil || !strings.Contains(st.Problem.Error(), test.problem) {
				t.Errorf("Problem = %v, want one with %q", st.Problem, test.problem)
			}
			w.api.Misbehave(apitest.Fault{})
			w.awaitFreshness(cluster.Live, cluster.KindServiceImport)
			w.await("the ServiceImport is there", func() bool { return w.hasImport("web") })
		})
	}
}

// TestKindVanishes checks that objects of a kind whose CustomResourceDefinition is deleted
// are deleted, and are read again when it is created again.
func TestKindVanishes(t *testing.T) {
	t.Parallel()
	for claim, watchList := range map[string]bool{"lists": false, "lists as watches": true} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cfg.Kinds, w.cfg.WatchList = append(kindsRead(), cluster.KindServiceImport), watchList
			w.api.Put(serviceImport("web"))
			w.live()
			w.await("the ServiceImport is there", func() bool { return w.hasImport("web") })

			w.api.Misbehave(apitest.Fault{Status: http.StatusNotFound, Resource: "serviceimports"})
			before := len(w.requests("serviceimports", 0))
			w.api.Cut()
			w.awaitRequests("serviceimports", before, 3)
			if !w.hasImport("web") {
				t.Error("the ServiceImport is deleted although discovery lists its kind")
			}

			w.api.Uninstall("serviceimports")
			w.api.Misbehave(apitest.Fault{})
			w.await("the ServiceImport is deleted", func() bool { return !w.hasImport("web") })
			w.awaitHealthy()
			w.wantLines(1, "the cluster has no such resource", "resource=serviceimports")

			w.api.Install("serviceimports")
			w.api.Put(serviceImport("api"))
			w.await("the new ServiceImport is there", func() bool { return w.hasImport("api") })
			w.awaitHealthy()
			w.await("a line in the log", func() bool {
				return len(w.log.lines("the cluster has the resource now", "resource=serviceimports")) == 1
			})
			w.api.Delete(serviceImport("api"))
			w.await("the new ServiceImport is watched", func() bool { return !w.hasImport("api") })
		})
	}
}

// TestAbsentKindGrowsStale checks that staleness counts from when the API is lost, also for
// a kind that it did not have.
func TestAbsentKindGrowsStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kinds = append(kindsRead(), cluster.KindServiceImport)
	w.api.Uninstall("serviceimports")
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	w.api.Misbehave(apitest.Fault{Status: http.StatusInternalServerError})
	w.await("ServiceImports are stale", func() bool {
		st := w.status(cluster.KindServiceImport)
		return st.Problem != nil && st.Staleness > 0
	})
}

// serviceImport is a ServiceImport in the namespace shop.
func serviceImport(name string) object.API {
	o := object.Kinds[slices.IndexFunc(object.Kinds, func(k object.Kind) bool {
		return k.Model == cluster.KindServiceImport
	})].New()
	o.SetNamespace("shop")
	o.SetName(name)
	return o
}

func (w *world) hasImport(name string) (has bool) {
	w.store.View(func(v *cluster.View) {
		has = v.Object(cluster.KindServiceImport, cluster.Key{Namespace: "shop", Name: name}) != nil
	})
	return has
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
		switch o := o.(type) { // what is required
		case *discoveryv1.EndpointSlice:
			o.AddressType = discoveryv1.AddressTypeIPv4
		case *policyv1alpha2.ClusterNetworkPolicy:
			o.Spec.Tier, o.Spec.Subject.Namespaces = policyv1alpha2.AdminTier, new(metav1.LabelSelector)
		case *networkingv1.Ingress: // what is read because of it
			o.Spec.TLS = []networkingv1.IngressTLS{{SecretName: "every"}}
		case *gatewayv1.Gateway:
			o.Spec.TLS = frontendTLS("every")
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
