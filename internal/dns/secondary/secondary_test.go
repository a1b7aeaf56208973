package secondary

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/testcert"
)

// same compares all visible data.
func same(t *testing.T, p *primary, r *running) {
	t.Helper()
	if diff := cmp.Diff(contents(p, p.db), contents(p, r.DB())); diff != "" {
		t.Errorf("the copy differs (-server +copy):\n%s", diff)
	}
}

// TestFollowsByIXFR checks that a copy is made by one AXFR per zone and then follows
// by IXFR.
func TestFollowsByIXFR(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	for i := range 50 {
		p.service(fmt.Sprintf("s%d", i), 3)
	}
	s := newServer(t, p, nil)
	r := run(t, testConfig(s))
	if a := lookup(r.DB(), "cluster.local", dnswire.TypeSOA); a.Outcome != zone.Unanswered {
		if !r.current(p) {
			t.Errorf("SOA before there is a copy: outcome %d", a.Outcome)
		}
	}
	r.waitCurrent(p)
	same(t, p, r)
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		p.service(fmt.Sprintf("s%d", rnd.IntN(60)), rnd.IntN(4))
		p.update(func(tx *cluster.Tx) {
			key := cluster.Key{Namespace: "shop", Name: fmt.Sprintf("pod-%d", rnd.IntN(10))}
			if rnd.IntN(3) == 0 {
				tx.Delete(cluster.KindPod, key)
			} else {
				tx.Put(&cluster.Pod{Key: key, IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 9, 0, byte(rnd.IntN(20))})}})
			}
		})
		if rnd.IntN(2) == 0 {
			r.waitCurrent(p)
			same(t, p, r)
		}
	}
	r.waitCurrent(p)
	same(t, p, r)
	if s.axfr.Load() != 2 || s.conns.Load() != 1 {
		t.Errorf("%d AXFRs over %d connections, want one of each of 2 zones over 1", s.axfr.Load(), s.conns.Load())
	}
	if st := r.Status(); st.Counters.AXFR != 2 || st.Counters.IXFR == 0 || st.Server != s.upstream().String() || st.Zones[0].CurrentSince.IsZero() {
		t.Errorf("Status() = %+v", st)
	}
}

// TestNotify checks that a NOTIFY of a primary is handled at once and that
// others are refused.
func TestNotify(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	s := newServer(t, p, nil)
	cfg := testConfig(s)
	cfg.CheckInterval = time.Hour
	cfg.Key = func() *dnswire.TSIGKey { return testKey("k") }
	s.key = testKey("k")
	r := run(t, cfg)
	r.waitCurrent(p)
	notify := func(apex dnsname.Name, from string, signed respond.Signed) bool {
		return r.Notify([]byte(apex.WireLabels()), netip.MustParseAddr(from), signed)
	}
	for i, from := range []string{"127.0.0.1", "::ffff:127.0.0.1"} {
		p.service(fmt.Sprintf("n%d", i), 2)
		if !notify(clusterZone, from, false) || !notify(reverseZone, from, false) {
			t.Errorf("NOTIFY of %s is refused", from)
		}
		r.waitCurrent(p)
		same(t, p, r)
	}
	if st := r.Status(); st.Counters.Lags == 0 || st.Counters.Lag <= 0 {
		t.Errorf("no lag is told: %+v", st.Counters)
	}
	if notify(clusterZone, "192.0.2.1", false) || notify(dnsname.MustParse("example"), "127.0.0.1", true) {
		t.Error("NOTIFY of another, or of another zone, is taken")
	}
	p.service("signed", 1)
	if !notify(clusterZone, "192.0.2.1", true) || !notify(reverseZone, "192.0.2.1", true) {
		t.Error("signed NOTIFY is refused")
	}
	r.waitCurrent(p)
	if r.Key(dnsname.MustParse("key")) == nil || r.Key(clusterZone) != nil {
		t.Error("the key is not known, or another one is")
	}
}

func testKey(secret string) *dnswire.TSIGKey {
	return &dnswire.TSIGKey{Name: dnsname.MustParse("key"), Algorithm: dnswire.HMACSHA256, Secret: []byte(secret)}
}

// TestOverTLS covers the configured server name, this node's certificate, and
// wrong ones.
func TestOverTLS(t *testing.T) {
	cert, err := testcert.New("dns.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	p := newPrimary(t, "a.ns.dns.cluster.local")
	s := newServer(t, p, &tls.Config{Certificates: []tls.Certificate{cert.TLS}, ClientCAs: cert.Roots, ClientAuth: tls.RequireAndVerifyClientCert})
	secure := forward.Upstream{Addr: s.addr(), Transport: forward.TLS, ServerName: "dns.example"}
	cfg := testConfig()
	cfg.TLS = &tls.Config{RootCAs: cert.Roots, Certificates: []tls.Certificate{cert.TLS}}
	cfg.Servers = []forward.Upstream{secure}
	r := run(t, cfg)
	r.waitCurrent(p)
	p.service("web", 1)
	r.waitCurrent(p)
	same(t, p, r)

	secure.ServerName = "other.example"
	cfg.Servers = []forward.Upstream{secure}
	other := run(t, cfg)
	other.wait("a failure", func() bool { return other.Status().Counters.Failures > 1 })
	if st := other.Status(); st.Zones[0].Loaded || !strings.Contains(other.log.String(), "other.example") {
		t.Errorf("Status() = %+v, log:\n%s", st, other.log)
	}
}

// TestFailoverToAnotherHistory checks the failover to a primary with another history and
// back; nothing is denied meanwhile.
func TestFailoverToAnotherHistory(t *testing.T) {
	a, b := newPrimary(t, "a.ns.dns.cluster.local"), newPrimary(t, "b.ns.dns.cluster.local")
	for _, p := range []*primary{a, b} {
		for i := range 20 {
			p.service(fmt.Sprintf("s%d", i), 2)
		}
	}
	b.service("more", 1)
	servers := []*server{newServer(t, a, nil), newServer(t, b, nil)}
	r := run(t, testConfig(servers...))
	r.wait("a copy", func() bool { return r.current(a) || r.current(b) })
	first, second := servers[0], servers[1]
	if r.current(b) {
		first, second = second, first
	}
	stop := denials(t, r, "s7.shop.svc.cluster.local")
	first.stop()
	r.waitCurrent(second.primary)
	same(t, second.primary, r)
	if n := stop(); n > 0 {
		t.Errorf("a name that both servers have was denied %d times", n)
	}
	if second.axfr.Load() != 2 {
		t.Errorf("%d AXFRs from the other server, want 2", second.axfr.Load())
	}
}

// denials counts how often name is denied or pending, until stop.
func denials(t *testing.T, r *running, name string) (stop func() int) {
	t.Helper()
	quit, count := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-quit:
				count <- n
				return
			default:
				if a := lookup(r.DB(), name, dnswire.TypeA); a.Outcome != zone.Found {
					n++
				}
			}
			runtime.Gosched()
		}
	}()
	return func() int {
		close(quit)
		return <-count
	}
}

// TestStale checks that answers and denials without a primary are marked stale,
// until one replies again.
func TestStale(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	p.service("web", 2)
	s := newServer(t, p, nil)
	cfg := testConfig(s)
	cfg.StaleAfter = 100 * time.Millisecond
	cfg.File = filepath.Join(t.TempDir(), "copy")
	r := run(t, cfg)
	r.waitCurrent(p)
	if a := lookup(r.DB(), "web.shop.svc.cluster.local", dnswire.TypeA); a.Outcome != zone.Found || a.StaleEDE != nil {
		t.Errorf("answer %+v", a)
	}
	hang := func(int, []byte) []byte { return nil }
	s.spoil.Store(&hang)
	isOld := func() bool {
		a, d := lookup(r.DB(), "web.shop.svc.cluster.local", dnswire.TypeA), lookup(r.DB(), "wbe.shop.svc.cluster.local", dnswire.TypeA)
		p := lookup(r.DB(), "1.2.3.10.in-addr.arpa", dnswire.TypePTR)
		return a.Outcome == zone.Found && a.StaleEDE != nil && a.StaleEDE.Code == dnswire.EDEStale &&
			d.Outcome == zone.NXDomain && d.StaleEDE != nil && d.StaleEDE.Code == dnswire.EDEStaleNXDomain && d.SOA.Minimum == 1 &&
			p.Outcome == zone.NXDomain && p.StaleEDE != nil
	}
	r.wait("old", isOld)
	if st := r.Status(); !st.Zones[0].Stale || st.Zones[0].Failure == nil || st.Counters.Failures == 0 {
		t.Errorf("Status() = %+v", st)
	}
	r.stop()
	r = run(t, cfg)
	r.wait("the saved copy", isOld)
	p.service("more", 1)
	s.spoil.Store(nil)
	r.waitCurrent(p)
	same(t, p, r)
	if isOld() {
		t.Error("still old")
	}
	if n := s.axfr.Load(); n != 2 {
		t.Errorf("%d AXFRs, want 2: the saved copy is followed from", n)
	}
}

// TestDamagedFile checks that a damaged state file is set aside with one log
// line and that the copy comes from a primary.
func TestDamagedFile(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	cfg := testConfig(newServer(t, p, nil))
	cfg.File = filepath.Join(t.TempDir(), "copy")
	r := run(t, cfg)
	r.waitCurrent(p)
	r.stop()
	whole, err := os.ReadFile(cfg.File)
	if err != nil {
		t.Fatal(err)
	}
	whole[len(whole)/2] ^= 1
	if err := os.WriteFile(cfg.File, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	r = run(t, cfg)
	r.waitCurrent(p)
	if log := r.log.String(); strings.Count(log, "set aside as "+cfg.File+".bad") != 1 {
		t.Errorf("log:\n%s", log)
	}
	if _, err := os.Stat(cfg.File + ".bad"); err != nil {
		t.Error(err)
	}
}

// TestTwoAgentsWithOneStateFile checks that of two agents with one state file the one that
// ends keeps what the other has written since.
func TestTwoAgentsWithOneStateFile(t *testing.T) {
	before, after := newPrimary(t, "a.ns.dns.cluster.local"), newPrimary(t, "b.ns.dns.cluster.local")
	cfg := testConfig(newServer(t, before, nil))
	cfg.File = filepath.Join(t.TempDir(), "copy")
	first := run(t, cfg)
	first.waitCurrent(before)
	cfg.Servers = testConfig(newServer(t, after, nil)).Servers
	second := run(t, cfg)
	second.waitCurrent(after)
	second.stop()
	written, err := os.ReadFile(cfg.File)
	if err != nil {
		t.Fatal(err)
	}
	before.service("web", 1)
	first.waitCurrent(before)
	first.stop()
	if now, err := os.ReadFile(cfg.File); err != nil || !bytes.Equal(now, written) {
		t.Errorf("the other's file is replaced (%v)", err)
	}
}

// TestInvalidConfigurations covers invalid configurations.
func TestInvalidConfigurations(t *testing.T) {
	addr := forward.Upstream{Addr: netip.MustParseAddrPort("192.0.2.1:53")}
	for claim, c := range map[string]struct {
		cfg  Config
		want error
	}{
		"no zone":        {Config{Servers: []forward.Upstream{addr}}, ErrNoZones},
		"no server":      {Config{Zones: testZones}, ErrNoServers},
		"over HTTPS":     {Config{Zones: testZones, Servers: []forward.Upstream{{Addr: addr.Addr, Transport: forward.HTTPS}}}, ErrTransport},
		"twice the same": {Config{Zones: []dnsname.Name{clusterZone, clusterZone}, Servers: []forward.Upstream{addr}}, zone.ErrDuplicateZone},
	} {
		if _, err := New(c.cfg); !errors.Is(err, c.want) {
			t.Errorf("%s: New: %v, want %v", claim, err, c.want)
		}
	}
}
