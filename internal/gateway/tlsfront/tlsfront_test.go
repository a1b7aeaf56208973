package tlsfront_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/tlsfront"
	"portolan.dev/portolan/internal/support/testcert"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gateway is a server with TLS at a socket, whose only endpoint answers with the fields of the request that
// tell of TLS.
type gateway struct {
	*testing.T
	proxy *proxy.Proxy
	front *tlsfront.Front
	at    table.Socket
	addr  string
	roots *x509.CertPool
}

var web = table.Upstream{Namespace: "shop", Service: "web", Port: 80}

// start starts a gateway; fallback is the certificate for hosts of Ingresses that have none.
func start(t *testing.T, fallback func() *tls.Certificate) *gateway {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host+" "+r.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(backend.Close)
	pools := new(balance.Set[table.Upstream])
	pools.Update(map[table.Upstream][]netip.AddrPort{web: {netip.MustParseAddrPort(backend.Listener.Addr().String())}})
	g := &gateway{T: t, proxy: proxy.New(proxy.Config{Endpoints: pools}), at: table.Socket{Port: 443}, roots: x509.NewCertPool()}
	g.front = tlsfront.New(tlsfront.Config{Table: g.proxy.Table, Default: fallback})
	t.Cleanup(g.proxy.Close)
	g.addr = g.listen(g.front, g.at)
	return g
}

// listen has the gateway serve a socket by a Front, and returns the address.
func (g *gateway) listen(front *tlsfront.Front, at table.Socket) string {
	g.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(g.T, err)
	handler := g.proxy.At(at)
	s := &h1.Server{Handler: handler, TLS: front.At(at), HTTP2: &http.Server{Handler: handler, Protocols: new(http.Protocols)}}
	s.HTTP2.Protocols.SetHTTP2(true)
	s.HTTP2.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	g.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// certificate returns one that the clients trust.
func (g *gateway) certificate(name string) *tls.Certificate {
	g.Helper()
	made, err := testcert.New(name, time.Now().Add(time.Hour))
	must(g.T, err)
	pem, key := made.PEM()
	g.roots.AppendCertsFromPEM(pem)
	pair, err := tls.X509KeyPair(pem, key)
	must(g.T, err)
	return &pair
}

// routes returns a host whose requests for /r are sent to another one.
func routes() *table.Host {
	route := func(path string, rule *table.Rule) table.Route {
		return table.Route{Match: table.Match{Kind: table.Prefix, Path: path}, Rule: rule}
	}
	return table.NewHost([]table.Route{
		route("/", &table.Rule{Backends: []table.Backend{{Upstream: web, Weight: 1}}}),
		route("/r", &table.Rule{Actions: table.Actions{Redirect: &table.Redirect{Host: "other.test", Status: 302}}}),
	})
}

// listener returns a listener with routes for all of its hosts.
func listener(hostname string, certificates ...*tls.Certificate) *table.Listener {
	hosts := map[string]*table.Host{hostname: routes()}
	return table.NewListener(hostname, hostname).WithHosts(hosts).WithCertificates(certificates)
}

// serve has the gateway serve these listeners.
func (g *gateway) serve(listeners ...*table.Listener) { g.servePort(table.NewTLSPort(listeners, nil)) }

func (g *gateway) servePort(p *table.Port) {
	g.proxy.SetTable(table.New(map[table.Socket]*table.Port{g.at: p}))
}

// client returns a client that sends server names, with HTTP/2 or HTTP/1.1.
func (g *gateway) client(serverName string, protocol string) *http.Client {
	g.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{ServerName: serverName, RootCAs: g.roots, MinVersion: tls.VersionTLS12},
		Protocols:       new(http.Protocols),
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, g.addr)
		},
	}
	transport.Protocols.SetHTTP1(protocol == "http/1.1")
	transport.Protocols.SetHTTP2(protocol == "h2")
	g.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// get returns the status and the body, or where it redirects to.
func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(t, err)
	if to := res.Header.Get("Location"); to != "" {
		body = []byte(to)
	}
	return fmt.Sprint(res.StatusCode, " ", strings.TrimSpace(string(body)))
}

// TestServed sends requests for hosts on connections with server names.
func TestServed(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	a, wild := g.certificate("a.test"), g.certificate("*.w.test")
	g.serve(listener("a.test", a), listener("b.test", a), listener("*.w.test", wild), listener("none.w.test"))
	for claim, tt := range map[string]struct{ serverName, url, want string }{
		"the host of the server name":         {"a.test", "https://a.test/", "200 a.test https"},
		"a host of the same wildcard":         {"x.w.test", "https://y.w.test/", "200 y.w.test https"},
		"a host with a port":                  {"a.test", "https://a.test:8443/", "200 a.test:8443 https"},
		"a redirect":                          {"a.test", "https://a.test/r", "302 https://other.test/r"},
		"the host of another listener":        {"a.test", "https://b.test/", "421 Misdirected Request: misdirected"},
		"the host of a more specific one":     {"x.w.test", "https://none.w.test/", "421 Misdirected Request: misdirected"},
		"the host of no listener":             {"a.test", "https://c.test/", "404 Not Found: no listener for the host"},
		"the name of no listener":             {"c.test", "https://a.test/", "remote error: tls: unrecognized name"},
		"a listener that has no certificate":  {"none.w.test", "https://none.w.test/", "remote error: tls: unrecognized name"},
		"another name than the certificate's": {"b.test", "https://b.test/", "certificate is valid for a.test"},
	} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			if got := get(t, g.client(tt.serverName, protocol), tt.url); !strings.Contains(got, tt.want) {
				t.Errorf("%s: GET %s on a connection for %s by %s: %s, want %s", claim, tt.url, tt.serverName, protocol, got, tt.want)
			}
		}
	}
}

// handshake connects, and returns the connection, with the certificate that it got.
func (g *gateway) handshake(config *tls.Config) (*tls.Conn, error) {
	g.Helper()
	raw, err := net.Dial("tcp", g.addr)
	must(g.T, err)
	g.Cleanup(func() { raw.Close() })
	must(g.T, raw.SetDeadline(time.Now().Add(time.Minute)))
	conn := tls.Client(raw, config)
	return conn, conn.Handshake()
}

// ask sends a request on a connection, and returns the status of the response.
func ask(t *testing.T, conn net.Conn, host string) int {
	t.Helper()
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	must(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	must(t, err)
	return res.StatusCode
}

// TestRotation replaces certificates while connections are open: these stay, and new ones get the new one.
func TestRotation(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	config := &tls.Config{RootCAs: g.roots, ServerName: "a.test", MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	var open []*tls.Conn
	for range 3 {
		certificate := g.certificate("a.test")
		g.serve(listener("a.test", certificate))
		fresh := config.Clone()
		fresh.ClientSessionCache = nil
		conn, err := g.handshake(fresh)
		must(t, err)
		if got := conn.ConnectionState().PeerCertificates[0].Raw; !bytes.Equal(got, certificate.Certificate[0]) {
			t.Error("a new connection has not got the current certificate")
		}
		open = append(open, conn)
		for i, conn := range open {
			if got := ask(t, conn, "a.test"); got != http.StatusOK {
				t.Errorf("connection %d: %d", i, got)
			}
		}
	}
}

// TestResumption: sessions are resumed, but not for a name that has no certificate any more.
func TestResumption(t *testing.T) {
	t.Parallel()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		g := start(t, nil)
		config := &tls.Config{
			RootCAs: g.roots, ServerName: "a.test", MinVersion: version, MaxVersion: version, //nolint:gosec // one of two
			ClientSessionCache: tls.NewLRUClientSessionCache(1),
		}
		a := g.certificate("a.test")
		g.serve(listener("a.test", a))
		for _, want := range []bool{false, true} {
			conn, err := g.handshake(config)
			must(t, err)
			if got := ask(t, conn, "a.test"); got != http.StatusOK {
				t.Errorf("TLS %#x: %d", version, got)
			}
			if got := conn.ConnectionState().DidResume; got != want {
				t.Errorf("TLS %#x: resumed %t, want %t", version, got, want)
			}
		}
		g.serve(listener("a.test"))
		if _, err := g.handshake(config); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("TLS %#x: a handshake for a name without certificate: %v", version, err)
		}
	}
}

// TestVersions: versions before 1.2 are refused, and protocols that are not HTTP.
func TestVersions(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.serve(listener("", g.certificate("a.test")))
	for claim, tt := range map[string]struct {
		config *tls.Config
		want   string // of the error
	}{
		"TLS 1.1":          {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, ServerName: "a.test"}, "protocol version not supported"}, //nolint:gosec // is refused
		"TLS 1.2":          {&tls.Config{MaxVersion: tls.VersionTLS12, ServerName: "a.test"}, ""},                                                             //nolint:gosec // the highest one
		"TLS 1.3":          {&tls.Config{MinVersion: tls.VersionTLS13, ServerName: "a.test"}, ""},
		"another protocol": {&tls.Config{NextProtos: []string{"smtp"}, ServerName: "a.test", MinVersion: tls.VersionTLS12}, "no application protocol"},
		"without a server name": {
			&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, "", //nolint:gosec // there is no name to verify
		},
	} {
		tt.config.RootCAs = g.roots
		if _, err := g.handshake(tt.config); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", claim, err, tt.want)
		}
	}
}

// TestIngresses: hosts that have no certificate get the default one, listeners of Gateways do not.
func TestIngresses(t *testing.T) {
	t.Parallel()
	var fallback *tls.Certificate
	g := start(t, func() *tls.Certificate { return fallback })
	fallback = g.certificate("*.i.test")
	ingresses := table.NewIngresses().WithHosts(map[string]*table.Host{"a.i.test": routes(), "b.i.test": routes()}).
		WithHostCertificates(map[string]*tls.Certificate{"a.i.test": g.certificate("a.i.test")})
	g.servePort(table.NewTLSPort([]*table.Listener{listener("g.i.test")}, ingresses))
	for name, want := range map[string]string{
		"a.i.test": "200 a.i.test https", "b.i.test": "200 b.i.test https", "c.i.test": "404 Not Found: no route",
		"g.i.test": "unrecognized name",
	} {
		if got := get(t, g.client(name, "h2"), "https://"+name+"/"); !strings.Contains(got, want) {
			t.Errorf("GET https://%s/: %s, want %s", name, got, want)
		}
	}
	if got, want := get(t, g.client("a.i.test", "h2"), "https://b.i.test/"), "200 b.i.test https"; got != want {
		t.Errorf("on the connection of another host: %s, want %s", got, want)
	}
}

// TestOtherProtocol: what was connected before a port got TLS, or lost it, is not served as the new port.
func TestOtherProtocol(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	l := listener("", g.certificate("a.test"))
	ports := map[string]*table.Port{
		"HTTP": table.NewPort([]*table.Listener{l}, nil), "TLS": table.NewTLSPort([]*table.Listener{l}, nil),
	}
	for before, after := range map[string]string{"HTTP": "TLS", "TLS": "HTTP"} {
		g.servePort(ports[before])
		conn, err := net.Dial("tcp", g.addr)
		must(t, err)
		t.Cleanup(func() { conn.Close() })
		must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		if before == "TLS" {
			conn = tls.Client(conn, &tls.Config{RootCAs: g.roots, ServerName: "a.test", MinVersion: tls.VersionTLS12})
		}
		if got := ask(t, conn, "a.test"); got != http.StatusOK {
			t.Errorf("%s: %d", before, got)
		}
		g.servePort(ports[after])
		if got := ask(t, conn, "a.test"); got != http.StatusMisdirectedRequest {
			t.Errorf("%s, when the port has %s: %d, want 421", before, after, got)
		}
	}
}
