package respond_test

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/budget"
)

// upstreamThat makes a Forwarder whose upstream answers with the records that
// records gives for a name.
func upstreamThat(tb testing.TB, records func(name string) []string) *forward.Forwarder {
	tb.Helper()
	kept, err := cache.New(cache.Config{Size: 64 << 20, MaxTTL: 86400, MaxNegativeTTL: 60, Stale: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	f, err := forward.New(forward.Config{
		Routes: []forward.Route{{Timeout: 4 * time.Second, Policy: forward.Sequential,
			Upstreams: []forward.Upstream{{Addr: netip.MustParseAddrPort("192.0.2.53:53")}}}},
		Cache: kept, Limits: budget.Limits{Total: 1000, PerSource: 1000}, StaleAfter: time.Second,
		Exchange: func(_ context.Context, _ forward.Upstream, query []byte) ([]byte, error) {
			var q dns.Msg
			if err := q.Unpack(query); err != nil {
				return nil, err
			}
			m := new(dns.Msg)
			m.SetReply(&q)
			m.Compress = true
			for _, text := range records(q.Question[0].Name) {
				rr, err := dns.NewRR(text)
				if err != nil {
					return nil, err
				}
				m.Answer = append(m.Answer, rr)
			}
			return m.Pack()
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// answerNow gives the answer, waiting for others where need be.
func answerNow(tb testing.TB, w *respond.Worker, packet, buf []byte) []byte {
	tb.Helper()
	answer, later := w.Respond(packet, respond.Client{Addr: netip.MustParseAddr("192.0.2.1")}, buf)
	if later != nil {
		answer = later.Answer(tb.Context())
	}
	return answer
}

// TestCachedAnswersAllocateNothing: what is in the cache is answered without allocating.
func TestCachedAnswersAllocateNothing(t *testing.T) {
	f := upstreamThat(t, func(name string) []string {
		return []string{name + " 300 CNAME edge.example.", "edge.example. 300 A 192.0.2.1"}
	})
	w := newWorker(t, respond.Config{Data: exampleDB(t), Upstreams: f})
	packet := query(t, dnswire.QuerySpec{Name: "www.example.", Type: dnswire.TypeA, UDPSize: 1232, Flags: dnswire.FlagRD})
	buf := make([]byte, 0, dnswire.MaxMessage)
	answerNow(t, w, packet, buf)
	if n := testing.AllocsPerRun(1000, func() {
		if _, later := w.Respond(packet, respond.Client{}, buf); later != nil {
			t.Fatal("not known")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkKnown answers from the cache, among so many names.
func BenchmarkKnown(b *testing.B) {
	f := upstreamThat(b, func(name string) []string { return []string{name + " 300 A 192.0.2.1"} })
	for _, names := range []int{1, 10_000, 100_000} {
		b.Run(strconv.Itoa(names), func(b *testing.B) {
			w := newWorker(b, respond.Config{Data: exampleDB(b), Upstreams: f})
			buf := make([]byte, 0, dnswire.MaxMessage)
			packets := make([][]byte, names)
			for i := range packets {
				packets[i] = query(b, dnswire.QuerySpec{Name: fmt.Sprintf("name%d.example.", i), Type: dnswire.TypeA, Flags: dnswire.FlagRD})
				answerNow(b, w, packets[i], buf)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + 7919) % names {
				w.Respond(packets[i], respond.Client{}, buf)
			}
		})
	}
}

// loading is data that is not loaded.
type loading struct{ *zone.DB }

func (l loading) Lookup(s *zone.Scratch, name []byte, t dnswire.Type) zone.Answer {
	a := l.DB.Lookup(s, name, t)
	if a.Outcome != zone.OutOfZone {
		a.Outcome = zone.Unanswered
	}
	return a
}

// TestForwardWhileLoading checks that names in the cluster's zones are forwarded to
// other servers of these zones until they are loaded.
func TestForwardWhileLoading(t *testing.T) {
	f := upstreamThat(t, func(name string) []string { return []string{name + " 5 A 10.96.0.1"} })
	for ask, want := range map[bool]dnswire.RCode{true: dnswire.NoError, false: dnswire.ServFail} {
		w := newWorker(t, respond.Config{Data: loading{exampleDB(t)}, Upstreams: f, ForwardWhileLoading: ask})
		packet := query(t, dnswire.QuerySpec{Name: "web.shop.svc.cluster.local", Type: dnswire.TypeA, Flags: dnswire.FlagRD})
		answer := answerNow(t, w, packet, make([]byte, 0, dnswire.MaxMessage))
		if got := dnswire.RCode(answer[3] & 0xf); got != want {
			t.Errorf("asking %t: %s, want %s", ask, got, want)
		}
	}
}
