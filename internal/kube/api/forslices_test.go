package api

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
)

// TestForSlices checks that all objects from which slices are generated are read, and no
// others.
func TestForSlices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kinds, w.cfg.Detail = []cluster.Kind{cluster.KindService, cluster.KindPod, cluster.KindNode}, ForSlices
	s := service("web", "10.0.0.1")
	s.UID, s.Spec.Selector = "u-1", map[string]string{"app": "web"}
	s.Spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferSameZone)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "u-2", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "node-1", Hostname: "web-1", Subdomain: "web", Containers: []corev1.Container{
			{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}},
		}},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: "example.com/warm", Status: corev1.ConditionFalse},
		}},
	}
	w.api.Put(s)
	w.api.Put(pod)
	w.api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "east"}}})
	w.api.Put(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-x"}, AddressType: discoveryv1.AddressTypeIPv4})
	w.live()
	want := map[cluster.Kind]int{cluster.KindService: 1, cluster.KindPod: 1, cluster.KindNode: 1}
	w.store.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			if v.Len(k) != want[k] || v.Loaded(k) != (want[k] > 0) {
				t.Errorf("%s: %d objects, loaded: %t, want %d", k, v.Len(k), v.Loaded(k), want[k])
			}
		}
		s, p, n := v.Service(cluster.Key{Namespace: "shop", Name: "web"}), v.Pod(cluster.Key{Namespace: "shop", Name: "web-1"}), v.Node("node-1")
		if s.Selector["app"] != "web" || s.Spec == nil || s.Spec.UID != "u-1" || s.Spec.TrafficDistribution != "PreferSameZone" {
			t.Errorf("Service %+v, spec %+v", s, s.Spec)
		}
		if !p.Ready || p.UID != "u-2" || p.Node != "node-1" || p.Labels["app"] != "web" ||
			p.Spec == nil || p.Spec.Hostname != "web-1" || p.Spec.Subdomain != "web" || len(p.Spec.Ports) != 1 || p.Spec.Ports[0].Name != "http" {
			t.Errorf("Pod %+v, spec %+v", p, p.Spec)
		}
		if n.Zone != "east" {
			t.Errorf("Node %+v", n)
		}
	})
	// What no slice shows is no change.
	version := w.store.Version()
	pod.Status.Conditions[1].Reason = "StillCold"
	w.api.Put(pod)
	w.api.Put(service("later", "10.0.0.2"))
	w.await("the next Service", func() bool {
		var there bool
		w.store.View(func(v *cluster.View) { there = v.Service(cluster.Key{Namespace: "shop", Name: "later"}) != nil })
		return there
	})
	w.await("the Pod's event", func() bool { return w.status(cluster.KindPod).Events[eventModified] == 1 })
	if got := w.store.Version(); got != version+1 {
		t.Errorf("%d changes were told, want that of the Service alone", got-version)
	}
}

// TestNewClientFails checks that the error is one line, before any request.
func TestNewClientFails(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for claim, test := range map[string]struct{ kubeconfig, want string }{
		"a file that is not there": {filepath.Join(t.TempDir(), "missing"), "missing: no such file"},
		"no Pod and no kubeconfig": {"", "no cluster to read"},
	} {
		if _, err := NewClient(ClientConfig{Kubeconfig: test.kubeconfig}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: NewClient = %v, want %q", claim, err, test.want)
		}
	}
}
