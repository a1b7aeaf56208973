package upstream

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unique"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
)

// authorityOf returns a certificate for names, and the certificate of its authority in PEM.
func authorityOf(t *testing.T, names []string, uris ...string) (c tls.Certificate, authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: names, IsCA: true, BasicConstraintsValid: true,
	}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		must(t, err)
		template.URIs = append(template.URIs, parsed)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	text := new(bytes.Buffer)
	must(t, pem.Encode(text, &pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, text.String()
}

// secureServer is an endpoint with TLS, whose connections close closes.
type secureServer struct {
	*server
	close func()
}

// serveTLS starts an endpoint with a certificate.
func serveTLS(t *testing.T, certificate tls.Certificate, handler http.HandlerFunc) *secureServer {
	t.Helper()
	hs := httptest.NewUnstartedServer(handler)
	hs.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert} // of the gateway
	hs.EnableHTTP2 = true
	s := &secureServer{server: &server{pool: balance.NewPool()}, close: hs.CloseClientConnections}
	hs.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	hs.StartTLS()
	t.Cleanup(hs.Close)
	s.pool.Update([]netip.AddrPort{netip.MustParseAddrPort(hs.Listener.Addr().String())})
	s.Endpoint = s.pool.Pick()
	return s
}

// TestTLS verifies certificates of endpoints as BackendTLSPolicyValidation says. What is not verified gets no request.
func TestTLS(t *testing.T) {
	t.Parallel()
	certificate, authority := authorityOf(t, []string{"a.test", "*.b.test"}, "spiffe://x/y")
	_, other := authorityOf(t, []string{"a.test"})
	const uri = "URI spiffe://x/y"
	tests := map[string]struct {
		by table.TLS
		ok bool
	}{
		"the server name":              {table.TLS{ServerName: "a.test", Authorities: authority}, true},
		"another server name":          {table.TLS{ServerName: "c.test", Authorities: authority}, false},
		"another authority":            {table.TLS{ServerName: "a.test", Authorities: other}, false},
		"one of two authorities":       {table.TLS{ServerName: "a.test", Authorities: other + authority}, true},
		"the system's authorities":     {table.TLS{ServerName: "a.test"}, false},
		"no authority at all":          {table.TLS{ServerName: "a.test", Authorities: "none"}, false},
		"a name in place of it":        {table.TLS{ServerName: "c.test", Authorities: authority, Names: "DNS x.b.test"}, true},
		"one of two names":             {table.TLS{ServerName: "c.test", Authorities: authority, Names: "DNS q.test\n" + uri}, true},
		"a wildcard as it is":          {table.TLS{ServerName: "c.test", Authorities: authority, Names: "DNS *.b.test"}, true},
		"a wildcard it lacks":          {table.TLS{ServerName: "a.test", Authorities: authority, Names: "DNS *.test"}, false},
		"only names count, if any":     {table.TLS{ServerName: "a.test", Authorities: authority, Names: "DNS q.test"}, false},
		"another URI":                  {table.TLS{ServerName: "a.test", Authorities: authority, Names: uri + "/z"}, false},
		"names need an authority, too": {table.TLS{ServerName: "a.test", Authorities: other, Names: "DNS a.test"}, false},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			s := serveTLS(t, certificate, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				_, _ = w.Write([]byte(r.Proto + " " + r.TLS.ServerName))
			})
			for proto, do := range map[string]func(*Client) (int, string, error){
				"HTTP/1.1": func(c *Client) (int, string, error) { return ask(c, s.server, secured(test.by)) },
				"HTTP/2.0": func(c *Client) (int, string, error) {
					res, err := c.DoHTTP2(t.Context(), s.Endpoint, secured(test.by))
					if err != nil {
						return 0, "", err
					}
					defer res.Close()
					body, err := readAll(res)
					return res.Status, body, err
				},
			} {
				status, body, err := do(newClient(t, Config{}))
				if (err == nil) != test.ok || test.ok && (status != 200 || body != proto+" "+test.by.ServerName) {
					t.Errorf("%s with %+v = %d %q, %v; want a response: %t", proto, test.by, status, body, err, test.ok)
				}
			}
			if !test.ok && requests.Load() > 0 {
				t.Errorf("%d requests came to an endpoint whose certificate is not valid", requests.Load())
			}
		})
	}
}

// secured returns a request over TLS.
func secured(by table.TLS) *Request {
	r := get()
	r.TLS = unique.Make(by)
	return r
}

// TestTLSKept uses a connection with TLS for several exchanges, and not any more when the endpoint has closed it: a request
// that may not be sent twice does not fail.
func TestTLSKept(t *testing.T) {
	t.Parallel()
	certificate, authority := authorityOf(t, []string{"a.test"})
	s := serveTLS(t, certificate, func(http.ResponseWriter, *http.Request) {})
	c := newClient(t, Config{})
	by := table.TLS{ServerName: "a.test", Authorities: authority}
	exchange := func(connections int64) {
		t.Helper()
		r := secured(by)
		r.Method = "POST"
		if status, _, err := ask(c, s.server, r); err != nil || status != 200 || s.conns.Load() != connections {
			t.Fatalf("request: %d, %v, at connection %d; want 200 at connection %d", status, err, s.conns.Load(), connections)
		}
	}
	for range 3 {
		exchange(1)
	}
	s.close()
	for idle := c.endpoints[peer{s.Endpoint, nil}].idle[0]; idle.quiet(); {
		runtime.Gosched() // until the end has arrived
	}
	exchange(2)
}

// TestClientCertificate shows endpoints the certificate of a request, over connections of its own.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	certificate, authority := authorityOf(t, []string{"a.test"})
	one, _ := authorityOf(t, []string{"one.test"})
	two, _ := authorityOf(t, []string{"two.test"})
	s := serveTLS(t, certificate, func(w http.ResponseWriter, r *http.Request) {
		name := "none"
		if shown := r.TLS.PeerCertificates; len(shown) > 0 {
			name = shown[0].DNSNames[0]
		}
		_, _ = w.Write([]byte(name))
	})
	c := newClient(t, Config{})
	for _, test := range []struct {
		certificate *tls.Certificate
		want        string
	}{{&one, "one.test"}, {&two, "two.test"}, {nil, "none"}, {&one, "one.test"}} {
		r := secured(table.TLS{ServerName: "a.test", Authorities: authority})
		r.Certificate = test.certificate
		if _, shown, err := ask(c, s.server, r); err != nil || shown != test.want {
			t.Errorf("the endpoint got the certificate %q, %v; want %q", shown, err, test.want)
		}
	}
	if n := s.conns.Load(); n != 3 {
		t.Errorf("%d connections for 3 certificates and 4 requests, want 3", n)
	}
}

// TestConnectWithin: a request says how long its connection may take, in place of the Config.
func TestConnectWithin(t *testing.T) {
	t.Parallel()
	silent := serve(t, func(c net.Conn, _ *bufio.Reader) { _, _ = io.Copy(io.Discard, c) })
	c := newClient(t, Config{DialTimeout: time.Hour})
	r := secured(table.TLS{ServerName: "a.test"})
	r.ConnectWithin = 10 * time.Millisecond
	_, err := c.Do(t.Context(), silent.Endpoint, r)
	if failed, ok := errors.AsType[*Error](err); !ok || failed.Failure != Unsent {
		t.Errorf("Do: %v, want that there is no connection in time", err)
	}
}
