package api

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/apitest"
)

// TestMain increases the number of parallel tests, which mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// world is an API server, and a Store that it is read into.
type world struct {
	testing.TB
	api    *apitest.Server
	cfg    Config
	store  *cluster.Store
	log    *book
	source *Source
	stop   context.CancelFunc
	ended  chan error
}

// newWorld makes a server, of which everything is to be read.
func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{TB: tb, api: apitest.New(tb), store: cluster.NewStore(), log: new(book)}
	w.cfg = Config{
		Kubeconfig: w.api.Kubeconfig(tb), Kinds: kindsRead(), WatchList: true, QPS: 1000, Burst: 1000,
		Silence: time.Minute, Settle: time.Minute, AbsentPause: 50 * time.Millisecond, UserAgent: "test", Store: w.store,
		Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
	return w
}

// kindsOfNames returns the kinds that DNS answers depend on.
func kindsOfNames() []cluster.Kind {
	return []cluster.Kind{cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindPod}
}

// without returns kinds without one.
func without(kinds []cluster.Kind, kind cluster.Kind) []cluster.Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k cluster.Kind) bool { return k == kind })
}

// start begins to read, until the test ends.
func (w *world) start() {
	w.Helper()
	var err error
	if w.source, err = New(w.cfg); err != nil {
		w.Fatal(err)
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	w.ended = make(chan error, 1)
	go func() { w.ended <- w.source.Run(ctx) }()
	w.Cleanup(w.end)
}

// end ends the reading, if it has not ended.
func (w *world) end() {
	w.Helper()
	if w.stop == nil {
		return
	}
	w.stop()
	w.stop = nil
	const limit = 4 * time.Second // pauses between attempts are up to 7.5 s
	select {
	case err := <-w.ended:
		if !errors.Is(err, context.Canceled) {
			w.Errorf("Run = %v, want %v", err, context.Canceled)
		}
	case <-time.After(limit):
		w.Errorf("Run did not end within %s of ctx", limit)
	}
}

// host is the server's, with its port.
func (w *world) host() string { return strings.TrimPrefix(w.api.URL(), "http://") }

// live begins to read, and waits until everything is there.
func (w *world) live() {
	w.Helper()
	w.start()
	w.awaitFreshness(cluster.Live, w.kinds()...)
}

// kindsRead are the kinds that a world reads unless it says otherwise.
func kindsRead() []cluster.Kind { return append(kindsOfNames(), cluster.KindNode) }

// resourcesOfNames are those that answers may need, without custom ones, which a cluster
// may lack and has no protobuf for.
func resourcesOfNames() []*resource {
	kinds := kindsRead()
	return slices.DeleteFunc(slices.Clone(resources), func(r *resource) bool { return r.Custom || !slices.Contains(kinds, r.Model) })
}

// kinds are those that are read.
func (w *world) kinds() (ks []cluster.Kind) {
	for _, st := range w.source.Status() {
		ks = append(ks, st.Kind)
	}
	return ks
}

const patience = 20 * time.Second

// await waits until a condition holds, and fails the test when it does not.
func (w *world) await(claim string, holds func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("waited %s in vain: %s\nstatus: %+v\nlog:\n%s", patience, claim, w.source.Status(), w.log)
		}
	}
}

func (w *world) freshness(k cluster.Kind) (f cluster.Freshness) {
	w.store.View(func(v *cluster.View) { f = v.Freshness(k) })
	return f
}

func (w *world) awaitFreshness(f cluster.Freshness, ks ...cluster.Kind) {
	w.Helper()
	for _, k := range ks {
		w.await(fmt.Sprintf("%s is %s", k, f), func() bool { return w.freshness(k) == f })
	}
}

// awaitModel waits until the Store holds these objects, as model tells them.
func (w *world) awaitModel(claim string, want ...string) {
	w.Helper()
	slices.Sort(want)
	for end := time.Now().Add(patience); !slices.Equal(w.model(), want); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("model after %s (-want +got):\n%s", claim, cmp.Diff(want, w.model()))
		}
	}
}

// model tells each object in the Store on a line, sorted.
func (w *world) model() (lines []string) {
	w.store.View(func(v *cluster.View) {
		for n := range v.Namespaces() {
			lines = append(lines, "Namespace "+n.Name)
		}
		for s := range v.Services() {
			lines = append(lines, fmt.Sprintf("Service %s %v", s.Key, s.ClusterIPs))
		}
		for s := range v.EndpointSlices() {
			lines = append(lines, fmt.Sprintf("EndpointSlice %s of %s: %v", s.Key, s.Service, []netip.Addr{s.Endpoints[0].Addr}))
		}
		for p := range v.Pods() {
			lines = append(lines, fmt.Sprintf("Pod %s %v", p.Key, p.IPs))
		}
		for n := range v.Nodes() {
			lines = append(lines, fmt.Sprintf("Node %s %v", n.Name, n.Addresses))
		}
	})
	slices.Sort(lines)
	return lines
}

func (w *world) hasService(namespace, name string) (has bool) {
	w.store.View(func(v *cluster.View) { has = v.Service(cluster.Key{Namespace: namespace, Name: name}) != nil })
	return has
}

func (w *world) awaitService(name string) {
	w.Helper()
	w.await("Service shop/"+name+" is there", func() bool { return w.hasService("shop", name) })
}

func (w *world) status(k cluster.Kind) Status {
	w.Helper()
	all := w.source.Status()
	i := slices.IndexFunc(all, func(st Status) bool { return st.Kind == k })
	if i < 0 {
		w.Fatalf("Status() = %v, which lacks %s", all, k)
	}
	return all[i]
}

// awaitHealthy waits until all that is read is heard of.
func (w *world) awaitHealthy() {
	w.Helper()
	w.await("Status shows no problem", func() bool {
		return !slices.ContainsFunc(w.source.Status(), func(st Status) bool { return !st.Listed || st.Problem != nil || st.Staleness != 0 })
	})
}

// requests are those for a resource, without the first n.
func (w *world) requests(resource string, n int) []apitest.Request {
	all := slices.DeleteFunc(w.api.Requests(), func(r apitest.Request) bool { return r.Resource != resource })
	return all[n:]
}

// awaitRequests waits until a resource was asked for n times more than before.
func (w *world) awaitRequests(resource string, before, n int) {
	w.Helper()
	w.await(fmt.Sprintf("%d requests for %s", n, resource), func() bool { return len(w.requests(resource, before)) >= n })
}

// isList reports whether everything is asked for.
func isList(r apitest.Request) bool {
	return !r.Watch || strings.Contains(r.URL, "sendInitialEvents=true")
}

// book is a log.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// lines are those that hold all of the words.
func (b *book) lines(words ...string) (found []string) {
	for line := range strings.Lines(b.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			found = append(found, line)
		}
	}
	return found
}

// wantLines fails the test unless n lines of the log hold all of the words.
func (w *world) wantLines(n int, words ...string) {
	w.Helper()
	if got := w.log.lines(words...); len(got) != n {
		w.Errorf("log has %d lines with %q, want %d:\n%s", len(got), words, n, w.log)
	}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// service is a Service in the namespace shop, unless its name says another.
func service(name, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: meta(name), Spec: corev1.ServiceSpec{ClusterIP: ip}}
}

// slice is an EndpointSlice of the Service web.
func slice(name, ip string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: meta(name), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}}},
	}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	return s
}

func pod(name, ip string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta(name), Status: corev1.PodStatus{PodIP: ip, Phase: phase}}
}

func node(name, ip string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}},
	}
}

func meta(name string) metav1.ObjectMeta {
	namespace, rest, found := strings.Cut(name, "/")
	if !found {
		return metav1.ObjectMeta{Namespace: "shop", Name: name}
	}
	return metav1.ObjectMeta{Namespace: namespace, Name: rest}
}

// remember puts objects into the Store as a snapshot would: three that are in
// the cluster no more, of which one is of another Namespace.
func (w *world) remember() (lines []string) {
	w.store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Namespace{Name: "gone"})
		tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "gone"}})
		tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "gone", Name: "web"}})
		tx.SetFreshness(cluster.Recalled, cluster.KindsOfNames()...)
	})
	return w.model()
}
