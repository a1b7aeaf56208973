package endpointslices_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/endpointslices"
)

// TestControllerStopsWriting checks that no slice of a Service is written after the
// context is canceled.
func TestControllerStopsWriting(t *testing.T) {
	for verb, want := range map[string]int64{"create": 1, "update": 3 + 1, "delete": 3 + 1} {
		t.Run(verb, func(t *testing.T) {
			inController(t, func(a *apiServer) {
				ctx, cancel := context.WithCancel(a.t.Context())
				defer cancel()
				asked := func(v string) {
					if v == verb {
						cancel()
					}
				}
				a.asked.Store(&asked)
				ended := make(chan error, 1)
				a.putMany(nil)
				go func() { ended <- a.controller.Work(ctx) }()
				settle()
				switch verb { // as the others are made now
				case "update":
					a.putMany(func(p *cluster.Pod) { p.Ready = false })
				case "delete":
					a.store.Update(func(tx *cluster.Tx) {
						tx.Put(controlled(func(s *cluster.Service) { s.Spec.UID, s.Spec.Deleting = "u-other", true }))
					})
				}
				if err := <-ended; !errors.Is(err, context.Canceled) {
					a.t.Errorf("Work = %v, want %v", err, context.Canceled)
				}
				if n := a.writes.Load(); n != want {
					a.t.Errorf("%d writes, want %d: none after the end", n, want)
				}
				for len(a.results) > 0 {
					if r := <-a.results; r == endpointslices.SyncFailed {
						a.t.Error("what was broken off counts as failed")
					}
				}
			})
		})
	}
}

// putMany puts Pods for three slices.
func (a *apiServer) putMany(change func(*cluster.Pod)) {
	a.store.Update(func(tx *cluster.Tx) {
		for i := range 3 * 80 {
			tx.Put(controlledPod(i+1, change))
		}
	})
}

// TestControllerCancelsRequest checks that a request without response does not delay the
// stop.
func TestControllerCancelsRequest(t *testing.T) {
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-answer
	}))
	defer server.Close()
	defer close(answer)
	writer, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	a := &apiServer{t: t, store: cluster.NewStore(), results: make(chan endpointslices.SyncResult, 10)}
	a.store.Update(func(tx *cluster.Tx) {
		tx.Put(controlled(nil))
		tx.SetFreshness(cluster.Live, cluster.KindService, cluster.KindPod, cluster.KindNode)
	})
	a.controller = endpointslices.NewController(endpointslices.ControllerConfig{
		Store: a.store, Reader: fake.NewClientset(), Writer: writer, MaxEndpoints: 100, Syncs: 1, Observer: a, Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(t.Context())
	followed, worked := make(chan error, 1), make(chan error, 1)
	go func() { followed <- a.controller.Follow(ctx) }()
	go func() { worked <- a.controller.Work(ctx) }()
	<-asked
	stop()
	select {
	case err := <-worked:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Work = %v, want %v", err, context.Canceled)
		}
	case <-time.After(30 * time.Second):
		t.Error("Work has not ended, as a request is not answered")
	}
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow = %v, want %v", err, context.Canceled)
	}
}

// TestControllerProblemEnds checks that a problem of reading ends when the kinds are
// loaded, even if there are no slices.
func TestControllerProblemEnds(t *testing.T) {
	for claim, refuse := range map[string]func(*fake.Clientset, *atomic.Bool){
		"a list": func(c *fake.Clientset, away *atomic.Bool) {
			c.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
				return away.Load(), nil, errors.New("no api")
			})
		},
		"a watch": func(c *fake.Clientset, away *atomic.Bool) {
			c.PrependWatchReactor("endpointslices", func(clienttesting.Action) (bool, watch.Interface, error) {
				return away.Load(), nil, errors.New("no api")
			})
		},
	} {
		t.Run(claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, away := fake.NewClientset(), &atomic.Bool{}
				refuse(client, away)
				away.Store(true)
				controller := endpointslices.NewController(endpointslices.ControllerConfig{
					Store: cluster.NewStore(), Reader: client, Writer: client, Syncs: 1, Log: slog.New(slog.DiscardHandler),
				})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- controller.Follow(ctx) }()
				settle()
				if controller.Problem() == nil {
					t.Error("refused, and there is no problem")
				}
				away.Store(false)
				time.Sleep(time.Minute) // it is tried again less and less often
				if err := controller.Problem(); err != nil {
					t.Errorf("refused no more, and the problem is %v", err)
				}
				stop()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("Follow = %v, want %v", err, context.Canceled)
				}
			})
		})
	}
}

// TestControllerOrphans checks that slices remain if their Service cannot be read, which
// looks as if it were deleted, and that this is reported; slices to be garbage-collected
// are not reported.
func TestControllerOrphans(t *testing.T) {
	const said = "slices not maintained"
	inController(t, func(a *apiServer) {
		of := a.DiscoveryV1().EndpointSlices("shop")
		unread := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "unread-1", Labels: map[string]string{
				discoveryv1.LabelServiceName: "unread", discoveryv1.LabelManagedBy: endpointslices.ManagedBy,
			}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.128.0.9"}}},
		}
		if _, err := of.Create(a.t.Context(), unread, metav1.CreateOptions{}); err != nil {
			a.t.Fatal(err)
		}
		defer a.work()()
		settle()
		ours := a.sliceOf("web")
		a.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, cluster.Key{Namespace: "shop", Name: "web"}) })
		settle()
		if err := of.Delete(a.t.Context(), ours.Name, metav1.DeleteOptions{}); err != nil {
			a.t.Fatal(err)
		}
		unread.Endpoints[0].Addresses[0] = "10.128.0.10"
		if _, err := of.Update(a.t.Context(), unread, metav1.UpdateOptions{}); err != nil {
			a.t.Fatal(err)
		}
		settle()
		synctest.Wait()
		if strings.Contains(a.log.String(), said) {
			a.t.Errorf("logged at once: %s", a.log.String())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if log := a.log.String(); strings.Count(log, said) != 1 || !strings.Contains(log, "service=shop/unread slices=1") {
			a.t.Errorf("logged: %s", log)
		}
		if got := a.sliceOf("unread"); got.Name != unread.Name || len(got.Endpoints) != 1 || got.Endpoints[0].Addresses[0] != "10.128.0.10" {
			a.t.Errorf("the slice is %v, want it as it was", got)
		}
	})
}

// sliceOf is the slice of a Service.
func (a *apiServer) sliceOf(service string) discoveryv1.EndpointSlice {
	a.t.Helper()
	all := a.slices()
	i := slices.IndexFunc(all, func(s discoveryv1.EndpointSlice) bool { return s.Labels[discoveryv1.LabelServiceName] == service })
	if i < 0 {
		a.t.Fatalf("there is no slice of %s", service)
	}
	return all[i]
}
