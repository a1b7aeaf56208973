package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/manifests"
)

// there is what is there all the time, whatever happens.
const there = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: there}
spec: {clusterIP: 10.96.50.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: there}
spec: {clusterIP: None}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: there, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints:
  - {addresses: ["10.244.50.1"], hostname: db-0}
  - {addresses: ["10.244.50.2"], hostname: db-1}
---
apiVersion: v1
kind: Pod
metadata: {name: pod, namespace: there}
status: {phase: Running, podIP: 10.244.50.3}
`

var (
	services = []query{
		hasAddress("web.there.svc.cluster.local.", "10.96.50.1"),
		isAbsent("nothing.there.svc.cluster.local."),
	}
	endpoints = []query{
		hasAddress("db.there.svc.cluster.local.", "10.244.50.1", "10.244.50.2"),
		hasAddress("db-1.db.there.svc.cluster.local.", "10.244.50.2"),
	}
	pods = []query{
		hasAddress("10-244-50-3.there.pod.cluster.local.", "10.244.50.3"),
	}
	reverse = []query{
		{"1.50.96.10.in-addr.arpa.", dnswire.TypePTR, []string{"web.there.svc.cluster.local."}},
	}
)

func everything() []query {
	return append(append(append(append([]query(nil), services...), endpoints...), pods...), reverse...)
}

// quick makes portolan notice silence soon.
const quick = "kubernetes: {silence: 3s}\n"

// newCluster fills the cluster with what is there all the time. At the end of
// the test it brings everything back to what it was.
func newCluster(t *testing.T) *applier {
	t.Helper()
	a := newApplier(t)
	t.Cleanup(func() {
		a.ResumeAPIServer()
		if err := errors.Join(a.StartAPIServer(context.Background()), a.clear(context.Background())); err != nil {
			t.Error(err)
		}
	})
	objects, err := manifests.Read(map[string][]byte{"there.yaml": []byte(there)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.apply(t.Context(), objects, nil); err != nil {
		t.Fatal(err)
	}
	return a
}

// user may read what Portolan reads, but for some kinds.
func (a *applier) user(t *testing.T, without ...string) *controlplane.User {
	t.Helper()
	u, err := a.NewUser(t.Context(), "portolan", rulesBut(without...)...)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func rulesBut(without ...string) (rules []rbacv1.PolicyRule) {
	for _, kind := range []string{"Namespace", "Service", "EndpointSlice", "Pod"} {
		if !slices.Contains(without, kind) {
			rules = append(rules, mayRead(kind))
		}
	}
	return rules
}

// through is a user's kubeconfig that leads to a proxy.
func (a *applier) through(t *testing.T, address string) string {
	t.Helper()
	file, err := a.Through(address, a.user(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// makeService makes a Service and gives the question that shows it.
func (a *applier) makeService(t *testing.T, name, address string) query {
	t.Helper()
	_, err := a.Client().CoreV1().Services("there").Create(t.Context(), newService(name, address), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return hasAddress(name+".there.svc.cluster.local.", address)
}

func newService(name, address string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "there"},
		Spec:       corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// report says in a line how long something took.
func report(t *testing.T, since time.Time, format string, args ...any) {
	t.Helper()
	t.Logf("%.2f s %s", time.Since(since).Seconds(), fmt.Sprintf(format, args...))
}

// TestAPIServerRestarts: it is away for a while and comes back.
func TestAPIServerRestarts(t *testing.T) {
	a := newCluster(t)
	p := startPortolan(t, a.user(t).Kubeconfig, quick)
	p.steady(everything())
	a.StopAPIServer()
	p.waitLog("kubernetes api can't be read")
	if err := a.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	p.await(a.makeService(t, "new", "10.96.50.2"))
	report(t, back, "from the API server's return until a new Service is served")
}

// TestCompaction: the version that portolan saw last is forgotten when it
// reaches the API server again, and meanwhile something went and something came.
func TestCompaction(t *testing.T) {
	a := newCluster(t)
	proxy := newTCPProxy(t, a.Address())
	p := startPortolan(t, a.through(t, proxy.addr()), "")
	p.steady(everything())
	p.await(a.makeService(t, "goes", "10.96.50.3"))
	// Reached before it is ready, the API server would refuse the watch for
	// other reasons.
	proxy.refusing.Store(true)
	proxy.closeAll()
	a.StopAPIServer()
	ctx := t.Context()
	key := resources["Service"].stored + "there/"
	if _, err := a.Etcd().Delete(ctx, key+"goes"); err != nil {
		t.Fatal(err)
	}
	comes := newService("comes", "10.96.50.4")
	comes.APIVersion, comes.Kind, comes.UID = "v1", "Service", uuid.NewUUID()
	data, err := json.Marshal(comes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Etcd().Put(ctx, key+"comes", string(data)); err != nil {
		t.Fatal(err)
	}
	if err := a.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	proxy.refusing.Store(false)
	back := time.Now()
	p.await(isAbsent("goes.there.svc.cluster.local."), hasAddress("comes.there.svc.cluster.local.", "10.96.50.4"))
	report(t, back, "from the API server's return until what went is gone and what came is served, the versions between compacted")
	p.await(a.makeService(t, "new", "10.96.50.2"))
}

// TestAPIServerStandsStill: it keeps its connections and says nothing.
func TestAPIServerStandsStill(t *testing.T) {
	a := newCluster(t)
	p := startPortolan(t, a.user(t).Kubeconfig, quick)
	p.steady(everything())
	a.PauseAPIServer()
	p.waitLog("(?s)kubernetes api is silent.*kubernetes api is silent") // for two kinds
	a.ResumeAPIServer()
	back := time.Now()
	p.await(a.makeService(t, "new", "10.96.50.2"))
	report(t, back, "from the moment that the API server goes on until a new Service is served")
}

// TestAPIServerRefuses: it has too many requests, then it fails.
func TestAPIServerRefuses(t *testing.T) {
	a := newCluster(t)
	proxy := newHTTPProxy(t, a.ControlPlane)
	p := startPortolan(t, a.through(t, proxy.addr()), quick)
	p.steady(everything())
	for i, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError} {
		proxy.answer(status)
		made := a.makeService(t, fmt.Sprintf("new-%d", i), fmt.Sprintf("10.96.50.1%d", i))
		proxy.awaitRefused(t, 10) // retries of several kinds
		proxy.recover()
		back := time.Now()
		p.await(made)
		report(t, back, "from the end of %d responses until a Service made meanwhile is served", status)
	}
}

// TestConnectionStalls: it stays open and carries nothing any more.
func TestConnectionStalls(t *testing.T) {
	a := newCluster(t)
	proxy := newTCPProxy(t, a.Address())
	p := startPortolan(t, a.through(t, proxy.addr()), quick)
	p.steady(everything())
	proxy.stall()
	stalled := time.Now()
	p.await(a.makeService(t, "new", "10.96.50.2"))
	report(t, stalled, "from the stall until a new Service is served, with a silence of 3 s")
}

// TestConnectionsCut: each ends after some octets, wherever in an event that is.
func TestConnectionsCut(t *testing.T) {
	a := newCluster(t)
	proxy := newTCPProxy(t, a.Address())
	p := startPortolan(t, a.through(t, proxy.addr()), quick)
	p.steady(everything())
	// Enough for TLS, and for lists that are sent in part.
	const least, step, cuts = 4000, 1234, 8
	proxy.cutAfter.Store(least)
	proxy.closeAll()
	var made []query
	await.NoError(t, func() error {
		if proxy.cutSoFar() >= cuts {
			return nil
		}
		i := len(made)
		made = append(made, a.makeService(t, fmt.Sprintf("new-%d", i), fmt.Sprintf("10.96.%d.%d", 60+i/250, 1+i%250)))
		proxy.cutAfter.Store(least + int64(i%10)*step)
		return fmt.Errorf("%d connections cut, want %d", proxy.cutSoFar(), cuts)
	})
	proxy.cutAfter.Store(0)
	back := time.Now()
	p.await(made...)
	report(t, back, "from the last of %d cuts until all %d Services made meanwhile are served", proxy.cutSoFar(), len(made))
}

// TestStorm: thousands of Services are made and deleted. They are aliases, for
// which the API server has the least to do.
func TestStorm(t *testing.T) {
	const count = 5000
	a := newCluster(t)
	p := startPortolan(t, a.user(t).Kubeconfig, "")
	p.steady(everything())
	services := a.Client().CoreV1().Services("there")
	name := func(i int) string { return fmt.Sprintf("storm-%d", i) }
	owner := func(i int) string { return name(i) + ".there.svc.cluster.local." }
	target := func(i int) string { return fmt.Sprintf("%d.example.com", i) }

	began := time.Now()
	inParallel(t, count, func(i int) error {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name(i)},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: target(i)},
		}
		_, err := services.Create(t.Context(), s, metav1.CreateOptions{})
		return err
	})
	report(t, began, "to make %d Services", count)
	made := time.Now()
	for i := range count {
		p.await(query{owner(i), dnswire.TypeA, []string{target(i) + "."}})
	}
	report(t, made, "from the last one until all were asked for and served")

	began = time.Now()
	inParallel(t, count, func(i int) error { return services.Delete(t.Context(), name(i), metav1.DeleteOptions{}) })
	report(t, began, "to delete them")
	deleted := time.Now()
	for i := range count {
		p.await(isAbsent(owner(i)))
	}
	report(t, deleted, "from the last one until all were asked for and absent")
	p.await(a.makeService(t, "new", "10.96.50.2"))
}

// inParallel calls do for each number below count, several at once.
func inParallel(t *testing.T, count int, do func(i int) error) {
	t.Helper()
	const workers = 8
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range count {
		group.Go(func() error { return do(i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestMissingRule: one kind may not be read; the log says which rule is
// missing, the others serve, and the rule helps without a restart.
func TestMissingRule(t *testing.T) {
	tests := map[string]struct {
		rule     string
		served   []query
		unserved []query
	}{
		"Pod":           {`{apiGroups: [""], resources: [pods], verbs: [list, watch]}`, append(services, endpoints...), pods},
		"EndpointSlice": {`{apiGroups: ["discovery.k8s.io"], resources: [endpointslices], verbs: [list, watch]}`, services[:1], endpoints},
	}
	for kind, test := range tests {
		t.Run(kind, func(t *testing.T) {
			a := newCluster(t)
			user := a.user(t, kind)
			p := startPortolan(t, user.Kubeconfig, quick)
			p.steady(test.served)
			await.NoError(t, func() error {
				if !strings.Contains(strings.ReplaceAll(p.Logged(), `\"`, `"`), test.rule) {
					return fmt.Errorf("the log does not name the rule %s", test.rule)
				}
				return nil
			})
			for _, q := range test.unserved {
				if m, err := p.ask(q); err != nil || m.Status != "SERVFAIL" {
					t.Errorf("%s: answer %v, %v, want SERVFAIL", q.name, m, err)
				}
			}
			if err := a.Allow(t.Context(), user, rulesBut()...); err != nil {
				t.Fatal(err)
			}
			allowed := time.Now()
			p.await(everything()...)
			report(t, allowed, "from the rule for %ss until they are served", kind)
		})
	}
}

// TestStartWithoutAPI: nothing is denied until the API is there.
func TestStartWithoutAPI(t *testing.T) {
	a := newCluster(t)
	proxy := newTCPProxy(t, a.Address())
	tests := map[string]struct {
		kubeconfig string
		away, back func(*testing.T)
	}{
		"nobody listens": {
			a.user(t).Kubeconfig,
			func(*testing.T) { a.StopAPIServer() },
			func(t *testing.T) {
				t.Helper()
				if err := a.StartAPIServer(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
		},
		"connections are closed at once": {
			a.through(t, proxy.addr()),
			func(*testing.T) { proxy.refusing.Store(true) },
			func(*testing.T) { proxy.refusing.Store(false) },
		},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			test.away(t)
			p := startPortolan(t, test.kubeconfig, "")
			p.waitLog("kubernetes api can't be read")
			for _, q := range everything() {
				if m, err := p.ask(q); err != nil || m.Status != "SERVFAIL" {
					t.Errorf("%s: answer %v, %v, want SERVFAIL", q.name, m, err)
				}
			}
			test.back(t)
			back := time.Now()
			p.await(everything()...)
			report(t, back, "from the moment that the API can be reached until all is served")
		})
	}
}
