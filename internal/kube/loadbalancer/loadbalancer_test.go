package loadbalancer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/kube/loadbalancer"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/network/pool"
)

// world is an API server with Services, and a model that shows them when the test says so.
type world struct {
	*fake.Clientset
	t     *testing.T
	store *cluster.Store

	watching sync.Mutex

	mu      sync.Mutex
	told    []string // Events
	results map[loadbalancer.Result]int
	refuse  int    // patches are answered with this status
	watched string // the model shows this Service after each attempt to write
}

// inWorld runs a test in time that passes when nothing happens.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{Clientset: fake.NewClientset(), t: t, store: cluster.NewStore(), results: make(map[loadbalancer.Result]int)}
		w.PrependReactor("patch", "services", func(action clienttesting.Action) (bool, runtime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if sub := action.GetSubresource(); sub != "status" {
				t.Errorf("a patch of the subresource %q", sub)
			}
			name := action.(clienttesting.PatchActionImpl).Name
			err := apierrors.NewGenericServerResponse(w.refuse, "patch", corev1.Resource("services"), name, "told to refuse", 0, false)
			return w.refuse != 0, nil, err
		})
		w.store.Update(func(tx *cluster.Tx) {
			tx.Put(&cluster.Namespace{Name: "shop"})
			tx.SetFreshness(cluster.Live, cluster.KindService, cluster.KindNamespace)
		})
		test(w)
	})
}

// put creates or replaces a Service in the API; the model does not show it.
func (w *world) put(name string, changes ...func(*corev1.Service)) {
	w.t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("lb"), ClusterIP: "10.96.0.1",
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	for _, change := range changes {
		change(s)
	}
	of := w.CoreV1().Services("shop")
	_, err := of.Create(w.t.Context(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = of.Update(w.t.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.CoreV1().Services("shop").Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func has(addrs ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		for _, addr := range addrs {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: addr, IPMode: new(corev1.LoadBalancerIPModeVIP)})
		}
	}
}

func clusterIP(s *corev1.Service) {
	s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
}

// show has the model show Services as the API has them, and waits until nothing is left to do at once.
func (w *world) show(names ...string) {
	w.t.Helper()
	w.watch(names...)
	synctest.Wait()
}

// watch has the model show Services as the API has them.
func (w *world) watch(names ...string) {
	w.t.Helper()
	w.watching.Lock() // a watch shows versions in their order
	defer w.watching.Unlock()
	for _, name := range names {
		key := cluster.Key{Namespace: "shop", Name: name}
		s, err := w.CoreV1().Services("shop").Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			w.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, key) })
			continue
		}
		model, errs := object.Service(s)
		if len(errs) > 0 {
			w.t.Fatal(errs)
		}
		w.store.Update(func(tx *cluster.Tx) { tx.Put(model) })
	}
}

// want checks the statuses of Services in the API.
func (w *world) want(claim string, want map[string]string) {
	w.t.Helper()
	got := make(map[string]string)
	for name := range want {
		s, err := w.CoreV1().Services("shop").Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		var texts []string
		for _, i := range s.Status.LoadBalancer.Ingress {
			text := i.IP + i.Hostname
			if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
				text += " without ipMode VIP"
			}
			texts = append(texts, text)
		}
		got[name] = strings.Join(texts, " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s: statuses (-want +got):\n%s", claim, diff)
	}
}

func (w *world) wantTold(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.told); diff != "" {
		w.t.Errorf("Events (-want +got):\n%s", diff)
	}
	w.told = nil
}

func (w *world) wrote(r loadbalancer.Result) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.results[r]
}

// work has a Controller work until the test calls what is returned.
func (w *world) work() (stop func()) {
	w.t.Helper()
	ranges, err := pool.ParseRange("192.0.2.0/31")
	if err != nil {
		w.t.Fatal(err)
	}
	c := loadbalancer.New(loadbalancer.Config{
		Store: w.store, Client: w, Writes: 1, Log: slog.New(slog.DiscardHandler),
		Pool: pool.Config{Class: "lb", Pools: []pool.Pool{{Name: "public", Ranges: []pool.Range{ranges}, Automatic: true}}},
		Wrote: func(r loadbalancer.Result) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.results[r]++
			if w.watched != "" {
				w.watch(w.watched)
			}
		},
		Tell: func(_ context.Context, e events.Event) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, fmt.Sprint(e.Type, " ", e.Object, " ", e.Reason, " ", e.Note[:min(len(e.Note), 20)]))
			return nil
		},
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Work(ctx) }()
	synctest.Wait()
	return func() {
		w.t.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			w.t.Errorf("Work = %v, want %v", err, context.Canceled)
		}
	}
}

// TestServicesGetAddresses checks the statuses of Services that come, change and go, and the Events.
func TestServicesGetAddresses(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		defer w.work()()
		w.put("a")
		w.put("other", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("other") })
		w.show("a", "other")
		w.want("by class", map[string]string{"a": "192.0.2.0", "other": ""})
		w.wantTold("Normal service shop/a IPAllocated assigned 192.0.2.0")
		w.show("a")
		w.put("b")
		w.show("b")
		w.show("b")
		w.put("c")
		w.show("c")
		w.wantTold("Normal service shop/b IPAllocated assigned 192.0.2.1", " service shop/c AllocationFailed all IPv4 addresses o")
		w.put("a", clusterIP, has("192.0.2.0"))
		w.show("a")
		w.want("one that is none any more", map[string]string{"a": "", "c": "192.0.2.0"})
		w.show("a", "c")
		w.delete("b")
		w.put("d")
		w.show("b", "d")
		w.want("one that went", map[string]string{"c": "192.0.2.0", "d": "192.0.2.1"})
		if n := w.wrote(loadbalancer.Written); n != 5 {
			t.Errorf("%d writes, want 5: of a, b, c and d, and a again", n)
		}
		if n := w.wrote(loadbalancer.Repaired); n != 0 {
			t.Errorf("%d repairs, want none", n)
		}
	})
}

// TestTakesOver checks that what was written before holds, though the model does not show it yet.
func TestTakesOver(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.put("a")
		w.put("b")
		w.show("a") // without an address
		w.put("a", has("192.0.2.1"))
		defer w.work()()
		w.show("b")
		w.want("at first", map[string]string{"a": "192.0.2.1", "b": "192.0.2.0"})
		w.show("a", "b")
		w.put("late", has("203.0.113.1"))
		w.show("late")
		w.want("an address of no pool", map[string]string{"late": ""})
	})
}

// TestRepairs checks that what others write is repaired, more and more slowly.
func TestRepairs(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.watched = "a"
		defer w.work()()
		w.put("a")
		w.show("a")
		times := 0
		meddle := func() {
			times++ // so that the model changes, though it may not have shown the repair in between
			w.put("a", func(s *corev1.Service) {
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: fmt.Sprintf("lb-%d.example", times)}}
			})
			w.show("a")
		}
		meddle()
		time.Sleep(10 * time.Millisecond)
		w.want("the first repair", map[string]string{"a": "192.0.2.0"})
		end := time.Now().Add(time.Minute)
		for time.Now().Before(end) {
			meddle()
			time.Sleep(250 * time.Millisecond)
		}
		if n := w.wrote(loadbalancer.Repaired); n < 5 || n > 8 {
			t.Errorf("%d repairs within a minute, want 5 to 8, with pauses that double", n)
		}
		time.Sleep(2 * time.Minute)
		w.want("at last", map[string]string{"a": "192.0.2.0"})
	})
}

// TestLooksAgain checks that a status is repaired if somebody else restores it as it was before it was written, and the
// model never shows anything in between.
func TestLooksAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		defer w.work()()
		w.put("a")
		w.show("a")
		w.want("written", map[string]string{"a": "192.0.2.0"})
		w.put("a") // without a status
		time.Sleep(30 * time.Second)
		w.want("the model may lag", map[string]string{"a": ""})
		time.Sleep(2 * time.Minute)
		w.want("then", map[string]string{"a": "192.0.2.0"})
		w.show("a")
		repairs := w.wrote(loadbalancer.Repaired)
		time.Sleep(time.Hour)
		if n := w.wrote(loadbalancer.Repaired); n != repairs || n > 2 {
			t.Errorf("%d repairs, and %d an hour after the model shows the status; want one or two", repairs, n)
		}
	})
}

// TestTriesAgain checks that failed writes are repeated.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		defer w.work()()
		w.mu.Lock()
		w.refuse = http.StatusForbidden
		w.mu.Unlock()
		w.put("a")
		w.show("a")
		time.Sleep(10 * time.Second)
		if n := w.wrote(loadbalancer.Failed); n != 4 {
			t.Errorf("%d attempts within 10 s, want 4, after pauses of 1, 2 and 4 s", n)
		}
		w.mu.Lock()
		w.refuse = 0
		w.mu.Unlock()
		time.Sleep(30 * time.Second)
		w.want("at last", map[string]string{"a": "192.0.2.0"})
	})
}

// TestWaitsForAll checks that no address is assigned before all Services are read.
func TestWaitsForAll(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		failing := true
		w.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return failing, nil, errors.New("told to refuse")
		})
		w.put("a")
		w.show("a")
		w.store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Loading, cluster.KindNamespace) })
		defer w.work()()
		time.Sleep(time.Minute)
		w.want("without Namespaces", map[string]string{"a": ""})
		w.store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.KindNamespace) })
		time.Sleep(time.Minute)
		w.want("without a list", map[string]string{"a": ""})
		w.mu.Lock()
		failing = false
		w.mu.Unlock()
		time.Sleep(time.Minute)
		w.want("then", map[string]string{"a": "192.0.2.0"})
	})
}
