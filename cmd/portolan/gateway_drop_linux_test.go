package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/kube/apitest"
)

// startAPIGateway starts a gateway of an API server at an address of its own.
func startAPIGateway(t *testing.T, api *apitest.Server, section string) *gateway {
	t.Helper()
	g := &gateway{addr: loopbackAddress(), file: filepath.Join(t.TempDir(), "gateway.yaml")}
	write(t, g.file, fmt.Sprintf("kubernetes: {kubeconfig: %q}\nadmin: {listen: %q}\ngateway: {listen: [%s], %s}",
		api.Kubeconfig(t), anyPort, g.addr, section))
	g.process = follow(t, exec.Command("portolan", "gateway", "--config", g.file))
	g.waitLog("requests are served")
	return g
}

// pod is an endpoint that ends as well-behaved programs do: when it is told to it goes on for a while, then closes its
// port and connections that have nothing to do, and lets requests end.
type pod struct {
	at       string
	server   *http.Server
	requests atomic.Int64
	chats    atomic.Int64 // that are open
}

func startPod(t *testing.T) *pod {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{at: l.Addr().String()}
	p.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		if r.URL.Path == "/chat" {
			p.chats.Add(1)
			defer p.chats.Add(-1)
			(&backend{name: "web"}).chat(w)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(len(body)%7) * time.Millisecond)
		fmt.Fprintf(w, "%d", len(body))
	})}
	go func() { _ = p.server.Serve(l) }() // until it is closed
	t.Cleanup(func() { p.server.Close() })
	return p
}

// endpoint returns the endpoint of a pod in an EndpointSlice, and its port.
func (p *pod) endpoint(ready bool) (discoveryv1.Endpoint, int32) {
	host, port, _ := net.SplitHostPort(p.at)
	number, _ := strconv.Atoi(port)
	serving, terminating := true, !ready
	return discoveryv1.Endpoint{
		Addresses:  []string{host},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
	}, int32(number)
}

// putPod publishes a pod of a Service, or what becomes of it. Each has an EndpointSlice, as all have one address.
func putPod(api *apitest.Server, service string, p *pod, ready bool) *discoveryv1.EndpointSlice {
	endpoint, port := p.endpoint(ready)
	name := ""
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: service + strings.ReplaceAll(p.at[strings.LastIndexByte(p.at, ':'):], ":", "-"),
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{endpoint},
	}
	api.Put(slice)
	return slice
}

// routeOf returns an HTTPRoute of a hostname and a path to a Service.
func routeOf(name, host, path, service string) *gatewayv1.HTTPRoute {
	route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	route.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "public"}}
	route.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(host)}
	port, kind := gatewayv1.PortNumber(80), gatewayv1.PathMatchPathPrefix
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{{
		Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: &kind, Value: &path}}},
		BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(service), Port: &port},
		}}},
	}}
	return route
}

// world is what TestGatewayZeroDrop changes.
type world struct {
	api    *apitest.Server
	serial int
	pods   []*pod // of the Service web
}

// change changes routes: the one that serves the requests, and others that come and go.
func (w *world) change() {
	w.serial++
	n := w.serial
	other := routeOf(fmt.Sprintf("other-%d", n%50), fmt.Sprintf("other-%d.example", n), "/", "web")
	if n%3 == 0 {
		w.api.Delete(other)
	} else {
		w.api.Put(other)
	}
	if n%5 == 0 {
		web := routeOf("web", "shop.example", "/", "web")
		web.Spec.Rules[0].Filters = []gatewayv1.HTTPRouteFilter{{
			Type: gatewayv1.HTTPRouteFilterRequestHeaderModifier,
			RequestHeaderModifier: &gatewayv1.HTTPHeaderFilter{
				Set: []gatewayv1.HTTPHeader{{Name: "X-Change", Value: strconv.Itoa(n)}},
			},
		}}
		w.api.Put(web)
	}
}

// restart replaces a pod by another one, as a rolling update does.
func (w *world) restart(t *testing.T) {
	const grace, settle = 150 * time.Millisecond, 50 * time.Millisecond
	next := startPod(t)
	putPod(w.api, "web", next, true)
	time.Sleep(settle)
	old := w.pods[0]
	w.pods = append(w.pods[1:], next)
	slice := putPod(w.api, "web", old, false)
	time.Sleep(grace)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := old.server.Shutdown(ctx); err != nil {
		t.Errorf("a pod does not end: %v", err)
	}
	w.api.Delete(slice)
}

// load sends requests until ctx is done, of which half have a body, and half of them are long.
func load(ctx context.Context, addr string, served, failed *atomic.Int64, first *atomic.Value) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for n := 0; ctx.Err() == nil; n++ {
		method, body := http.MethodGet, ""
		if n%2 == 1 {
			method, body = http.MethodPost, strings.Repeat("x", n*37%20_000)
		}
		err := func() error {
			req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, "http://"+addr+"/a", strings.NewReader(body))
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
			if err == nil && (res.StatusCode != http.StatusOK || string(text) != strconv.Itoa(len(body))) {
				err = fmt.Errorf("%s %q", res.Status, text)
			}
			return err
		}()
		if err != nil {
			failed.Add(1)
			first.CompareAndSwap(nil, fmt.Sprintf("%s of %d octets: %v", method, len(body), err))
			continue
		}
		served.Add(1)
	}
}

// number returns that of an environment variable, or the default.
func number(t *testing.T, variable string, byDefault int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return byDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// TestGatewayZeroDrop changes routes and replaces endpoints while requests are sent and WebSockets are open. No request
// fails, and no WebSocket ends whose endpoint goes on. CHANGES and RESTARTS are how many there are.
func TestGatewayZeroDrop(t *testing.T) {
	t.Parallel()
	changes, restarts := number(t, "CHANGES", 60), number(t, "RESTARTS", 6)
	const clients, chats = 6, 50
	api := gatewayAPI(t)
	api.Delete(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}})
	chat := startPod(t)
	api.Put(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "chat"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.8", Ports: []corev1.ServicePort{{Port: 80}}},
	}, routeOf("web", "shop.example", "/", "web"), routeOf("chat", "shop.example", "/chat", "chat"))
	putPod(api, "chat", chat, true)
	w := &world{api: api}
	for range 3 {
		p := startPod(t)
		putPod(api, "web", p, true)
		w.pods = append(w.pods, p)
	}
	g := startAPIGateway(t, api, "publish: {addresses: [192.0.2.7]}")
	g.want(8080, "shop.example", "/a", http.StatusOK, "0")
	var open []*bufio.ReadWriter
	for range chats {
		open = append(open, g.openChat())
	}
	ctx, stop := context.WithCancel(t.Context())
	var served, failed atomic.Int64
	var first atomic.Value
	var all sync.WaitGroup
	for range clients {
		all.Go(func() { load(ctx, g.at(8080), &served, &failed, &first) })
	}
	began := time.Now()
	for n := range restarts {
		for range (changes*(n+1))/restarts - (changes*n)/restarts {
			w.change()
			time.Sleep(5 * time.Millisecond)
		}
		w.restart(t)
	}
	took := time.Since(began)
	stop()
	all.Wait()
	lost := 0
	for _, both := range open {
		if err := echo(both); err != nil {
			lost++
			first.CompareAndSwap(nil, "a WebSocket: "+err.Error())
		}
	}
	t.Logf("%d requests served and %d failed, %d of %d WebSockets lost, in %.0f s with %d changes of routes and %d restarts",
		served.Load(), failed.Load(), lost, chats, took.Seconds(), changes, restarts)
	if failed.Load() > 0 || lost > 0 {
		t.Errorf("the first failure: %v", first.Load())
	}
	if served.Load() < int64(changes) {
		t.Errorf("%d requests were served, which is too few to know", served.Load())
	}
	for _, p := range w.pods { // else the gateway did not follow
		if p.requests.Load() == 0 {
			t.Error("an endpoint of the last ones has no request")
		}
	}
}

// openChat opens an upgraded connection, which ends with the test.
func (g *gateway) openChat() *bufio.ReadWriter {
	g.t.Helper()
	c, err := net.Dial("tcp", g.at(8080))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	both := bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
	_, _ = both.WriteString("GET /chat HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	_ = both.Flush()
	res, err := http.ReadResponse(both.Reader, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		g.t.Fatalf("upgrade: %v, %v", res, err)
	}
	return both
}

// echo sends a line over an upgraded connection and reads it back.
func echo(both *bufio.ReadWriter) error {
	_, _ = both.WriteString("hello\n")
	if err := both.Flush(); err != nil {
		return err
	}
	line, err := both.ReadString('\n')
	if err == nil && line != "web hello\n" {
		err = errors.New(line)
	}
	return err
}
