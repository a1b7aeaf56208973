package secondary

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/zone"
)

// TestCorruptedReplies corrupts replies and checks that nothing of an incomplete one is
// served and that the next valid one is applied.
func TestCorruptedReplies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	spoils := map[string]func(i int, m []byte) []byte{
		"cut at the first message": func(int, []byte) []byte { return nil },
		"cut in mid-stream": func(i int, m []byte) []byte {
			if i == 2 {
				return nil
			}
			return m
		},
		"garbage": func(_ int, m []byte) []byte {
			return bytes.Repeat([]byte{0xff}, len(m))
		},
		"an octet changed": func(_ int, m []byte) []byte {
			m = bytes.Clone(m)
			m[rnd.IntN(len(m))] ^= 1 << rnd.IntN(8)
			return m
		},
		"a message cut": func(_ int, m []byte) []byte { return m[:len(m)/2] },
		"the end missing": func(_ int, m []byte) []byte {
			m = bytes.Clone(m)
			if n := binary.BigEndian.Uint16(m[6:]); n > 1 {
				binary.BigEndian.PutUint16(m[6:], n-1)
			}
			return m
		},
		"SERVFAIL": func(_ int, m []byte) []byte {
			m = bytes.Clone(m)
			m[3] |= byte(dnswire.ServFail)
			return m
		},
		"REFUSED": func(_ int, m []byte) []byte {
			m = bytes.Clone(m)
			m[3] |= byte(dnswire.Refused)
			return m
		},
	}
	for claim, spoil := range spoils {
		t.Run(claim, func(t *testing.T) {
			p := newPrimary(t, "a.ns.dns.cluster.local")
			p.service("always", 1)
			s := newServer(t, p, nil)
			s.per = 2
			// Without a signature, a changed octet may go unnoticed.
			if claim == "an octet changed" {
				s.key = testKey("k")
			}
			cfg := testConfig(s)
			cfg.Key = func() *dnswire.TSIGKey { return s.key }
			r := run(t, cfg)
			r.waitCurrent(p)
			for i := range 2 {
				before := contents(p, r.DB())
				failures := r.Status().Counters.Failures
				s.spoil.Store(&spoil)
				s.hangUp()
				p.service(fmt.Sprintf("s%d", i), 3)
				r.wait("a failure", func() bool { return r.Status().Counters.Failures > failures })
				if i == 0 {
					now := contents(p, r.DB())
					if strings.Join(before, "\n") != strings.Join(now, "\n") {
						t.Errorf("something of a transfer that failed is seen")
					}
				}
				s.spoil.Store(nil)
				r.waitCurrent(p)
				same(t, p, r)
			}
		})
	}
}

// TestSilentPrimary checks that a server that does not reply is given up.
func TestSilentPrimary(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the time of a first message")
	}
	p := newPrimary(t, "b.ns.dns.cluster.local")
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	cfg := testConfig()
	cfg.Servers = []forward.Upstream{{Addr: mute.Addr().(*net.TCPAddr).AddrPort(), Transport: forward.TCP}, newServer(t, p, nil).upstream()}
	for cfg.Node = "x"; ; cfg.Node += "x" { // find a node that prefers the silent server
		r := &Secondary{cfg: cfg}
		if r.weight(cfg.Servers[0]) > r.weight(cfg.Servers[1]) {
			break
		}
	}
	began := time.Now()
	r := run(t, cfg)
	r.waitCurrent(p)
	if took := time.Since(began); took < firstTime || took > firstTime+10*time.Second {
		t.Errorf("it took %v, want some more than %v", took, firstTime)
	}
}

// TestKeys checks that nothing is transferred with a wrong key, without one, or
// with wrong clocks, and that the log says why.
func TestKeys(t *testing.T) {
	for claim, c := range map[string]struct {
		server, ours *dnswire.TSIGKey
		clock        time.Duration
		log          string
	}{
		"a wrong secret":         {testKey("a"), testKey("b"), 0, "BADSIG"},
		"no key":                 {testKey("a"), nil, 0, "NOTAUTH"},
		"the server has no key":  {nil, testKey("a"), 0, "not signed"},
		"clocks of another time": {testKey("a"), testKey("a"), 10 * time.Minute, "BADTIME"},
	} {
		t.Run(claim, func(t *testing.T) {
			p := newPrimary(t, "a.ns.dns.cluster.local")
			s := newServer(t, p, nil)
			s.key, s.clock = c.server, c.clock
			cfg := testConfig(s)
			cfg.Key = func() *dnswire.TSIGKey { return c.ours }
			r := run(t, cfg)
			r.wait("two failures", func() bool { return r.Status().Counters.Failures >= 2 })
			if st := r.Status(); st.Zones[0].Loaded || strings.Count(r.log.String(), "level=WARN") != 1 || !strings.Contains(r.log.String(), c.log) {
				t.Errorf("Status() = %+v, log, which is to have %s once:\n%s", st, c.log, r.log)
			}
			if a := lookup(r.DB(), "cluster.local", dnswire.TypeSOA); a.Outcome != zone.Unanswered {
				t.Errorf("SOA without a copy: outcome %d", a.Outcome)
			}
			if a := lookup(r.DB(), "x.svc.cluster.local", dnswire.TypeA); a.Outcome != zone.Unanswered || a.EDE.Code != dnswire.EDENotReady {
				t.Errorf("a name without a copy: outcome %d", a.Outcome)
			}
		})
	}
}

// TestWithoutMetadata checks that a primary of another vendor is rejected.
func TestWithoutMetadata(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	s := newServer(t, p, nil)
	s.detail = zone.RecordsOnly
	r := run(t, testConfig(s))
	r.wait("a failure", func() bool { return r.Status().Counters.Failures > 0 })
	if st := r.Status(); st.Zones[0].Loaded || !errors.Is(st.Zones[0].Failure, ErrNoMetadata) {
		t.Errorf("Status() = %+v", st)
	}
}

// TestOneZoneFails checks that a later zone whose transfers fail is postponed,
// longer each time and regardless of NOTIFYs, while the first zone is followed
// from the same primary without new AXFRs.
func TestOneZoneFails(t *testing.T) {
	reverse := func(m []byte) bool { return bytes.Contains(m, []byte("\x07in-addr")) }
	for claim, spoil := range map[string]func(i int, m []byte) []byte{
		"cut off": func(_ int, m []byte) []byte {
			if reverse(m) {
				return nil
			}
			return m
		},
		"malformed": func(_ int, m []byte) []byte {
			if reverse(m) {
				return m[:len(m)-1]
			}
			return m
		},
	} {
		t.Run(claim, func(t *testing.T) {
			p := newPrimary(t, "a.ns.dns.cluster.local")
			q := newPrimary(t, "b.ns.dns.cluster.local")
			servers := []*server{newServer(t, p, nil), newServer(t, q, nil)}
			for _, s := range servers {
				s.per = 1000
				s.spoil.Store(&spoil)
			}
			cfg := testConfig(servers...)
			r := run(t, cfg)
			n := 0
			r.wait("four failures", func() bool {
				n++
				for _, s := range servers {
					s.service(fmt.Sprintf("s%d", n%10), n%3)
				}
				r.Notify([]byte(reverseZone.WireLabels()), servers[0].addr().Addr(), true)
				return r.Status().Counters.Failures >= 4
			})
			st := r.Status()
			const most = 1 + 4*2 // a connection closed before a reply may have been idle too long
			if asked := servers[0].axfr.Load() + servers[1].axfr.Load(); st.Counters.AXFR != 1 || asked > most {
				t.Errorf("%d zones were transferred whole, %d asked for, want 1 and %d at most", st.Counters.AXFR, asked, most)
			}
			if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings, want 1:\n%s", n, r.log)
			}
			if st.Zones[1].Failure == nil || st.Zones[0].Failure != nil {
				t.Errorf("Status() = %+v", st)
			}
			for _, s := range servers {
				s.spoil.Store(nil)
			}
			r.wait("current", func() bool { return r.current(p) || r.current(q) })
		})
	}
}

// TestTooLarge checks that a zone over the limits is rejected and the copy
// kept.
func TestTooLarge(t *testing.T) {
	for claim, limits := range map[string]Limits{
		"octets":  {Octets: 5000, Records: 1 << 20},
		"records": {Octets: 1 << 20, Records: 60},
	} {
		p := newPrimary(t, "a.ns.dns.cluster.local")
		s := newServer(t, p, nil)
		cfg := testConfig(s)
		cfg.Limits = limits
		r := run(t, cfg)
		r.waitCurrent(p)
		for i := range 100 {
			p.service(fmt.Sprintf("s%d", i), 3)
		}
		r.wait("a failure", func() bool { return errors.Is(r.Status().Zones[0].Failure, errTooLarge) })
		if a := lookup(r.DB(), "cluster.local", dnswire.TypeNS); a.Outcome != zone.Found {
			t.Errorf("%s: the copy is gone", claim)
		}
	}
}

// TestHistoryLost checks that a primary without history sends the whole zone,
// and that a copy that does not match a difference is replaced.
func TestHistoryLost(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	s := newServer(t, p, nil)
	r := run(t, testConfig(s))
	r.waitCurrent(p)
	p.db.SetHistoryLimits(zone.HistoryLimits{})
	p.service("web", 2)
	r.waitCurrent(p)
	same(t, p, r)
	if n := s.axfr.Load(); n != 4 {
		t.Errorf("%d AXFRs, want 4", n)
	}
	p.db.SetHistoryLimits(zone.HistoryLimits{Changes: 1000, Octets: 1 << 20})
	r.write.Lock()
	c := r.zones[0].copy
	if err := c.Replace(c.SOA(), nil); err != nil {
		t.Error(err)
	}
	r.write.Unlock()
	p.service("web", 0)
	r.waitCurrent(p)
	same(t, p, r)
	if n := s.axfr.Load(); n != 5 {
		t.Errorf("%d AXFRs, want 5", n)
	}
}

// TestRestartedServer checks that a primary with a new history under the same
// address is followed by AXFR, even if its serials are lower.
func TestRestartedServer(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	p.service("web", 2)
	s := newServer(t, p, nil)
	r := run(t, testConfig(s))
	r.waitCurrent(p)
	p.mu.Lock()
	p.mname = dnsname.MustParse("b.ns.dns.cluster.local")
	p.mu.Unlock()
	r.waitCurrent(p)
	same(t, p, r)
}

// TestChurnLeaksNothing checks that churn leaks neither goroutines nor memory.
func TestChurnLeaksNothing(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	s := newServer(t, p, nil)
	s.per = 500
	r := run(t, testConfig(s))
	r.waitCurrent(p)
	goroutines := runtime.NumGoroutine()
	heapAfter := func() uint64 {
		p.db.SetHistoryLimits(zone.HistoryLimits{}) // drops the history
		p.db.SetHistoryLimits(zone.HistoryLimits{Changes: 1 << 16, Octets: 1 << 20})
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var first uint64
	for round := range 5 {
		for i := range 400 {
			p.service(fmt.Sprintf("s%d", i%50), (round+i)%4)
		}
		for i := range 50 {
			p.service(fmt.Sprintf("s%d", i), 1)
		}
		s.hangUp()
		r.waitCurrent(p)
		if round == 0 {
			first = heapAfter()
		}
	}
	same(t, p, r)
	if last := heapAfter(); last > first+1<<20 {
		t.Errorf("%d octets are held, and %d were after the first round", last, first)
	}
	if n := runtime.NumGoroutine(); n > goroutines+2 {
		t.Errorf("%d goroutines, and %d before", n, goroutines)
	}
}

// TestAnswersWereCorrectWhenVerified checks, while the primary changes all the time and connections
// are cut, that each answer of the copy is one that the primary gave no longer
// ago than VerifiedAt.
func TestAnswersWereCorrectWhenVerified(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	s := newServer(t, p, nil)
	s.per = 50
	p.service("web", 1)
	cfg := testConfig(s)
	cfg.CheckInterval = 2 * time.Millisecond
	r := run(t, cfg)
	r.waitCurrent(p)
	name := "web.shop.svc.cluster.local"
	answers := func(db *zone.DB) string {
		a := lookup(db, name, dnswire.TypeA)
		return fmt.Sprint(a.Outcome, a.RRset.RData())
	}
	given := map[string]bool{answers(p.db): true}
	for i := range 2000 {
		p.service("web", i%4)
		given[answers(p.db)] = true
		p.service(fmt.Sprintf("other-%d", i%50), i%3)
		if i%97 == 0 {
			s.hangUp()
		}
		if got := answers(r.DB()); !given[got] {
			t.Errorf("after change %d the answer is %s, which the server never gave", i, got)
		}
	}
	r.waitCurrent(p)
	same(t, p, r)
}
