package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/config/configtest"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"gateway.listen":             effectOfGatewayListen,
		"gateway.portOffset":         effectOfPortOffset,
		"gateway.controller":         effectOfGatewayController,
		"gateway.ingress.controller": effectOfIngressController,
		"gateway.ingress.port":       effectOfIngressPort,
		"gateway.nodeName":           effectOfGatewayNode,
		"gateway.trustedClients":     effectOfTrustedClients,
		"gateway.limits.connections": effectOfConnections,
		"gateway.limits.head":        effectOfHead,
		"gateway.limits.headTimeout": func(t *testing.T) {
			wantEarlier(t, "limits: {headTimeout: 1s}", "GET / HTTP/1.1\r\n", "HTTP/1.1 408 ")
		},
		"gateway.limits.idleTimeout": func(t *testing.T) { wantEarlier(t, "limits: {idleTimeout: 1s}", "", "") },
		"gateway.limits.bodyGrace": func(t *testing.T) {
			wantEarlier(t, "limits: {bodyGrace: 1s}", upload+"0", "HTTP/1.1 408 ")
		},
		"gateway.limits.bodyRate": func(t *testing.T) {
			wantEarlier(t, "limits: {bodyGrace: 1s, bodyRate: 1000000000}", upload+strings.Repeat("0", 100_000), "HTTP/1.1 408 ")
		},
		"gateway.endpoints":    effectOfEndpoints,
		"gateway.accessLog":    effectOfAccessLog,
		"gateway.routeMetrics": effectOfRouteMetrics,
		"gateway.tracing.endpoint": func(t *testing.T) {
			wantTraced(t, "oneIn: 1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "0af7651916cd43dd8448eb211c80319c")
		},
		"gateway.tracing.oneIn":  func(t *testing.T) { wantTraced(t, "oneIn: 1", "", "") },
		"gateway.drain.endpoint": effectOfDrainEndpoint,
		"gateway.drain.upgraded": effectOfDrainUpgraded,
		"gateway.drain.listener": effectOfDrainListener,
		"gateway.drain.shutdown": effectOfDrainShutdown,
	})
}

// upload is the head of a request with a body.
const upload = "POST /upload HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1000000\r\n\r\n"

// gateway is a running `portolan gateway` with manifests of its own, at an address of its own.
type gateway struct {
	*process
	dir  string // of the manifests
	file string // of the configuration
	addr string
	out  output // the standard output
}

// output is what a process has written.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startGateway starts a gateway with settings of its section, and waits until it serves the manifests, which
// are given by the names of their files.
func startGateway(t *testing.T, section string, manifests map[string]string) *gateway {
	t.Helper()
	g := &gateway{dir: t.TempDir(), addr: loopbackAddress()}
	for name, text := range manifests {
		write(t, filepath.Join(g.dir, name), text)
	}
	g.file = filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, g.file, g.settings(section))
	cmd := exec.Command("portolan", "gateway", "--config", g.file)
	cmd.Stdout = &g.out
	g.process = follow(t, cmd)
	g.waitLog("requests are served")
	return g
}

// settings returns the configuration with settings of the section gateway.
func (g *gateway) settings(section string) string {
	text := fmt.Sprintf("manifests: %q\nadmin: {listen: %q}\ngateway: {listen: [%s]}", g.dir, anyPort, g.addr)
	return configtest.Merge(text, "gateway: {"+section+"}")
}

// at returns a port of the gateway.
func (g *gateway) at(port int) string { return net.JoinHostPort(g.addr, strconv.Itoa(port)) }

// fetch sends a request for a host and path to a port, and returns the status and the body; the status is 0 if
// there is no response.
func (g *gateway) fetch(port int, host, path string) (status int, body string) {
	g.t.Helper()
	return fetch(g.t, g.at(port), host, path)
}

func fetch(t *testing.T, addr, host, path string) (status int, body string) {
	t.Helper()
	return fetchBy(t, &http.Transport{DisableKeepAlives: true}, addr, host, path)
}

// fetchBy is fetch by a transport.
func fetchBy(t *testing.T, by *http.Transport, addr, host, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	client := &http.Client{
		Transport:     by,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// want waits until a request has this status, and words in the body.
func (g *gateway) want(port int, host, path string, status int, words string) {
	g.t.Helper()
	g.poll(patience, func() error {
		if got, text := g.fetch(port, host, path); got != status || !strings.Contains(text, words) {
			return fmt.Errorf("http://%s%s at port %d: %d %q, want %d and %q", host, path, port, got, text, status, words)
		}
		return nil
	})
}

// send opens a connection to a port, and sends octets.
func (g *gateway) send(port int, octets string) net.Conn {
	g.t.Helper()
	c, err := net.Dial("tcp", g.at(port))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, octets); err != nil {
		g.t.Fatal(err)
	}
	return c
}

// backend is an endpoint. It answers with its name and the request's path; below /wait it answers when the
// test says so, and at /chat it becomes a protocol that echoes.
type backend struct {
	name    string
	addr    netip.AddrPort
	waiting chan struct{} // has one for each request below /wait
	proceed chan struct{} // one ends such a request
}

func startBackend(t *testing.T, name string) *backend {
	t.Helper()
	b := &backend{name: name, waiting: make(chan struct{}, 10), proceed: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(server.Close)
	b.addr = netip.MustParseAddrPort(server.Listener.Addr().String())
	return b
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/wait"):
		b.waiting <- struct{}{}
		select {
		case <-b.proceed:
		case <-r.Context().Done():
			return
		}
	case r.URL.Path == "/chat":
		b.chat(w)
		return
	case r.URL.Path == "/upload":
		_, _ = io.Copy(io.Discard, r.Body)
	case r.URL.Path == "/head":
		_ = r.Header.Write(w)
		return
	}
	fmt.Fprintf(w, "%s %s", b.name, r.URL.Path)
}

// chat echoes lines.
func (b *backend) chat(w http.ResponseWriter) {
	c, both, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	for {
		line, err := both.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, b.name+" "+line)
	}
}

// gatewayService returns the Service web of the namespace shop, with endpoints.
func gatewayService(endpoints ...*backend) string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n" +
		"spec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}\n")
	for i, e := range endpoints {
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%d, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: %d}]
endpoints: [{addresses: [%s], hints: {forZones: [{name: zone-%d}]}}]
`, i, e.addr.Port(), e.addr.Addr(), i)
	}
	return b.String()
}

// gatewayIngress returns an Ingress of the host for the Service web.
func gatewayIngress(name, host string) string {
	return fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %s, namespace: shop}
spec:
  rules:
  - host: %s
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`, name, host)
}

// shopGateway returns a GatewayClass, a Gateway with a listener at a port, and a route to the Service web.
func shopGateway(controller string, port int) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: ours}
spec: {controllerName: %s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: shop, namespace: shop}
spec: {gatewayClassName: ours, listeners: [{name: http, port: %d, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec: {parentRefs: [{name: shop}], rules: [{backendRefs: [{name: web, port: 80}]}]}
`, controller, port)
}

// startShop starts a gateway with an Ingress of shop.example, and its endpoint.
func startShop(t *testing.T, section string) (*gateway, *backend) {
	t.Helper()
	b := startBackend(t, "web")
	g := startGateway(t, section, map[string]string{
		"service.yaml": gatewayService(b), "ingress.yaml": gatewayIngress("web", "shop.example"),
	})
	return g, b
}

// TestGateway serves an Ingress of manifests, and follows them.
func TestGateway(t *testing.T) {
	t.Parallel()
	g, _ := startShop(t, "")
	g.want(8080, "shop.example", "/a", http.StatusOK, "web /a")
	g.want(8080, "other.example", "/a", http.StatusNotFound, "no route")

	write(t, filepath.Join(g.dir, "other.yaml"), gatewayIngress("other", "other.example"))
	g.want(8080, "other.example", "/b", http.StatusOK, "web /b")

	// What cannot be read leaves what was there.
	write(
		t,
		filepath.Join(g.dir, "other.yaml"),
		strings.Replace(gatewayIngress("other", "more.example"), "rules:", "rules: {", 1),
	)
	g.waitLog("other.yaml")
	g.want(8080, "other.example", "/c", http.StatusOK, "web /c")
	g.want(8080, "shop.example", "/c", http.StatusOK, "web /c")

	if err := os.Remove(filepath.Join(g.dir, "other.yaml")); err != nil {
		t.Fatal(err)
	}
	g.want(8080, "other.example", "/a", http.StatusNotFound, "no route")

	moved := startBackend(t, "moved")
	write(t, filepath.Join(g.dir, "service.yaml"), gatewayService(moved))
	g.want(8080, "shop.example", "/a", http.StatusOK, "moved /a")
}

// TestGatewayExample serves the example as its documentation says.
func TestGatewayExample(t *testing.T) {
	t.Parallel()
	web, api := startBackend(t, "web"), startBackend(t, "api")
	g := &gateway{addr: loopbackAddress()}
	g.process = follow(t, exec.Command(
		"portolan", "gateway", "--manifests", "../../examples/gateway", "--admin", anyPort, "--listen", g.addr,
		"--endpoint", "shop/web="+web.addr.String(), "--endpoint", "shop/api="+api.addr.String(),
	))
	g.waitLog("requests are served")
	g.want(8080, "shop.example", "/", http.StatusOK, "web /")
	g.want(8080, "shop.example", "/api/items", http.StatusOK, "api /items")
	g.want(8080, "www.shop.example", "/", http.StatusMovedPermanently, "")
	g.want(8080, "admin.shop.test", "/", http.StatusOK, "web /")
	g.want(8080, "other.test", "/", http.StatusNotFound, "")
}

// TestGatewayReloads changes the format of the access log while the gateway runs, and says what needs a restart.
func TestGatewayReloads(t *testing.T) {
	t.Parallel()
	g, _ := startShop(t, "")
	g.want(8080, "shop.example", "/before", http.StatusOK, "web /before")
	write(t, g.file, g.settings("accessLog: combined, portOffset: 7000"))
	g.waitLog("these settings take effect at the next start.*gateway.portOffset")
	g.waitLog("configuration reloaded")
	g.want(8080, "shop.example", "/after", http.StatusOK, "web /after")
	g.wantOutput(`] "GET /after HTTP/1.1" 200 10 "-" "Go-http-client/1.1"`)
	if text := g.out.String(); strings.Contains(text, "/before") {
		t.Errorf("the access log has a line from before it was turned on:\n%s", text)
	}
}

// wantOutput waits until the standard output has a text.
func (g *gateway) wantOutput(text string) {
	g.t.Helper()
	g.poll(patience, func() error {
		if got := g.out.String(); !strings.Contains(got, text) {
			return fmt.Errorf("standard output has no %s:\n%s", text, got)
		}
		return nil
	})
}

func effectOfAccessLog(t *testing.T) {
	for format, want := range map[string]string{
		"json":     `"target":"/a","protocol":"HTTP/1.1","status":200,"sent":6,`,
		"combined": `] "GET /a HTTP/1.1" 200 6 "-" "Go-http-client/1.1"` + "\n",
		"off":      "",
	} {
		g, _ := startShop(t, "accessLog: "+format)
		g.want(8080, "shop.example", "/a", http.StatusOK, "web /a")
		g.send(8080, "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n")
		if want == "" {
			if got := g.out.String(); got != "" {
				t.Errorf("without an access log: %q", got)
			}
			continue
		}
		g.wantOutput(want)
		g.wantOutput(map[string]string{"json": `"status":400,"reason":"`, "combined": `] "-" 400 - "-" "-"`}[format])
	}
}

// wantTraced sends a request that brings a trace, or none, and waits until a collector gets it, with the ID of the
// trace, which the backend gets, too.
func wantTraced(t *testing.T, section, parent, id string) {
	spans := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		spans <- hex.EncodeToString(text)
	}))
	t.Cleanup(collector.Close)
	g, _ := startShop(t, fmt.Sprintf("tracing: {endpoint: %q, %s}", collector.URL, section))
	c := g.send(8080, "GET /head HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nTraceparent: "+parent+"\r\n\r\n")
	seen, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	_, of, ok := strings.Cut(string(seen), "Traceparent: 00-"+id)
	if !ok || parent != "" && strings.HasPrefix(of, "-b7ad6b7169203331") {
		t.Fatalf("the backend got %q, want a span of the trace %s", seen, id)
	}
	if id == "" {
		id, _, _ = strings.Cut(of, "-")
	}
	select {
	case span := <-spans:
		if !strings.Contains(span, id) || !strings.Contains(span, hex.EncodeToString([]byte("shop/"))) {
			t.Errorf("the collector got %s, want a span of the trace %s and the Ingress", span, id)
		}
	case <-time.After(patience):
		t.Error("the collector got nothing")
	}
}

// effectOfRouteMetrics has metrics of routes.
func effectOfRouteMetrics(t *testing.T) {
	for section, want := range map[string]string{"": "ingress shop/web", "routeMetrics: 0": "other"} {
		g, _ := startShop(t, section)
		g.want(8080, "shop.example", "/a", http.StatusOK, "web /a")
		g.want(8080, "other.example", "/a", http.StatusNotFound, "no route")
		for _, line := range []string{
			`portolan_gateway_requests_total{code="200",route="` + want + `"} 1`,
			`portolan_gateway_requests_total{code="404",route="none"} 1`,
			`portolan_gateway_request_duration_seconds_count{route="` + want + `"} 1`,
			`portolan_gateway_own_responses_total{reason="no route"} 1`,
			"portolan_gateway_attempts_total 1", "portolan_gateway_endpoints 1", "portolan_gateway_upstreams 1",
			"portolan_gateway_ports 1", "portolan_gateway_ports_unbound 0", "portolan_gateway_endpoints_ejected 0",
			"portolan_gateway_compile_duration_seconds_count 1", `portolan_budget_used{account="gateway"}`,
		} {
			g.awaitAdmin("/metrics", http.StatusOK, "\n"+line)
		}
	}
}

// TestGatewayTable has the table on the admin server.
func TestGatewayTable(t *testing.T) {
	t.Parallel()
	g, _ := startShop(t, "")
	write(t, filepath.Join(g.dir, "gateway.yaml"), shopGateway("portolan.dev/gateway", 90))
	g.want(8090, "shop.example", "/", http.StatusOK, "web /")
	want := fmt.Sprintf(`port 80 of *, bound at %[1]s:8080
  Ingress, hostname *
    host shop.example
      / → ingress shop/web rule 0: weight 1 shop/web:80 with endpoints 1
port 90 of *, bound at %[1]s:8090
  gateway shop/shop http, hostname *
    host *
      / → httproute shop/web rule 0: weight 1 shop/web:80 with endpoints 1
`, g.addr)
	if status, got := g.admin("/debug/gateway"); status != http.StatusOK || got != want {
		t.Errorf("/debug/gateway: %d\n%s\nwant\n%s", status, got, want)
	}
}

// TestGatewayPortTaken serves the other ports while one is taken, says so, and binds it when it is free.
func TestGatewayPortTaken(t *testing.T) {
	t.Parallel()
	g, _ := startShop(t, "")
	other, err := net.Listen("tcp", g.addr+":8090")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(g.dir, "gateway.yaml"), shopGateway("portolan.dev/gateway", 90))
	const problem = ":8090: bind: address already in use; stop the process that uses it, or set another address with gateway.listen"
	g.waitLog("a port cannot be bound; it is tried again.*" + problem)
	g.awaitAdmin("/readyz", http.StatusOK, problem)
	g.want(8080, "shop.example", "/a", http.StatusOK, "web /a")
	other.Close()
	g.want(8090, "shop.example", "/a", http.StatusOK, "web /a")
	g.awaitAdmin("/readyz", http.StatusOK, "ok\n")
	if _, text := g.admin("/readyz"); strings.Contains(text, "8090") {
		t.Errorf("/readyz: %q after the port was bound", text)
	}
}

// TestGatewayBeforeTheCluster answers 503 until the cluster is known.
func TestGatewayBeforeTheCluster(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // an API server that never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(
		t,
		kubeconfig,
		fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://%s'}}]\n"+
			"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", silent.Addr()),
	)
	g := &gateway{addr: loopbackAddress()}
	g.process = follow(
		t,
		exec.Command("portolan", "gateway", "--kubeconfig", kubeconfig, "--listen", g.addr, "--admin", anyPort),
	)
	g.waitLog("msg=serving")
	g.want(8080, "shop.example", "/", http.StatusServiceUnavailable, "not ready")
	g.awaitAdmin("/readyz", http.StatusServiceUnavailable, "the Ingresses and routes are not known yet")
}

// chat upgrades a connection, and returns a function that sends a line and returns the answer; without a line
// it closes the connection.
func (g *gateway) chat(port int) func(line string) (string, error) {
	g.t.Helper()
	c := g.send(port, "GET /chat HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		g.t.Fatalf("upgrade: %v, %v", res, err)
	}
	return func(line string) (string, error) {
		if line == "" {
			return "", c.Close()
		}
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			return "", err
		}
		answer, err := in.ReadString('\n')
		return strings.TrimSpace(answer), err
	}
}

// wantChat checks that an upgraded connection still works.
func wantChat(t *testing.T, say func(string) (string, error)) {
	t.Helper()
	if got, err := say("hello"); err != nil || got != "web hello" {
		t.Errorf("an upgraded connection: %q, %v, want %q", got, err, "web hello")
	}
}

// inFlight sends a request that the endpoint answers when the test says so. The function returns the result.
func (g *gateway) inFlight(port int, b *backend) func() (int, string) {
	g.t.Helper()
	var status int
	var body string
	var done sync.WaitGroup
	done.Go(func() { status, body = g.fetch(port, "shop.example", "/wait") })
	b.await(g.t)
	return func() (int, string) {
		done.Wait()
		return status, body
	}
}

// TestGatewayStops lets a request and an upgraded connection end after the signal to stop, and takes no others.
func TestGatewayStops(t *testing.T) {
	t.Parallel()
	g, b := startShop(t, "")
	say := g.chat(8080)
	result := g.inFlight(8080, b)
	idle := g.send(8080, "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if _, err := idle.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	g.poll(patience, func() error {
		c, err := net.Dial("tcp", g.addr+":8080")
		if err == nil {
			c.Close()
			return errors.New("connections are still accepted")
		}
		return nil
	})
	if _, err := io.Copy(io.Discard, idle); err != nil { // until it is closed
		t.Errorf("a connection without a request: %v, want its end", err)
	}
	if status, _ := g.admin("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz while the process stops: %d, want 503", status)
	}
	wantChat(t, say)
	b.proceed <- struct{}{}
	if status, body := result(); status != http.StatusOK || body != "web /wait" {
		t.Errorf("the request under way: %d %q", status, body)
	}
	wantChat(t, say)
	if _, err := say(""); err != nil {
		t.Fatal(err)
	}
	if g.wait(); g.state.ExitCode() != 0 {
		t.Errorf("%s, want exit status 0", g.state)
	}
}

// TestGatewayTellsProblems has the log say what of manifests is not served, once, and again if it comes back.
func TestGatewayTellsProblems(t *testing.T) {
	t.Parallel()
	const gateway = "portolan.dev/gateway"
	g := startGateway(t, "", map[string]string{
		"namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
		"gateway.yaml":   shopGateway(gateway, 80), "ingress.yaml": gatewayIngress("shop", "shop.example"),
		"policy.yaml": "apiVersion: portolan.dev/v1alpha1\nkind: RoutePolicy\nmetadata: {name: p, namespace: shop}\n" +
			"spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: none}]}\n",
	})
	const said, ofRoute, ofIngress = "not all of an object is served.*", `object="httproute shop/.*Service shop/web does not exist`,
		`object="ingress shop/shop".*Service shop/web does not exist`
	g.waitLog(said + ofRoute)
	g.waitLog(said + ofIngress)
	g.waitLog(said + `object="routepolicy shop/p".*TargetNotFound`)
	write(t, filepath.Join(g.dir, "service.yaml"), gatewayService())
	g.want(8080, "shop.example", "/", http.StatusServiceUnavailable, "no ready endpoint")
	if n := strings.Count(g.logged(), "Service shop/web does not exist"); n != 2 {
		t.Errorf("the problem is told %d times, want 2: once for each object\n%s", n, g.logged())
	}
	if err := os.Remove(filepath.Join(g.dir, "service.yaml")); err != nil {
		t.Fatal(err)
	}
	g.poll(patience, func() error {
		if n := strings.Count(g.logged(), "Service shop/web does not exist"); n < 3 {
			return errors.New("it is not told again")
		}
		return nil
	})
}

// TestGatewayLogReaderGone serves on when who reads the access log is gone.
func TestGatewayLogReaderGone(t *testing.T) {
	t.Parallel()
	b := startBackend(t, "web")
	dir, file, addr := t.TempDir(), filepath.Join(t.TempDir(), "gateway.yaml"), loopbackAddress()
	write(t, filepath.Join(dir, "all.yaml"), gatewayService(b)+"---\n"+gatewayIngress("shop", "shop.example"))
	g := &gateway{dir: dir, addr: addr}
	write(t, file, g.settings("accessLog: json"))
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("portolan", "gateway", "--config", file)
	cmd.Stdout = writer
	g.process = follow(t, cmd)
	reader.Close()
	writer.Close()
	g.waitLog("requests are served")
	for range 3 {
		g.want(8080, "shop.example", "/a", http.StatusOK, "web /a")
	}
	g.poll(patience, func() error {
		if _, text := g.admin("/metrics"); strings.Contains(text, "\nportolan_gateway_access_log_dropped_total 0\n") {
			return errors.New("no line is counted as dropped")
		}
		return nil
	})
}

// TestGatewayChanges keeps upgraded connections and requests over changes that concern others, and over the
// removal of their endpoint's Service from the rules.
func TestGatewayChanges(t *testing.T) {
	t.Parallel()
	g, b := startShop(t, "")
	say := g.chat(8080)
	result := g.inFlight(8080, b)
	for n := range 10 {
		name := fmt.Sprintf("other-%d", n)
		write(t, filepath.Join(g.dir, "other.yaml"), gatewayIngress(name, name+".example"))
		g.want(8080, name+".example", "/", http.StatusOK, "web /")
	}
	if err := os.Remove(filepath.Join(g.dir, "ingress.yaml")); err != nil {
		t.Fatal(err)
	}
	g.want(8080, "shop.example", "/", http.StatusNotFound, "no route")
	wantChat(t, say)
	b.proceed <- struct{}{}
	if status, body := result(); status != http.StatusOK || body != "web /wait" {
		t.Errorf("the request under way: %d %q", status, body)
	}
}

func effectOfGatewayListen(t *testing.T) {
	first, second := loopbackAddress(), loopbackAddress()
	for section, want := range map[string]bool{first: false, first + ", " + second: true} {
		b := startBackend(t, "web")
		g := startGateway(t, "listen: ["+section+"]", map[string]string{
			"all.yaml": gatewayService(b) + "---\n" + gatewayIngress("web", "shop.example"),
		})
		g.addr = first
		g.want(8080, "shop.example", "/", http.StatusOK, "web /")
		if status, body := fetch(t, second+":8080", "shop.example", "/"); (status == http.StatusOK) != want {
			t.Errorf("listen: [%s]: %d %q at %s", section, status, body, second)
		}
		g.stop(syscall.SIGTERM)
	}
}

func effectOfPortOffset(t *testing.T) {
	g, _ := startShop(t, "portOffset: 7000")
	g.want(7080, "shop.example", "/", http.StatusOK, "web /")
	if status, body := g.fetch(8080, "shop.example", "/"); status != 0 {
		t.Errorf("at the default port: %d %q", status, body)
	}
}

func effectOfGatewayController(t *testing.T) {
	b := startBackend(t, "web")
	manifests := map[string]string{"all.yaml": gatewayService(b) + "---\n" + shopGateway("a.example/gateway", 90)}
	g := startGateway(t, "controller: a.example/gateway", manifests)
	g.want(8090, "shop.example", "/", http.StatusOK, "web /")
	g = startGateway(t, "", manifests)
	if status, body := g.fetch(8090, "shop.example", "/"); status != 0 {
		t.Errorf("with another controller's Gateway: %d %q", status, body)
	}
}

func effectOfIngressController(t *testing.T) {
	b := startBackend(t, "web")
	manifests := map[string]string{"all.yaml": gatewayService(b) + `---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: ours}
spec: {controller: a.example/ingress}
---
` + strings.Replace(gatewayIngress("web", "shop.example"), "spec:", "spec:\n  ingressClassName: ours", 1)}
	g := startGateway(t, "ingress: {controller: a.example/ingress}", manifests)
	g.want(8080, "shop.example", "/", http.StatusOK, "web /")
	g = startGateway(t, "", manifests)
	g.want(8080, "shop.example", "/", http.StatusNotFound, "")
}

func effectOfIngressPort(t *testing.T) {
	g, _ := startShop(t, "ingress: {port: 81}")
	g.want(8081, "shop.example", "/", http.StatusOK, "web /")
	if status, body := g.fetch(8080, "shop.example", "/"); status != 0 {
		t.Errorf("at the default port: %d %q", status, body)
	}
}

// effectOfGatewayNode has requests go to the endpoints that are for the node's zone.
func effectOfGatewayNode(t *testing.T) {
	const node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: node-1, labels: {topology.kubernetes.io/zone: zone-0}}\n---\n"
	far, near := startBackend(t, "far"), startBackend(t, "near")
	manifests := map[string]string{
		"all.yaml": gatewayService(near, far) + node + gatewayIngress("web", "shop.example"),
	}
	g := startGateway(t, "", manifests)
	g.want(8080, "shop.example", "/", http.StatusOK, "far /")
	g = startGateway(t, "nodeName: node-1", manifests)
	for range 50 {
		g.want(8080, "shop.example", "/", http.StatusOK, "near /")
	}
}

// effectOfEndpoints has requests go to endpoints that are set, for a Service or for one of its ports.
func effectOfEndpoints(t *testing.T) {
	b := startBackend(t, "local")
	manifests := map[string]string{"all.yaml": gatewayService() + "---\n" + gatewayIngress("web", "shop.example")}
	g := startGateway(t, "", manifests)
	g.want(8080, "shop.example", "/", http.StatusServiceUnavailable, "no ready endpoint")
	for _, of := range []string{"shop/web", "shop/web:80"} {
		g := startGateway(t, fmt.Sprintf("endpoints: ['%s=%s']", of, b.addr), manifests)
		g.want(8080, "shop.example", "/", http.StatusOK, "local /")
	}
	g = startGateway(t, fmt.Sprintf("endpoints: ['shop/web:81=%s']", b.addr), manifests)
	g.want(8080, "shop.example", "/", http.StatusServiceUnavailable, "no ready endpoint")
}

func effectOfTrustedClients(t *testing.T) {
	for section, want := range map[string]bool{"": false, "trustedClients: [127.0.0.0/8]": true} {
		g, _ := startShop(t, section)
		c := g.send(
			8080,
			"GET /head HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.7\r\nConnection: close\r\n\r\n",
		)
		answer, err := io.ReadAll(c)
		if err != nil || strings.Contains(string(answer), "192.0.2.7") != want {
			t.Errorf("%q: the endpoint received (%v)\n%s\nwant the client's field: %t", section, err, answer, want)
		}
	}
}

// effectOfConnections has a connection without a request close for another one.
func effectOfConnections(t *testing.T) {
	g, _ := startShop(t, "limits: {connections: 1}")
	idle := g.send(8080, "")
	g.want(8080, "shop.example", "/", http.StatusOK, "web /")
	if n, err := idle.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first connection: %d octets, %v, want its end", n, err)
	}
	g, _ = startShop(t, "")
	idle = g.send(8080, "")
	g.want(8080, "shop.example", "/", http.StatusOK, "web /")
	wantSilence(t, idle)
}

// wantSilence checks that a connection is open, and nothing was received.
func wantSilence(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	got := make([]byte, 100)
	if n, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection received %q, %v, want nothing yet", got[:n], err)
	}
}

func effectOfHead(t *testing.T) {
	for section, want := range map[string]string{"": "HTTP/1.1 200 ", "limits: {head: 1Ki}": "HTTP/1.1 431 "} {
		g, _ := startShop(t, section)
		field := "X-Long: " + strings.Repeat("a", 2000) + "\r\n"
		c := g.send(8080, "GET / HTTP/1.1\r\nHost: shop.example\r\n"+field+"Connection: close\r\n\r\n")
		if answer, err := io.ReadAll(c); err != nil || !bytes.HasPrefix(answer, []byte(want)) {
			t.Errorf("%q: %q, %v, want %s", section, answer, err, want)
		}
	}
}

// wantEarlier checks that a connection that sent some octets ends with a response, and by default not yet.
func wantEarlier(t *testing.T, section, octets, response string) {
	t.Helper()
	g, _ := startShop(t, section)
	byDefault, _ := startShop(t, "")
	later := byDefault.send(8080, octets)
	c := g.send(8080, octets)
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), response) {
		t.Errorf("%q: %q, %v, want %q and the end", section, answer, err, response)
	}
	wantSilence(t, later)
}

// await waits until a request below /wait has come to an endpoint.
func (b *backend) await(t *testing.T) {
	t.Helper()
	select {
	case <-b.waiting:
	case <-time.After(patience):
		t.Fatal("the request did not reach the endpoint " + b.name)
	}
}

// effectOfDrainEndpoint breaks off a request at an endpoint that was removed, soon or later. It is sent again.
func effectOfDrainEndpoint(t *testing.T) {
	for section, by := range map[string]string{"drain: {endpoint: 1s}": "other", "": "web"} {
		g, b := startShop(t, section)
		result, other := g.inFlight(8080, b), startBackend(t, "other")
		write(t, filepath.Join(g.dir, "service.yaml"), gatewayService(other))
		g.want(8080, "shop.example", "/", http.StatusOK, "other /")
		if by == "other" {
			other.await(t)
			b = other
		}
		b.proceed <- struct{}{}
		if status, body := result(); status != http.StatusOK || body != by+" /wait" {
			t.Errorf("%q: the request under way: %d %q, want a response by %s", section, status, body, by)
		}
	}
}

// effectOfDrainUpgraded breaks off upgraded connections at an endpoint that was removed with requests, or later.
func effectOfDrainUpgraded(t *testing.T) {
	for section, ends := range map[string]bool{"drain: {endpoint: 1s, upgraded: 1s}": true, "drain: {endpoint: 1s}": false} {
		g, b := startShop(t, section)
		say, other := g.chat(8080), startBackend(t, "other")
		result := g.inFlight(8080, b)
		write(t, filepath.Join(g.dir, "service.yaml"), gatewayService(other))
		other.await(t) // the request was broken off, and sent again
		other.proceed <- struct{}{}
		result()
		if !ends {
			wantChat(t, say)
			continue
		}
		g.poll(patience, func() error {
			if _, err := say("hello"); err == nil {
				return errors.New("the upgraded connection is still open")
			}
			return nil
		})
	}
}

// effectOfDrainListener breaks off what is open at a listener that is removed, at once or later.
func effectOfDrainListener(t *testing.T) {
	for section, ends := range map[string]bool{"drain: {listener: 0s}": true, "": false} {
		b := startBackend(t, "web")
		g := startGateway(t, section, map[string]string{
			"service.yaml": gatewayService(b), "gateway.yaml": shopGateway("portolan.dev/gateway", 90),
		})
		say := g.chat(8090)
		result := g.inFlight(8090, b)
		if err := os.Remove(filepath.Join(g.dir, "gateway.yaml")); err != nil {
			t.Fatal(err)
		}
		g.poll(patience, func() error {
			if status, _ := g.fetch(8090, "shop.example", "/"); status != 0 {
				return errors.New("the listener is still there")
			}
			return nil
		})
		if !ends {
			wantChat(t, say)
			b.proceed <- struct{}{}
		}
		if status, body := result(); (status != http.StatusOK) != ends {
			t.Errorf("%q: the request under way: %d %q", section, status, body)
		}
		if !ends {
			continue
		}
		g.poll(patience, func() error { // the two are broken off one after the other
			if _, err := say("hello"); err == nil {
				return errors.New("the upgraded connection is still open")
			}
			return nil
		})
	}
}

// effectOfDrainShutdown breaks off what is open after the signal to stop, at once or later.
func effectOfDrainShutdown(t *testing.T) {
	g, b := startShop(t, "drain: {shutdown: 0s}, accessLog: json")
	result := g.inFlight(8080, b)
	g.stop(syscall.SIGTERM)
	g.wantOutput(`"reason":"gateway stopped"`)
	g.waitLog("requests and upgraded connections are broken off.*requests=1")
	if status, body := result(); status != 0 {
		t.Errorf("the request under way: %d %q, want none", status, body)
	}
	// TestGatewayStops has the default.
}
