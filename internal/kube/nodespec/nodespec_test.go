package nodespec_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
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
	"portolan.dev/portolan/internal/kube/nodespec"
	"portolan.dev/portolan/internal/network/podcidr"
)

// world is an API server with Nodes, and a model that shows them when the test says so.
type world struct {
	*fake.Clientset
	t     *testing.T
	store *cluster.Store

	mu      sync.Mutex
	told    []string // Events
	results map[nodespec.Result]int
	refuse  int // patches are answered with this status
}

// inWorld runs a test in time that passes when nothing happens.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{Clientset: fake.NewClientset(), t: t, store: cluster.NewStore(), results: make(map[nodespec.Result]int)}
		w.PrependReactor("patch", "nodes", w.patch)
		w.store.Update(func(tx *cluster.Tx) {
			tx.Put(&cluster.ServiceCIDR{Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}})
			tx.SetFreshness(cluster.Live, cluster.KindNode, cluster.KindServiceCIDR)
		})
		test(w)
	})
}

// patch refuses what API servers refuse and the fake one does not.
func (w *world) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	refuse := w.refuse
	w.mu.Unlock()
	patch := action.(clienttesting.PatchActionImpl)
	if refuse != 0 {
		return true, nil, apierrors.NewGenericServerResponse(refuse, "patch", corev1.Resource("nodes"), patch.Name, "told to refuse", 0, false)
	}
	o, err := w.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", patch.Name)
	if err != nil {
		return true, nil, err
	}
	var to corev1.Node
	if err := json.Unmarshal(patch.Patch, &to); err != nil {
		return true, nil, err
	}
	has := o.(*corev1.Node).Spec.PodCIDRs
	if len(has) > 0 && !slices.Equal(has, to.Spec.PodCIDRs) {
		return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), patch.Name, nil)
	}
	return false, nil, nil
}

func (w *world) answer(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = status
}

// create makes Nodes in the API; the model does not show them.
func (w *world) create(name string, cidrs ...string) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
	if _, err := w.CoreV1().Nodes().Create(w.t.Context(), n, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// delete deletes a Node in the API.
func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.CoreV1().Nodes().Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// show has the model show Nodes as the API has them, and waits until nothing is left to do.
func (w *world) show(names ...string) {
	w.t.Helper()
	for _, name := range names {
		cidrs, exists := w.podCIDRs(name)
		w.put(name, exists, cidrs...)
	}
	synctest.Wait()
}

// put has the model show a Node.
func (w *world) put(name string, exists bool, cidrs ...string) {
	w.store.Update(func(tx *cluster.Tx) {
		if !exists {
			tx.Delete(cluster.KindNode, cluster.Key{Name: name})
			return
		}
		n := &cluster.Node{Name: name}
		for _, text := range cidrs {
			n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(text))
		}
		tx.Put(n)
	})
}

func (w *world) podCIDRs(name string) (cidrs []string, exists bool) {
	n, err := w.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if len(n.Spec.PodCIDRs) > 0 && n.Spec.PodCIDR != "" && n.Spec.PodCIDR != n.Spec.PodCIDRs[0] {
		w.t.Errorf("node %s: podCIDR %s, podCIDRs %s", name, n.Spec.PodCIDR, n.Spec.PodCIDRs)
	}
	return n.Spec.PodCIDRs, true
}

// want checks the ranges of Nodes in the API.
func (w *world) want(claim string, want map[string]string) {
	w.t.Helper()
	got := make(map[string]string)
	for name := range want {
		cidrs, _ := w.podCIDRs(name)
		got[name] = strings.Join(cidrs, " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s: podCIDRs (-want +got):\n%s", claim, diff)
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

func (w *world) wrote(r nodespec.Result) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.results[r]
}

// work has a Controller work until the test calls what is returned.
func (w *world) work(cidrs ...string) (stop func()) {
	w.t.Helper()
	var ranges []podcidr.Range
	for _, text := range cidrs {
		r := podcidr.Range{Cluster: netip.MustParsePrefix(text), Bits: 24}
		if r.Cluster.Addr().Is6() {
			r.Bits = 64
		}
		ranges = append(ranges, r)
	}
	c := nodespec.New(nodespec.Config{
		Store: w.store, Client: w, Ranges: ranges, Writes: 3, Log: slog.New(slog.DiscardHandler),
		Wrote: func(r nodespec.Result) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.results[r]++
		},
		Warn: func(_ context.Context, e events.Event) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, fmt.Sprint(e.Object, " ", e.Reason))
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

// TestNodesGetRanges checks the ranges of Nodes that are there, and of those that come and go.
func TestNodesGetRanges(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.create("a")
		w.create("b", "10.0.2.0/24", "fd00:0:0:1::/64")
		w.show("a", "b")
		defer w.work("10.0.0.0/22", "fd00::/62")()
		w.want("beside Services and other Nodes", map[string]string{"a": "10.0.1.0/24 fd00::/64"})
		w.create("c")
		w.show("a", "c")
		w.want("the next", map[string]string{"c": "10.0.3.0/24 fd00:0:0:2::/64"})
		w.create("d")
		w.show("c", "d")
		w.wantTold("node d CIDRNotAvailable")
		w.show("d")
		w.wantTold()
		w.delete("a")
		w.show("a")
		w.want("that of a deleted Node", map[string]string{"d": "10.0.1.0/24 fd00::/64"})
		if n := w.wrote(nodespec.Written); n != 3 {
			t.Errorf("%d writes, want one for each of three Nodes", n)
		}
	})
}

// TestTakesOver checks that what was written before holds, though the model does not show it yet.
func TestTakesOver(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.create("a", "10.0.1.0/24")
		w.create("b")
		w.create("c", "10.0.2.0/24")
		w.put("a", true) // as it was before
		w.show("b")      // c is not shown at all
		stop := w.work("10.0.0.0/22")
		w.want("at first", map[string]string{"a": "10.0.1.0/24", "b": "10.0.3.0/24"})
		stop()
		w.show("a", "b", "c")
		defer w.work("10.0.0.0/22")()
		w.want("again", map[string]string{"a": "10.0.1.0/24", "b": "10.0.3.0/24", "c": "10.0.2.0/24"})
		if n := w.wrote(nodespec.Failed); n > 0 {
			t.Errorf("%d failures", n)
		}
	})
}

// TestOthersWrite checks that a range that somebody else gave stays, and is given to nobody.
func TestOthersWrite(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		defer w.work("10.0.0.0/22")()
		w.create("a", "10.0.2.0/24")
		w.put("a", true) // as it was before
		synctest.Wait()
		w.want("a", map[string]string{"a": "10.0.2.0/24"})
		w.create("b")
		w.create("c")
		w.show("b", "c")
		w.want("the others", map[string]string{"b": "10.0.1.0/24", "c": "10.0.3.0/24"})
		w.wantTold()
		if n := w.wrote(nodespec.Kept); n != 1 {
			t.Errorf("%d ranges of others, want 1", n)
		}
	})
}

// TestMadeAgain checks that a Node which was deleted and made again gets a range, though its first one was written.
func TestMadeAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		defer w.work("10.0.0.0/22")()
		w.create("a")
		w.show("a") // without a range, which is written now
		w.delete("a")
		w.create("a")
		w.put("a", false)
		w.put("a", true)
		synctest.Wait()
		w.want("again", map[string]string{"a": "10.0.1.0/24"})
		w.put("gone", true) // the API has no such Node any more
		synctest.Wait()
		w.create("b")
		w.show("b")
		w.want("it holds one until the model shows that", map[string]string{"b": "10.0.3.0/24"})
		w.show("gone")
		w.create("c")
		w.show("c")
		w.want("and then not", map[string]string{"c": "10.0.2.0/24"})
	})
}

// TestTriesAgain checks that failed writes are repeated, and told of once.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		defer w.work("10.0.0.0/22")()
		w.answer(http.StatusInternalServerError)
		w.create("a")
		w.show("a")
		w.wantTold("node a CIDRAssignmentFailed")
		time.Sleep(10 * time.Second)
		if n := w.wrote(nodespec.Failed); n != 4 {
			t.Errorf("%d attempts within 10 s, want 4, after pauses of 1, 2 and 4 s", n)
		}
		w.answer(0)
		time.Sleep(30 * time.Second)
		w.want("at last", map[string]string{"a": "10.0.1.0/24"})
		w.wantTold()
	})
}

// TestWaitsForAll checks that nothing is given before all Nodes are read.
func TestWaitsForAll(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		failing := true
		w.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return failing, nil, errors.New("told to refuse")
		})
		w.create("a")
		w.show("a")
		w.store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Loading, cluster.KindServiceCIDR) })
		defer w.work("10.0.0.0/22")()
		time.Sleep(time.Minute)
		w.want("without ServiceCIDRs", map[string]string{"a": ""})
		w.store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.KindServiceCIDR) })
		time.Sleep(time.Minute)
		w.want("without a list", map[string]string{"a": ""})
		w.mu.Lock()
		failing = false
		w.mu.Unlock()
		time.Sleep(time.Minute)
		w.want("then", map[string]string{"a": "10.0.1.0/24"})
	})
}
