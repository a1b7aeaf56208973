//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
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
	"k8s.io/client-go/kubernetes/scheme"

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
	})
}

// slicesAPI is an API server that takes EndpointSlices and Leases, beside what it
// is read for.
type slicesAPI struct {
	*apitest.Server
	t     *testing.T
	front *httptest.Server
	p     *process // the controller
	// before is called before a slice or a Lease is written, with its path, and
	// tells whether the request is refused; nil refuses none.
	before atomic.Pointer[func(path string) (refuse bool)]
	made   atomic.Int64

	mu       sync.Mutex
	leases   map[string]*coordinationv1.Lease // by namespace/name
	renewals int
}

// newSlicesAPI has a Service with five Pods on one Node.
func newSlicesAPI(t *testing.T) *slicesAPI {
	t.Helper()
	a := &slicesAPI{Server: apitest.New(t), t: t, leases: make(map[string]*coordinationv1.Lease)}
	behind, err := url.Parse(a.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	proxy.FlushInterval = -1
	a.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease := strings.Contains(r.URL.Path, "/leases")
		switch before := a.before.Load(); {
		case r.Method == http.MethodGet && !lease:
			proxy.ServeHTTP(w, r)
		case before != nil && (*before)(r.URL.Path):
			w.WriteHeader(http.StatusInternalServerError)
		case lease:
			a.lease(w, r)
		default:
			a.write(w, r)
		}
	}))
	t.Cleanup(func() { a.front.CloseClientConnections(); a.front.Close() })
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

// body is the object that a request writes.
func body(r *http.Request) (any, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	return o, err
}

func reply(w http.ResponseWriter, code int, kind metav1.TypeMeta, object any) {
	text, _ := json.Marshal(object) // of the API, which can be encoded
	typed := map[string]any{}
	_ = json.Unmarshal(text, &typed) // it was an object
	typed["kind"], typed["apiVersion"] = kind.Kind, kind.APIVersion
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(typed) // the client may be gone
}

// write creates or replaces a slice.
func (a *slicesAPI) write(w http.ResponseWriter, r *http.Request) {
	o, err := body(r)
	s, ok := o.(*discoveryv1.EndpointSlice)
	if err != nil || !ok {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	n := a.made.Add(1)
	if s.Name == "" {
		s.Name, s.UID = fmt.Sprint(s.GenerateName, n), types.UID(fmt.Sprint("s-", n))
	}
	s.Generation = n
	a.Put(s)
	reply(w, http.StatusCreated, metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, s)
}

// lease gets, creates or replaces a Lease.
func (a *slicesAPI) lease(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/"), "/")
	if r.Method == http.MethodGet {
		if l := a.leases[parts[0]+"/"+parts[2]]; l != nil {
			reply(w, http.StatusOK, kind, l)
			return
		}
		reply(w, http.StatusNotFound, metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404})
		return
	}
	o, err := body(r)
	l, ok := o.(*coordinationv1.Lease)
	if err != nil || !ok {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.renewals++
	a.leases[parts[0]+"/"+l.Name] = l
	reply(w, http.StatusOK, kind, l)
}

// held gives the Lease of that name, nil when there is none, and how often any
// was written.
func (a *slicesAPI) held(name string) (*coordinationv1.Lease, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leases[name], a.renewals
}

// awaitSlices waits until there are so many endpoints, in so many slices.
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

// startSlices starts a controller with these settings of the key controller.
func startSlices(t *testing.T, a *slicesAPI, settingsOf string) *process {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	apitest.WriteKubeconfig(t, kubeconfig, a.front.URL)
	file := settings(t, fmt.Sprintf("kubernetes: {kubeconfig: %q}\ncontroller: {%s}", kubeconfig, settingsOf))
	a.p = follow(t, exec.Command("portolan", "controller", "slices", "--config", file))
	a.p.awaitAdmin("/readyz", http.StatusOK, "ok")
	return a.p
}

// effectOfConcurrentSyncs: so many Services are written at once, and no more.
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
		a.before.Store(new(func(path string) bool {
			if strings.HasSuffix(path, "/endpointslices") {
				if n := inside.Add(1); n > highest.Load() {
					highest.Store(n)
				}
				<-held
				inside.Add(-1)
			}
			return false
		}))
		p := startSlices(t, a, setting)
		p.poll(patience, func() error {
			if n := highest.Load(); n != most {
				return fmt.Errorf("%d at once, want %d", n, most)
			}
			return nil
		})
		time.AfterFunc(200*time.Millisecond, release) // in which no more may come
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
		if l, _ := a.held("kube-system/portolan-slices"); (l != nil) != elects {
			t.Errorf("%q: the Lease is %v, want one: %t", setting, l, elects)
		}
	}
}

// wantLease wants a Lease of that name with a setting of the key leaderElection.
func wantLease(t *testing.T, setting, name string) *coordinationv1.Lease {
	t.Helper()
	a := newSlicesAPI(t)
	startSlices(t, a, "leaderElection: {"+setting+"}")
	a.awaitSlices(5, 1)
	l, _ := a.held(name)
	if l == nil {
		t.Fatalf("%q: no Lease %s", setting, name)
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

// effectOfRenewDeadline: the controller ends when it could not renew the Lease for
// so long.
func effectOfRenewDeadline(t *testing.T) {
	a := newSlicesAPI(t)
	p := startSlices(t, a, "leaderElection: {leaseDuration: 20s, renewDeadline: 1s, retryPeriod: 200ms}")
	a.awaitSlices(5, 1)
	a.before.Store(new(func(path string) bool { return strings.Contains(path, "/leases") }))
	refused := time.Now()
	p.wait()
	if took := time.Since(refused); took > 9*time.Second || p.state.ExitCode() == 0 {
		t.Errorf("it ended after %s with %s, want about a second, long before 10 s, and an error", took, p.state)
	}
	p.waitLog("the lease could not be renewed")
}

// effectOfRetryPeriod: the Lease is renewed as often.
func effectOfRetryPeriod(t *testing.T) {
	a := newSlicesAPI(t)
	p := startSlices(t, a, "leaderElection: {retryPeriod: 100ms}")
	a.awaitSlices(5, 1)
	_, first := a.held("")
	began := time.Now()
	const more = 10
	p.poll(patience, func() error {
		if _, n := a.held(""); n < first+more {
			return fmt.Errorf("renewed %d times, want %d", n-first, more)
		}
		return nil
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("renewed %d times in %s, want every 100 ms and not every 2 s", more, took)
	}
}

// TestSlicesMetrics: what operate.md says is told, and it stops in order.
func TestSlicesMetrics(t *testing.T) {
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
	if l, _ := a.held("kube-system/portolan-slices"); l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
		t.Errorf("the Lease is still held by %q", *l.Spec.HolderIdentity)
	}
}

// wantDocumented wants the metrics of a page whose names begin with the prefix to
// be those that operate.md has.
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
