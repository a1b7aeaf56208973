package healthcheck_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeproxy "k8s.io/kubernetes/pkg/proxy/healthcheck"
	proxyutil "k8s.io/kubernetes/pkg/proxy/util"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/proxy/healthcheck"
	"portolan.dev/portolan/internal/proxy/plan"
)

// patience bounds the wait for what must happen.
const patience = 20 * time.Second

// The addresses of the two proxies. kube-proxy's must be one of an interface.
var (
	theirs = netip.MustParseAddr("127.0.0.1")
	ours   = netip.MustParseAddr("127.83.19.2")
)

var date = regexp.MustCompile(`Date: [^\r]*\r\n`)

// get returns all octets of a response to a request, without those of its date.
func get(addr netip.Addr, port uint16, request string) string {
	c, err := net.DialTimeout("tcp", netip.AddrPortFrom(addr, port).String(), patience)
	if err != nil {
		return "refused"
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", request); err != nil {
		return err.Error()
	}
	response, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return date.ReplaceAllString(string(response), "")
}

// same compares the responses of both proxies. Ours has some time to follow.
func same(t *testing.T, port uint16, request string) string {
	t.Helper()
	want := get(theirs, port, request)
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		got := get(ours, port, request)
		if got == want {
			return got
		}
		if time.Since(begin) > patience {
			t.Fatalf("%s at port %d is\n%s\nwant\n%s", request, port, got, want)
		}
	}
}

// history is what happens to both proxies.
type history struct {
	random *rand.Rand
	theirs *kubeproxy.ProxyHealthServer
	ours   *healthcheck.Health
	node   atomic.Pointer[corev1.Node] // nil if there is none
}

// Node is that of kube-proxy's node manager.
func (h *history) Node() *corev1.Node { return h.node.Load() }

func newHistory() *history {
	h := &history{random: rand.New(rand.NewPCG(36, 3)), ours: healthcheck.NewHealth(0, time.Now)}
	// A change that waits is late at once.
	h.theirs = kubeproxy.NewProxyHealthServer("", 0, h)
	return h
}

// step has a family's changes wait, or be made.
func (h *history) step() {
	family := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}[h.random.IntN(2)]
	if h.random.IntN(3) == 0 {
		h.theirs.QueuedUpdate(family)
		h.ours.Queued(cluster.AddressType(family))
		return
	}
	h.theirs.Updated(family)
	h.ours.Updated(cluster.AddressType(family))
}

// TestNodePorts compares whole responses of healthCheckNodePorts while Services come, go, change
// their ports and endpoints, and the proxies become unhealthy and healthy again.
func TestNodePorts(t *testing.T) {
	h := newHistory()
	kube := kubeproxy.NewServiceHealthServer("node", nil,
		proxyutil.NewNodePortAddresses(corev1.IPv4Protocol, []string{theirs.String() + "/32"}), h.theirs, corev1.IPv4Protocol)
	t.Cleanup(func() { _ = kube.SyncServices(nil) })
	servers := healthcheck.New(healthcheck.Config{
		Healthy: h.ours.Healthy,
		Report:  func(service cluster.Key, err error) { t.Errorf("%s: %v", service, err) },
		Log:     slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- servers.Run(ctx) }()
	ports := []uint16{29101, 29102, 29103, 29104, 29105, 29106}
	met := make(map[string]int)
	for range 200 {
		h.step()
		checks := make(map[cluster.Key]plan.HealthCheck)
		services, endpoints := make(map[types.NamespacedName]uint16), make(map[types.NamespacedName]int)
		free := slices.Clone(ports)
		h.random.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		for i, port := range free[:h.random.IntN(len(free))] {
			key := cluster.Key{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
			ready := max(0, h.random.IntN(12)-3)
			check := plan.HealthCheck{Port: port, Endpoints: map[cluster.AddressType]int{cluster.IPv4: ready}}
			name := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
			checks[key], services[name], endpoints[name] = check, port, ready
		}
		// kube-proxy opens ports in the order of a map, and fails if the one of a Service that
		// changes its port is open still; two rounds have it settle.
		for range 2 {
			if err := kube.SyncServices(services); err != nil {
				t.Fatal(err)
			}
		}
		if err := kube.SyncEndpoints(endpoints); err != nil {
			t.Fatal(err)
		}
		servers.Update(healthcheck.State{Checks: checks, Addresses: []netip.Addr{ours}})
		for _, port := range ports {
			for _, request := range []string{"GET /", "HEAD /healthz", "POST /anything?x=y"} {
				status, _, _ := strings.Cut(same(t, port, request), "\r\n")
				met[status]++
			}
		}
	}
	t.Logf("responses: %v", met)
	for _, status := range []string{"refused", "HTTP/1.1 200 OK", "HTTP/1.1 503 Service Unavailable"} {
		if met[status] < 100 {
			t.Errorf("%d responses %q were compared, want 100 at least", met[status], status)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

var instant = regexp.MustCompile(`"[0-9-]+T[0-9:.]+(Z|[+-][0-9:]+)"`)

// TestProbes compares the responses of /healthz and /livez, but for the digits of times, while
// changes wait and are made, and the Node is tainted, deleted and replaced.
func TestProbes(t *testing.T) {
	h := newHistory()
	free, err := net.Listen("tcp", theirs.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().(*net.TCPAddr).AddrPort() // of this run: kube-proxy's server never ends
	free.Close()
	h.theirs = kubeproxy.NewProxyHealthServer(addr.String(), 0, h)
	go func() { _ = h.theirs.Run(t.Context()) }()
	probes := &healthcheck.Probes{Health: h.ours, Node: func() *cluster.Node {
		if h.Node() == nil {
			return nil
		}
		n, _ := object.Node(h.Node()) // it has no name
		return n
	}}
	handler := probes.Handler()
	tainted := func(key string) corev1.NodeSpec { return corev1.NodeSpec{Taints: []corev1.Taint{{Key: key}}} }
	nodes := []*corev1.Node{
		nil, {}, {Spec: tainted("other")}, {Spec: tainted("ToBeDeletedByClusterAutoscaler")},
		{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Now()}}},
	}
	for begin := time.Now(); get(theirs, addr.Port(), "GET /livez") == "refused"; time.Sleep(time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatal("kube-proxy's server does not listen")
		}
	}
	met := make(map[string]int)
	for range 500 {
		for _, path := range []string{"/healthz", "/livez", "/other"} {
			response, err := http.Get("http://" + addr.String() + path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			mask := func(s string) string { return instant.ReplaceAllString(s, `"time"`) }
			for _, generated := range []string{"Date", "Content-Length"} {
				response.Header.Del(generated)
			}
			if got, want := mask(w.Body.String()), mask(string(text)); w.Code != response.StatusCode || got != want ||
				!maps.EqualFunc(w.Header(), response.Header, slices.Equal[[]string]) {
				t.Fatalf("GET %s = %d %v %s, want %d %v %s", path, w.Code, w.Header(), got, response.StatusCode, response.Header, want)
			}
			met[fmt.Sprint(path, " ", w.Code)]++
		}
		h.step()
		h.node.Store(nodes[h.random.IntN(len(nodes))])
	}
	t.Logf("responses: %v", met)
	for _, response := range []string{"/healthz 200", "/healthz 503", "/livez 200", "/livez 503"} {
		if met[response] < 50 {
			t.Errorf("%d responses %s were compared, want 50 at least", met[response], response)
		}
	}
}
