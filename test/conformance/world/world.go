//go:build linux

package world

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"
	gatewayv1alpha3 "sigs.k8s.io/gateway-api/apis/v1alpha3"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"portolan.dev/portolan/test/conformance/pods"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
	"portolan.dev/portolan/test/namespace"
)

var podRange = netip.MustParsePrefix("10.244.0.0/16")

// World is a running control plane with a node that runs Pods.
type World struct {
	*controlplane.ControlPlane
	// API is an administrator's client, which knows the kinds of the Gateway API.
	API      client.Client
	channel  Channel
	programs programs
	dir      string
}

// Start starts a control plane with the definitions of a channel, and a node. They end with the test.
func Start(t *testing.T, channel Channel) *World {
	t.Helper()
	w := &World{channel: channel, dir: t.TempDir()}
	var err error
	if w.programs, err = prepared(); err != nil {
		t.Fatal(err)
	}
	if err := namespace.IP("link set lo up"); err != nil {
		t.Fatal(err)
	}
	w.ControlPlane = controlplanetest.Start(t, controlplane.Options{ControllerManager: true})
	if w.API, err = newClient(w.ControlPlane); err != nil {
		t.Fatal(err)
	}
	if err := install(t.Context(), w.API, channel); err != nil {
		t.Fatalf("definitions of the Gateway API: %v", err)
	}
	w.startNode(t)
	return w
}

// newClient returns a client that knows the kinds that the suite uses.
func newClient(c *controlplane.ControlPlane) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		gatewayv1.Install, gatewayv1beta1.Install, gatewayv1alpha2.Install, gatewayv1alpha3.Install,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.New(c.RESTConfig(), client.Options{Scheme: scheme})
}

// startNode runs the Pods until the test ends.
func (w *World) startNode(t *testing.T) {
	t.Helper()
	dir := filepath.Join(w.dir, "pods")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	node := pods.New(pods.Config{
		Client: w.Client(), Dir: dir, Range: podRange,
		Programs: map[string]string{echo: w.programs.Echo, "coredns": w.programs.Nameserver},
		Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- node.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
