package forward_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/support/testcert"
)

// certify returns a certificate for dns.example and 127.0.0.1 that expires at
// until, and a pool that trusts it.
func certify(t *testing.T, until time.Time) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	c, err := testcert.New("dns.example", until)
	if err != nil {
		t.Fatal(err)
	}
	return c.TLS, c.Roots
}

// resumed counts TLS handshakes, and those that resumed a session.
type resumed struct{ all, again atomic.Int32 }

func (r *resumed) config(c tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{c},
		VerifyConnection: func(s tls.ConnectionState) error {
			r.all.Add(1)
			if s.DidResume {
				r.again.Add(1)
			}
			return nil
		},
	}
}

// secure proxies TLS connections to the server over TCP.
func secure(t *testing.T, s *server, config *tls.Config) netip.AddrPort {
	t.Helper()
	l, err := tls.Listen("tcp4", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go relay(conn, s.addr)
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func relay(conn net.Conn, to netip.AddrPort) {
	defer conn.Close()
	back, err := net.Dial("tcp", to.String())
	if err != nil {
		return
	}
	defer back.Close()
	go func() {
		_, _ = io.Copy(back, conn)
		back.Close()
	}()
	_, _ = io.Copy(conn, back)
}

func TestTLS(t *testing.T) {
	s := serve(t, works)
	good, roots := certify(t, time.Now().Add(time.Hour))
	old, oldRoots := certify(t, time.Now().Add(-time.Hour))
	var count resumed
	addr, oldAddr := secure(t, s, count.config(good)), secure(t, s, &tls.Config{Certificates: []tls.Certificate{old}})
	for name, c := range map[string]struct {
		upstream forward.Upstream
		want     string
	}{
		"for its address":        {forward.Upstream{Addr: addr, Roots: roots}, "192.0.2.1"},
		"for its name":           {forward.Upstream{Addr: addr, Roots: roots, ServerName: "dns.example"}, "192.0.2.1"},
		"for another name":       {forward.Upstream{Addr: addr, Roots: roots, ServerName: "other.example"}, "other.example"},
		"of nobody that we know": {forward.Upstream{Addr: addr, Roots: oldRoots}, "unknown authority"},
		"expired":                {forward.Upstream{Addr: oldAddr, Roots: oldRoots}, "expired"},
		"none: plain TCP":        {forward.Upstream{Addr: s.addr, Roots: roots}, "route .: "},
	} {
		t.Run(name, func(t *testing.T) {
			c.upstream.Transport = forward.TLS
			f := newForwarder(t, settings(t, forward.Route{Upstreams: []forward.Upstream{c.upstream}}))
			if got := ask(t, f, "www.example."); !strings.Contains(got, c.want) {
				t.Errorf("answer %q, want %q in it", got, c.want)
			}
		})
	}
}

// TestTLSResumption checks that a new connection resumes the TLS session.
func TestTLSResumption(t *testing.T) {
	s := serve(t, func(q asked) [][]byte {
		if strings.Contains(string(q.packet), "close") {
			return one(closing)
		}
		return works(q)
	})
	cert, roots := certify(t, time.Now().Add(time.Hour))
	var count resumed
	addr := secure(t, s, count.config(cert))
	f := newForwarder(t, settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: addr, Roots: roots, Transport: forward.TLS}}, Timeout: time.Second}))
	ask(t, f, "one.example.")
	ask(t, f, "close.example.")
	if got := ask(t, f, "two.example."); got != "192.0.2.1" {
		t.Errorf("answer %q", got)
	}
	if count.again.Load() == 0 {
		t.Errorf("%d handshakes, none of them short", count.all.Load())
	}
}

// web serves the server's handler over HTTPS.
func web(t *testing.T, s *server, config *tls.Config, status int) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{TLSConfig: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		packet, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.ProtoMajor != 2 || r.URL.Path != "/names" || r.Header.Get("Content-Type") != "application/dns-message" ||
			len(packet) < 12 || binary.BigEndian.Uint16(packet) != 0 {
			http.Error(w, fmt.Sprintf("%s %s %s %x", r.Method, r.Proto, r.URL, packet), http.StatusBadRequest)
			return
		}
		w.WriteHeader(status)
		for _, m := range s.take(asked{packet: packet, tcp: true}) {
			_, _ = w.Write(m)
		}
	})}
	go func() { _ = h.ServeTLS(l, "", "") }()
	t.Cleanup(func() { h.Close() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestHTTPS(t *testing.T) {
	cert, roots := certify(t, time.Now().Add(time.Hour))
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	good := serve(t, works)
	wrong := serve(t, func(q asked) [][]byte {
		m := q.reply(dnswire.NoError, 60, "192.0.2.66")
		m[13] = 'x'
		return one(m)
	})
	garbage := serve(t, func(asked) [][]byte { return one([]byte("<html>")) })
	for name, c := range map[string]struct {
		of         *server
		status     int
		serverName string
		want       string
	}{
		"good":             {good, 200, "", "192.0.2.1"},
		"by its name":      {good, 200, "dns.example", "192.0.2.1"},
		"by another name":  {good, 200, "other.example", "other.example"},
		"another status":   {good, 503, "", "503"},
		"another question": {wrong, 200, "", "another question"},
		"no message":       {garbage, 200, "", "malformed reply"},
	} {
		t.Run(name, func(t *testing.T) {
			u := forward.Upstream{Addr: web(t, c.of, config, c.status), Transport: forward.HTTPS, ServerName: c.serverName, Path: "/names", Roots: roots}
			f := newForwarder(t, settings(t, forward.Route{Upstreams: []forward.Upstream{u}}))
			if got := ask(t, f, "www.example."); !strings.Contains(got, c.want) {
				t.Errorf("answer %q, want %q in it", got, c.want)
			}
		})
	}
}

func TestParseUpstream(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.2": "10.0.0.2:53", "10.0.0.2:5353": "10.0.0.2:5353", "fd00::2": "[fd00::2]:53", "[fd00::2]:5353": "[fd00::2]:5353", "[fd00::2]": "[fd00::2]:53",
		"udp://10.0.0.2": "10.0.0.2:53", "dns://10.0.0.2": "10.0.0.2:53", "tcp://10.0.0.2": "tcp://10.0.0.2:53",
		"tls://9.9.9.9": "tls://9.9.9.9:853", "tls://9.9.9.9:8853#dns.quad9.net": "tls://9.9.9.9:8853#dns.quad9.net",
		"https://9.9.9.9": "https://9.9.9.9:443/dns-query", "https://dns.quad9.net/names@9.9.9.9:8443": "https://dns.quad9.net/names@9.9.9.9:8443",
		"::ffff:10.0.0.2": "10.0.0.2:53",
		"https://dns.test:1443/dns-query@127.0.0.1": "https://dns.test/dns-query@127.0.0.1:1443", "https://dns.test:1443@127.0.0.1:1443": "https://dns.test/dns-query@127.0.0.1:1443",
		"https://127.0.0.1:1443/dns-query": "https://127.0.0.1:1443/dns-query",
	} {
		u, err := forward.ParseUpstream(text)
		if err != nil || u.String() != want {
			t.Errorf("ParseUpstream(%s) = %s, %v; want %s", text, u, err, want)
			continue
		}
		if again, err := forward.ParseUpstream(want); err != nil || again != u {
			t.Errorf("ParseUpstream(%s) = %v, %v; want %v", want, again, err, u)
		}
	}
	for _, text := range []string{"", "dns.example", "10.0.0.2:0", "10.0.0.2:x", "ftp://10.0.0.2", "tls://dns.example", "https://dns.example/dns-query",
		"https://dns.test:1443/dns-query@127.0.0.1:443", "https://dns.test:0/dns-query@127.0.0.1", "https://dns.test:x@127.0.0.1"} {
		if u, err := forward.ParseUpstream(text); err == nil {
			t.Errorf("ParseUpstream(%s) = %v", text, u)
		}
	}
}

// TestStale checks that a stale answer is served at once if the upstreams are
// known to fail, after a while if they are silent, and refreshed in the
// background.
func TestStale(t *testing.T) {
	var dead atomic.Bool
	var version atomic.Int32
	s := serve(t, func(q asked) [][]byte {
		if dead.Load() {
			return nil
		}
		return one(q.reply(dnswire.NoError, 1, fmt.Sprintf("192.0.2.%d", version.Add(1))))
	})
	f := to(t, s)
	ask(t, f, "www.example.")
	dead.Store(true)
	time.Sleep(1100 * time.Millisecond) // until its TTL has passed
	began := time.Now()
	if got := ask(t, f, "www.example."); got != "192.0.2.1 (stale)" {
		t.Errorf("answer %q", got)
	}
	if took := time.Since(began); took < 150*time.Millisecond || took > time.Second {
		t.Errorf("the stale answer came after %s, want 200ms", took)
	}
	dead.Store(false)
	await(t, "the new answer", func() bool {
		e, _ := f.Cached(questionOf("www.example."), time.Now())
		if e != nil && e.Fresh(time.Now()) {
			return said(e, time.Now()) == "192.0.2.2"
		}
		return ask(t, f, "www.example.") == "192.0.2.2"
	})
}

// TestPrefetch checks that a popular answer is refreshed before its TTL ends.
func TestPrefetch(t *testing.T) {
	s := serve(t, func(q asked) [][]byte { return one(q.reply(dnswire.NoError, 10, "192.0.2.1")) })
	f := to(t, s)
	ask(t, f, "www.example.")
	late := time.Now().Add(9500 * time.Millisecond)
	for range 5 {
		if e, _ := f.Cached(questionOf("www.example."), late); e == nil {
			t.Fatal("nothing is known")
		}
	}
	await(t, "the second question", func() bool { return len(s.queries()) == 2 })
	if got := f.Stats(); got.Prefetched != 1 || got.Waiting.Used > 1 {
		t.Errorf("figures %+v", got)
	}
}

// TestCancelledQuestionIsCompleted checks that a question whose client stopped waiting keeps its
// capacity until it is answered, and that others get the answer.
func TestCancelledQuestionIsCompleted(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(q asked) [][]byte {
		<-release
		return works(q)
	})
	f := to(t, s)
	request := f.Reserve(client, questionOf("www.example."))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := said(request.Resolve(ctx)); got == "192.0.2.1" {
		t.Errorf("answer %q", got)
	}
	if n := f.Stats().Waiting.Used; n != 1 {
		t.Errorf("%d reservations, want 1", n)
	}
	close(release)
	if got := ask(t, f, "www.example."); got != "192.0.2.1" {
		t.Errorf("answer %q", got)
	}
	await(t, "all reservations are released", func() bool { return f.Stats().Waiting.Used == 0 })
}
