package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/testcert"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"gateway.ingress.tlsPort":     effectOfIngressTLSPort,
		"gateway.ingress.certificate": effectOfIngressCertificate,
		"gateway.ingress.key":         effectOfIngressCertificate,
		"gateway.pool":                effectOfPool,
		"gateway.poolByDefault":       effectOfPoolByDefault,
	})
}

// certificates are those of a test, which its clients trust.
type certificates struct {
	t     *testing.T
	roots *x509.CertPool
}

func newCertificates(t *testing.T) *certificates { return &certificates{t, x509.NewCertPool()} }

// make returns a certificate of a name.
func (c *certificates) make(name string) *testcert.Certificate {
	c.t.Helper()
	made, err := testcert.New(name, time.Now().Add(time.Hour))
	if err != nil {
		c.t.Fatal(err)
	}
	pem, _ := made.PEM()
	c.roots.AppendCertsFromPEM(pem)
	return made
}

// secret returns a Secret of the namespace shop with a certificate.
func secret(name string, c *testcert.Certificate) string {
	certificate, key := c.PEM()
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: shop}\ntype: kubernetes.io/tls\n"+
		"data: {tls.crt: %s, tls.key: %s}\n", name,
		base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))
}

// secureShop returns a Gateway with HTTPS listeners for hostnames, and a route of each to the Service web.
// Certificates are in the Secrets of the names.
func secureShop(hostnames ...string) string {
	var listeners, routes strings.Builder
	for _, name := range hostnames {
		fmt.Fprintf(&listeners, "  - {name: %s, port: 443, protocol: HTTPS, hostname: %s, tls: {certificateRefs: [{name: %s}]}}\n",
			strings.ReplaceAll(name, ".", "-"), name, name)
		fmt.Fprintf(&routes, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s, namespace: shop}\n"+
			"spec: {parentRefs: [{name: shop}], hostnames: [%s], rules: [{backendRefs: [{name: web, port: 80}]}]}\n", name, name)
	}
	return `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: ours}
spec: {controllerName: portolan.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: shop, namespace: shop}
spec:
  gatewayClassName: ours
  listeners:
` + listeners.String() + routes.String()
}

// secureClient returns a client of the gateway that sends a server name, or the URL's without one.
func (g *gateway) secureClient(c *certificates, port int, serverName string) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.roots, ServerName: serverName, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, g.at(port))
		},
	}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// answer returns the response to a request, with its status and protocol before the body.
func answer(client *http.Client, url string) string {
	res, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s %s", res.StatusCode, res.Proto, text)
}

// wantSecure waits until a request on a new connection has words in the response.
func (g *gateway) wantSecure(c *certificates, port int, serverName, url, words string) {
	g.t.Helper()
	g.poll(patience, func() error {
		client := g.secureClient(c, port, serverName)
		defer client.CloseIdleConnections()
		if got := answer(client, url); !strings.Contains(got, words) {
			return fmt.Errorf("GET %s on a connection for %q: %q, want %q", url, serverName, got, words)
		}
		return nil
	})
}

// TestGatewayTLS serves HTTPS listeners by their server names, also while a certificate is replaced.
func TestGatewayTLS(t *testing.T) {
	t.Parallel()
	c, b := newCertificates(t), startBackend(t, "web")
	g := startGateway(t, "", map[string]string{
		"all.yaml": gatewayService(b) + "---\n" + secureShop("a.example", "b.example"),
		"a.yaml":   secret("a.example", c.make("a.example")), "b.yaml": secret("b.example", c.make("b.example")),
	})
	g.wantSecure(c, 8443, "", "https://a.example/x", "200 HTTP/2.0 web /x")
	g.wantSecure(c, 8443, "", "https://b.example/x", "200 HTTP/2.0 web /x")
	g.wantSecure(c, 8443, "a.example", "https://b.example/", "421 HTTP/2.0 Misdirected Request")
	g.wantSecure(c, 8443, "a.example", "https://c.example/", "404 HTTP/2.0 Not Found")
	g.wantSecure(c, 8443, "", "https://c.example/", "tls: unrecognized name")
	if got := answer(g.secureClient(c, 8443, ""), "https://a.example/head"); !strings.Contains(got, "X-Forwarded-Proto: https") {
		t.Errorf("the endpoint received\n%s\nwant X-Forwarded-Proto: https", got)
	}

	open := g.secureClient(c, 8443, "")
	first := answer(open, "https://a.example/1")
	rotated := c.make("a.example")
	write(t, filepath.Join(g.dir, "a.yaml"), secret("a.example", rotated))
	g.poll(patience, func() error {
		conn, err := tls.Dial("tcp", g.at(8443), &tls.Config{RootCAs: c.roots, ServerName: "a.example", MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Errorf("a handshake failed while the certificate was replaced: %v", err)
			return nil
		}
		defer conn.Close()
		if !bytes.Equal(conn.ConnectionState().PeerCertificates[0].Raw, rotated.TLS.Certificate[0]) {
			return errors.New("a new connection has the old certificate")
		}
		return nil
	})
	if second := answer(open, "https://a.example/2"); first != "200 HTTP/2.0 web /1" || second != "200 HTTP/2.0 web /2" {
		t.Errorf("on a connection that was open: %q, then %q", first, second)
	}

	// A certificate that cannot be used changes nothing; one that is gone ends handshakes of its name only.
	write(t, filepath.Join(g.dir, "a.yaml"), strings.Replace(secret("a.example", rotated), "tls.key", "other", 1))
	g.wantSecure(c, 8443, "", "https://a.example/x", "200 HTTP/2.0 web /x")
	if err := os.Remove(filepath.Join(g.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	g.wantSecure(c, 8443, "", "https://a.example/x", "tls: unrecognized name")
	g.wantSecure(c, 8443, "", "https://b.example/x", "200 HTTP/2.0 web /x")
}

// TestGatewayIngressTLS serves an Ingress with tls over HTTP and HTTPS.
func TestGatewayIngressTLS(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	g, _ := startShop(t, "")
	if status, text := g.fetch(8443, "shop.example", "/"); status != 0 {
		t.Errorf("the port of HTTPS, without any tls: %d %q", status, text)
	}
	write(t, filepath.Join(g.dir, "secret.yaml"), secret("cert", c.make("shop.example")))
	write(t, filepath.Join(g.dir, "ingress.yaml"), gatewayIngress("web", "shop.example")+"  tls: [{hosts: [shop.example], secretName: cert}]\n")
	g.wantSecure(c, 8443, "", "https://shop.example/x", "200 HTTP/2.0 web /x")
	g.want(8080, "shop.example", "/y", http.StatusOK, "web /y")
	g.want(8443, "shop.example", "/y", http.StatusBadRequest, "TLS")

	// WebSockets, and what else upgrades, has HTTP/1.1.
	conn, err := tls.Dial("tcp", g.at(8443), &tls.Config{RootCAs: c.roots, ServerName: "shop.example", MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "GET /chat HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\nhello\n"); err != nil {
		t.Fatal(err)
	}
	var received []byte
	for part := make([]byte, 100); !bytes.HasSuffix(received, []byte("web hello\n")); {
		n, err := conn.Read(part)
		if received = append(received, part[:n]...); err != nil {
			t.Fatalf("an upgraded connection: %q, %v", received, err)
		}
	}
}

func effectOfIngressTLSPort(t *testing.T) {
	c, b := newCertificates(t), startBackend(t, "web")
	g := startGateway(t, "ingress: {tlsPort: 444}", map[string]string{
		"service.yaml": gatewayService(b), "secret.yaml": secret("cert", c.make("shop.example")),
		"ingress.yaml": gatewayIngress("web", "shop.example") + "  tls: [{secretName: cert}]\n",
	})
	g.wantSecure(c, 8444, "", "https://shop.example/", "200 HTTP/2.0 web /")
}

// effectOfIngressCertificate has hosts served over HTTPS that have no certificate.
func effectOfIngressCertificate(t *testing.T) {
	c := newCertificates(t)
	dir := t.TempDir()
	certificate, key, err := c.make("shop.example").Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := startShop(t, fmt.Sprintf("ingress: {certificate: %q, key: %q}", certificate, key))
	g.wantSecure(c, 8443, "", "https://shop.example/", "200 HTTP/2.0 web /")

	replaced := newCertificates(t)
	if _, _, err := replaced.make("shop.example").Write(dir); err != nil {
		t.Fatal(err)
	}
	g.wantSecure(replaced, 8443, "", "https://shop.example/", "200 HTTP/2.0 web /")
}

// poolManifests returns a Service with an endpoint, and two Gateways of it at port 90: one that requests an
// address, and one that does not. Each has a route to /NAME.
func poolManifests(b *backend, address string) map[string]string {
	gateway := func(name, addresses string) string {
		return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %s, namespace: shop}
spec: {gatewayClassName: ours%s, listeners: [{name: http, port: 90, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s, namespace: shop}
spec: {parentRefs: [{name: %[1]s}], rules: [{matches: [{path: {type: PathPrefix, value: /%[1]s}}], backendRefs: [{name: web, port: 80}]}]}
`, name, addresses)
	}
	const class = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: ours}\n" +
		"spec: {controllerName: portolan.dev/gateway}\n"
	return map[string]string{
		"all.yaml": gatewayService(b) + class + gateway("asks", ", addresses: [{value: "+address+"}]") + gateway("other", ""),
	}
}

// wantAt checks which of the paths /asks and /other are served at an address, at port 90.
func (g *gateway) wantAt(addr string, asks, other int) {
	g.t.Helper()
	for path, want := range map[string]int{"/asks": asks, "/other": other} {
		g.poll(patience, func() error {
			if status, text := fetch(g.t, addr+":8090", "shop.example", path); status != want {
				return fmt.Errorf("http://%s:8090%s: %d %q, want %d", addr, path, status, text, want)
			}
			return nil
		})
	}
}

// effectOfPool has Gateways served at addresses of their own.
func effectOfPool(t *testing.T) {
	one, two, b := loopbackAddress(), loopbackAddress(), startBackend(t, "web")
	g := startGateway(t, fmt.Sprintf("pool: [%s, %s]", one, two), poolManifests(b, two))
	g.wantAt(two, http.StatusOK, http.StatusNotFound)
	g.wantAt(one, http.StatusNotFound, http.StatusOK)
	g.wantAt(g.addr, 0, 0)
}

func effectOfPoolByDefault(t *testing.T) {
	one, b := loopbackAddress(), startBackend(t, "web")
	g := startGateway(t, fmt.Sprintf("pool: [%s], poolByDefault: false", one), poolManifests(b, one))
	g.wantAt(one, http.StatusOK, http.StatusNotFound)
	g.wantAt(g.addr, http.StatusNotFound, http.StatusOK)
}
