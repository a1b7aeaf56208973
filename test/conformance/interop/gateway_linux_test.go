package interop

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/testcert"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/program"
)

// callsHost is the hostname of the GRPCRoute.
const callsHost = "calls.example"

// gateway is a running `portolan gateway`. A GRPCRoute leads from callsHost to a Service with HTTP/2, and an HTTPRoute
// from any other host to one with HTTP/1.1.
type gateway struct {
	host        string
	certificate *testcert.Certificate // of callsHost
}

// Ports of the listeners, with the offset that is the default.
const (
	plainPort = "8080"
	tlsPort   = "8443"
)

// plain and tls are the addresses of the listeners.
func (g *gateway) plain() string { return net.JoinHostPort(g.host, plainPort) }
func (g *gateway) tls() string   { return net.JoinHostPort(g.host, tlsPort) }

// startGateway starts a gateway with endpoints of its Services, and waits until it accepts connections.
func startGateway(t *testing.T, calls, pages net.Addr) *gateway {
	t.Helper()
	file, err := program.Build(t.Context(), program.Options{})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := testcert.New(callsHost, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{host: loopback(), certificate: certificate}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(manifests(certificate)), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	text := fmt.Sprintf("manifests: %q\nadmin: {listen: '127.0.0.1:0'}\n"+
		"gateway: {listen: [%s], endpoints: ['interop/calls=%s', 'interop/pages=%s']}\n", dir, g.host, calls, pages)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, exec.Command(file, "gateway", "--config", config))
	for _, addr := range []string{g.plain(), g.tls()} {
		await.NoError(t, func() error {
			c, err := (&net.Dialer{Timeout: await.Answer}).DialContext(t.Context(), "tcp", addr)
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}
	return g
}

// run starts a program, which ends with the test. If the test fails, it shows what the program wrote.
func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	ended, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s:\n%s", cmd, out.text.String())
		}
	})
}

// output is what a program writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// loopback returns an address that no other test is likely to use.
func loopback() string {
	return netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))}).String()
}

// manifests returns the objects that the gateway serves.
func manifests(c *testcert.Certificate) string {
	certificate, key := c.PEM()
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: cert, namespace: interop}
type: kubernetes.io/tls
data: {tls.crt: %[1]s, tls.key: %[2]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: portolan}
spec: {controllerName: portolan.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: interop}
spec:
  gatewayClassName: portolan
  listeners:
  - {name: calls, port: 80, protocol: HTTP, hostname: &calls %[3]s}
  - {name: calls-tls, port: 443, protocol: HTTPS, hostname: *calls, tls: &tls {certificateRefs: [{name: cert}]}}
  - {name: pages, port: 80, protocol: HTTP}
  - {name: pages-tls, port: 443, protocol: HTTPS, tls: *tls}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls, namespace: interop}
spec:
  parentRefs: [{name: gw, sectionName: calls}, {name: gw, sectionName: calls-tls}]
  rules: [{backendRefs: [{name: calls, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: pages, namespace: interop}
spec:
  parentRefs: [{name: gw, sectionName: pages}, {name: gw, sectionName: pages-tls}]
  rules: [{backendRefs: [{name: pages, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: calls, namespace: interop}
spec: {clusterIP: 10.96.0.7, ports: [{port: 80, appProtocol: kubernetes.io/h2c}]}
---
apiVersion: v1
kind: Service
metadata: {name: pages, namespace: interop}
spec: {clusterIP: 10.96.0.8, ports: [{port: 80}]}
`, base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key), callsHost)
}
