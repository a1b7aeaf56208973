package object

import (
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"portolan.dev/portolan/internal/cluster"
)

// TestKinds checks that every kind of the model is declared once, and that its
// decoder makes objects of that kind.
func TestKinds(t *testing.T) {
	t.Parallel()
	declared := make(map[cluster.Kind]int)
	for _, k := range Kinds {
		declared[k.Model]++
		if got := strings.ToLower(k.Model.Plural()); got != k.Resource {
			t.Errorf("%s.Plural() in lower case = %q, want %q", k.Model, got, k.Resource)
		}
		api := k.New()
		api.SetName("web")
		want := cluster.Ref{Kind: k.Model, Key: cluster.Key{Name: "web"}}
		if k.Model.Namespaced() {
			api.SetNamespace("shop")
			want.Key.Namespace = "shop"
		}
		switch o := api.(type) { // what is required
		case *discoveryv1.EndpointSlice:
			o.AddressType = discoveryv1.AddressTypeIPv4
		case *policyv1alpha2.ClusterNetworkPolicy:
			o.Spec.Tier, o.Spec.Subject.Namespaces = policyv1alpha2.AdminTier, new(metav1.LabelSelector)
		}
		o, errs := k.Decode(api)
		if len(errs) > 0 || o.Ref() != want {
			t.Errorf("Decode of a %s named web: %v, %v; want %s", k.Model, o, errs, want)
		}
	}
	for _, k := range cluster.Kinds() {
		if declared[k] != 1 {
			t.Errorf("%s is declared %d times in Kinds, want once", k, declared[k])
		}
	}
}
