package tlsfront_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/testcert"
)

// clientCertificate returns a certificate of its own authority, and that in PEM.
func clientCertificate(t *testing.T, name string) (*tls.Certificate, string) {
	t.Helper()
	made, err := testcert.New(name, time.Now().Add(time.Hour))
	must(t, err)
	pem, _ := made.PEM()
	return &made.TLS, string(pem)
}

// visit connects and sends a request. With TLS 1.3, the server looks at the client's certificate after the handshake.
func visit(g *gateway, config *tls.Config) (conn *tls.Conn, err error) {
	conn, err = g.handshake(config)
	if err == nil {
		_, err = conn.Write([]byte("GET / HTTP/1.1\r\n"))
	}
	if err == nil {
		time.Sleep(5 * time.Millisecond) // a connection that is closed with the first part unread is reset meanwhile
		_, err = conn.Write([]byte("Host: a.test\r\n\r\n"))
	}
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return conn, err
}

// TestClients connects with certificates of clients, and without one.
func TestClients(t *testing.T) {
	t.Parallel()
	ours, authority := clientCertificate(t, "client.test")
	others, _ := clientCertificate(t, "client.test")
	const required, unknown = "certificate required", "unknown certificate authority"
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		missing := required
		if version == tls.VersionTLS12 {
			missing = "handshake failure" // RFC 5246, section 7.4.6
		}
		g := start(t, nil)
		server := g.certificate("a.test")
		for claim, tt := range map[string]struct {
			clients *table.Clients
			shown   *tls.Certificate
			want    string // of the error
		}{
			"nobody is asked":                       {nil, nil, ""},
			"a valid one":                           {&table.Clients{Authorities: authority}, ours, ""},
			"none":                                  {&table.Clients{Authorities: authority}, nil, missing},
			"that of another authority":             {&table.Clients{Authorities: authority}, others, unknown},
			"no authority is known":                 {&table.Clients{}, ours, unknown},
			"none is needed":                        {&table.Clients{Authorities: authority, Optional: true}, nil, ""},
			"none is needed, another's is shown":    {&table.Clients{Authorities: authority, Optional: true}, others, ""},
			"none is needed, no authority is known": {&table.Clients{Optional: true}, ours, ""},
		} {
			g.serve(listener("a.test", server).WithClients(tt.clients))
			config := &tls.Config{RootCAs: g.roots, ServerName: "a.test", MinVersion: version, MaxVersion: version} //nolint:gosec // one of two
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if tt.shown == nil {
					return new(tls.Certificate), nil
				}
				return tt.shown, nil
			}
			_, err := visit(g, config)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("TLS %#x, %s: %v, want %q", version, claim, err, tt.want)
			}
		}
	}
}

// TestClientsChange: when other clients are accepted, those that would not be any more are refused, on connections that
// are open and on those that resume a session.
func TestClientsChange(t *testing.T) {
	t.Parallel()
	ours, authority := clientCertificate(t, "client.test")
	_, other := clientCertificate(t, "client.test")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for claim, tt := range map[string]struct {
			before, after *table.Clients
			want          int // 0 is that the handshake fails
		}{
			"the same":                  {&table.Clients{Authorities: authority}, &table.Clients{Authorities: authority}, 200},
			"one authority more":        {&table.Clients{Authorities: authority}, &table.Clients{Authorities: authority + other}, 200},
			"another authority":         {&table.Clients{Authorities: authority}, &table.Clients{Authorities: other}, 0},
			"nobody was asked":          {nil, &table.Clients{Authorities: other}, 0},
			"one was optional":          {&table.Clients{Authorities: authority, Optional: true}, &table.Clients{Authorities: other}, 0},
			"nobody is asked any more":  {&table.Clients{Authorities: authority}, nil, 200},
			"it is optional afterwards": {&table.Clients{Authorities: authority}, &table.Clients{Authorities: other, Optional: true}, 200},
		} {
			g := start(t, nil)
			server := g.certificate("a.test")
			g.serve(listener("a.test", server).WithClients(tt.before))
			config := &tls.Config{
				RootCAs: g.roots, ServerName: "a.test", MinVersion: version, MaxVersion: version, //nolint:gosec // one of two
				ClientSessionCache: tls.NewLRUClientSessionCache(1),
			}
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return ours, nil }
			conn, err := g.handshake(config)
			must(t, err)
			if got := ask(t, conn, "a.test"); got != http.StatusOK {
				t.Fatalf("TLS %#x, %s: %d", version, claim, got)
			}
			g.serve(listener("a.test", server).WithClients(tt.after))
			want := tt.want
			if want == 0 {
				want = http.StatusMisdirectedRequest
			}
			if got := ask(t, conn, "a.test"); got != want {
				t.Errorf("TLS %#x, %s: on the open connection %d, want %d", version, claim, got, want)
			}
			again, err := visit(g, config)
			if (err == nil) != (tt.want != 0) {
				t.Errorf("TLS %#x, %s: on another connection %v, resumed %t", version, claim, err, again.ConnectionState().DidResume)
			}
		}
	}
}
