package forward_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/support/budget"
)

// TestInFlightLimit checks that the number of flights never exceeds the limit, even
// if clients do not wait.
func TestInFlightLimit(t *testing.T) {
	s := serve(t, silent)
	cfg := settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: s.addr}}})
	cfg.Limits = budget.Limits{Total: 2, PerSource: 2}
	f := newForwarder(t, cfg)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	before := runtime.NumGoroutine()
	for i := range 500 {
		f.Reserve(client, questionOf(fmt.Sprintf("n%d.example.", i))).Resolve(gone)
	}
	if got := f.Stats().Waiting.Used; got != 2 {
		t.Errorf("%d questions have a place, want 2", got)
	}
	const each = 3 // goroutines
	await(t, "the other flights end", func() bool { return runtime.NumGoroutine() <= before+2*each })
}

// TestDeadConnection checks that a connection whose peer is gone is abandoned.
func TestDeadConnection(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var conns atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := conns.Add(1)
			go func() {
				if n == 1 { // a host that is gone: it neither replies nor closes
					_, _ = io.Copy(io.Discard, c)
					return
				}
				for {
					var b [2]byte
					if _, err := io.ReadFull(c, b[:]); err != nil {
						return
					}
					m := make([]byte, int(b[0])<<8|int(b[1]))
					_, _ = io.ReadFull(c, m)
					r := asked{packet: m}.reply(dnswire.NoError, 60, "192.0.2.1")
					_, _ = c.Write(append([]byte{byte(len(r) >> 8), byte(len(r))}, r...))
				}
			}()
		}
	}()
	f := newForwarder(t, settings(t, forward.Route{Timeout: 500 * time.Millisecond, Upstreams: []forward.Upstream{{Addr: l.Addr().(*net.TCPAddr).AddrPort(), Transport: forward.TCP}}}))
	run(t, f)
	began, i := time.Now(), 0
	for ; time.Since(began) < 25*time.Second; i++ {
		if ask(t, f, fmt.Sprintf("n%d.example.", i)) == "192.0.2.1" {
			t.Logf("recovered after %s", time.Since(began))
			return
		}
	}
	t.Errorf("%d queries in %s, none answered, %d connections", i, time.Since(began), conns.Load())
}

// TestRunEnds checks that queries in progress when Run ends are answered; a
// Forwarder may run again.
func TestRunEnds(t *testing.T) {
	s := serve(t, func(q asked) [][]byte {
		time.Sleep(300 * time.Millisecond)
		return works(q)
	})
	f := newForwarder(t, settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: s.addr, Transport: forward.TCP}}}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { defer close(ended); _ = f.Run(ctx, slog.New(slog.DiscardHandler)) })
	time.AfterFunc(100*time.Millisecond, stop)
	if got := ask(t, f, "www.example."); got != "192.0.2.1" {
		t.Errorf("answer %q", got)
	}
	<-ended
}

// TestOneOfTwoUpstreamsLoops checks that the other upstream is used if one of two loops.
func TestOneOfTwoUpstreamsLoops(t *testing.T) {
	var f *forward.Forwarder
	ready, probed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	self := serve(t, func(q asked) [][]byte {
		<-ready
		defer once.Do(func() { close(probed) })
		name := bytes.ToLower(q.question())
		question := questionOf("x.")
		question.Name = name[:len(name)-5]
		question.Type = dnswire.Type(binary.BigEndian.Uint16(name[len(name)-4:]))
		if e, _ := f.Cached(question, time.Now()); e == nil {
			f.Reserve(client, question).Resolve(t.Context())
		}
		return one(q.reply(dnswire.ServFail, 0))
	})
	good := serve(t, works)
	f = to(t, good, self)
	close(ready)
	run(t, f)
	<-probed
	if got := ask(t, f, "www.example."); got != "192.0.2.1" {
		t.Errorf("answer %q, want that of the good upstream", got)
	}
}

// TestEmptyResolvConf checks that a half-written file removes no upstream.
func TestEmptyResolvConf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	_ = os.WriteFile(file, []byte("nameserver 192.0.2.1\n"), 0o600)
	f := newForwarder(t, settings(t, forward.Route{ResolvConf: file}))
	run(t, f)
	if n := len(f.Stats().Upstreams); n != 1 {
		t.Fatalf("%d upstreams", n)
	}
	_ = os.WriteFile(file, nil, 0o600)
	time.Sleep(2500 * time.Millisecond)
	if n := len(f.Stats().Upstreams); n != 1 {
		t.Errorf("%d upstreams while the file is being written", n)
	}
}

// TestFastServfail checks that an upstream that fails fast does not count as
// the fastest.
func TestFastServfail(t *testing.T) {
	bad := serve(t, func(q asked) [][]byte { return one(q.reply(dnswire.ServFail, 0)) })
	good := serve(t, func(q asked) [][]byte { time.Sleep(5 * time.Millisecond); return works(q) })
	f := newForwarder(t, settings(t, forward.Route{Policy: forward.Fastest, Upstreams: []forward.Upstream{{Addr: bad.addr}, {Addr: good.addr}}}))
	for i := range 100 {
		ask(t, f, fmt.Sprintf("n%d.example.", i))
	}
	if n := len(bad.queries()); n > 50 {
		t.Errorf("the one that always fails was asked first for %d of 100", n)
	}
}

// TestFirstQueryFailsOverFast checks that the first query fails over as fast as later ones.
func TestFirstQueryFailsOverFast(t *testing.T) {
	dead, good := serve(t, silent), serve(t, works)
	f := to(t, dead, good)
	began := time.Now()
	ask(t, f, "www.example.")
	if took := time.Since(began); took > 600*time.Millisecond {
		t.Errorf("took %s; patience with an unknown one is 200ms, and there is a first budget", took)
	}
}

// TestCaseOverUDP checks that a server that changes case over UDP only is not
// queried over TCP forever.
func TestCaseOverUDP(t *testing.T) {
	var tcp atomic.Int32
	s := serve(t, func(q asked) [][]byte {
		m := q.reply(dnswire.NoError, 60, "192.0.2.1")
		if q.tcp {
			tcp.Add(1)
		} else {
			copy(m[12:], strings.ToLower(string(q.question())))
		}
		return one(m)
	})
	f := to(t, s)
	for i := range 10 {
		ask(t, f, fmt.Sprintf("abcdefghijklmnop%d.example.", i))
	}
	if n := tcp.Load(); n > 1 {
		t.Errorf("%d queries over TCP for 10 names", n)
	}
}

// TestDialStorm checks that all queries that wait for a failing connection move
// on with its first failure.
func TestDialStorm(t *testing.T) {
	// Accepts and closes after a while, so that TLS handshakes fail.
	l, _ := net.Listen("tcp4", "127.0.0.1:0")
	defer l.Close()
	var dials atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			time.AfterFunc(50*time.Millisecond, func() { c.Close() })
		}
	}()
	good := serve(t, works)
	f := newForwarder(t, settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: l.Addr().(*net.TCPAddr).AddrPort(), Transport: forward.TLS}, {Addr: good.addr}}}))
	done := make(chan time.Duration, 100)
	for i := range 100 {
		go func() { began := time.Now(); ask(t, f, fmt.Sprintf("n%d.example.", i)); done <- time.Since(began) }()
	}
	var most time.Duration
	for range 100 {
		most = max(most, <-done)
	}
	if most > time.Second {
		t.Errorf("the slowest answer took %s, with %d connections tried", most, dials.Load())
	}
}

// TestShortOutage checks that a short outage of the network delays an answer by little
// more than the outage.
func TestShortOutage(t *testing.T) {
	var away atomic.Bool
	h := func(q asked) [][]byte {
		if away.Load() {
			return nil
		}
		return works(q)
	}
	f := to(t, serve(t, h), serve(t, h))
	for i := range 600 {
		ask(t, f, fmt.Sprintf("warm%d.example.", i))
	}
	away.Store(true)
	time.AfterFunc(300*time.Millisecond, func() { away.Store(false) })
	began := time.Now()
	if got := ask(t, f, "www.example."); got != "192.0.2.1" {
		t.Errorf("%q after %s", got, time.Since(began))
	}
}

// TestSilentUpstreamsAreAwaited checks that questions wait for upstreams that are silent for some
// seconds, although these count as down.
func TestSilentUpstreamsAreAwaited(t *testing.T) {
	var away atomic.Bool
	h := func(q asked) [][]byte {
		if away.Load() {
			return nil
		}
		return works(q)
	}
	route := forward.Route{Timeout: 4 * time.Second}
	for range 2 {
		route.Upstreams = append(route.Upstreams, forward.Upstream{Addr: serve(t, h).addr})
	}
	f := newForwarder(t, settings(t, route))
	run(t, f)
	ask(t, f, "warm.example.")
	away.Store(true)
	time.AfterFunc(2500*time.Millisecond, func() { away.Store(false) })
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if got := ask(t, f, fmt.Sprintf("n%d.example.", i)); got != "192.0.2.1" {
				t.Errorf("query %d: %q", i, got)
			}
		})
		time.Sleep(100 * time.Millisecond)
	}
	wg.Wait()
}

// TestTruncatedReplyIsUsedIfTCPFails checks that a truncated reply is used if TCP fails.
func TestTruncatedReplyIsUsedIfTCPFails(t *testing.T) {
	s := serve(t, func(q asked) [][]byte {
		if q.tcp {
			return one(closing)
		}
		m := q.reply(dnswire.NoError, 60, "192.0.2.1")
		m[2] |= 2
		return one(m)
	})
	if got := ask(t, to(t, s), "www.example."); got != "192.0.2.1" {
		t.Errorf("answer %q", got)
	}
}

// TestTruncatedReplyIsUsedIfTCPIsSilent checks the same if nothing comes over TCP.
func TestTruncatedReplyIsUsedIfTCPIsSilent(t *testing.T) {
	s := serve(t, func(q asked) [][]byte {
		if q.tcp {
			return nil
		}
		m := q.reply(dnswire.NoError, 60, "192.0.2.1")
		m[2] |= 2
		return one(m)
	})
	f := newForwarder(t, settings(t, forward.Route{Timeout: time.Second, Upstreams: []forward.Upstream{{Addr: s.addr}}}))
	if got := ask(t, f, "www.example."); got != "192.0.2.1" {
		t.Errorf("answer %q", got)
	}
}

// TestDownLast checks that upstreams that are down are queried when the others
// fail.
func TestDownLast(t *testing.T) {
	var first, second atomic.Bool // do not reply
	one1 := serve(t, func(q asked) [][]byte {
		if first.Load() {
			return nil
		}
		return works(q)
	})
	two := serve(t, func(q asked) [][]byte {
		if second.Load() {
			return one(q.reply(dnswire.ServFail, 0))
		}
		return works(q)
	})
	f := to(t, one1, two)
	first.Store(true)
	for i := range 5 {
		ask(t, f, fmt.Sprintf("a%d.example.", i))
	}
	first.Store(false) // it is back, but has not been probed yet
	second.Store(true)
	if got := ask(t, f, "www.example."); got != "192.0.2.1" {
		t.Errorf("answer %q, with the first upstream back", got)
	}
}

// TestFailureIsReturnedBesideSilentUpstream checks that the failure of the only live upstream is
// returned soon, although another upstream is silent.
func TestFailureIsReturnedBesideSilentUpstream(t *testing.T) {
	for _, rcode := range []dnswire.RCode{dnswire.ServFail, dnswire.Refused} {
		bad := serve(t, func(q asked) [][]byte { return one(q.reply(rcode, 0)) })
		f := newForwarder(t, settings(t, forward.Route{Timeout: 4 * time.Second, Upstreams: []forward.Upstream{{Addr: serve(t, silent).addr}, {Addr: bad.addr}}}))
		const learned = 5 // by then one of them counts as down
		for i := range 2 * learned {
			began, most := time.Now(), 1500*time.Millisecond
			if i >= learned {
				most = 200 * time.Millisecond
			}
			got := ask(t, f, fmt.Sprintf("n%d.example.", i))
			if want := "route .: an upstream server answers " + rcode.String(); got != want {
				t.Errorf("query %d: %q, want %q", i, got, want)
			}
			if took := time.Since(began); took > most {
				t.Errorf("query %d: %s after %s", i, rcode, took)
			}
		}
	}
}

// TestFailingAndSlow checks that a slow upstream is waited for if the other one
// fails, and queried again if a packet is lost.
func TestFailingAndSlow(t *testing.T) {
	bad := serve(t, func(q asked) [][]byte { return one(q.reply(dnswire.ServFail, 0)) })
	var n atomic.Int32
	lossy := serve(t, func(q asked) [][]byte {
		time.Sleep(100 * time.Millisecond)
		if n.Add(1) == 1 {
			return nil
		}
		return works(q)
	})
	f := to(t, bad, lossy)
	for i := range 5 {
		if got := ask(t, f, fmt.Sprintf("n%d.example.", i)); got != "192.0.2.1" {
			t.Errorf("query %d: %q", i, got)
		}
	}
}

// TestDownLog checks that the log says which upstream is down, and why.
func TestDownLog(t *testing.T) {
	certificate, roots := certify(t, time.Now().Add(time.Hour))
	config := new(resumed).config(certificate)
	f := newForwarder(t, settings(t, forward.Route{Upstreams: []forward.Upstream{
		{Addr: netip.MustParseAddrPort("127.0.0.1:1")},
		{Addr: secure(t, serve(t, works), config), Transport: forward.TLS, ServerName: "other.example", Roots: roots},
	}}))
	name := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = f.Run(ctx, slog.New(slog.NewTextHandler(log, nil))) }()
	defer func() { stop(); <-done; log.Close() }()
	for i := range 3 {
		if got := ask(t, f, fmt.Sprintf("n%d.example.", i)); strings.Contains(got, "->") {
			t.Errorf("query %d: %q", i, got)
		}
	}
	for _, want := range []string{`err="connection refused"`, `err="certificate verification failed: certificate is valid for dns.example, not other.example"`} {
		await(t, want, func() bool {
			said, err := os.ReadFile(name)
			return err == nil && strings.Contains(string(said), want)
		})
	}
}

// TestStaleAnswersAtCapacity checks that a query that loses its place gets the stale
// answer if there is one.
func TestStaleAnswersAtCapacity(t *testing.T) {
	var away atomic.Bool
	s := serve(t, func(q asked) [][]byte {
		if away.Load() {
			return nil
		}
		return one(q.reply(dnswire.NoError, 1, "192.0.2.1"))
	})
	cfg := settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: s.addr}}})
	cfg.Limits, cfg.StaleAfter = budget.Limits{Total: 1, PerSource: 1}, time.Hour
	f := newForwarder(t, cfg)
	ask(t, f, "www.example.")
	time.Sleep(1100 * time.Millisecond)
	away.Store(true)
	r := f.Reserve(client, questionOf("www.example."))
	f.Reserve(client, questionOf("other.example."))
	if got := said(r.Resolve(context.Background())); got != "192.0.2.1 (stale)" {
		t.Errorf("%q, want the stale answer", got)
	}
}

// TestDeadHTTPS is TestDeadConnection over HTTPS.
func TestDeadHTTPS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/dns-message")
		_, _ = w.Write(asked{packet: m}.reply(dnswire.NoError, 60, "192.0.2.1"))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	l, _ := net.Listen("tcp4", "127.0.0.1:0")
	defer l.Close()
	var conns atomic.Int32
	var dead atomic.Bool
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := conns.Add(1)
			back, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				return
			}
			pipe := func(to, from net.Conn) {
				b := make([]byte, 4096)
				for {
					k, err := from.Read(b)
					if err != nil {
						return
					}
					if n == 1 && dead.Load() {
						continue
					}
					_, _ = to.Write(b[:k])
				}
			}
			go pipe(c, back)
			go pipe(back, c)
		}
	}()
	f := newForwarder(t, settings(t, forward.Route{Timeout: 500 * time.Millisecond, Upstreams: []forward.Upstream{{Addr: l.Addr().(*net.TCPAddr).AddrPort(), Transport: forward.HTTPS, Path: "/", ServerName: "example.com", Roots: roots}}}))
	run(t, f)
	if got := ask(t, f, "first.example."); got != "192.0.2.1" {
		t.Fatal(got)
	}
	dead.Store(true)
	began, i := time.Now(), 0
	for ; time.Since(began) < 25*time.Second; i++ {
		if ask(t, f, fmt.Sprintf("n%d.example.", i)) == "192.0.2.1" {
			t.Logf("recovered after %s", time.Since(began))
			return
		}
	}
	t.Errorf("%d queries in %s, none answered, %d connections", i, time.Since(began), conns.Load())
}
