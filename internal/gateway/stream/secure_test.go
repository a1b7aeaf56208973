package stream

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"portolan.dev/portolan/internal/gateway/table"
)

// TestSecure: where TLS of a client ends, TLS is spoken with an endpoint that has it, and nothing is sent to one that
// shows another certificate, or if the policy cannot be obeyed. What is passed on as it came is not affected.
func TestSecure(t *testing.T) {
	t.Parallel()
	own, _ := certificate(t, "own")
	ofEndpoint, _ := certificate(t, "endpoint.test")
	other, _ := certificate(t, "endpoint.test")
	trusts := func(c *tls.Certificate) table.TLS {
		return table.TLS{ServerName: "endpoint.test", Authorities: pemOf(c)}
	}
	for claim, tt := range map[string]struct {
		by     table.TLS
		mode   table.Mode
		want   string
		reason table.Reason
	}{
		"a certificate that is trusted":    {trusts(ofEndpoint), table.Stream, "TLS endpoint.test: q", ""},
		"another one":                      {trusts(other), table.Stream, "", Unreachable},
		"another name":                     {table.TLS{ServerName: "b.test", Authorities: pemOf(ofEndpoint)}, table.Stream, "", Unreachable},
		"a policy that cannot be obeyed":   {table.TLS{Broken: "it has no authority"}, table.Stream, "", Insecure},
		"the same, passed on as it came":   {table.TLS{Broken: "it has no authority"}, table.Passthrough, "TLS pass.test: q", ""},
		"trusted, and passed on as it is":  {trusts(ofEndpoint), table.Passthrough, "TLS pass.test: q", ""},
		"another one, passed on as it is ": {trusts(other), table.Passthrough, "TLS pass.test: q", ""},
	} {
		secured := up.Secured(tt.by)
		rule := &table.Rule{Object: "tlsroute a/r", Backends: []table.Backend{{Upstream: secured, Weight: 1}}}
		h := table.NewHost([]table.Route{{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: rule}})
		l := table.NewListener("l", "pass.test").WithMode(tt.mode).WithHosts(map[string]*table.Host{"pass.test": h})
		f := newFront(t, table.NewTLSPort([]*table.Listener{l}, nil), func(c *Config) {
			c.TLS = func(table.Socket) func() *tls.Config {
				return func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{*own}} }
			}
		})
		var plain atomic.Bool // the endpoint got something else than TLS
		f.endpoints.Update(map[table.Upstream][]netip.AddrPort{secured: {backend(t, func(c *net.TCPConn) {
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*ofEndpoint}})
			var first [1]byte
			if _, err := s.Read(first[:]); err != nil {
				plain.Store(strings.Contains(err.Error(), "first record does not look like a TLS handshake"))
				return
			}
			_, _ = io.WriteString(s, "TLS "+s.ConnectionState().ServerName+": "+string(first[:]))
			s.Close()
		})}})
		c := tls.Client(f.dial(), &tls.Config{ServerName: "pass.test", InsecureSkipVerify: true})
		_, _ = c.Write([]byte("q"))
		got, _ := io.ReadAll(c)
		c.Close()
		r := f.record() // of what is passed on as it came, either end may break off first
		if string(got) != tt.want || tt.mode == table.Stream && r.Reason != tt.reason || plain.Load() {
			t.Errorf("%s: %q, %q, plain %t; want %q, %q", claim, got, r.Reason, plain.Load(), tt.want, tt.reason)
		}
	}
}

func pemOf(c *tls.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
}
