package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/kube/apitest"
)

// The node of these tests is a network namespace: its own loopback has the addresses of endpoints, and
// connections to them are served there.
const (
	virtualIP    = "10.96.0.10:80"
	endpointPort = 8080
)

// newHost returns a process in a network namespace of its own, which lasts as long as the test.
func newHost(t *testing.T) *process {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	host := &process{t: t, cmd: cmd, ended: make(chan struct{})}
	inNetwork(t, host, "ip", "link", "set", "lo", "up")
	for _, range4 := range []string{"10.96.0.0/16", "198.51.100.0/24"} {
		inNetwork(t, host, "ip", "route", "add", range4, "dev", "lo")
	}
	return host
}

// serveAt answers connections to endpoints with their addresses.
func serveAt(t *testing.T, host *process, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		inNetwork(t, host, "ip", "address", "add", addr+"/32", "dev", "lo")
	}
	inNetworkOf(t, host, func() {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", endpointPort))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, c.LocalAddr().(*net.TCPAddr).IP)
				c.Close()
			}
		}()
	})
}

// reach connects to an address and returns the endpoint that answers, "refused" or another error.
func reach(t *testing.T, host *process, to string) (got string) {
	t.Helper()
	inNetworkOf(t, host, func() {
		d := net.Dialer{Timeout: time.Second}
		c, err := d.Dial("tcp", to)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			got = "refused"
			return
		case err != nil:
			got = err.Error()
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		text, err := io.ReadAll(c)
		if got = string(text); err != nil {
			got = err.Error()
		}
	})
	return got
}

// awaitReach waits until an endpoint answers at an address. Until then there may be one of the other
// outcomes only.
func awaitReach(t *testing.T, host, p *process, to, want string, others ...string) {
	t.Helper()
	p.poll(patience, func() error {
		got := reach(t, host, to)
		if got == want {
			return nil
		}
		if !slices.Contains(others, got) {
			t.Fatalf("%s: %q, want %q, or %q for a while", to, got, want, others)
		}
		return fmt.Errorf("%s: %s, want %s", to, got, want)
	})
}

// startProxyIn starts a service proxy in the namespace of a host.
func startProxyIn(t *testing.T, host *process, manifests, section string) (p *process) {
	t.Helper()
	cmd := proxyCommand(t, manifests, section)
	inNetworkOf(t, host, func() { p = follow(t, cmd) })
	return p
}

// Manifests of these tests.
const (
	nodeManifest = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
`
	webManifest = `
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop, creationTimestamp: "2026-01-0%[2]dT00:00:00Z"}
spec:
  type: NodePort
  clusterIP: 10.96.0.%[3]d
  externalIPs: [198.51.100.77]
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: %[4]d}]
---
`
	sliceManifest = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [%[2]s], nodeName: node-1}]
---
`
)

func webService() string          { return fmt.Sprintf(webManifest, "web", 1, 10, 30080) }
func webSlice(addr string) string { return fmt.Sprintf(sliceManifest, "web", addr) }

// TestProxySlicesFirst has the endpoints of a Service known before the Service.
func TestProxySlicesFirst(t *testing.T) {
	t.Parallel()
	host, dir := newHost(t), t.TempDir()
	serveAt(t, host, "10.244.7.2")
	write(t, filepath.Join(dir, "a.yaml"), nodeManifest+webSlice("10.244.7.2"))
	p := startProxyIn(t, host, dir, "healthz: ''")
	p.waitLog("the kernel has the Services of the cluster")
	before := reach(t, host, virtualIP)
	write(t, filepath.Join(dir, "b.yaml"), webService())
	awaitReach(t, host, p, virtualIP, "10.244.7.2", before)
}

// TestProxyVIPOfTwo has two Services with one external IP: the older one has it, and when it is deleted
// the younger one.
func TestProxyVIPOfTwo(t *testing.T) {
	t.Parallel()
	host, dir := newHost(t), t.TempDir()
	serveAt(t, host, "10.244.7.2", "10.244.7.3")
	older := webService() + webSlice("10.244.7.2")
	younger := fmt.Sprintf(webManifest, "shop", 2, 11, 30081) + fmt.Sprintf(sliceManifest, "shop", "10.244.7.3")
	write(t, filepath.Join(dir, "a.yaml"), nodeManifest+younger)
	write(t, filepath.Join(dir, "b.yaml"), older)
	p := startProxyIn(t, host, dir, "healthz: ''")
	p.waitLog("the kernel has the Services of the cluster")
	const shared = "198.51.100.77:80"
	for range 20 {
		if got := reach(t, host, shared); got != "10.244.7.2" {
			t.Errorf("with both: %s, want the older one's endpoint", got)
		}
	}
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	awaitReach(t, host, p, shared, "10.244.7.3", "10.244.7.2")
	write(t, filepath.Join(dir, "b.yaml"), older)
	awaitReach(t, host, p, shared, "10.244.7.2", "10.244.7.3")
	for to, want := range map[string]string{virtualIP: "10.244.7.2", "10.96.0.11:80": "10.244.7.3"} {
		if got := reach(t, host, to); got != want {
			t.Errorf("%s: %s, want %s", to, got, want)
		}
	}
}

// TestProxyNodeAddressChanges moves the node to another address: node ports follow.
func TestProxyNodeAddressChanges(t *testing.T) {
	t.Parallel()
	host, dir := newHost(t), t.TempDir()
	serveAt(t, host, "10.244.7.2")
	const first, second = "198.51.100.7", "198.51.100.8"
	inNetwork(t, host, "ip", "address", "add", first+"/32", "dev", "lo")
	write(t, filepath.Join(dir, "a.yaml"), nodeManifest+webService()+webSlice("10.244.7.2"))
	p := startProxyIn(t, host, dir, "healthz: '', nodePortAddresses: [198.51.100.0/24]")
	p.waitLog("the kernel has the Services of the cluster")
	awaitReach(t, host, p, first+":30080", "10.244.7.2")
	inNetwork(t, host, "ip", "address", "add", second+"/32", "dev", "lo")
	awaitReach(t, host, p, second+":30080", "10.244.7.2", "refused")
	if got := reach(t, host, first+":30080"); got != "10.244.7.2" {
		t.Errorf("the first address: %s", got)
	}
	inNetwork(t, host, "ip", "address", "del", first+"/32", "dev", "lo")
	p.poll(patience, func() error {
		services := inNetwork(t, host, "nft", "list", "map", "ip", "portolan-proxy", "services")
		if strings.Contains(services, first+" ") {
			return errors.New("the first address is still a destination")
		}
		return nil
	})
	awaitReach(t, host, p, second+":30080", "10.244.7.2")
}

// TestProxyTwoOfThem runs two proxies on a node: the second says why it waits, and has the table when
// the first was killed. Connections do not notice.
func TestProxyTwoOfThem(t *testing.T) {
	t.Parallel()
	host, dir := newHost(t), t.TempDir()
	serveAt(t, host, "10.244.7.2", "10.244.7.3")
	write(t, filepath.Join(dir, "a.yaml"), nodeManifest+webService()+webSlice("10.244.7.2"))
	first := proxyCommand(t, dir, "healthz: ''")
	var log strings.Builder
	first.Stderr = &log
	inNetworkOf(t, host, func() {
		if err := first.Start(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { _ = first.Process.Kill() }) // if the test fails before it does
	begin := time.Now()
	for reach(t, host, virtualIP) != "10.244.7.2" {
		if time.Since(begin) > patience {
			t.Fatalf("the first proxy: %s", log.String())
		}
	}
	second := startProxyIn(t, host, dir, "healthz: 127.0.0.1:7777, healthLimit: 1s")
	second.waitLog("another process programs the nftables table")
	time.Sleep(2 * time.Second) // more than the limit
	if code := livez(t, second, 7777); code != http.StatusOK {
		t.Errorf("/livez of the proxy that stands by: %d, want 200", code)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if n := strings.Count(second.logged(), "another process"); n != 1 {
		t.Errorf("the second proxy says %d times that there is another process, want once", n)
	}
	if got := reach(t, host, virtualIP); got != "10.244.7.2" {
		t.Errorf("between the two: %s", got)
	}
	second.waitLog("the kernel has the Services of the cluster")
	write(t, filepath.Join(dir, "a.yaml"), nodeManifest+webService()+webSlice("10.244.7.3"))
	awaitReach(t, host, second, virtualIP, "10.244.7.3", "10.244.7.2")
	if code := livez(t, second, 7777); code != http.StatusOK {
		t.Errorf("/livez of the second proxy afterwards: %d, want 200", code)
	}
}

// TestProxyWithoutIPv6 hides the file that a kernel without IPv6 does not have.
func TestProxyWithoutIPv6(t *testing.T) {
	t.Parallel()
	host, dir := newHost(t), t.TempDir()
	serveAt(t, host, "10.244.7.2")
	write(t, filepath.Join(dir, "a.yaml"), nodeManifest+webService()+webSlice("10.244.7.2"))
	proxy := proxyCommand(t, dir, "healthz: ''")
	path, err := exec.LookPath("portolan")
	if err != nil {
		t.Fatal(err)
	}
	hidden := `mount --make-rprivate / && mount -t tmpfs none /proc/$$/net && exec "$0" "$@"`
	cmd := exec.Command("sh", append([]string{"-c", "exec unshare -m sh -c '" + hidden + `' "$0" "$@"`, path}, proxy.Args[1:]...)...)
	var p *process
	inNetworkOf(t, host, func() { p = follow(t, cmd) })
	p.waitLog("the kernel has the Services of the cluster")
	awaitReach(t, host, p, virtualIP, "10.244.7.2")
	if tables := inNetwork(t, host, "nft", "list", "tables"); tables != "table ip portolan-proxy\n" {
		t.Errorf("tables %q, want the one of IPv4", tables)
	}
}

// TestProxyWithoutAPI has the API server refuse everything for some seconds, and then have changes. The
// kernel keeps what it has, the proxy is healthy, and then it follows.
func TestProxyWithoutAPI(t *testing.T) {
	t.Parallel()
	host := newHost(t)
	serveAt(t, host, "10.244.7.2", "10.244.7.3")
	var api *apitest.Server
	inNetworkOf(t, host, func() { api = apitest.New(t) })
	slice := func(addr string) *discoveryv1.EndpointSlice {
		name, port, protocol := "http", int32(endpointPort), corev1.ProtocolTCP
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{addr}}},
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		}
	}
	web := apiService("shop", "web", "10.96.0.10")
	web.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, web, slice("10.244.7.2"))
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	write(t, file, fmt.Sprintf("kubernetes: {kubeconfig: %q}\nadmin: {listen: ''}\n"+
		"proxy: {nodeName: node-1, healthz: '127.0.0.1:7777', healthLimit: 1s}\n", api.Kubeconfig(t)))
	var p *process
	inNetworkOf(t, host, func() { p = follow(t, exec.Command("portolan", "proxy", "--config", file)) })
	p.waitLog("the kernel has the Services of the cluster")
	awaitReach(t, host, p, virtualIP, "10.244.7.2")
	rules := inNetwork(t, host, "nft", "-s", "list", "map", "ip", "portolan-proxy", "endpoints")
	api.Misbehave(apitest.Fault{HangUp: true})
	api.Cut()
	for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(20 * time.Millisecond) {
		if got := reach(t, host, virtualIP); got != "10.244.7.2" {
			t.Fatalf("without an API server: %s", got)
		}
		if code := livez(t, p, 7777); code != http.StatusOK {
			t.Fatalf("/livez without an API server: %d, want 200", code)
		}
	}
	if now := inNetwork(t, host, "nft", "-s", "list", "map", "ip", "portolan-proxy", "endpoints"); now != rules {
		t.Errorf("without an API server the endpoints became\n%s\nfrom\n%s", now, rules)
	}
	api.Put(slice("10.244.7.3"))
	if got := reach(t, host, virtualIP); got != "10.244.7.2" {
		t.Errorf("before the API server is back: %s", got)
	}
	api.Misbehave(apitest.Fault{})
	awaitReach(t, host, p, virtualIP, "10.244.7.3", "10.244.7.2")
}
