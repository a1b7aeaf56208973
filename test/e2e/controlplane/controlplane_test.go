package controlplane_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"portolan.dev/portolan/test/e2e/controlplane"
)

// TestControlPlane covers what the tests of this module rely on.
func TestControlPlane(t *testing.T) {
	ctx := t.Context()
	began := time.Now()
	c, err := controlplane.Start(ctx, controlplane.Options{ControllerManager: true, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("ready after %.1f s", time.Since(began).Seconds())

	web := createService(ctx, t, c.Client(), "web", "10.96.0.20")
	if len(web.Spec.ClusterIPs) != 2 {
		t.Errorf("ClusterIPs = %v, want one of each family", web.Spec.ClusterIPs)
	}
	testSlices(t, c)
	testUser(t, c)
	testRestart(t, c, web.ResourceVersion)
}

// testSlices shows that the controllers work.
func testSlices(t *testing.T, c *controlplane.ControlPlane) {
	ctx := t.Context()
	poll(t, "an EndpointSlice of the Service web", func() bool {
		slices, err := c.Client().DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"})
		return err == nil && len(slices.Items) > 0
	})
}

// testUser shows that a user may do what its rules say, and nothing else.
func testUser(t *testing.T, c *controlplane.ControlPlane) {
	ctx := t.Context()
	user, err := c.NewUser(ctx, "reader", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list"}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", user.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "the user may list Services", func() bool {
		_, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		return err == nil
	})
	if _, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list Pods: %v, want forbidden", err)
	}
}

// testRestart shows that the state outlives the API server, and that a watch
// from before a compaction can't go on.
func testRestart(t *testing.T, c *controlplane.ControlPlane, old string) {
	ctx := t.Context()
	address := c.Address()
	c.StopAPIServer()
	if _, err := c.Client().CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{}); err == nil {
		t.Error("a stopped API server answers")
	}
	if err := c.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("API server ready again after %.1f s", time.Since(began).Seconds())
	if c.Address() != address {
		t.Errorf("Address = %s, want %s as before", c.Address(), address)
	}
	if _, err := c.Client().CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	watch, err := c.Client().CoreV1().Services("").Watch(ctx, metav1.ListOptions{ResourceVersion: old})
	if err == nil {
		defer watch.Stop()
		event := <-watch.ResultChan()
		err = apierrors.FromObject(event.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from an old version: %v, want that it is gone", err)
	}
	createService(ctx, t, c.Client(), "after", "10.96.0.21")
}

func createService(ctx context.Context, t *testing.T, client kubernetes.Interface, name, ip string) *corev1.Service {
	t.Helper()
	service, err := client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP:      ip,
			IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Selector:       map[string]string{"app": name},
			Ports:          []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
