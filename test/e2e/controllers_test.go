package e2e

//lint:file-ignore SA1019 legacy Endpoints, deprecated as they are, are mirrored

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
)

// TestControllers follows what Kubernetes' own controllers make of Services,
// Pods and namespaces: from selectors to EndpointSlices to names.
func TestControllers(t *testing.T) {
	ctx := t.Context()
	c := controlplanetest.Start(t, controlplane.Options{ControllerManager: true})
	user, err := c.NewUser(ctx, "portolan", rulesBut()...)
	if err != nil {
		t.Fatal(err)
	}
	p := startPortolan(t, user.Kubeconfig, "")
	core := c.Client().CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*corev1.Service{
		{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "db"},
			Ports: []corev1.ServicePort{{Name: "sql", Port: 5432, TargetPort: intstr.FromInt32(15432)}},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "mirrored"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
	} {
		if _, err := core.Services("shop").Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testPod(t, c, p)
	testMirroring(t, c, p)
	if err := core.Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	p.await(isAbsent("shop.svc.cluster.local."))
	report(t, deleted, "from the deletion of a namespace until it is absent")
}

// testPod shows that a Pod has its names while it is ready.
func testPod(t *testing.T, c *controlplane.ControlPlane, p *portolan) {
	t.Helper()
	ctx := t.Context()
	// A Pod without a node that is there is in no slice.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	if _, err := c.Client().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := c.Client().CoreV1().Pods("shop")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db-0", Labels: map[string]string{"app": "db"}},
		Spec: corev1.PodSpec{
			NodeName: "node", Hostname: "db-0", Subdomain: "db", Containers: []corev1.Container{{Name: "db", Image: "db"}},
		},
	}
	// Until the controllers have made the account that Pods have, none is taken.
	await.NoError(t, func() (err error) {
		pod, err = pods.Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	setReady := func(ready corev1.ConditionStatus) time.Time {
		t.Helper()
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.244.0.1", PodIPs: []corev1.PodIP{{IP: "10.244.0.1"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		}
		var err error
		if pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	ready := setReady(corev1.ConditionTrue)
	p.await(
		hasAddress("db.shop.svc.cluster.local.", "10.244.0.1"),
		hasAddress("db-0.db.shop.svc.cluster.local.", "10.244.0.1"),
		hasAddress("10-244-0-1.shop.pod.cluster.local.", "10.244.0.1"),
		query{"_sql._tcp.db.shop.svc.cluster.local.", dnswire.TypeSRV, []string{"0 100 15432 db-0.db.shop.svc.cluster.local."}},
		query{"1.0.244.10.in-addr.arpa.", dnswire.TypePTR, []string{"db-0.db.shop.svc.cluster.local."}},
	)
	report(t, ready, "from a Pod's being ready until it has its names")
	unready := setReady(corev1.ConditionFalse)
	p.await(isAbsent("db.shop.svc.cluster.local."), isAbsent("db-0.db.shop.svc.cluster.local."))
	report(t, unready, "from a Pod's not being ready until it has them no more")
	// No kubelet ends it gently.
	if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
}

// testMirroring shows that the controllers' copies of Endpoints are served.
func testMirroring(t *testing.T, c *controlplane.ControlPlane, p *portolan) {
	t.Helper()
	_, err := c.Client().CoreV1().Endpoints("shop").Create(t.Context(), &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: "mirrored"},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1", Hostname: "dock-1"}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.await(hasAddress("dock-1.mirrored.shop.svc.cluster.local.", "192.0.2.1"))
}
