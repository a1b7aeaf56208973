package api

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// TestForPolicyReads checks what policies need, and that nothing else is kept.
func TestForPolicyReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kinds = []cluster.Kind{cluster.KindPod, cluster.KindNamespace, cluster.KindNode, cluster.KindService}
	w.cfg.Detail = ForPolicy
	labels := map[string]string{"app": "web"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "u-1", Labels: labels, Annotations: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{
			NodeName: "node-1", Hostname: "web-0",
			Containers: []corev1.Container{{
				Name: "main", Image: "web", Command: []string{"curl", "web.shop.svc"},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			}},
			InitContainers: []corev1.Container{
				{Name: "init", Ports: []corev1.ContainerPort{{Name: "never", ContainerPort: 1, Protocol: corev1.ProtocolTCP}}},
				{
					Name: "sidecar", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
					Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}},
				},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}, {IP: "fd00::1"}}},
	}
	w.api.Put(pod)
	w.api.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: labels}})
	w.api.Put(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: labels, Annotations: map[string]string{
			object.WireGuardKey: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=",
		}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "203.0.113.7"}}},
	})
	for name, port := range map[string]int32{"dns": 53, "web": 80} {
		s := service(name, "10.0.0.1")
		s.Spec.Selector = labels
		s.Spec.Ports = []corev1.ServicePort{{Port: port, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")}}
		w.api.Put(s)
	}
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	var got []cluster.Object
	w.store.View(func(v *cluster.View) {
		got = append(got, v.Pod(cluster.Key{Namespace: "shop", Name: "web-0"}), v.Namespace("shop"), v.Node("node-1"))
		for _, name := range []string{"dns", "web"} {
			s := *v.Service(cluster.Key{Namespace: "shop", Name: name})
			got = append(got, &cluster.Service{Key: s.Key, Selector: s.Selector, Targets: s.Targets})
		}
	})
	want := []cluster.Object{
		&cluster.Pod{
			Key: cluster.Key{Namespace: "shop", Name: "web-0"}, Labels: labels, Node: "node-1", UID: "u-1",
			IPs: []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")},
			Spec: &cluster.PodSpec{Ports: []cluster.Port{
				{Name: "http", Protocol: cluster.TCP, Number: 8080}, {Name: "metrics", Protocol: cluster.TCP, Number: 9090},
			}},
		},
		&cluster.Namespace{Name: "shop", Labels: labels},
		&cluster.Node{
			Name: "node-1", Labels: labels, Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.7")}, WireGuardKey: [32]byte{31: 1},
		},
		&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "dns"}, Selector: labels, Targets: []string{"dns"}},
		&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "web"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestAnnounce checks the fields that announcing needs in addition.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	for _, announce := range []bool{false, true} {
		w := newWorld(t)
		w.cfg.Kinds, w.cfg.Detail, w.cfg.Announce = []cluster.Kind{cluster.KindNode}, ForPolicy, announce
		w.api.Put(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{Unschedulable: true},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		w.start()
		w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
		w.store.View(func(v *cluster.View) {
			if n := v.Node("node-1"); n.Ready != announce || n.Cordoned != announce {
				t.Errorf("with Announce %t: ready %t, cordoned %t", announce, n.Ready, n.Cordoned)
			}
		})
	}
}

// TestForPolicyShares checks that Pods of one workload share their labels and ports, and others do not.
func TestForPolicyShares(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kinds, w.cfg.Detail = []cluster.Kind{cluster.KindPod}, ForPolicy
	put := func(name, app string) {
		w.api.Put(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Ports: []corev1.ContainerPort{{Name: app, ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			}}},
		})
	}
	put("web-0", "web")
	put("web-1", "web")
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	put("db-0", "db")
	w.await("db-0 is read", func() (read bool) {
		w.store.View(func(v *cluster.View) { read = v.Pod(cluster.Key{Namespace: "shop", Name: "db-0"}) != nil })
		return read
	})
	w.store.View(func(v *cluster.View) {
		pod := func(name string) *cluster.Pod { return v.Pod(cluster.Key{Namespace: "shop", Name: name}) }
		db, first, second := pod("db-0"), pod("web-0"), pod("web-1")
		if first.Spec != second.Spec || db.Spec == first.Spec {
			t.Error("Pods share the wrong ports")
		}
		if labels := reflect.ValueOf(first.Labels).Pointer(); labels != reflect.ValueOf(second.Labels).Pointer() ||
			labels == reflect.ValueOf(db.Labels).Pointer() {
			t.Error("Pods share the wrong labels")
		}
	})
}
