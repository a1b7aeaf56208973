package cluster_test

import (
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

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

// TestNetwork is TestCluster with Portolan's network of Pods.
func TestNetwork(t *testing.T) {
	_, s := start(t, cluster.PortolanNetwork)
	testSpecs(t, s, "Granular Checks: Pods should function for node-pod communication: udp|HostPort validates")
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
