package endpointslices_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/endpointslices"
)

// apiServer is a client of an API server that is none, with one Controller. It
// counts what is written, and fails to write as long as it is told to.
type apiServer struct {
	*fake.Clientset
	t          *testing.T
	store      *cluster.Store
	controller *endpointslices.Controller
	writes     atomic.Int64
	failing    atomic.Bool
	results    chan endpointslices.SyncResult
	log        logged
	// lag is by how many nanoseconds watches are late.
	lag atomic.Int64
	// asked is told the verb of each write.
	asked atomic.Pointer[func(string)]
}

// logged is a log that is read while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// inController runs a test in time that passes when nothing happens. There is a
// Service that selects one Pod, on a Node.
func inController(t *testing.T, test func(*apiServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &apiServer{Clientset: fake.NewClientset(), t: t, store: cluster.NewStore(), results: make(chan endpointslices.SyncResult, 1000)}
		a.PrependReactor("*", "endpointslices", a.react)
		a.PrependWatchReactor("endpointslices", a.watchLate)
		a.store.Update(func(tx *cluster.Tx) {
			tx.Put(&cluster.Node{Name: "node", Zone: "east", Ready: true})
			tx.Put(controlled(func(s *cluster.Service) { s.Spec.UID = "u-web" }))
			tx.Put(controlledPod(1, nil))
			tx.SetFreshness(cluster.Live, cluster.KindService, cluster.KindPod, cluster.KindNode)
		})
		a.controller = endpointslices.NewController(endpointslices.ControllerConfig{
			Store: a.store, Reader: a, Writer: a, MaxEndpoints: 100, Syncs: 2, Observer: a, Log: slog.New(slog.NewTextHandler(&a.log, nil)),
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.controller.Follow(ctx) }()
		test(a)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow = %v, want %v", err, context.Canceled)
		}
	})
}

// controlled is the Service.
func controlled(change func(*cluster.Service)) *cluster.Service {
	s := &cluster.Service{
		Key: cluster.Key{Namespace: "shop", Name: "web"}, Selector: map[string]string{"app": "web"},
		Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Spec: &cluster.ServiceSpec{Type: cluster.ClusterIP, Families: []cluster.AddressType{cluster.IPv4}},
	}
	if change != nil {
		change(s)
	}
	return s
}

// controlledPod is one that the Service selects.
func controlledPod(i int, change func(*cluster.Pod)) *cluster.Pod {
	p := &cluster.Pod{
		Key: cluster.Key{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}, Labels: map[string]string{"app": "web"},
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 128, 0, byte(i)})}, Ready: true, Node: "node",
	}
	if change != nil {
		change(p)
	}
	return p
}

// work has it write until the test calls what is returned.
func (a *apiServer) work() (stop func()) {
	ctx, cancel := context.WithCancel(a.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.controller.Work(ctx) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			a.t.Errorf("Work = %v, want %v", err, context.Canceled)
		}
	}
}

// Synced is told of attempts.
func (a *apiServer) Synced(r endpointslices.SyncResult, _ time.Duration) { a.results <- r }

// react does what API servers do on writes, and the fake one does not.
func (a *apiServer) react(action clienttesting.Action) (bool, runtime.Object, error) {
	var s *discoveryv1.EndpointSlice
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		s = action.Object.(*discoveryv1.EndpointSlice)
	case clienttesting.UpdateActionImpl:
		s = action.Object.(*discoveryv1.EndpointSlice)
	case clienttesting.DeleteActionImpl:
	default:
		return false, nil, nil
	}
	n := a.writes.Add(1)
	if asked := a.asked.Load(); asked != nil {
		(*asked)(action.GetVerb())
	}
	if a.failing.Load() {
		return true, nil, errors.New("no api")
	}
	if s != nil {
		s.Generation = n // they only grow
		if s.UID == "" {
			s.UID = types.UID(fmt.Sprint("u-", n))
		}
		if s.Name == "" {
			s.Name = fmt.Sprint(s.GenerateName, n)
		}
	}
	return false, nil, nil
}

// watchLate watches with the lag.
func (a *apiServer) watchLate(action clienttesting.Action) (bool, watch.Interface, error) {
	of := action.(clienttesting.WatchActionImpl)
	w, err := a.Tracker().Watch(of.GetResource(), of.GetNamespace(), of.ListOptions)
	if err != nil {
		return true, nil, err
	}
	events := make(chan watch.Event)
	late := watch.NewProxyWatcher(events)
	go func() {
		defer w.Stop()
		for {
			select {
			case <-late.StopChan():
				return
			case e := <-w.ResultChan(): // which the tracker does not close
				// API servers send only what the selector matches; the tracker sends all.
				o := e.Object.(metav1.Object)
				if !of.GetWatchRestrictions().Labels.Matches(labels.Set(o.GetLabels())) {
					continue
				}
				time.Sleep(time.Duration(a.lag.Load()))
				select {
				case <-late.StopChan():
					return
				case events <- e:
				}
			}
		}
	}()
	return true, late, nil
}

// slices are those of the Service.
func (a *apiServer) slices() []discoveryv1.EndpointSlice {
	a.t.Helper()
	list, err := a.DiscoveryV1().EndpointSlices("shop").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return list.Items
}

// addresses are those of endpoints that are ready.
func (a *apiServer) addresses() (ready []string) {
	a.t.Helper()
	for _, s := range a.slices() {
		for _, e := range s.Endpoints {
			if *e.Conditions.Ready {
				ready = append(ready, e.Addresses...)
			}
		}
	}
	slices.Sort(ready)
	return ready
}

func (a *apiServer) want(claim string, addresses ...string) {
	a.t.Helper()
	if got := a.addresses(); !slices.Equal(got, addresses) {
		a.t.Errorf("%s: endpoints %q, want %q", claim, got, addresses)
	}
}

func (a *apiServer) putPod(i int, change func(*cluster.Pod)) {
	a.store.Update(func(tx *cluster.Tx) { tx.Put(controlledPod(i, change)) })
}

// settle lets some time pass in which all is done that is not put off for long.
func settle() { time.Sleep(3 * time.Second) }

func addressOf(i int) string { return controlledPod(i, nil).IPs[0].String() }

// TestControllerAppliesChanges checks that changes of Pods and Nodes are written to the
// API server, and that slices have owner references and the label of their manager.
func TestControllerAppliesChanges(t *testing.T) {
	inController(t, func(a *apiServer) {
		defer a.work()()
		settle()
		a.want("at first", addressOf(1))
		s := a.slices()[0]
		if s.Labels[discoveryv1.LabelManagedBy] != endpointslices.ManagedBy || s.Labels[discoveryv1.LabelServiceName] != "web" ||
			len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != "u-web" {
			t.Errorf("labels %v, owners %v", s.Labels, s.OwnerReferences)
		}
		a.putPod(2, nil)
		settle()
		a.want("another Pod", addressOf(1), addressOf(2))
		a.putPod(1, func(p *cluster.Pod) { p.Ready = false })
		settle()
		a.want("one not ready", addressOf(2))
		a.store.Update(func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "node", Zone: "north", Ready: true}) })
		settle()
		if e := a.slices()[0].Endpoints[0]; e.Zone == nil || *e.Zone != "north" {
			t.Errorf("the zone is %v, want that of the Node now", e.Zone)
		}
		quiet := a.writes.Load()
		time.Sleep(time.Hour)
		if n := a.writes.Load() - quiet; n != 0 {
			t.Errorf("%d writes while nothing happened", n)
		}
	})
}

// TestControllerWritesWhileRunningOnly checks that nothing is written before the
// controller runs, before all kinds are loaded, and after it has stopped, and that
// pending changes are written later.
func TestControllerWritesWhileRunningOnly(t *testing.T) {
	inController(t, func(a *apiServer) {
		settle()
		if n := a.writes.Load(); n != 0 || a.controller.Waiting() == 0 {
			t.Errorf("%d writes while another leads, and %d Services wait", n, a.controller.Waiting())
		}
		stop := a.work()
		settle()
		stop()
		a.putPod(2, nil)
		settle()
		a.want("after it stopped", addressOf(1))
	})
}

// TestControllerWaitsForAllKinds checks that a kind that is not loaded is not treated as
// empty.
func TestControllerWaitsForAllKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cluster.NewStore()
		a := &apiServer{Clientset: fake.NewClientset(), t: t, store: store, results: make(chan endpointslices.SyncResult, 10)}
		a.controller = endpointslices.NewController(endpointslices.ControllerConfig{
			Store: store, Reader: a, Writer: a, MaxEndpoints: 100, Syncs: 1, Observer: a, Log: slog.New(slog.DiscardHandler),
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- a.controller.Follow(ctx) }()
		go func() { ended <- a.controller.Work(ctx) }()
		store.Update(func(tx *cluster.Tx) {
			tx.Put(controlled(nil))
			tx.SetFreshness(cluster.Live, cluster.KindService, cluster.KindNode)
		})
		settle()
		if missing := a.controller.Missing(); !slices.Equal(missing, []string{"Pods are not read completely"}) || len(a.slices()) > 0 {
			t.Errorf("missing: %q, slices: %d", missing, len(a.slices()))
		}
		store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.KindPod) })
		settle()
		if missing := a.controller.Missing(); len(missing) > 0 || len(a.slices()) != 1 {
			t.Errorf("missing: %q, slices: %d, want the one without endpoints", missing, len(a.slices()))
		}
		stop()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Follow or Work = %v, want %v", err, context.Canceled)
			}
		}
	})
}

// TestControllerRetries checks that failed writes are retried with growing pauses.
func TestControllerRetries(t *testing.T) {
	inController(t, func(a *apiServer) {
		a.failing.Store(true)
		defer a.work()()
		time.Sleep(time.Hour)
		// 10 ms, doubled each time until five minutes: some 16 times in the first
		// ten minutes, and twelve an hour from then on.
		if n := a.writes.Load(); n < 15 || n > 40 {
			t.Errorf("%d attempts in an hour", n)
		}
		a.failing.Store(false)
		time.Sleep(6 * time.Minute)
		a.want("in the end", addressOf(1))
	})
}

// TestControllerRetriesAfterStaleCache checks that the pauses of a Service that failed
// for long do not extend its wait for a late watch.
func TestControllerRetriesAfterStaleCache(t *testing.T) {
	inController(t, func(a *apiServer) {
		defer a.work()()
		a.putPod(2, func(p *cluster.Pod) { p.Node = "missing" })
		time.Sleep(time.Hour)
		a.lag.Store(int64(50 * time.Millisecond))
		a.putPod(3, nil)
		time.Sleep(20 * time.Millisecond) // it is written, and the watch has not told
		a.want("the first change", addressOf(1), addressOf(3))
		for len(a.results) > 0 {
			<-a.results
		}
		a.putPod(4, nil)
		settle()
		a.want("a change before the watch tells of the one before", addressOf(1), addressOf(3), addressOf(4))
		if first := <-a.results; first != endpointslices.SyncStale {
			t.Errorf("the first attempt is %s, want it %s", first, endpointslices.SyncStale)
		}
	})
}

// TestControllerRepairs checks that changes of its slices by others are reverted at a
// limited rate, and that slices of others are not changed.
func TestControllerRepairs(t *testing.T) {
	inController(t, func(a *apiServer) {
		defer a.work()()
		foreign := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "foreign", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		of := a.DiscoveryV1().EndpointSlices("shop")
		if _, err := of.Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		const fights = 10
		before := a.writes.Load()
		for range fights {
			s := a.ours()
			s.Endpoints = nil
			if _, err := of.Update(t.Context(), &s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		settle()
		a.want("taken out by another", addressOf(1))
		if n := a.writes.Load() - before - fights; n < 1 || n > 3 {
			t.Errorf("undone %d times in a second, want about once", n)
		}
		ours := a.ours()
		if err := of.Delete(t.Context(), ours.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		a.want("deleted by another", addressOf(1))
		if _, err := of.Get(t.Context(), "foreign", metav1.GetOptions{}); err != nil {
			t.Errorf("the slice of another: %v", err)
		}
	})
}

// ours is the slice that the Controller made.
func (a *apiServer) ours() discoveryv1.EndpointSlice {
	a.t.Helper()
	for _, s := range a.slices() {
		if s.Labels[discoveryv1.LabelManagedBy] == endpointslices.ManagedBy {
			return s
		}
	}
	a.t.Fatal("there is no slice of the Controller")
	return discoveryv1.EndpointSlice{}
}

// TestControllerMissingNode checks that a Pod is omitted until its Node exists, and that
// the attempts count as failed.
func TestControllerMissingNode(t *testing.T) {
	inController(t, func(a *apiServer) {
		defer a.work()()
		a.putPod(2, func(p *cluster.Pod) { p.Node = "late" })
		settle()
		a.want("without its Node", addressOf(1))
		failed := false
		for len(a.results) > 0 {
			failed = <-a.results == endpointslices.SyncFailed || failed
		}
		if !failed {
			t.Error("no attempt failed")
		}
		a.store.Update(func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "late"}) })
		settle()
		a.want("with its Node", addressOf(1), addressOf(2))
	})
}

// TestControllerAfterServiceDeletion checks that slices of a deleted Service are left to
// the garbage collector, and that a new one of the same name gets its own.
func TestControllerAfterServiceDeletion(t *testing.T) {
	inController(t, func(a *apiServer) {
		defer a.work()()
		settle()
		old := a.ours()
		a.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, cluster.Key{Namespace: "shop", Name: "web"}) })
		settle()
		if got := a.ours(); got.Name != old.Name {
			t.Errorf("slice %s, want %s as before", got.Name, old.Name)
		}
		a.store.Update(func(tx *cluster.Tx) {
			tx.Put(controlled(func(s *cluster.Service) { s.Spec.UID = "u-other" }))
		})
		settle()
		if got := a.ours(); len(a.slices()) != 1 || got.OwnerReferences[0].UID != "u-other" {
			t.Errorf("%d slices, the first owned by %v, want one of the Service that is there", len(a.slices()), got.OwnerReferences)
		}
	})
}
