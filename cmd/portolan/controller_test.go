//go:build unix

package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/internal/kube/apitest"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"controller.maxEndpointsPerSlice": func(t *testing.T) {
			for setting, want := range map[string]int{"maxEndpointsPerSlice: 2": 3, "": 1} {
				a := newSlicesAPI(t)
				startSlices(t, a, setting)
				a.awaitSlices(5, want)
			}
		},
		"controller.concurrentSyncs":              effectOfConcurrentSyncs,
		"controller.leaderElection.enabled":       effectOfLeaderElection,
		"controller.leaderElection.namespace":     func(t *testing.T) { wantLease(t, "namespace: dns", "dns/portolan-slices") },
		"controller.leaderElection.name":          func(t *testing.T) { wantLease(t, "name: own", "kube-system/own") },
		"controller.leaderElection.leaseDuration": effectOfLeaseDuration,
		"controller.leaderElection.renewDeadline": effectOfRenewDeadline,
		"controller.leaderElection.retryPeriod":   effectOfRetryPeriod,
		"controller.nodes.clusterCIDRs": func(t *testing.T) {
			wantPodCIDRs(t, "clusterCIDRs: ['fd00::/48', 10.0.0.0/8]", "fd00::/64", "10.0.0.0/24")
		},
		"controller.nodes.maskIPv4": func(t *testing.T) { wantPodCIDRs(t, "clusterCIDRs: [10.0.0.0/8], maskIPv4: 20", "10.0.0.0/20") },
		"controller.loadBalancer.class": func(t *testing.T) {
			wantAddress(t, "class: example.com/lb, pools: [{name: a, ranges: [192.0.2.0/28], automatic: true}]", "192.0.2.0", func(s *corev1.Service) {
				s.Spec.LoadBalancerClass = new("example.com/lb")
			})
		},
		"controller.loadBalancer.withoutClass": func(t *testing.T) {
			wantAddress(t, "withoutClass: true, pools: [{name: a, ranges: [192.0.2.0/28], automatic: true}]", "192.0.2.0", func(s *corev1.Service) {
				s.Spec.LoadBalancerClass = nil
			})
		},
		"controller.loadBalancer.pools.name": func(t *testing.T) {
			wantAddress(t, "pools: [{name: a, ranges: [192.0.2.0/28]}, {name: b, ranges: [192.0.2.16/28]}]", "192.0.2.16", func(s *corev1.Service) {
				s.Annotations = map[string]string{"portolan.dev/pool": "b"}
			})
		},
		"controller.loadBalancer.pools.ranges":   effectOfPools("ranges: [192.0.2.9-192.0.2.10], automatic: true", "192.0.2.9"),
		"controller.loadBalancer.pools.reserved": effectOfPools("ranges: [192.0.2.0/28], reserved: [192.0.2.0/30], automatic: true", "192.0.2.4"),
		"controller.loadBalancer.pools.namespaces": effectOfPools(
			"ranges: [192.0.2.0/28], namespaces: [bank], automatic: true}, {name: b, ranges: [192.0.2.16/28], automatic: true", "192.0.2.16"),
		"controller.loadBalancer.pools.namespaceSelector": effectOfPools(
			"ranges: [192.0.2.0/28], namespaceSelector: team=a, automatic: true}, {name: b, ranges: [192.0.2.16/28], automatic: true", "192.0.2.16"),
		"controller.loadBalancer.pools.serviceSelector": effectOfPools(
			"ranges: [192.0.2.0/28], serviceSelector: edge=yes, automatic: true}, {name: b, ranges: [192.0.2.16/28], automatic: true", "192.0.2.16"),
		"controller.loadBalancer.pools.automatic": effectOfPools(
			"ranges: [192.0.2.0/28]}, {name: b, ranges: [192.0.2.16/28], automatic: true", "192.0.2.16"),
		"controller.nodes.maskIPv6": func(t *testing.T) { wantPodCIDRs(t, "clusterCIDRs: ['fd00::/56'], maskIPv6: 72", "fd00::/72") },
	})
}

// slicesAPI is an API server with a Service, for a slices controller.
type slicesAPI struct {
	*apitest.Server
	t *testing.T
	p *process // the controller
}

// newSlicesAPI returns one with a Service of five Pods on one Node.
func newSlicesAPI(t *testing.T) *slicesAPI {
	t.Helper()
	a := &slicesAPI{Server: apitest.New(t), t: t}
	a.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	a.putService("web")
	for i := range 5 {
		a.putPod(i)
	}
	return a
}

func (a *slicesAPI) putService(name string) {
	a.Put(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name)},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}, ClusterIP: "10.0.0.1",
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	})
}

func (a *slicesAPI) putPod(i int) {
	a.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i), UID: types.UID(fmt.Sprint("u-", i)), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{
			PodIPs:     []corev1.PodIP{{IP: fmt.Sprintf("10.1.0.%d", 1+i)}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	})
}

// lease returns the Lease of that name, or nil.
func (a *slicesAPI) lease(namespace, name string) *coordinationv1.Lease {
	l := new(coordinationv1.Lease)
	if !a.Get(namespace, name, l) {
		return nil
	}
	return l
}

// renewals returns the number of writes of Leases.
func (a *slicesAPI) renewals() (n int) {
	for _, write := range a.Writes() {
		if strings.Contains(write, "/leases") {
			n++
		}
	}
	return n
}

// awaitSlices waits until there are the given numbers of endpoints and slices.
func (a *slicesAPI) awaitSlices(endpoints, in int) {
	a.t.Helper()
	a.p.poll(patience, func() error {
		gotEndpoints, gotIn := 0, 0
		for _, o := range a.Objects() {
			if s, ok := o.(*discoveryv1.EndpointSlice); ok {
				gotEndpoints, gotIn = gotEndpoints+len(s.Endpoints), gotIn+1
			}
		}
		if gotEndpoints != endpoints || gotIn != in {
			return fmt.Errorf("%d endpoints in %d slices, want %d in %d", gotEndpoints, gotIn, endpoints, in)
		}
		return nil
	})
}

// startSlices starts a controller with settings of the key controller.
func startSlices(t *testing.T, a *slicesAPI, settingsOf string) *process {
	t.Helper()
	file := settings(t, fmt.Sprintf("kubernetes: {kubeconfig: %q}\ncontroller: {%s}", a.Kubeconfig(t), settingsOf))
	a.p = follow(t, exec.Command("portolan", "controller", "slices", "--config", file))
	a.p.awaitAdmin("/readyz", http.StatusOK, "ok")
	return a.p
}

// effectOfConcurrentSyncs checks that at most the set number of Services is synchronized
// at once.
func effectOfConcurrentSyncs(t *testing.T) {
	for setting, most := range map[string]int32{"concurrentSyncs: 2": 2, "": 5} {
		a := newSlicesAPI(t)
		for i := range 8 {
			a.putService(fmt.Sprint("web-", i))
		}
		var inside, highest atomic.Int32
		held := make(chan struct{})
		release := sync.OnceFunc(func() { close(held) })
		t.Cleanup(release)
		a.Misbehave(apitest.Fault{Refuse: func(method, path string) int {
			if method == http.MethodPost && strings.HasSuffix(path, "/endpointslices") {
				if n := inside.Add(1); n > highest.Load() {
					highest.Store(n)
				}
				<-held
				inside.Add(-1)
			}
			return 0
		}})
		p := startSlices(t, a, setting)
		p.poll(patience, func() error {
			if n := highest.Load(); n != most {
				return fmt.Errorf("%d at once, want %d", n, most)
			}
			return nil
		})
		time.AfterFunc(200*time.Millisecond, release) // no further request may arrive until then
		a.awaitSlices(9*5, 9)
		if n := highest.Load(); n != most {
			t.Errorf("%q: %d at once, want %d", setting, n, most)
		}
	}
}

func effectOfLeaderElection(t *testing.T) {
	for setting, elects := range map[string]bool{"leaderElection: {enabled: false}": false, "": true} {
		a := newSlicesAPI(t)
		startSlices(t, a, setting)
		a.awaitSlices(5, 1)
		if l := a.lease("kube-system", "portolan-slices"); (l != nil) != elects {
			t.Errorf("%q: the Lease is %v, want one: %t", setting, l, elects)
		}
	}
}

// wantLease checks that there is a Lease of that name with a setting of the key
// leaderElection.
func wantLease(t *testing.T, setting, lease string) *coordinationv1.Lease {
	t.Helper()
	a := newSlicesAPI(t)
	startSlices(t, a, "leaderElection: {"+setting+"}")
	a.awaitSlices(5, 1)
	namespace, name, _ := strings.Cut(lease, "/")
	l := a.lease(namespace, name)
	if l == nil {
		t.Fatalf("%q: no Lease %s", setting, lease)
	}
	return l
}

func effectOfLeaseDuration(t *testing.T) {
	for setting, want := range map[string]int32{"leaseDuration: 1m": 60, "": 15} {
		if l := wantLease(t, setting, "kube-system/portolan-slices"); *l.Spec.LeaseDurationSeconds != want {
			t.Errorf("%q: a Lease for %d s, want %d s", setting, *l.Spec.LeaseDurationSeconds, want)
		}
	}
}

// effectOfRenewDeadline checks that the controller exits if it cannot renew the Lease for
// that long.
func effectOfRenewDeadline(t *testing.T) {
	a := newSlicesAPI(t)
	p := startSlices(t, a, "leaderElection: {leaseDuration: 20s, renewDeadline: 1s, retryPeriod: 200ms}")
	a.awaitSlices(5, 1)
	a.Misbehave(apitest.Fault{Refuse: func(_, path string) int {
		if strings.Contains(path, "/leases") {
			return http.StatusInternalServerError
		}
		return 0
	}})
	refused := time.Now()
	p.wait()
	if took := time.Since(refused); took > 9*time.Second || p.state.ExitCode() == 0 {
		t.Errorf("it ended after %s with %s, want about a second, long before 10 s, and an error", took, p.state)
	}
	p.waitLog("the lease could not be renewed")
}

// effectOfRetryPeriod checks how often the Lease is renewed.
func effectOfRetryPeriod(t *testing.T) {
	a := newSlicesAPI(t)
	p := startSlices(t, a, "leaderElection: {retryPeriod: 100ms}")
	a.awaitSlices(5, 1)
	first := a.renewals()
	began := time.Now()
	const more = 10
	p.poll(patience, func() error {
		if n := a.renewals(); n < first+more {
			return fmt.Errorf("renewed %d times, want %d", n-first, more)
		}
		return nil
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("renewed %d times in %s, want every 100 ms and not every 2 s", more, took)
	}
}

// startNodes starts a controller of Nodes' ranges, with settings of the key controller.nodes.
func startNodes(t *testing.T, a *slicesAPI, settingsOf string) *process {
	t.Helper()
	file := settings(t, fmt.Sprintf("kubernetes: {kubeconfig: %q}\ncontroller: {nodes: {%s}}", a.Kubeconfig(t), settingsOf))
	a.p = follow(t, exec.Command("portolan", "controller", "nodes", "--config", file))
	a.p.awaitAdmin("/readyz", http.StatusOK, "ok")
	return a.p
}

// wantPodCIDRs checks the ranges that a Node gets with settings of the key controller.nodes.
func wantPodCIDRs(t *testing.T, setting string, want ...string) *process {
	t.Helper()
	a := newSlicesAPI(t)
	p := startNodes(t, a, setting)
	p.poll(patience, func() error {
		var n corev1.Node
		if a.Get("", "node", &n); !slices.Equal(n.Spec.PodCIDRs, want) || n.Spec.PodCIDR != want[0] {
			return fmt.Errorf("podCIDR %q, podCIDRs %q, want %q", n.Spec.PodCIDR, n.Spec.PodCIDRs, want)
		}
		return nil
	})
	if a.lease("kube-system", "portolan-nodes") == nil {
		t.Error("no Lease kube-system/portolan-nodes")
	}
	return p
}

// effectOfPools returns a test of the address that a Service gets with a pool.
func effectOfPools(pool, want string) func(*testing.T) {
	return func(t *testing.T) { wantAddress(t, "pools: [{name: a, "+pool+"}]", want, func(*corev1.Service) {}) }
}

// wantAddress checks the address that a Service gets with settings of the key controller.loadBalancer.
func wantAddress(t *testing.T, setting, want string, change func(*corev1.Service)) *process {
	t.Helper()
	a := newSlicesAPI(t)
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("portolan.dev/lb"), ClusterIP: "10.0.0.2",
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	change(s)
	a.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, s)
	file := settings(t, fmt.Sprintf("kubernetes: {kubeconfig: %q}\ncontroller: {loadBalancer: {%s}}", a.Kubeconfig(t), setting))
	a.p = follow(t, exec.Command("portolan", "controller", "loadbalancer", "--config", file))
	a.p.awaitAdmin("/readyz", http.StatusOK, "ok")
	a.p.poll(patience, func() error {
		var is corev1.Service
		a.Get("shop", "edge", &is)
		if i := is.Status.LoadBalancer.Ingress; len(i) != 1 || i[0].IP != want || i[0].IPMode == nil || *i[0].IPMode != corev1.LoadBalancerIPModeVIP {
			return fmt.Errorf("status %v, want %s with ipMode VIP", i, want)
		}
		return nil
	})
	if a.lease("kube-system", "portolan-loadbalancer") == nil {
		t.Error("no Lease kube-system/portolan-loadbalancer")
	}
	return a.p
}

// TestLoadBalancerControllerMetrics checks that the controller exports the metrics in operate.md.
func TestLoadBalancerControllerMetrics(t *testing.T) {
	t.Parallel()
	p := wantAddress(t, "pools: [{name: a, ranges: [192.0.2.0/30], reserved: [192.0.2.0], automatic: true}]", "192.0.2.1", func(*corev1.Service) {})
	for _, line := range []string{
		"portolan_controller_leader 1", `portolan_load_balancer_addresses{family="IPv4",pool="a",state="assigned"} 1`,
		`portolan_load_balancer_addresses{family="IPv4",pool="a",state="free"} 2`,
		`portolan_load_balancer_addresses{family="IPv4",pool="a",state="reserved"} 1`, "portolan_load_balancer_services_lacking 0",
		`portolan_load_balancer_writes_total{result="written"} 1`,
	} {
		p.awaitAdmin("/metrics", http.StatusOK, "\n"+line)
	}
	_, page := p.admin("/metrics")
	wantDocumented(t, "portolan_load_balancer_", page)
}

// TestNodesControllerMetrics checks that the controller exports the metrics in operate.md.
func TestNodesControllerMetrics(t *testing.T) {
	t.Parallel()
	p := wantPodCIDRs(t, "clusterCIDRs: [10.0.0.0/23]", "10.0.0.0/24")
	for _, line := range []string{
		"portolan_controller_leader 1", `portolan_pod_ranges{family="IPv4",state="free"} 1`, `portolan_pod_ranges{family="IPv4",state="taken"} 1`,
		"portolan_pod_ranges_missing 0", `portolan_pod_range_writes_total{result="written"} 1`,
	} {
		p.awaitAdmin("/metrics", http.StatusOK, "\n"+line)
	}
	_, page := p.admin("/metrics")
	wantDocumented(t, "portolan_pod_range", page)
}

// TestSlicesControllerMetrics checks that the controller exports the metrics in
// operate.md and releases the Lease when it stops.
func TestSlicesControllerMetrics(t *testing.T) {
	t.Parallel()
	a := newSlicesAPI(t)
	p := startSlices(t, a, "")
	a.awaitSlices(5, 1)
	for _, line := range []string{
		"portolan_controller_leader 1", "portolan_controller_queue_depth 0", "portolan_controller_endpointslices 1",
		`portolan_controller_syncs_total{result="failed"} 0`, "portolan_controller_sync_duration_seconds_count ",
	} {
		p.awaitAdmin("/metrics", http.StatusOK, "\n"+line)
	}
	_, page := p.admin("/metrics")
	wantDocumented(t, "portolan_controller_", page)
	p.stop(syscall.SIGTERM)
	if l := a.lease("kube-system", "portolan-slices"); l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
		t.Errorf("the Lease is still held by %q", *l.Spec.HolderIdentity)
	}
}

// wantDocumented checks that a page of metrics has those with the prefix that operate.md
// documents.
func wantDocumented(t *testing.T, prefix, page string) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	names := func(pattern, text string) (found []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	told := names("(?m)^# TYPE ("+prefix+"[a-z_]+) ", page)
	documented := names("(?m)^\\| `("+prefix+"[a-z_]+)` \\|", string(doc))
	if len(told) == 0 || !slices.Equal(told, documented) {
		t.Errorf("metrics %q, and in operate.md %q", told, documented)
	}
}
