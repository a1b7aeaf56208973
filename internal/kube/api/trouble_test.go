package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/apitest"
)

// soon is how long it may take until an API that is back is heard again: the
// longest pause between two attempts, and some.
const soon = 12 * time.Second

// TestAPIErrors checks that an error of one kind is reported once and ends soon after
// its cause, that loaded objects remain, and that other kinds are not affected.
func TestAPIErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault apitest.Fault
		words []string // of the log's line
	}{
		"internal error":    {apitest.Fault{Status: http.StatusInternalServerError}, []string{"told to refuse"}},
		"too many requests": {apitest.Fault{Status: http.StatusTooManyRequests}, []string{"told to refuse"}},
		"forbidden": {apitest.Fault{Status: http.StatusForbidden},
			[]string{"told to refuse", `allow it with the rule {apiGroups: [\"discovery.k8s.io\"], resources: [endpointslices], verbs: [list, watch]}`}},
		"unauthorized": {apitest.Fault{Status: http.StatusUnauthorized}, []string{"told to refuse"}},
		"hung up":      {apitest.Fault{HangUp: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.api.Put(slice("web-1", "10.1.0.1"))
			w.live()
			w.awaitHealthy()

			test.fault.Resource = "endpointslices"
			before := len(w.requests("endpointslices", 0))
			w.api.Misbehave(test.fault)
			w.api.Cut()
			began := time.Now()
			w.api.Put(service("web", "10.0.0.1"), slice("web-1", "10.1.0.2"))
			w.awaitService("web")
			w.awaitRequests("endpointslices", before, 5)
			w.await("a line in the log", func() bool { return len(w.log.lines("can't be read")) > 0 })
			w.wantLines(1, append(test.words, "can't be read", "resource=endpointslices")...)
			w.wantLines(1, "level=ERROR")
			w.wantLines(0, "responds again", "resource=endpointslices")
			w.awaitModel("refusing EndpointSlices", "Namespace default", "Service shop/web [10.0.0.1]", "EndpointSlice shop/web-1 of web: [10.1.0.1]")
			const least = 200 * time.Millisecond
			w.await("some staleness", func() bool { return w.status(cluster.KindEndpointSlice).Staleness >= least })
			st := w.status(cluster.KindEndpointSlice)
			if st.Problem == nil || st.Staleness > time.Since(began) || !st.Listed {
				t.Errorf("Status = %+v, want a problem, staleness since the fault at most, and Listed", st)
			}
			w.await("staleness grows", func() bool { return w.status(cluster.KindEndpointSlice).Staleness > st.Staleness })
			if got := w.freshness(cluster.KindEndpointSlice); got != cluster.Live {
				t.Errorf("EndpointSlices are %s, want live", got)
			}

			w.api.Misbehave(apitest.Fault{})
			over := time.Now()
			w.awaitModel("the end of it", "Namespace default", "Service shop/web [10.0.0.1]", "EndpointSlice shop/web-1 of web: [10.1.0.2]")
			w.awaitHealthy()
			if took := time.Since(over); took > soon {
				t.Errorf("heard again after %s, want within %s", took, soon)
			}
			w.wantLines(1, "responds again", "resource=endpointslices")
		})
	}
}

// TestChangedErrorIsReported checks that an error is reported again when its cause
// changes.
func TestChangedErrorIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.api.Misbehave(apitest.Fault{Status: http.StatusForbidden, Resource: "pods"})
	w.start()
	w.await("forbidden", func() bool { return len(w.log.lines("can't be read", "resource=pods", "allow it with the rule")) == 1 })
	w.api.Misbehave(apitest.Fault{Status: http.StatusInternalServerError, Resource: "pods"})
	w.await("failing", func() bool { return len(w.log.lines("can't be read", "resource=pods")) == 2 })
	if p := w.status(cluster.KindPod).Problem; p == nil || strings.Contains(p.Error(), "allow") {
		t.Errorf("Problem = %v, want the one of now", p)
	}
}

// TestWatchResumes checks that a watch that ends is resumed from its last resource
// version.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]apitest.Fault{
		"at once":                        {},
		"after a server with other work": {Status: http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.api.Put(service("a", "10.0.0.1"), service("b", "10.0.0.2"))
			w.live()
			w.awaitHealthy()
			// client-go begins from scratch when a watch ends at once, unheard.
			w.api.Bookmark()
			w.await("bookmarks", func() bool {
				return !slices.ContainsFunc(w.source.Status(), func(st Status) bool { return st.Events[eventBookmark] == 0 })
			})
			before := len(w.api.Requests())
			w.api.Misbehave(fault)
			w.api.Cut()
			w.api.Put(service("a", "10.0.0.9"), service("c", "10.0.0.3"))
			w.api.Delete(service("b", ""))
			w.await("asking again", func() bool { return len(w.api.Requests()) >= before+len(w.kinds()) })
			w.api.Misbehave(apitest.Fault{})
			w.awaitModel("cutting", "Namespace default", "Service shop/a [10.0.0.9]", "Service shop/c [10.0.0.3]")
			w.awaitHealthy()
			for _, r := range w.api.Requests()[before:] {
				if isList(r) || r.Version == "" {
					t.Errorf("request %s after a cut, want a watch from the last version", r.URL)
				}
			}
		})
	}
}

// TestExpired checks that an expired resource version leads to a new list, and that only
// differences change.
func TestExpired(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.api.Misbehave(way)
			w.api.Put(service("stays", "10.0.0.1"), service("changes", "10.0.0.2"), service("goes", "10.0.0.3"))
			w.live()
			w.awaitHealthy()
			feed := w.store.Subscribe()
			feed.Pending()
			stopLooking := look(t, w.store, cluster.Key{Namespace: "shop", Name: "stays"})

			before := len(w.api.Requests())
			busy := way
			busy.Status = http.StatusTooManyRequests
			w.api.Misbehave(busy)
			w.api.Cut()
			w.await("asking again", func() bool { return len(w.api.Requests()) >= before+len(w.kinds()) })
			w.api.Put(service("changes", "10.0.0.9"), service("comes", "10.0.0.4"))
			w.api.Delete(service("goes", ""))
			w.api.Forget()
			w.api.Misbehave(way)
			w.awaitModel("listing anew", "Namespace default", "Service shop/stays [10.0.0.1]", "Service shop/changes [10.0.0.9]", "Service shop/comes [10.0.0.4]")
			w.await("lists of all kinds", func() bool {
				return !slices.ContainsFunc(w.source.Status(), func(st Status) bool { return st.Events[eventListed] != 2 })
			})
			w.awaitHealthy()
			stopLooking()
			want := cluster.Changes{Objects: make(map[cluster.Ref]int64)}
			for _, name := range []string{"changes", "comes", "goes"} {
				want.Objects[cluster.Ref{Kind: cluster.KindService, Key: cluster.Key{Namespace: "shop", Name: name}}] = 0
			}
			if diff := cmp.Diff(want, feed.Pending()); diff != "" {
				t.Errorf("changes of a list that differs (-want +got):\n%s", diff)
			}
		})
	}
}

// look looks at a Service until it is told to stop; it must always be there,
// and live.
func look(t *testing.T, store *cluster.Store, key cluster.Key) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			store.View(func(v *cluster.View) {
				if v.Service(key) == nil || v.Freshness(kindsRead()...) != cluster.Live {
					t.Errorf("Service %v, %s, want it always there and live", v.Service(key), v.Freshness(kindsRead()...))
				}
			})
			if t.Failed() {
				return
			}
			runtime.Gosched()
		}
	})
	return func() { close(done); looking.Wait() }
}

// TestSilentWatch checks that a watch without events is restarted, and that the API
// counts as lost until something is received.
func TestSilentWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Silence = 1100 * time.Millisecond // above a second, client-go begins at the last version
	w.api.Put(service("web", "10.0.0.1"))
	w.live()
	w.awaitHeard()
	before := len(w.requests("services", 0))
	w.api.Misbehave(apitest.Fault{Silent: true})
	w.api.Put(service("web", "10.0.0.2"))
	w.await("a line in the log", func() bool { return len(w.log.lines("is silent", "resource=services")) == 1 })
	if st := w.status(cluster.KindService); st.Staleness < w.cfg.Silence {
		t.Errorf("Staleness = %s as soon as it is noticed, want %s or more", st.Staleness, w.cfg.Silence)
	}
	w.awaitRequests("services", before, 2)
	w.await("staleness that goes on growing", func() bool { return w.status(cluster.KindService).Staleness > 2*w.cfg.Silence })
	w.wantLines(1, "is silent", "resource=services")
	w.wantLines(0, "responds again", "resource=services")
	w.awaitModel("a silence", "Namespace default", "Service shop/web [10.0.0.1]")

	w.api.Misbehave(apitest.Fault{})
	w.awaitModel("its end", "Namespace default", "Service shop/web [10.0.0.2]")
	w.awaitHeard()
	w.wantLines(1, "responds again", "resource=services")
}

// TestSilentConnections checks that reopening connections closed for silence does not
// count as hearing from the API, whichever kind notices first.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live()
	w.awaitHealthy()
	before := len(w.requests("services", 0))
	w.api.Misbehave(apitest.Fault{Silent: true})
	w.await("a watch anew", func() bool {
		for _, r := range w.source.readings {
			r.lastWord.Store(int64(time.Since(processStart) - 2*w.cfg.Silence))
		}
		w.source.abandon()
		return len(w.requests("services", before)) > 0
	})
	w.wantLines(1, "is silent", "resource=services")
	w.wantLines(0, "responds again", "resource=services")
	if st := w.status(cluster.KindService); st.Staleness < w.cfg.Silence {
		t.Errorf("Staleness = %s after a silence of all, want %s or more", st.Staleness, w.cfg.Silence)
	}
}

// awaitHeard waits until each kind is heard, on a server that says from time to
// time that nothing happened, as real ones do.
func (w *world) awaitHeard() {
	w.Helper()
	w.await("each kind is heard", func() bool {
		w.api.Bookmark()
		return !slices.ContainsFunc(w.source.Status(), func(st Status) bool { return st.Staleness > 0 })
	})
}

// TestServerWithoutResponse checks that requests to a server that never responds are
// abandoned.
func TestServerWithoutResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Silence = 500 * time.Millisecond
	w.api.Misbehave(apitest.Fault{Slow: time.Hour})
	w.start()
	w.await("a problem of each kind", func() bool {
		return !slices.ContainsFunc(w.source.Status(), func(st Status) bool { return st.Problem == nil })
	})
	w.awaitRequests("services", 0, 4)
	w.wantLines(1, "can't be read", "resource=services")
	w.wantLines(1, "can't be read", "resource=services", w.host()+": no answer")
	w.api.Misbehave(apitest.Fault{})
	w.awaitFreshness(cluster.Live, w.kinds()...)
}

// TestErrorsNameTheServer checks that an error without a response from the server has
// its address.
func TestErrorsNameTheServer(t *testing.T) {
	t.Parallel()
	for name, drops := range map[string]bool{"hung up": false, "packets dropped": true} {
		for way, watchList := range map[string]bool{"list": false, "watch": true} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.cfg.WatchList = watchList
				w.api.Misbehave(apitest.Fault{HangUp: true})
				server := w.host()
				if drops {
					server = deafAddress(t)
					apitest.WriteKubeconfig(t, w.cfg.Kubeconfig, "http://"+server)
				}
				w.start()
				want := server + ": no answer: connection closed or timed out"
				w.await("a problem", func() bool { return w.status(cluster.KindPod).Problem != nil })
				if p := w.status(cluster.KindPod).Problem; p.Error() != want {
					t.Errorf("Problem = %v, want %s", p, want)
				}
				w.wantLines(1, "can't be read", "resource=pods", `err="`+want+`"`)
			})
		}
	}
}

// deafAddress is one where nobody answers who connects: a listener whose queue
// is full.
func deafAddress(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(socket) })
	if err := errors.Join(
		syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		syscall.Listen(socket, 0), // which leaves room for one
	); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(at.(*syscall.SockaddrInet4).Port)).String()
	one, err := net.Dial("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close() })
	return address
}

// TestWarmStartAPIAway checks that objects of a snapshot remain and count as recalled.
func TestWarmStartAPIAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Settle = time.Millisecond
	remembered := w.remember()
	version := w.store.Version()
	w.api.Stop()
	w.start()
	w.await("staleness of several attempts", func() bool { return w.status(cluster.KindNode).Staleness > 1500*time.Millisecond })
	for _, k := range kindsRead() {
		w.awaitFreshness(cluster.Recalled, k)
		if p := w.status(k).Problem; p == nil || !strings.Contains(p.Error(), "connection refused") || strings.Contains(p.Error(), "resourceVersion") {
			t.Errorf("Problem of %ss = %v, want the refused connection, without the request", k, p)
		}
	}
	w.awaitModel("an API that is away", remembered...)
	if got := w.store.Version(); got != version {
		t.Errorf("the Store changed %d times", got-version)
	}
	w.wantLines(len(w.kinds()), "can't be read")
}

// TestWarmStart checks that objects of a snapshot count as being confirmed as soon as
// the API responds, and as live when all have been read.
func TestWarmStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	remembered := w.remember()
	w.api.Misbehave(apitest.Fault{Silent: true}) // answers, and the lists don't come
	w.start()
	w.awaitFreshness(cluster.Confirming, w.kinds()...)
	w.awaitModel("an answer", remembered...)
	w.api.Misbehave(apitest.Fault{Slow: 20 * time.Millisecond})
	w.api.Cut()
	w.awaitFreshness(cluster.Live, w.kinds()...)
	w.awaitModel("lists", "Namespace default")
}

// TestUnconfirmedObjectsAreRecalledAgain checks that objects not confirmed in time count
// as recalled again.
func TestUnconfirmedObjectsAreRecalledAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Settle = 700 * time.Millisecond
	remembered := w.remember()
	w.api.Misbehave(apitest.Fault{Status: http.StatusForbidden, Resource: "services"})
	began := time.Now()
	w.start()
	w.awaitFreshness(cluster.Confirming, cluster.KindService)
	w.awaitFreshness(cluster.Live, cluster.KindNamespace, cluster.KindEndpointSlice, cluster.KindPod, cluster.KindNode)
	w.awaitFreshness(cluster.Recalled, cluster.KindService)
	if took := time.Since(began); took < w.cfg.Settle {
		t.Errorf("recalled again after %s, want %s", took, w.cfg.Settle)
	}
	w.awaitModel("a list that is refused", append([]string{"Namespace default"}, remembered[1:]...)...)
	for _, k := range []cluster.Kind{cluster.KindNamespace, cluster.KindPod} {
		if got := w.freshness(k); got != cluster.Live {
			t.Errorf("%s is %s when Services are recalled, want live", k, got)
		}
	}
	w.api.Misbehave(apitest.Fault{})
	w.awaitFreshness(cluster.Live, cluster.KindService)
	w.awaitModel("its list", "Namespace default")
}

// TestWarmStartRefused checks that an API server that rejects all requests confirms
// nothing.
func TestWarmStartRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.remember()
	version := w.store.Version()
	w.api.Misbehave(apitest.Fault{Status: http.StatusUnauthorized})
	w.start()
	for _, r := range resourcesOfNames() {
		w.awaitRequests(r.Resource, 0, 4)
	}
	if got := w.store.Version(); got != version {
		t.Errorf("the Store changed %d times: %s", got-version, fmt.Sprint(w.freshness(cluster.KindService)))
	}
}

// TestStalenessAfterHeardLast checks that staleness is the time since the API was last
// heard from, as set by HeardLast.
func TestStalenessAfterHeardLast(t *testing.T) {
	source, err := New(newWorld(t).cfg)
	if err != nil {
		t.Fatal(err)
	}
	source.HeardLast(time.Now().Add(-time.Hour))
	for _, st := range source.Status() {
		if st.Staleness < time.Hour {
			t.Errorf("%s: Staleness = %s, want an hour and more", st.Kind, st.Staleness)
		}
	}
}
