package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/upstream/cluster"
	"portolan.dev/portolan/test/upstream/cluster/clustertest"
	"portolan.dev/portolan/test/upstream/rolling"
	"portolan.dev/portolan/test/upstream/suite"
)

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) { clustertest.Main(m) }

// TestCluster runs small versions of what the commands run, with Portolan's service proxy and
// policies on two nodes.
func TestCluster(t *testing.T) {
	c, s := start(t, cluster.PortolanPolicies)
	t.Run("specs", func(t *testing.T) {
		// The one of Services expects errors, and the one of NetworkPolicies connects to Services.
		testSpecs(t, s, "Services should be rejected when no endpoints|Netpol .* server and client should support a 'default-deny-all'")
	})
	t.Run("rolling update", func(t *testing.T) { testRollingUpdate(t, c.Client()) })
}

// TestNetwork is TestCluster with the whole network of the cluster by Portolan's manifests.
func TestNetwork(t *testing.T) {
	c, s := start(t, cluster.PortolanNetwork)
	t.Run("specs", func(t *testing.T) {
		testSpecs(t, s, "Granular Checks: Pods should function for node-pod communication: udp|HostPort validates")
	})
	t.Run("load balancer", func(t *testing.T) { testLoadBalancer(t, c.Client()) })
}

// testLoadBalancer connects to a Service of type LoadBalancer from outside of the cluster, at both of its addresses.
func testLoadBalancer(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	const name = "web"
	labels := map[string]string{"app": name}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: name, Image: "agnhost", Args: []string{"netexec", "--http-port=80"}}},
	}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: labels, Ports: []corev1.ServicePort{{Port: 80}},
		IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
	}}
	if _, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	services := client.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, func() error {
		s, err := services.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ingress := s.Status.LoadBalancer.Ingress
		if len(ingress) != 2 {
			return fmt.Errorf("the addresses are %v, want one of each family", ingress)
		}
		return errors.Join(getHostname(t.Context(), ingress[0].IP, name), getHostname(t.Context(), ingress[1].IP, name))
	})
}

// getHostname returns an error unless an HTTP server at an address says that it is on this host.
func getHostname(ctx context.Context, addr, want string) error {
	ctx, cancel := context.WithTimeout(ctx, await.Answer)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(addr, "80")+"/hostname", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && string(text) != want {
		err = fmt.Errorf("%s answers %q, want %q", addr, text, want)
	}
	return err
}

// start starts a cluster with two nodes.
func start(t *testing.T, proxy cluster.Proxy) (*cluster.Cluster, suite.Suite) {
	t.Helper()
	programs, err := cluster.Prepared()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(t.Context(), cluster.Config{Programs: programs, Proxy: proxy, Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, suite.Suite{
		Program: programs.E2E, Kubeconfig: c.Kubeconfig(), Kubectl: programs.Kubectl, Dir: t.TempDir(),
	}
}

// testSpecs runs two of the specs that cmd/conformance runs.
func testSpecs(t *testing.T, s suite.Suite, focus string) {
	t.Helper()
	specs, err := s.List(t.Context(), focus)
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) != 2 {
		t.Fatalf("specs %q, want two", specs)
	}
	for _, spec := range specs {
		if r, err := s.Run(t.Context(), spec); err != nil || r.State != suite.Passed {
			t.Errorf("%s: %s: %s, %v", spec, r.State, r.Failure+r.Skipped, err)
		}
	}
}

// testRollingUpdate does what cmd/rolling does, with few Pods: no connection fails.
func testRollingUpdate(t *testing.T, client kubernetes.Interface) {
	const grace = 10 * time.Second
	r, err := rolling.Run(t.Context(), rolling.Config{Client: client, Replicas: 6, Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", rolling.Table([]rolling.Row{{Proxy: "Portolan", Grace: grace, Result: r}}))
	if r.Failed() > 0 {
		t.Errorf("%d connections failed: %q", r.Failed(), r.Failures())
	}
	if r.Internal.Lasting.Ended == 0 || r.External.Lasting.Ended == 0 {
		t.Errorf("%d and %d lasting connections ended, want some", r.Internal.Lasting.Ended, r.External.Lasting.Ended)
	}
}
