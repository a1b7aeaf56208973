package secondary

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/testcert"
)

// answerer adapts respond's worker.
type answerer struct{ *respond.Worker }

func (a answerer) Respond(packet []byte, client respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	answer, later := a.Worker.Respond(packet, client, buf)
	if later == nil {
		return answer, nil
	}
	return nil, later
}

// listen serves cfg until stop, or until the test ends.
func listen(tb testing.TB, cfg respond.Config, cert *testcert.Certificate) (s *dnsserver.Server, stop func()) {
	tb.Helper()
	responder, err := respond.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	loopback := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	config := dnsserver.Config{
		Listen: loopback, MaxConnections: 100, MaxInFlight: 10, Idle: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
		NewAnswerer: func(seat int) dnsserver.Answerer { return answerer{responder.NewWorker(seat)} },
	}
	if cert != nil {
		config.ListenTLS, config.ClientCAs = loopback, cert.Roots
		config.Certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert.TLS, nil }
	}
	if s, err = dnsserver.Listen(tb.Context(), config); err != nil {
		tb.Fatal(err)
	}
	return s, beside(tb, func(ctx context.Context) { _ = s.Run(ctx) })
}

// beside runs a function until stop, or until the test ends.
func beside(tb testing.TB, run func(context.Context)) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	tb.Cleanup(stop)
	return stop
}

const secretText = "0123456789abcdef"

// sender serves the zones of p to clients with the key and notifies
// secondaries.
func sender(tb testing.TB, p *primary, rule transfer.Permission, secondaries func() []netip.AddrPort) *transfer.Sender {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "key")
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString([]byte(secretText))), 0o600); err != nil {
		tb.Fatal(err)
	}
	s, err := transfer.New(transfer.Config{
		Data: p.db, Permissions: []transfer.Permission{rule}, MaxTransfers: 10, MaxSize: 1 << 26, UDPSize: 1232, Secondaries: secondaries,
		Keys: []transfer.KeyFile{{Name: dnsname.MustParse("key"), Algorithm: dnswire.HMACSHA256, File: file}},
	}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestPortolanPrimary tests against a real Portolan server: with its NOTIFYs, signed
// queries, over TCP and TLS.
func TestPortolanPrimary(t *testing.T) {
	cert, err := testcert.New("dns.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for claim, over := range map[string]func(s *dnsserver.Server, cfg *Config) transfer.Permission{
		"TCP, with a key": func(s *dnsserver.Server, cfg *Config) transfer.Permission {
			if s != nil {
				cfg.Servers = []forward.Upstream{{Addr: s.Addrs()[0], Transport: forward.TCP}}
				cfg.Key = func() *dnswire.TSIGKey { return testKey(secretText) }
			}
			return transfer.Permission{Key: dnsname.MustParse("key")}
		},
		"TLS, with a certificate": func(s *dnsserver.Server, cfg *Config) transfer.Permission {
			if s != nil {
				cfg.Servers = []forward.Upstream{{Addr: s.TLSAddrs()[0], Transport: forward.TLS, ServerName: "dns.example"}}
				cfg.TLS = &tls.Config{RootCAs: cert.Roots, Certificates: []tls.Certificate{cert.TLS}}
			}
			return transfer.Permission{Certificate: "dns.example"}
		},
	} {
		t.Run(claim, func(t *testing.T) {
			p := newPrimary(t, "a.ns.dns.cluster.local")
			for i := range 300 {
				p.service(fmt.Sprintf("s%d", i), 3)
			}
			var mu sync.Mutex
			var agents []netip.AddrPort
			send := sender(t, p, over(nil, nil), func() []netip.AddrPort {
				mu.Lock()
				defer mu.Unlock()
				return agents
			})
			s, _ := listen(t, respond.Config{Data: p.db, Transfers: send}, cert)
			beside(t, func(ctx context.Context) { _ = send.Run(ctx, slog.New(slog.DiscardHandler)) })
			cfg := testConfig()
			cfg.CheckInterval = 2 * time.Second
			over(s, &cfg)
			r := run(t, cfg)
			agent, _ := listen(t, respond.Config{Data: r.DB(), NotifyHandler: r.Secondary}, nil)
			mu.Lock()
			agents = agent.Addrs()
			mu.Unlock()
			r.waitCurrent(p)
			same(t, p, r)
			for i := range 40 {
				p.service(fmt.Sprintf("n%d", i%7), i%4)
				send.Changed()
				if i%8 == 0 {
					r.waitCurrent(p)
					same(t, p, r)
				}
			}
			r.waitCurrent(p)
			same(t, p, r)
			st := r.Status()
			if st.Counters.AXFR != 2 || st.Counters.IXFR == 0 || st.Counters.Lags == 0 || st.Counters.Refused != 0 || st.Counters.Failures != 0 {
				t.Errorf("Status() = %+v", st)
			}
			t.Logf("%+v", st.Counters)
		})
	}
}

// TestFrequentChanges checks at 1,000 changes per second that the copy keeps up and that
// its answers are not older than it reports.
func TestFrequentChanges(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	send := sender(t, p, transfer.Permission{Clients: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, nil)
	s, _ := listen(t, respond.Config{Data: p.db, Transfers: send}, nil)
	p.service("web", 1)
	cfg := testConfig()
	cfg.Servers = []forward.Upstream{{Addr: s.Addrs()[0], Transport: forward.TCP}}
	cfg.CheckInterval = 200 * time.Millisecond // the interval of NOTIFYs
	r := run(t, cfg)
	r.waitCurrent(p)
	told := func(db *zone.DB) string {
		a := lookup(db, "web.shop.svc.cluster.local", dnswire.TypeA)
		return fmt.Sprint(a.Outcome, a.RRset.RData())
	}
	const changes = 3000
	lastGiven := map[string]time.Time{told(p.db): {}} // until when; zero means still
	before := told(p.db)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for i := range changes {
		<-ticker.C
		if i%200 == 0 {
			p.update(func(tx *cluster.Tx) { putService(tx, "web", i/200%3, i) })
			if now := told(p.db); now != before {
				lastGiven[before], lastGiven[now] = time.Now(), time.Time{}
				before = now
			}
		} else {
			p.service(fmt.Sprintf("s%d", i%100), 1+i%3)
		}
		sure := r.Status().Zones[0].VerifiedAt
		got := told(r.DB())
		until, ok := lastGiven[got]
		if !ok || !until.IsZero() && until.Before(sure) {
			t.Fatalf("change %d: the copy answers %s, which the server never did, or not since %v; the copy is sure as of %v", i, got, until, sure)
		}
	}
	r.waitCurrent(p)
	same(t, p, r)
	if st := r.Status(); st.Counters.AXFR != 2 || st.Counters.Failures != 0 {
		t.Errorf("Status() = %+v, log:\n%s", st, r.log)
	}
}
