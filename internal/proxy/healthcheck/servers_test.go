package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/plan"
)

// patience bounds the wait for what must happen.
const patience = 20 * time.Second

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// reported is a call of Report.
type reported struct {
	service cluster.Key
	err     error
}

func (r reported) String() string {
	return fmt.Sprintf("%s/%s: %v", r.service.Namespace, r.service.Name, r.err)
}

// node is a node with Servers that run, and addresses of its own on loopback, so that the same
// ports are free for each test.
type node struct {
	*Servers
	addr    netip.Addr
	healthy atomic.Bool
	reports chan reported
	stop    func()
}

func loopback() netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(2 + rand.IntN(250)), byte(rand.IntN(256)), byte(1 + rand.IntN(250))})
}

// newNode returns a node that ends with the test.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{addr: loopback(), reports: make(chan reported, 100)}
	n.healthy.Store(true)
	n.Servers = New(Config{
		Healthy: n.healthy.Load,
		Report:  func(service cluster.Key, err error) { n.reports <- reported{service, err} },
		Retry:   5 * time.Millisecond,
		Log:     slog.New(slog.DiscardHandler),
	})
	n.run(t)
	return n
}

// run starts Run.
func (n *node) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	n.stop = func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			ended <- err
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("Run does not end")
		}
	}
	t.Cleanup(n.stop)
}

// report returns the next report.
func (n *node) report(t *testing.T) reported {
	t.Helper()
	select {
	case r := <-n.reports:
		return r
	case <-time.After(patience):
		t.Fatal("nothing is reported")
		return reported{}
	}
}

type checks = map[cluster.Key]plan.HealthCheck

// on is the health check of a Service of both families, with endpoints on the node.
func on(port uint16, endpoints int) plan.HealthCheck {
	return plan.HealthCheck{Port: port, Endpoints: map[cluster.AddressType]int{cluster.IPv4: endpoints, cluster.IPv6: endpoints}}
}

// update serves checks at the node's address.
func (n *node) update(c checks) { n.Update(State{Checks: c, Addresses: []netip.Addr{n.addr}}) }

// get requests a page and returns a text of the response: the status code, the headers that
// load balancers read, and the body.
func get(client *http.Client, addr netip.Addr, port uint16) string {
	response, err := client.Get("http://" + netip.AddrPortFrom(addr, port).String() + "/healthz")
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused"
	}
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	h := response.Header
	return fmt.Sprintf("%d%q%q%q%s", response.StatusCode, h["Content-Type"], h["X-Content-Type-Options"], h["X-Load-Balancing-Endpoint-Weight"], body)
}

// once is a client with a connection for each request.
func once() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
}

// answer is the response of kube-proxy: the octets are those that kube-proxy 1.36.3 sends.
func answer(service cluster.Key, endpoints int, healthy bool) string {
	status := http.StatusServiceUnavailable
	if endpoints > 0 && healthy {
		status = http.StatusOK
	}
	return fmt.Sprintf("%d[\"application/json\"][\"nosniff\"][\"%d\"]{\n\t\"service\": {\n\t\t\"namespace\": \"%s\",\n\t\t\"name\": \"%s\"\n\t},\n"+
		"\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}", status, endpoints, service.Namespace, service.Name, endpoints, healthy)
}

// want waits until requests to ports of the node have the given responses.
func (n *node) want(t *testing.T, claim string, responses map[uint16]string) {
	t.Helper()
	n.wantAt(t, claim, n.addr, responses)
}

func (n *node) wantAt(t *testing.T, claim string, addr netip.Addr, responses map[uint16]string) {
	t.Helper()
	for port, want := range responses {
		begin := time.Now()
		for got := get(once(), addr, port); got != want; got = get(once(), addr, port) {
			if time.Since(begin) > patience {
				t.Fatalf("%s: GET %s:%d is %s, want %s", claim, addr, port, got, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

var (
	ab = cluster.Key{Namespace: "a", Name: "b"}
	cd = cluster.Key{Namespace: "c", Name: "d"}
	ef = cluster.Key{Namespace: "e", Name: "f"}
	gh = cluster.Key{Namespace: "g", Name: "h"}
)

// TestKubeProxyTable replays kube-proxy's TestServer (healthcheck_test.go), all of its steps in
// their order, with its Services, ports and numbers. Two kinds of steps cannot be told apart
// here, since a plan.HealthCheck has both: Services without endpoints synced yet have 0, and
// endpoints of unknown Services do not exist.
func TestKubeProxyTable(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const refused = "refused"
	for _, step := range []struct {
		claim     string
		checks    checks
		unhealthy bool
		want      map[uint16]string
	}{
		{"nothing", nil, false, map[uint16]string{9376: refused}},
		{"a Service", checks{ab: on(9376, 0)}, false, map[uint16]string{9376: answer(ab, 0, true)}},
		{"18 endpoints", checks{ab: on(9376, 18)}, false, map[uint16]string{9376: answer(ab, 18, true)}},
		{"0 endpoints", checks{ab: on(9376, 0)}, false, map[uint16]string{9376: answer(ab, 0, true)}},
		{"11 endpoints", checks{ab: on(9376, 11)}, false, map[uint16]string{9376: answer(ab, 11, true)}},
		{"none again", checks{ab: on(9376, 0)}, false, map[uint16]string{9376: answer(ab, 0, true)}},
		{"18 endpoints again", checks{ab: on(9376, 18)}, false, map[uint16]string{9376: answer(ab, 18, true)}},
		{"deleted", nil, false, map[uint16]string{9376: refused}},
		{"three Services", checks{ab: on(9376, 0), cd: on(12909, 0), ef: on(11113, 0)}, false, map[uint16]string{9376: answer(ab, 0, true), 12909: answer(cd, 0, true), 11113: answer(ef, 0, true)}},
		{"with endpoints", checks{ab: on(9376, 9), cd: on(12909, 3), ef: on(11113, 7)}, false, map[uint16]string{9376: answer(ab, 9, true), 12909: answer(cd, 3, true), 11113: answer(ef, 7, true)}},
		{"remove one, leave one, change one, add one", checks{cd: on(12909, 3), ef: on(11114, 0), gh: on(11878, 0)}, false, map[uint16]string{
			9376: refused, 11113: refused, 12909: answer(cd, 3, true), 11114: answer(ef, 0, true), 11878: answer(gh, 0, true),
		}},
		{"with endpoints again", checks{cd: on(12909, 3), ef: on(11114, 7), gh: on(11878, 6)}, false, map[uint16]string{12909: answer(cd, 3, true), 11114: answer(ef, 7, true), 11878: answer(gh, 6, true)}},
		{"one lost its endpoints", checks{cd: on(12909, 0), ef: on(11114, 7), gh: on(11878, 6)}, false, map[uint16]string{12909: answer(cd, 0, true), 11114: answer(ef, 7, true), 11878: answer(gh, 6, true)}},
		{"the proxy is not healthy", checks{cd: on(12909, 0), ef: on(11114, 7), gh: on(11878, 6)}, true, map[uint16]string{12909: answer(cd, 0, false), 11114: answer(ef, 7, false), 11878: answer(gh, 6, false)}},
		{"the proxy is healthy again", checks{cd: on(12909, 0), ef: on(11114, 7), gh: on(11878, 6)}, false, map[uint16]string{12909: answer(cd, 0, true), 11114: answer(ef, 7, true), 11878: answer(gh, 6, true)}},
	} {
		n.healthy.Store(!step.unhealthy)
		n.update(step.checks)
		n.want(t, step.claim, step.want)
	}
	if len(n.reports) > 0 {
		t.Errorf("%v is reported", <-n.reports)
	}
}

// TestAddresses replays kube-proxy's TestServerWithSelectiveListeningAddress, and changes the
// addresses.
func TestAddresses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first, second, all := loopback(), loopback(), netip.IPv4Unspecified()
	const port = 9378 // of no other test, since one step has it at all addresses
	check := checks{ab: on(port, 1)}
	for _, step := range []struct {
		claim         string
		addrs         []netip.Addr
		first, second string
	}{
		{"one address", []netip.Addr{first}, answer(ab, 1, true), "refused"},
		{"another one", []netip.Addr{second}, "refused", answer(ab, 1, true)},
		{"both, one twice", []netip.Addr{second, first, second}, answer(ab, 1, true), answer(ab, 1, true)},
		{"all of the family", []netip.Addr{all}, answer(ab, 1, true), answer(ab, 1, true)},
		{"one again", []netip.Addr{first}, answer(ab, 1, true), "refused"},
		{"none", nil, "refused", "refused"},
	} {
		n.Update(State{Checks: check, Addresses: step.addrs})
		n.wantAt(t, step.claim, first, map[uint16]string{port: step.first})
		n.wantAt(t, step.claim, second, map[uint16]string{port: step.second})
	}
	if len(n.reports) > 0 {
		t.Errorf("%v is reported", <-n.reports)
	}
}

// TestFamilies verifies that both families are served, and one if the other cannot be.
func TestFamilies(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("this host has no IPv6: %v", err)
	}
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	n := newNode(t)
	n.Update(State{Checks: checks{ab: on(port, 2)}, Addresses: []netip.Addr{netip.IPv6Loopback(), n.addr}})
	n.want(t, "IPv4, while the port of IPv6 is taken", map[uint16]string{port: answer(ab, 2, true)})
	if r := n.report(t); r.service != ab || !strings.Contains(r.err.Error(), fmt.Sprintf(" listen on [::1]:%d: ", port)) {
		t.Errorf("%v is reported, want the address in IPv6", r)
	}
	l.Close()
	n.wantAt(t, "IPv6", netip.IPv6Loopback(), map[uint16]string{port: answer(ab, 2, true)})
	n.want(t, "IPv4", map[uint16]string{port: answer(ab, 2, true)})
}

// TestPortTaken verifies that a port of another process is reported once, tried again, and costs
// nobody else anything.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	other, err := net.Listen("tcp4", n.addr.String()+":9376")
	if err != nil {
		t.Fatal(err)
	}
	n.update(checks{ab: on(9376, 1), cd: on(9377, 2)})
	n.want(t, "the other Service", map[uint16]string{9377: answer(cd, 2, true)})
	r := n.report(t)
	problem, ok := errors.AsType[*ListenError](r.err)
	if r.service != ab || !ok || !errors.Is(r.err, syscall.EADDRINUSE) {
		t.Fatalf("%v is reported, want that the port of %v is in use", r, ab)
	}
	want := fmt.Sprintf("health check of service a/b: listen on %s:9376: bind: address already in use; "+
		"it is tried again until another process lets go of the port", n.addr)
	if problem.Error() != want {
		t.Errorf("the error is %q, want %q", problem, want)
	}
	for i := range 10 { // attempts by changes and by time report nothing
		n.update(checks{ab: on(9376, i), cd: on(9377, i)})
		n.want(t, "the other Service", map[uint16]string{9377: answer(cd, i, true)})
	}
	if got := n.Problems(); len(got) != 1 || got[ab] == nil {
		t.Errorf("Problems() = %v, want that of %v", got, ab)
	}
	other.Close()
	if r := n.report(t); r.service != ab || r.err != nil {
		t.Errorf("%v is reported, want that %v is served", r, ab)
	}
	n.want(t, "the port is free", map[uint16]string{9376: answer(ab, 9, true)})
	if got := n.Problems(); len(got) != 0 {
		t.Errorf("Problems() = %v, want none", got)
	}
	if len(n.reports) > 0 {
		t.Errorf("%v is reported too", <-n.reports)
	}
}

// TestAddressGone verifies that the problem of an address goes with the address.
func TestAddressGone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	foreign := netip.MustParseAddr("192.0.2.1")
	n.Update(State{Checks: checks{ab: on(9376, 1)}, Addresses: []netip.Addr{foreign, n.addr}})
	if r := n.report(t); !errors.Is(r.err, syscall.EADDRNOTAVAIL) {
		t.Errorf("%v is reported, want that the node has no such address", r)
	}
	n.want(t, "its other address", map[uint16]string{9376: answer(ab, 1, true)})
	n.update(checks{ab: on(9376, 1)})
	if r := n.report(t); r.service != ab || r.err != nil {
		t.Errorf("%v is reported, want that all is well", r)
	}
}

// TestOnePortTwoServices verifies that the first of two Services with one port keeps it, and that
// the other one is told, and gets it when it is free.
func TestOnePortTwoServices(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	told := func(service cluster.Key, want string) {
		t.Helper()
		if r := n.report(t); r.service != service || fmt.Sprint(r.err) != want {
			t.Errorf("%v is reported, want %q for %v", r, want, service)
		}
	}
	n.update(checks{cd: on(9376, 1)})
	n.want(t, "the first", map[uint16]string{9376: answer(cd, 1, true)})
	n.update(checks{ab: on(9376, 2), cd: on(9376, 1), ef: on(9376, 3)})
	const clash = "health check of service %s: port 9376 is the healthCheckNodePort of service %s; give one of them another"
	told(ab, fmt.Sprintf(clash, ab, cd))
	told(ef, fmt.Sprintf(clash, ef, cd))
	n.want(t, "the first keeps it", map[uint16]string{9376: answer(cd, 1, true)})
	n.update(checks{ab: on(9376, 2), ef: on(9376, 3)})
	told(ab, "<nil>")
	n.want(t, "the next has it", map[uint16]string{9376: answer(ab, 2, true)})
	n.update(checks{ab: on(9377, 2), ef: on(9376, 3)})
	told(ef, "<nil>")
	n.want(t, "the last has it", map[uint16]string{9376: answer(ef, 3, true), 9377: answer(ab, 2, true)})
	n.update(checks{ab: on(9376, 2), ef: on(9377, 3)})
	n.want(t, "they change places", map[uint16]string{9376: answer(ab, 2, true), 9377: answer(ef, 3, true)})
	if len(n.reports) > 0 {
		t.Errorf("%v is reported too", <-n.reports)
	}
}

// connect returns a connection to a port that has had one response.
func (n *node) connect(t *testing.T, port uint16) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp4", netip.AddrPortFrom(n.addr, port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	ask(t, c)
	return c
}

// ask sends a request and reads some of the response.
func ask(t *testing.T, c net.Conn) string {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	read, err := c.Read(buffer)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	return string(buffer[:read])
}

// TestConnections verifies that connections stay as long as their Service, whatever happens to
// others, and end with it.
func TestConnections(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.update(checks{ab: on(9376, 1), cd: on(9377, 1)})
	n.want(t, "both", map[uint16]string{9376: answer(ab, 1, true), 9377: answer(cd, 1, true)})
	stays, goes := n.connect(t, 9376), n.connect(t, 9377)
	n.Update(State{Checks: checks{ab: on(9376, 2), ef: on(9378, 1)}, Addresses: []netip.Addr{n.addr, loopback()}})
	if _, err := goes.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection of a Service that is gone: %v, want its end", err)
	}
	n.want(t, "a new one", map[uint16]string{9378: answer(ef, 1, true)})
	if got := ask(t, stays); !strings.Contains(got, "\"localEndpoints\": 2,") {
		t.Errorf("on the connection of a Service that stays: %s", got)
	}
}

// TestTooManyConnections verifies that a server has a bound of its own, with which it does not
// take the places of others.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.update(checks{ab: on(9376, 1), cd: on(9377, 1)})
	n.want(t, "both", map[uint16]string{9376: answer(ab, 1, true), 9377: answer(cd, 1, true)})
	other := n.connect(t, 9377)
	for range 2 * maxServerConnections {
		n.connect(t, 9376)
	}
	n.want(t, "one more", map[uint16]string{9376: answer(ab, 1, true)})
	until(t, "the server has no more than its share", func() bool {
		used := n.Accounts()[0].Used
		return used <= maxServerConnections+1
	})
	ask(t, other)
}

// failingListener fails once to accept, as if the kernel was out of memory.
type failingListener struct {
	net.Listener
	failed *atomic.Bool
}

func (l failingListener) Accept() (net.Conn, error) {
	if l.failed.CompareAndSwap(false, true) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.ENOMEM)}
	}
	return l.Listener.Accept()
}

// TestLostListener verifies that a listener that ends by an error is replaced.
func TestLostListener(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.stop()
	var failed atomic.Bool
	listen := n.listener
	n.listener = func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := listen(ctx, network, address)
		return failingListener{l, &failed}, err
	}
	n.run(t)
	n.update(checks{ab: on(9376, 1)})
	if r := n.report(t); r.service != ab || !errors.Is(r.err, syscall.ENOMEM) {
		t.Errorf("%v is reported, want ENOMEM", r)
	}
	if r := n.report(t); r.service != ab || r.err != nil {
		t.Errorf("%v is reported, want that it is over", r)
	}
	n.want(t, "it is served", map[uint16]string{9376: answer(ab, 1, true)})
}

// TestEnd verifies that a request in progress completes when Run ends, that a connection without
// one does not delay that for long, and that the port is free then.
func TestEnd(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	n.stop()
	n.cfg.Healthy = func() bool { begun <- struct{}{}; <-goOn; return true }
	n.run(t)
	n.update(checks{ab: on(9376, 1)})
	response := make(chan string, 1)
	until(t, "it listens", func() bool {
		c, err := net.Dial("tcp4", n.addr.String()+":9376")
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return err == nil
	})
	go func() { response <- get(once(), n.addr, 9376) }()
	<-begun
	ended := make(chan struct{})
	go func() { n.stop(); close(ended) }()
	until(t, "the port is free", func() bool {
		l, err := net.Listen("tcp4", n.addr.String()+":9376")
		if err == nil {
			l.Close()
		}
		return err == nil
	})
	close(goOn)
	if got, want := <-response, answer(ab, 1, true); got != want {
		t.Errorf("the request in progress: %s, want %s", got, want)
	}
	<-ended
}

// descriptors returns the number of file descriptors of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("this host has no /proc: %v", err)
	}
	return len(all)
}

// TestNoLeaks has 1,000 Services come and go several times, with clients, and counts goroutines
// and file descriptors of the process. So it runs alone.
func TestNoLeaks(t *testing.T) {
	const services, rounds = 1000, 4
	all := make(checks)
	for i := range services {
		all[cluster.Key{Namespace: "shop", Name: "s" + strconv.Itoa(i)}] = on(uint16(20000+i), 1)
	}
	n := newNode(t)
	until(t, "Run runs", func() bool { return n.Problems() != nil })
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	for range rounds {
		n.update(maps.Clone(all))
		n.want(t, "the last one", map[uint16]string{20000 + services - 1: answer(cluster.Key{Namespace: "shop", Name: "s999"}, 1, true)})
		until(t, "all are served", func() bool { return descriptors(t) >= files+services })
		for i := range 20 {
			n.connect(t, uint16(20000+i*50)).Close()
		}
		n.update(nil)
		until(t, "all sockets are closed", func() bool { return descriptors(t) <= files })
		until(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines })
	}
	if got := n.Accounts()[0].Used; got != 0 {
		t.Errorf("%d connections are in use, want none", got)
	}
	n.update(all)
	n.want(t, "the last one", map[uint16]string{20000 + services - 1: answer(cluster.Key{Namespace: "shop", Name: "s999"}, 1, true)})
	n.stop()
	until(t, "nothing is left of Run", func() bool {
		return descriptors(t) <= files && runtime.NumGoroutine() < goroutines
	})
	if len(n.reports) > 0 {
		t.Errorf("%v is reported", <-n.reports)
	}
}

// BenchmarkUpdate measures a change of one among 5,000 health checks.
func BenchmarkUpdate(b *testing.B) {
	s := New(Config{Healthy: func() bool { return true }, Report: func(cluster.Key, error) {}, Log: slog.New(slog.DiscardHandler)})
	addr := []netip.Addr{loopback()}
	all := make(checks)
	for i := range 5000 {
		all[cluster.Key{Namespace: "shop", Name: "s" + strconv.Itoa(i)}] = on(uint16(20000+i), 1)
	}
	s.Update(State{all, addr})
	if failed := s.apply(b.Context()); failed > 0 {
		b.Fatalf("%d ports are taken", failed)
	}
	for i := 0; b.Loop(); i++ {
		all[cluster.Key{Namespace: "shop", Name: "s7"}] = on(20007, i)
		s.Update(State{all, addr})
		s.apply(b.Context())
	}
	for _, srv := range s.servers {
		s.remove(srv)
	}
	s.draining.Wait()
}

// TestDualStack checks that a Service is served in the families that it has, with the endpoints
// of each.
func TestDualStack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	v6 := netip.IPv6Loopback()
	both := plan.HealthCheck{Port: 9376, Endpoints: map[cluster.AddressType]int{cluster.IPv4: 2, cluster.IPv6: 3}}
	ipv4 := plan.HealthCheck{Port: 12909, Endpoints: map[cluster.AddressType]int{cluster.IPv4: 1}}
	n.Update(State{Checks: checks{ab: both, cd: ipv4}, Addresses: []netip.Addr{n.addr, v6}})
	n.want(t, "IPv4", map[uint16]string{9376: answer(ab, 2, true), 12909: answer(cd, 1, true)})
	n.wantAt(t, "IPv6", v6, map[uint16]string{9376: answer(ab, 3, true), 12909: "refused"})
}
