package manifest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// TestEveryKind checks that manifests of all kinds of the model are read, and
// deleted with their file.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.source.cfg.Whole = true
	for _, k := range object.Kinds {
		api := k.New()
		api.GetObjectKind().SetGroupVersionKind(k.Group.WithKind(k.Model.String()))
		api.SetName("web")
		switch o := api.(type) { // what is required
		case *discoveryv1.EndpointSlice:
			o.AddressType = discoveryv1.AddressTypeIPv4
		case *policyv1alpha2.ClusterNetworkPolicy:
			o.Spec.Tier, o.Spec.Subject.Namespaces = policyv1alpha2.AdminTier, new(metav1.LabelSelector)
		}
		text, err := json.Marshal(api)
		w.must(err)
		w.write(k.Resource+".json", string(text))
	}
	report := w.load()
	for _, p := range report.Problems {
		t.Error(p)
	}
	w.wantOfEveryKind(1)
	for _, k := range object.Kinds {
		w.must(os.Remove(filepath.Join(w.dir, k.Resource+".json")))
	}
	w.load()
	w.wantOfEveryKind(0)
}

func (w *world) wantOfEveryKind(want int) {
	w.t.Helper()
	w.store.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			n := 0
			for o := range v.Objects(k) {
				if o.Ref().Key.Name == "web" {
					n++
				}
			}
			if n != want {
				w.t.Errorf("%d objects of the kind %s, want %d", n, k, want)
			}
		}
	})
}
