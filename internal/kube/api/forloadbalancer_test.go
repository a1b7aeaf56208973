package api

import (
	"bytes"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portolan.dev/portolan/internal/cluster"
)

// fillForLoadBalancer makes a random Service as fill does, of values that matter to its addresses.
func fillForLoadBalancer(seed uint64, s *corev1.Service) {
	fillForProxy(seed, s)
	r := rand.New(rand.NewPCG(seed, 2))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	s.Labels = map[string]string{"tier": pick("web", "db")}
	s.Annotations[cluster.AnnotationPool], s.Annotations[cluster.AnnotationSharingKey] = pick("", "p"), pick("", "k")
	s.Annotations[cluster.AnnotationLoadBalancerIPs] = pick("", "192.0.2.1")
	s.Spec.LoadBalancerClass, s.Spec.LoadBalancerIP = new(pick("", "lb")), pick("", "192.0.2.1")
	s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicy(pick("SingleStack", "RequireDualStack")))
	s.Spec.Selector = map[string]string{"app": pick("a", "b")}
}

// TestForLoadBalancer checks that what is read for load balancers' addresses does not depend on fields that are cut.
func TestForLoadBalancer(t *testing.T) {
	t.Parallel()
	cfg := &Config{Detail: ForLoadBalancer}
	balancers := 0
	for _, r := range resources {
		if r.Model != cluster.KindService && r.Model != cluster.KindNamespace {
			continue
		}
		kept := cfg.kept()[r.Model.String()]
		for seed := range uint64(500) {
			object, again := newMessage(r), newMessage(r)
			fill(seed).Fill(object)
			if s, ok := object.(*corev1.Service); ok && seed%2 == 0 {
				fillForLoadBalancer(seed, s)
			}
			wire, err := object.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			cut, err := kept.cut(bytes.Clone(wire))
			if err == nil {
				err = again.Unmarshal(cut)
			}
			if err != nil {
				t.Fatalf("%s, seed %d: cut: %v", r.Model, seed, err)
			}
			want, got := r.convert(object, cfg), r.convert(again, cfg)
			if diff := diffItems(want, got); diff != "" {
				t.Fatalf("%s, seed %d: (-whole +cut)\n%s", r.Model, seed, diff)
			}
			if again.GetResourceVersion() != object.GetResourceVersion() || again.GetManagedFields() != nil {
				t.Fatalf("%s, seed %d: metadata %+v", r.Model, seed, again)
			}
			if s, ok := got.model.(*cluster.Service); ok && s.Spec.LoadBalancer != nil {
				balancers++
			}
		}
	}
	if balancers < 20 {
		t.Errorf("%d random Services ask for an address, want more", balancers)
	}
}
