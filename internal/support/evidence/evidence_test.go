package evidence

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// The reasons of newTest.
const (
	usual = iota
	rare
	frequent
)

var (
	testReasons = []Reason{usual: {Word: "ok", Usual: true}, rare: {Word: "rare"}, frequent: {Word: "frequent"}}
	client      = netip.MustParseAddr("10.1.2.3")
)

// newTest returns a Ring with one source and its sampler.
func newTest(cfg Config) (*Ring, *Sampler) {
	if cfg.Size == 0 {
		cfg.Size = 100
	}
	if cfg.Mask == "" {
		cfg.Mask = MaskNone
	}
	r := New(cfg)
	return r, r.Source(SourceConfig{Kind: "query", Reasons: testReasons}).Sampler(0)
}

// record records an event of a subject, and drains the seats.
func record(r *Ring, s *Sampler, reason int, subject string) {
	s.Record(&Sample{Reason: reason, Weight: 1, Time: time.Now(), Client: client, Subject: []byte(subject), Route: "by hand"})
	r.drain()
}

// subjects returns those of the events that are kept.
func subjects(r *Ring) (all []string) {
	for _, e := range r.Events() {
		all = append(all, e.Subject)
	}
	return all
}

// TestWeights verifies that the sums of weights are the numbers of events, also of those that
// alternate.
func TestWeights(t *testing.T) {
	t.Parallel()
	const n, oneIn = 1 << 20, 64
	_, s := newTest(Config{OneIn: oneIn})
	var sums [2]int
	for i := range n {
		sums[i%2] += s.Draw(usual, time.Time{})
	}
	for i, sum := range sums { // the deviation is about 5800
		if got := float64(sum) / (n / 2); got < 0.93 || got > 1.07 {
			t.Errorf("Draw gives weights of %d to %d events of row %d", sum, n/2, i)
		}
	}
}

// TestAllowance verifies that so many failures a second are all drawn, for each reason, and that
// usual events are not.
func TestAllowance(t *testing.T) {
	t.Parallel()
	_, s := newTest(Config{OneIn: 1 << 30, PerSecond: 3})
	now := time.Unix(1000, 0)
	var got []int
	for _, at := range []time.Time{now, now.Add(time.Second)} {
		for range 5 {
			got = append(got, s.Draw(frequent, at))
		}
	}
	got = append(got, s.Draw(rare, now), s.Draw(usual, now))
	if diff := cmp.Diff([]int{1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0}, got); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
}

// TestEveryEvent verifies that one in one is all.
func TestEveryEvent(t *testing.T) {
	t.Parallel()
	_, s := newTest(Config{OneIn: 1})
	for i := range 100 {
		if got := s.Draw(usual, time.Time{}); got != 1 {
			t.Fatalf("Draw of event %d = %d, want 1", i, got)
		}
	}
}

// TestFloodHidesNothing verifies that of the reason with most events the oldest goes.
func TestFloodHidesNothing(t *testing.T) {
	t.Parallel()
	r, s := newTest(Config{Size: 4})
	record(r, s, rare, "first")
	for i := range 10 {
		record(r, s, frequent, fmt.Sprint("flood ", i))
	}
	if diff := cmp.Diff([]string{"first", "flood 7", "flood 8", "flood 9"}, subjects(r)); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	if got := len(r.events.queues); got != 2 {
		t.Errorf("%d queues, want 2", got)
	}
}

// TestFailures verifies that the last events are returned that are not usual and match.
func TestFailures(t *testing.T) {
	t.Parallel()
	r, s := newTest(Config{})
	for i, reason := range []int{usual, rare, frequent, rare, usual, frequent} {
		record(r, s, reason, strconv.Itoa(i))
	}
	var got []string
	for _, e := range r.Failures(2, func(e *Event) bool { return e.Subject != "5" }) {
		got = append(got, e.Subject)
	}
	if diff := cmp.Diff([]string{"3", "2"}, got); diff != "" {
		t.Errorf("Failures (-want +got):\n%s", diff)
	}
}

// TestFullSeat verifies that what has no room is dropped and counted.
func TestFullSeat(t *testing.T) {
	t.Parallel()
	r, s := newTest(Config{Size: 1000})
	for range seatEvents + 5 {
		s.Record(&Sample{Weight: 1, Subject: []byte("x")})
	}
	if got := len(r.Events()); got != seatEvents {
		t.Errorf("%d events, want %d", got, seatEvents)
	}
	want := map[string]float64{"portolan_evidence_events_total": seatEvents, "portolan_evidence_dropped_total": 5}
	if diff := cmp.Diff(want, gather(t, r)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	for range seatEvents {
		s.Record(&Sample{Weight: 1, Subject: []byte(strings.Repeat("y", 2*MaxText))})
	}
	if got := len(r.Events()); got != seatEvents+seatEvents*eventText/MaxText {
		t.Errorf("%d events after long ones, want as many as there are octets for", got)
	}
}

// gather returns the values of the metrics.
func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		all[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	return all
}

// TestTop verifies that frequent keys are found among floods of others, that counts are never above
// the numbers, and that old ones end.
func TestTop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := newTest(Config{})
		began := time.Now()
		for i := range 3000 {
			record(r, s, frequent, fmt.Sprintf("x%d.example.", i))
			if i%10 == 0 {
				record(r, s, frequent, "web.shop.")
			}
		}
		record(r, s, usual, "ok.example.")
		record(r, s, rare, "once.example.")
		top := r.Top(TopQuery{By: BySubject, Limit: 2})
		if len(top.Items) != 2 || top.Items[0].Key != "web.shop." || !top.Since.Equal(began) {
			t.Fatalf("Top = %+v, want web.shop. first", top)
		}
		if got := top.Items[0]; got.Count < 250 || got.Count > 300 || got.Share < 0.07 || got.Share > 0.1 {
			t.Errorf("Top has %+v, want nearly 300 of 3301", got)
		}
		want := []Item{{Kind: "query", Reason: "ok", Key: "10.1.2.3", Count: 1, Share: 1}}
		if diff := cmp.Diff(want, r.Top(TopQuery{Reasons: []string{"ok"}, By: ByClient, Limit: 9}).Items); diff != "" {
			t.Errorf("Top by client (-want +got):\n%s", diff)
		}
		time.Sleep(period)
		record(r, s, rare, "once.example.")
		want = []Item{{Kind: "query", Reason: "rare", Key: "once.example.", Count: 2, Share: 1}}
		if diff := cmp.Diff(want, r.Top(TopQuery{Reasons: []string{"rare"}, By: BySubject, Limit: 9}).Items); diff != "" {
			t.Errorf("Top in the second period (-want +got):\n%s", diff)
		}
		time.Sleep(period)
		if got := r.Top(TopQuery{Reasons: []string{"frequent"}, By: BySubject, Limit: 9}).Items; len(got) > 0 {
			t.Errorf("Top in the third period = %v, want nothing of the first", got)
		}
		time.Sleep(2 * period)
		if got := r.Top(TopQuery{By: BySubject, Limit: 9}); len(got.Items) > 0 || !got.Since.Equal(time.Now()) {
			t.Errorf("Top after a long time = %v, want nothing", got)
		}
	})
}

func TestMask(t *testing.T) {
	t.Parallel()
	four, six := "10.1.2.3", "2001:db8:1:2345::7"
	for claim, test := range map[string]struct {
		mask Mask
		addr string
		want string
		pod  string
	}{
		"whole":                 {MaskNone, four, four, "shop/web-0"},
		"whole IPv6":            {MaskNone, six, six, "shop/web-0"},
		"IPv4 mapped":           {MaskNone, "::ffff:10.1.2.3", four, "shop/web-0"},
		"link-local":            {MaskNone, "fe80::1%eth0", "fe80::1", "shop/web-0"},
		"a prefix":              {MaskPrefix, four, "10.1.2.0/24", ""},
		"a prefix of IPv6":      {MaskPrefix, six, "2001:db8:1:2300::/56", ""},
		"a prefix of a mapping": {MaskPrefix, "::ffff:10.1.2.3", "10.1.2.0/24", ""},
		"nothing":               {MaskAll, four, "", ""},
	} {
		r := New(Config{Size: 1, Mask: test.mask})
		s := r.Source(SourceConfig{
			Kind: "query", Reasons: testReasons, Pod: func(netip.Addr) string { return "shop/web-0" },
		}).Sampler(0)
		s.Record(&Sample{Client: netip.MustParseAddr(test.addr), Time: time.Now()})
		e := r.Events()[0]
		if got := e.ClientText(); got != test.want || e.Pod != test.pod {
			t.Errorf("%s: client %q, Pod %q; want %q and %q", claim, got, e.Pod, test.want, test.pod)
		}
		s.Record(&Sample{Client: netip.MustParseAddr(test.addr), Pod: "shop/web-0"})
		if got := r.Events()[0].Pod; got != test.pod {
			t.Errorf("%s, with a Pod: %q, want %q", claim, got, test.pod)
		}
	}
}

// TestJSON verifies that events are the same after JSON, whatever is in them.
func TestJSON(t *testing.T) {
	t.Parallel()
	r, s := newTest(Config{Size: 10})
	for _, text := range []string{"web.shop.svc.cluster.local.", "\x00\x1b[31m\u202e<script>", "", "a\nb"} {
		s.Record(&Sample{
			Weight: 64, Time: time.Unix(1700000000, 123e6), Client: client, Subject: []byte(text), Detail: []byte("AAAA"),
			Scheme: "https",
		})
	}
	for _, want := range r.Events() {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Event
		if err := json.Unmarshal(text, &got); err != nil {
			t.Errorf("Unmarshal(%s): %v", text, err)
		}
		got.Sequence, got.Usual, got.Time = want.Sequence, want.Usual, got.Time.Local()
		if diff := cmp.Diff(*want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	const want = `{"time":"2023-11-14T22:13:20.123Z","kind":"query","reason":"ok","client":"10.1.2.3",` +
		`"subject":"web.shop.svc.cluster.local.","detail":"AAAA","scheme":"https","weight":64}`
	if got, _ := json.Marshal(r.Events()[0]); string(got) != want {
		t.Errorf("Marshal = %s\nwant      %s", got, want)
	}
}

// TestCut verifies that long texts are cut between characters.
func TestCut(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", MaxText-1) + "é"
	if got := cut(text); got != text[:MaxText-1] {
		t.Errorf("cut(…%q) = …%q", text[MaxText-4:], got[MaxText-4:])
	}
	if got := cut(strings.Repeat("\x80", MaxText+9)); len(got) > MaxText || len(got) < MaxText-4 {
		t.Errorf("cut of no text has %d octets", len(got))
	}
}

// TestNilRing verifies that without a Ring there is nothing to call.
func TestNilRing(t *testing.T) {
	t.Parallel()
	r := New(Config{})
	source := r.Source(SourceConfig{})
	source.Observe(0, time.Now(), func(*Sample) { t.Error("fill is called") })
	if r != nil || source.Sampler(0) != nil || r.Pages() != nil || r.Events() != nil {
		t.Error("New(Config{}) is something")
	}
}

// TestAllocations verifies that recording allocates nothing.
func TestAllocations(t *testing.T) {
	r, s := newTest(Config{OneIn: 2, PerSecond: 1})
	name := []byte("web.shop.svc.cluster.local.")
	if n := testing.AllocsPerRun(1000, func() {
		now := time.Now()
		for _, reason := range []int{usual, frequent} {
			if w := s.Draw(reason, now); w > 0 {
				s.Record(&Sample{Reason: reason, Weight: w, Time: now, Client: client, Subject: name, Detail: name[:3]})
			}
		}
	}); n != 0 {
		t.Errorf("Draw and Record: %v allocations, want 0", n)
	}
	if len(r.Events()) == 0 {
		t.Error("nothing was recorded")
	}
}

// TestMemory verifies that the memory of a Ring of the default size is bounded when all reasons
// have floods of distinct subjects of the greatest length, in two periods.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("floods a Ring")
	}
	const reasons, most = 32, 8 << 20
	var all []Reason
	for i := range reasons {
		all = append(all, Reason{Word: fmt.Sprint("reason-", i)})
	}
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	r := New(Config{Size: 1024, OneIn: 1, Mask: MaskNone})
	s := r.Source(SourceConfig{Kind: "query", Reasons: all, Seats: 8}).Sampler(0)
	subject := []byte(strings.Repeat("x", MaxText))
	for i := range reasons * maxKeys * 8 {
		if i == reasons*maxKeys*4 {
			r.counts.rotate(r.counts.now.since.Add(period))
		}
		copy(subject, fmt.Sprintf("%08d", i))
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		s.Record(&Sample{Reason: i % reasons, Weight: 1, Time: time.Now(), Client: addr, Subject: subject, Detail: subject[:8]})
		r.drain()
	}
	if got := used() - before; got > most {
		t.Errorf("a Ring uses %d octets, want at most %d", got, most)
	} else {
		t.Logf("a Ring uses %d octets", got)
	}
	runtime.KeepAlive(r)
}

// TestTogether has goroutines record, drain and read at once; it is for the race detector.
func TestTogether(t *testing.T) {
	t.Parallel()
	r := New(Config{Size: 50, OneIn: 2, PerSecond: 5, Mask: MaskNone})
	source := r.Source(SourceConfig{Kind: "query", Reasons: testReasons, Seats: 2})
	ended := make(chan error)
	ctx, stop := newContext(t)
	go func() { ended <- r.Run(ctx) }()
	var wg sync.WaitGroup
	for seat := range 4 {
		wg.Go(func() {
			s := source.Sampler(seat)
			for i := range 2000 {
				now := time.Now()
				if w := s.Draw(i%3, now); w > 0 {
					s.Record(&Sample{Reason: i % 3, Weight: w, Time: now, Client: client, Subject: []byte("x")})
				}
				source.Observe(i%3, now, func(e *Sample) { e.Subject = []byte("y") })
			}
		})
		wg.Go(func() {
			for range 50 {
				_, _, leave := r.follow()
				r.Top(TopQuery{By: BySubject, Limit: 5})
				leave()
			}
		})
	}
	wg.Wait()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := len(r.Events()); got == 0 || got > 50 {
		t.Errorf("%d events, want up to 50", got)
	}
}

// FuzzSummary compares a summary with exact counts.
func FuzzSummary(f *testing.F) {
	f.Add([]byte("the quick brown fox jumps over the lazy dog"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		s, exact := newSummary(), make(map[string]int)
		total := 0
		for i, c := range stream {
			key, weight := fmt.Sprint(c, i%2), 1+int(c)%5
			s.add(key, weight)
			exact[key] += weight
			total += weight
		}
		sum := 0
		for _, c := range s.counters {
			if n := exact[c.key]; c.count-c.excess > n || c.count < n {
				t.Errorf("key %q: from %d to %d, and there are %d", c.key, c.count-c.excess, c.count, n)
			}
			sum += c.count
			delete(exact, c.key)
		}
		if sum != total || len(s.counters) > maxKeys || len(s.index) != len(s.counters) {
			t.Errorf("%d counters with %d together, want %d", len(s.counters), sum, total)
		}
		for key, n := range exact {
			if n > total/maxKeys {
				t.Errorf("key %q with %d of %d is not there", key, n, total)
			}
		}
	})
}
