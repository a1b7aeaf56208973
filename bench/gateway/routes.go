package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/gateway/calls"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// fewRoutes are those that many are compared with.
const fewRoutes = 10

// holds is the gateway's memory when it is ready, in MiB: all, and what is of no file.
type holds struct{ resident, own float64 }

// changed is what the gateway did with a number of routes in one round.
type changed struct {
	holds
	took []time.Duration // from the write of a route to the first request that follows it
}

const namespace = "bench"

// routeHost is the host of the nth route.
func routeHost(n int) string { return fmt.Sprintf("site-%d.example", n) }

// change has the gateway read a cluster with routes, each with a host and a Service of its own, and changes them one
// after another.
func (b *bench) change(ctx context.Context, routes int) (c *changed, err error) {
	api, err := fakeapi.New(&synthetic.Cluster{Namespaces: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	if err := fill(api, routes); err != nil {
		return nil, err
	}
	server, err := b.startWith(ctx, api)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	c = new(changed)
	if c.holds, err = measureHolds(server); err != nil {
		return nil, err
	}
	for i := range b.changes {
		took, err := timed(server, api, i*(routes/fewRoutes)%routes, i)
		if err != nil {
			return nil, fmt.Errorf("change %d: %w", i, err)
		}
		c.took = append(c.took, took)
	}
	return c, nil
}

// startWith starts the gateway with what an API server has, and waits until it is ready.
func (b *bench) startWith(ctx context.Context, api *fakeapi.Server) (*rig.Server, error) {
	kubeconfig := b.file("kubeconfig")
	if err := api.Kubeconfig(kubeconfig); err != nil {
		return nil, err
	}
	contender := &rig.Contender{
		Name: portolan, Log: b.file("gateway.log"), CPUs: []int{proxyCPU}, Ready: rig.OverHTTP("/readyz"),
		Patience: 10 * time.Minute,
		Command: func(ports []netip.AddrPort) (*exec.Cmd, error) {
			return b.portolan.Command(
				"gateway", "--kubeconfig", kubeconfig, "--listen", ports[0].Addr().String(), "--admin", ports[1].String(),
				"--port-offset", strconv.Itoa(int(ports[0].Port())-80),
			), nil
		},
	}
	server, err := contender.Start()
	if err != nil {
		return nil, err
	}
	if err := server.WaitReady(ctx); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

// measureHolds measures the gateway's memory after a rest.
func measureHolds(server *rig.Server) (h holds, err error) {
	const rest = 2 * time.Second
	time.Sleep(rest)
	if h.resident, _, err = server.Memory(); err != nil {
		return h, err
	}
	h.own, err = server.OwnMemory()
	return h, err
}

// timed has the nth route redirect to another host, and returns how long requests were not redirected there.
func timed(server *rig.Server, api *fakeapi.Server, nth, change int) (time.Duration, error) {
	const patience = 10 * time.Second
	conn, err := calls.Dial(calls.Target{Address: server.DNS}, calls.Request(routeHost(nth), "/moved"))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, _, err := conn.Call(); err != nil { // it is open, and its goroutine runs
		return 0, err
	}
	to := fmt.Sprintf("changed-%d.example", change)
	start := time.Now()
	if err := api.Change("httproutes", route(nth, to)); err != nil {
		return 0, err
	}
	var status int
	var location string
	for time.Since(start) < patience {
		status, location, err = conn.Call()
		if err != nil {
			return 0, err
		}
		if location == "http://"+to+"/moved" {
			return time.Since(start), nil
		}
	}
	return 0, fmt.Errorf("not within %s: status %d, location %q", patience, status, location)
}

// fill creates a Gateway and its routes.
func fill(api *fakeapi.Server, routes int) error {
	err := createGateway(api, gatewayv1.Listener{Name: "http", Protocol: gatewayv1.HTTPProtocolType, Port: 80})
	for i := range routes {
		service, slice := backends(i)
		err = errors.Join(
			err, api.Create("services", service), api.Create("endpointslices", slice),
			api.Create("httproutes", route(i, "first.example")),
		)
	}
	return err
}

// createGateway creates a Gateway with a listener and sets of listeners.
func createGateway(api *fakeapi.Server, l gatewayv1.Listener) error {
	same := gatewayv1.NamespacesFromSame
	return errors.Join(
		api.Create("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}),
		api.Create("gatewayclasses", &gatewayv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: "bench"},
			Spec:       gatewayv1.GatewayClassSpec{ControllerName: "portolan.dev/gateway"},
		}),
		api.Create("gateways", &gatewayv1.Gateway{
			ObjectMeta: meta("bench"),
			Spec: gatewayv1.GatewaySpec{
				GatewayClassName: "bench", Listeners: []gatewayv1.Listener{l},
				AllowedListeners: &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: &same}},
			},
		}),
	)
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: namespace, Generation: 1, UID: "6fd5ac6f-ff54-4ffe-8cf1-4fd67c90c8f3",
		CreationTimestamp: metav1.Unix(1_700_000_000, 0),
	}
}

// backends returns the nth Service and its two endpoints.
func backends(nth int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	const port = 8080
	name := fmt.Sprintf("web-%d", nth)
	service := &corev1.Service{
		ObjectMeta: meta(name),
		Spec: corev1.ServiceSpec{
			ClusterIP: fmt.Sprintf("10.96.%d.%d", nth/250, 1+nth%250), Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta(name + "-1"), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(port)), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{fmt.Sprintf("10.0.%d.%d", nth/250, 1+nth%250)}, NodeName: new("node-1")},
			{Addresses: []string{fmt.Sprintf("10.1.%d.%d", nth/250, 1+nth%250)}, NodeName: new("node-2")},
		},
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	return service, slice
}

// route returns the nth HTTPRoute: it passes requests to its Service, and redirects those below /moved to another host.
func route(nth int, to string) *gatewayv1.HTTPRoute {
	prefix := gatewayv1.PathMatchPathPrefix
	return &gatewayv1.HTTPRoute{
		ObjectMeta: meta(fmt.Sprintf("site-%d", nth)),
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "bench"}}},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(routeHost(nth))},
			Rules: []gatewayv1.HTTPRouteRule{
				{
					Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: &prefix, Value: new("/moved")}}},
					Filters: []gatewayv1.HTTPRouteFilter{{
						Type: gatewayv1.HTTPRouteFilterRequestRedirect,
						RequestRedirect: &gatewayv1.HTTPRequestRedirectFilter{
							Hostname: new(gatewayv1.PreciseHostname(to)), Port: new(gatewayv1.PortNumber(80)),
						},
					}},
				},
				{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
					BackendObjectReference: gatewayv1.BackendObjectReference{
						Name: gatewayv1.ObjectName(fmt.Sprintf("web-%d", nth)), Port: new(gatewayv1.PortNumber(80)),
					},
				}}}},
			},
		},
	}
}
