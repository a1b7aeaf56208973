package attack

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/testcert"
)

// gatewayMemoryLimit is that of gateways in the shipped manifests, in octets.
const gatewayMemoryLimit = 512 << 20

// Addresses of the gateway, and of the endpoint.
const (
	gatewayAddr       = "127.0.0.1:80"
	secureGatewayAddr = "127.0.0.1:443"
	endpointAddr      = "127.1.0.1:3000"
)

// launchGateway starts a gateway with the memory limit of the shipped manifests, settings of its section, and manifests
// beside those of the shop: a Gateway with HTTP and HTTPS, whose route leads to an endpoint.
func launchGateway(t *testing.T, section, manifests string) *server {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(shop(t)+manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	s := launch(t, gatewayMemoryLimit, "gateway",
		fmt.Sprintf("manifests: %s\ngateway:\n  listen: [127.0.0.1]\n  portOffset: 0\n%s", dir, section))
	s.manifests = dir
	// The kernel accounts the memory of sockets of a control group of version 1, too, as in version 2.
	const unlimited = 16 << 30
	_ = os.WriteFile(filepath.Join(s.group, "memory.kmem.tcp.limit_in_bytes"), []byte(strconv.Itoa(unlimited)), 0o600)
	return s
}

// startGateway is launchGateway, and waits until the gateway is ready.
func startGateway(t *testing.T, section, manifests string) *server {
	t.Helper()
	s := launchGateway(t, section, manifests)
	s.awaitReady()
	return s
}

// shop returns the manifests of the shop.
func shop(t *testing.T) string {
	t.Helper()
	cert, err := testcert.New("shop.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := cert.PEM()
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: cert, namespace: shop}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: portolan}
spec: {controllerName: portolan.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: shop, namespace: shop}
spec:
  gatewayClassName: portolan
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 3000}]
endpoints: [{addresses: [127.1.0.1]}]
%s`, base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key), route("web", "shop.example"))
}

// route returns an HTTPRoute of the shop's Gateway from a host to its Service.
func route(name, host string) string {
	return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: shop}
spec: {parentRefs: [{name: shop}], hostnames: [%s], rules: [{backendRefs: [{name: web, port: 80}]}]}
`, name, host)
}

// serveEndpoint is the shop's endpoint. It answers with the path. /hold is answered when the client is gone, and so is
// /unread, the body of which is not read; /large has no end, and /chat is a WebSocket, of which the octets are echoed.
func serveEndpoint(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", endpointAddr)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, r.URL.Path)
	})
	mux.HandleFunc("/hold", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/unread", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		for block, err := make([]byte, 1<<20), error(nil); err == nil; {
			_, err = w.Write(block)
		}
	})
	mux.HandleFunc("/chat", func(w http.ResponseWriter, _ *http.Request) {
		hijacked(w, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
			_, _ = io.Copy(c, c)
		})
	})
	misbehave(mux)
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { server.Close() })
}

// hijacked has do have the connection of a response, and closes it.
func hijacked(w http.ResponseWriter, do func(c net.Conn)) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	do(c)
}

// get returns a request of HTTP/1.1 to the shop.
func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: shop.example\r\n\r\n" }

// secured returns the TLS client of a connection to the shop, which speaks a protocol.
func secured(c net.Conn, protocol string) *tls.Conn {
	return tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: "shop.example", NextProtos: []string{protocol}})
}

// connectSmall is connect with several connections at once, and sockets that take little memory here.
func connectSmall(ctx context.Context, address string, n int, use func(net.Conn)) {
	sources := addresses(50)
	const workers = 4
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n && ctx.Err() == nil; i += workers {
				dialer := net.Dialer{
					LocalAddr: &net.TCPAddr{IP: sources[i%len(sources)]}, Timeout: time.Second,
					Control: func(_, _ string, c syscall.RawConn) error {
						return c.Control(func(fd uintptr) {
							_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10)
							_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<10)
						})
					},
				}
				if conn, err := dialer.DialContext(ctx, "tcp", address); err == nil {
					use(conn)
				}
			}
		})
	}
	all.Wait()
}

// visits are the requests of clients that do not attack.
type visits struct {
	made, failed atomic.Int64
	first        atomic.Value // of the failures
}

// visitor returns a client that does not attack, over HTTP/2 or HTTP/1.1.
func visitor(http2 bool) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: victim}}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(http2)
	protocols.SetHTTP1(!http2)
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, Protocols: protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "shop.example"},
	}}
}

// visit sends a request, each over a connection of its own.
func (v *visits) visit(ctx context.Context, client *http.Client, url string) {
	v.made.Add(1)
	if err := visit(ctx, client, url); err != nil {
		v.failed.Add(1)
		v.first.CompareAndSwap(nil, err.Error())
	}
}

func visit(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Host = "shop.example"
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status + " " + string(text))
	}
	return err
}

// run sends requests over HTTP, HTTPS and HTTP/2 until ctx is done.
func (v *visits) run(ctx context.Context) {
	const interval = 50 * time.Millisecond
	one, two := visitor(false), visitor(true)
	for ; ctx.Err() == nil; time.Sleep(interval) {
		v.visit(context.WithoutCancel(ctx), one, "http://"+gatewayAddr+"/a")
		v.visit(context.WithoutCancel(ctx), one, "https://"+secureGatewayAddr+"/a")
		v.visit(context.WithoutCancel(ctx), two, "https://"+secureGatewayAddr+"/a")
	}
}

// besiege runs do for the duration of an attack, while clients that do not attack send requests. All of them must be
// served, and the memory stay within the limit. It returns an account of what happened.
func (s *server) besiege(t *testing.T, do func(ctx context.Context)) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), *duration)
	defer stop()
	most := 0
	var v visits
	var all sync.WaitGroup
	all.Go(func() { v.run(ctx) })
	all.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			most = max(most, usedWithSockets(s.group))
		}
	})
	do(ctx)
	<-ctx.Done()
	files, goroutines := s.openFiles(), s.goroutines()
	all.Wait()
	t.Logf("%d MiB at most, %d files, %d goroutines; accounts that refused: %s; closed for memory: %d; %d requests of others",
		most>>20, files, goroutines, s.refusals(), s.metric("portolan_gateway_connections_closed_for_memory_total"), v.made.Load())
	if s.hasEnded() {
		t.Fatal("the gateway has ended")
	}
	if most > gatewayMemoryLimit {
		t.Errorf("%d MiB at most, the limit is %d", most>>20, gatewayMemoryLimit>>20)
	}
	if v.failed.Load() > 0 || v.made.Load() == 0 {
		t.Errorf("%d of %d requests of others failed, the first with: %v", v.failed.Load(), v.made.Load(), v.first.Load())
	}
}

// usedWithSockets returns the memory of a control group with that of its sockets, in octets.
func usedWithSockets(group string) int {
	number := func(file string) (n int, ok bool) {
		text, err := os.ReadFile(filepath.Join(group, file))
		n, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return n, err == nil
	}
	if n, ok := number("memory.current"); ok {
		return n
	}
	all, _ := number("memory.usage_in_bytes")
	sockets, _ := number("memory.kmem.tcp.usage_in_bytes")
	return all + sockets
}

// metric returns the sum of the series of a metric whose names begin so.
func (s *server) metric(name string) (sum int) {
	s.t.Helper()
	all := s.metrics()
	if all == nil {
		s.t.Error("the metrics are not served")
	}
	for line := range strings.Lines(string(all)) {
		if strings.HasPrefix(line, name) {
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:len(line)-1], 64)
			if err != nil {
				s.t.Error(err)
			}
			sum += int(n)
		}
	}
	return sum
}

// preface begins a connection of HTTP/2, with settings.
func preface(c io.ReadWriter, settings ...http2.Setting) *http2.Framer {
	_, _ = io.WriteString(c, http2.ClientPreface) // what follows fails, too
	framer := http2.NewFramer(c, c)
	_ = framer.WriteSettings(settings...)
	return framer
}

// setFileLimit sets how many files a process may have open.
func setFileLimit(t *testing.T, s *server, n int) {
	t.Helper()
	limit := unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
}
