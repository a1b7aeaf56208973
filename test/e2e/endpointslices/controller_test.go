package endpointslices_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/process"
	"portolan.dev/portolan/test/program"
)

// slicesRules are what the controller of slices may do, as the chart has it.
var slicesRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"services", "pods", "nodes"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch", "create", "update", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"services/finalizers"}, Verbs: []string{"update"}},
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
}

// slicesConfig has another take over soon, and a leader stay on a machine that has
// other work.
const slicesConfig = `
kubernetes: {qps: 500, burst: 500}
controller: {leaderElection: {leaseDuration: 8s, renewDeadline: 6s, retryPeriod: 500ms}}
`

// TestSlicesController: the controller does for a real API what Kubernetes' own
// does, which does not run here, and one of two takes over from the other.
func TestSlicesController(t *testing.T) {
	c := startSlicesPlane(t, controlplane.Options{Without: []string{"endpointslice-controller"}})
	user, err := c.NewUser(t.Context(), "slices", slicesRules...)
	if err != nil {
		t.Fatal(err)
	}
	file, err := program.Build(t.Context(), program.Options{Flags: []string{"-race"}})
	if err != nil {
		t.Fatal(err)
	}
	var replicas []*controller
	for range 2 {
		replicas = append(replicas, startController(t, file, user.Kubeconfig))
	}
	m := newMemory(t, c)
	awaitOneLeader(t, replicas)
	runSequences(t, c, m, (*sequence).alone)
	t.Run("topology mode", func(t *testing.T) { testTopologyMode(t, c, m) })
	t.Run("handover", func(t *testing.T) { testHandover(t, c, m, replicas) })
	t.Run("repair", func(t *testing.T) { testRepair(t, c, m) })
}

// controller is the real program, keeping up slices.
type controller struct {
	process.Process
	t     *testing.T
	admin string
}

// startController starts one, of the program's file. At the end of the test it
// must, unless it was killed, end as it is told to, without a data race.
func startController(t *testing.T, file, kubeconfig string) *controller {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(slicesConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	k := &controller{t: t}
	k.Path, k.Log = file, filepath.Join(dir, "log")
	k.Args = []string{"controller", "slices", "--kubeconfig", kubeconfig, "--config", config, "--admin", "127.0.0.1:0"}
	k.start()
	t.Cleanup(func() {
		if k.Running() {
			k.end()
		}
		if strings.Contains(k.Logged(), "DATA RACE") {
			t.Error("a data race")
		}
		if t.Failed() {
			t.Logf("log of a controller:\n%s", k.LastLogged())
		}
	})
	return k
}

func (k *controller) start() {
	k.t.Helper()
	if err := k.Start(); err != nil {
		k.t.Fatal(err)
	}
	await.NoError(k.t, func() error {
		running := strings.LastIndex(k.Logged(), "msg=serving")
		if running < 0 {
			return fmt.Errorf("it does not run: %s", k.LastLogged())
		}
		_, after, _ := strings.Cut(k.Logged()[running:], "admin=")
		var whole bool
		if k.admin, _, whole = strings.Cut(after, "\n"); !whole {
			return fmt.Errorf("it does not say where it is asked: %s", k.LastLogged())
		}
		_, err := k.get("/readyz")
		return err
	})
}

// end has it end gently.
func (k *controller) end() {
	k.t.Helper()
	k.Stop(await.Patience)
	if code := k.State().ExitCode(); code != 0 {
		k.t.Errorf("a controller: %s, want exit status 0", k.State())
	}
}

func (k *controller) get(path string) (string, error) {
	response, err := http.Get("http://" + k.admin + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return string(body), err
}

// leads tells what it says of itself.
func (k *controller) leads() bool {
	if !k.Running() {
		return false
	}
	page, err := k.get("/metrics")
	return err == nil && strings.Contains(page, "\nportolan_controller_leader 1\n")
}

// awaitOneLeader waits until one leads, and gives its place.
func awaitOneLeader(t *testing.T, replicas []*controller) (leader int) {
	t.Helper()
	await.NoError(t, func() error {
		leader = slices.IndexFunc(replicas, (*controller).leads)
		if leader < 0 {
			return errors.New("nobody leads")
		}
		return nil
	})
	for i, k := range replicas {
		if i != leader && k.leads() {
			t.Fatal("two lead")
		}
	}
	return leader
}

// testHandover: another takes over from a leader that is killed, and from one that
// is told to stop, which gives the Lease back, so that nobody waits for its end.
func testHandover(t *testing.T, c *controlplane.ControlPlane, m *memory, replicas []*controller) {
	s := newSequence(t.Context(), quietClient(t, c), 1, len(seeds)+1)
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	for _, how := range []struct {
		name    string
		stop    func(*controller)
		returns bool // the Lease
	}{
		{"killed", func(k *controller) { k.Signal(syscall.SIGKILL); k.Stop(0) }, false},
		{"told to stop", (*controller).end, true},
	} {
		old := awaitOneLeader(t, replicas)
		held := leaseHolder(t, c)
		how.stop(replicas[old])
		stopped := time.Now()
		if how.returns && leaseHolder(t, c) == held {
			t.Errorf("a leader that was %s has not given the Lease back", how.name)
		}
		for range 5 {
			if err := s.step(); err != nil {
				t.Fatal(err)
			}
		}
		awaitOneLeader(t, replicas)
		if err := s.compare(c, m); err != nil {
			t.Errorf("after a leader was %s: %v", how.name, err)
		}
		t.Logf("from a leader's being %s until its successor has done its work: %.1f s", how.name, time.Since(stopped).Seconds())
		replicas[old].start()
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

// leaseHolder is who holds the Lease, if anybody does.
func leaseHolder(t *testing.T, c *controlplane.ControlPlane) string {
	t.Helper()
	lease, err := c.Client().CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "portolan-slices", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return text(lease.Spec.HolderIdentity)
}

// testRepair: what somebody else does to slices does not last.
func testRepair(t *testing.T, c *controlplane.ControlPlane, m *memory) {
	s := newSequence(t.Context(), quietClient(t, c), 2, len(seeds)+2)
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	if err := s.compare(c, m); err != nil {
		t.Fatal(err)
	}
	of := c.Client().DiscoveryV1().EndpointSlices(s.namespace)
	for claim, meddle := range map[string]func(*discoveryv1.EndpointSlice) error{
		"an endpoint taken out": func(e *discoveryv1.EndpointSlice) error {
			e.Endpoints = nil
			_, err := of.Update(t.Context(), e, metav1.UpdateOptions{})
			return err
		},
		"a slice deleted": func(e *discoveryv1.EndpointSlice) error {
			return of.Delete(t.Context(), e.Name, metav1.DeleteOptions{})
		},
		"a slice given to another": func(e *discoveryv1.EndpointSlice) error {
			e.Labels[discoveryv1.LabelManagedBy] = "example.com"
			_, err := of.Update(t.Context(), e, metav1.UpdateOptions{})
			return err
		},
	} {
		list, err := of.List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=endpointslice-controller.k8s.io"})
		if err != nil || len(list.Items) == 0 {
			t.Fatalf("%d slices, %v", len(list.Items), err)
		}
		if err := meddle(&list.Items[0]); err != nil {
			t.Fatal(err)
		}
		if err := s.compare(c, m); err != nil {
			t.Errorf("%s: %v", claim, err)
		}
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}
