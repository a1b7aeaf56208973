package allocation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
	"portolan.dev/portolan/test/e2e/process"
	"portolan.dev/portolan/test/program"
)

// The rules of both controllers, as the chart has them.
var (
	leaseRules = rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}}
	eventRules = rbacv1.PolicyRule{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}}
	nodesRules = []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: []string{"list", "watch"}},
		eventRules, leaseRules,
	}
	balancerRules = []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"patch"}},
		eventRules, leaseRules,
	}
)

// election has another process take over soon.
const election = "leaderElection: {leaseDuration: 4s, renewDeadline: 3s, retryPeriod: 300ms}"

// replica is one process of a controller.
type replica struct {
	process.Process
	t *testing.T
}

// replicas starts two processes of a controller.
func replicas(t *testing.T, c *controlplane.ControlPlane, command, settings string, rules []rbacv1.PolicyRule) [2]*replica {
	t.Helper()
	user, err := c.NewUser(t.Context(), command, rules...)
	if err != nil {
		t.Fatal(err)
	}
	file, err := program.Build(t.Context(), program.Options{Flags: []string{"-race"}})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("kubernetes: {qps: 500, burst: 500}\ncontroller: {%s, %s}\n", election, settings)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var all [2]*replica
	for i := range all {
		r := &replica{t: t}
		r.Path, r.Log = file, filepath.Join(t.TempDir(), "log")
		r.Args = []string{"controller", command, "--kubeconfig", user.Kubeconfig, "--config", config, "--admin", "127.0.0.1:0"}
		all[i] = r
		r.start()
		t.Cleanup(func() {
			if r.Running() {
				r.end()
			}
			if strings.Contains(r.Logged(), "DATA RACE") {
				t.Error("a data race")
			}
			if t.Failed() {
				t.Logf("log of a controller:\n%s", r.LastLogged())
			}
		})
	}
	return all
}

// start starts it, and waits until it would end gently.
func (r *replica) start() {
	r.t.Helper()
	const serving = "msg=serving "
	before := strings.Count(r.Logged(), serving)
	if err := r.Start(); err != nil {
		r.t.Fatal(err)
	}
	await.NoError(r.t, func() error {
		if strings.Count(r.Logged(), serving) == before {
			return fmt.Errorf("it does not run: %s", r.LastLogged())
		}
		return nil
	})
}

// end has it end gently.
func (r *replica) end() {
	r.t.Helper()
	r.Stop(await.Patience)
	if code := r.State().ExitCode(); code != 0 {
		r.t.Errorf("a controller: %s, want exit status 0", r.State())
	}
}

// handover kills the leader, or has it end gently, calls next meanwhile, and starts it again.
func handover(t *testing.T, c *controlplane.ControlPlane, all [2]*replica, lease string, stop, next func(*replica)) {
	t.Helper()
	holder := func() string {
		l, err := c.Client().CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), lease, metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}
	was := holder()
	i := slices.IndexFunc(all[:], func(r *replica) bool {
		return r.Running() && strings.Contains(r.Logged(), "leader="+was+" lease=kube-system/"+lease+" self=true")
	})
	if i < 0 {
		t.Fatalf("nobody is the leader %q", was)
	}
	stop(all[i])
	began := time.Now()
	next(all[1-i])
	await.NoError(t, func() error {
		if now := holder(); now == was || now == "" {
			return fmt.Errorf("%q holds the Lease", now)
		}
		return nil
	})
	t.Logf("another one leads after %.1f s", time.Since(began).Seconds())
	all[i].start()
}

func kill(r *replica) { r.Signal(syscall.SIGKILL); r.Stop(0) }

// TestNodes checks that Nodes get ranges that overlap nothing, keep them over changes of leaders, and leave them to others.
func TestNodes(t *testing.T) {
	c := controlplanetest.Start(t, controlplane.Options{ServiceCIDRs: "10.0.0.0/24,fd00::/112"})
	nodes := c.Client().CoreV1().Nodes()
	create := func(names ...string) {
		t.Helper()
		for _, name := range names {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if name == "own" {
				n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.1.0/24", []string{"10.0.1.0/24"}
			}
			if _, err := nodes.Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	given := make(map[string]string)
	check := func(want int) { // all Nodes have ranges, which do not change or overlap
		t.Helper()
		await.NoError(t, func() error {
			list, err := nodes.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			all := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/112")}
			for _, n := range list.Items {
				text := strings.Join(n.Spec.PodCIDRs, " ")
				if len(n.Spec.PodCIDRs) != 2 && n.Name != "own" || given[n.Name] != "" && given[n.Name] != text {
					return fmt.Errorf("node %s has %s, and had %s", n.Name, text, given[n.Name])
				}
				given[n.Name] = text
				for _, cidr := range n.Spec.PodCIDRs {
					p := netip.MustParsePrefix(cidr)
					if slices.ContainsFunc(all, p.Overlaps) {
						t.Fatalf("node %s: %s overlaps another range: %s", n.Name, p, all)
					}
					all = append(all, p)
				}
			}
			if len(list.Items) != want {
				return fmt.Errorf("%d nodes, want %d", len(list.Items), want)
			}
			return nil
		})
	}
	create("own", "a")
	all := replicas(t, c, "nodes", "nodes: {clusterCIDRs: [10.0.0.0/20, 'fd00::/56']}", nodesRules)
	check(2)
	handover(t, c, all, "portolan-nodes", (*replica).end, func(*replica) { create("b", "c") })
	check(4)
	handover(t, c, all, "portolan-nodes", kill, func(*replica) { create("d") })
	check(5)
	for i := range 10 { // the last of 16 ranges, one of which is of Services
		create(fmt.Sprint("n-", i))
	}
	check(15)
	create("late")
	awaitEvent(t, c, metav1.NamespaceDefault, "late", "CIDRNotAvailable")
	if err := nodes.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	check(15)
	if given["late"] != given["b"] {
		t.Errorf("the last Node has %s, want %s, of the Node that was deleted", given["late"], given["b"])
	}
}

// awaitEvent waits for an Event of an object.
func awaitEvent(t *testing.T, c *controlplane.ControlPlane, namespace, name, reason string) {
	t.Helper()
	await.NoError(t, func() error {
		list, err := c.Client().EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.Name == name && e.Reason == reason && e.Regarding.UID != "" {
				return nil
			}
		}
		return fmt.Errorf("no Event %s of %s among %d", reason, name, len(list.Items))
	})
}

// TestLoadBalancers checks that Services get, share, keep and lose addresses.
func TestLoadBalancers(t *testing.T) {
	c := controlplanetest.Start(t, controlplane.Options{})
	of := c.Client().CoreV1().Services(metav1.NamespaceDefault)
	create := func(name string, port int32, change func(*corev1.Service)) {
		t.Helper()
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("portolan.dev/lb"), Selector: map[string]string{"app": name},
				Ports: []corev1.ServicePort{{Port: port}}, AllocateLoadBalancerNodePorts: new(false),
			},
		}
		change(s)
		if _, err := of.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name string, want ...string) {
		t.Helper()
		await.NoError(t, func() error {
			s, err := of.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			var got []string
			for _, i := range s.Status.LoadBalancer.Ingress {
				if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
					return errors.New("an address without ipMode VIP")
				}
				got = append(got, i.IP)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("Service %s has %v, want %v", name, got, want)
			}
			return nil
		})
	}
	shares := func(s *corev1.Service) { s.Annotations["portolan.dev/sharing-key"] = "k" }
	plain := func(*corev1.Service) {}
	all := replicas(t, c, "loadbalancer", "loadBalancer: {pools: [{name: public, ranges: [192.0.2.0/30, '2001:db8::/126'], automatic: true}]}", balancerRules)
	create("a", 80, shares)
	want("a", "192.0.2.0")
	awaitEvent(t, c, metav1.NamespaceDefault, "a", "IPAllocated")
	create("shared", 81, shares)
	want("shared", "192.0.2.0")
	create("both", 80, func(s *corev1.Service) { s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack) })
	want("both", "192.0.2.1", "2001:db8::")
	create("asks", 80, func(s *corev1.Service) { s.Annotations["portolan.dev/load-balancer-ips"] = "192.0.2.3" })
	want("asks", "192.0.2.3")
	handover(t, c, all, "portolan-loadbalancer", kill, func(*replica) { create("during", 80, plain) })
	want("during", "192.0.2.2")
	create("late", 80, plain)
	awaitEvent(t, c, metav1.NamespaceDefault, "late", "AllocationFailed")
	handover(t, c, all, "portolan-loadbalancer", (*replica).end, func(*replica) {})
	for name, addrs := range map[string][]string{"a": {"192.0.2.0"}, "shared": {"192.0.2.0"}, "both": {"192.0.2.1", "2001:db8::"}, "during": {"192.0.2.2"}, "late": nil} {
		want(name, addrs...)
	}
	meddle := []byte(`{"status":{"loadBalancer":{"ingress":[{"hostname":"lb.example"}]}}}`)
	if _, err := of.Patch(t.Context(), "a", types.MergePatchType, meddle, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	want("a", "192.0.2.0")
	toClusterIP := []byte(`{"spec":{"type":"ClusterIP","loadBalancerClass":null,"allocateLoadBalancerNodePorts":null}}`)
	if _, err := of.Patch(t.Context(), "asks", types.MergePatchType, toClusterIP, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	want("asks")
	want("late", "192.0.2.3")
	if err := of.Delete(context.WithoutCancel(t.Context()), "during", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create("next", 80, plain)
	want("next", "192.0.2.2")
}
