package respond_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/evidence"
)

// withEvidence adds a Ring to a configuration.
func withEvidence(cfg respond.Config, of evidence.Config) (respond.Config, *evidence.Ring) {
	of.Size, of.Mask = 100, evidence.MaskNone
	ring := evidence.New(of)
	cfg.Evidence = ring.Source(evidence.SourceConfig{
		Kind: respond.EvidenceKind, Reasons: respond.EvidenceReasons(), Seats: 1,
	})
	return cfg, ring
}

// TestEvidence verifies the reasons and texts of events.
func TestEvidence(t *testing.T) {
	t.Parallel()
	rules, err := filter.New(filter.Config{
		Access: []filter.AccessRule{
			{Action: filter.Drop, Names: []dnsname.Name{dnsname.MustParse("dropped.example")}},
			{Action: filter.Refuse, Names: []dnsname.Name{dnsname.MustParse("refused.example")}},
		},
		Block: filter.Blocklist{Names: []dnsname.Name{dnsname.MustParse("blocked.example")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for claim, test := range map[string]struct {
		cfg    respond.Config
		name   string
		qtype  dnswire.Type
		reason string
		event  string
	}{
		"found":      {respond.Config{}, "web.shop.svc.cluster.local", dnswire.TypeA, "ok", "web.shop.svc.cluster.local. A"},
		"upper case": {respond.Config{}, "WEB.shop.svc.cluster.local", dnswire.TypeA, "ok", "web.shop.svc.cluster.local. A"},
		"no type":    {respond.Config{}, "web.shop.svc.cluster.local", dnswire.TypeTXT, "nodata", "web.shop.svc.cluster.local. TXT"},
		"no Service": {respond.Config{}, "gone.shop.svc.cluster.local", dnswire.TypeA, "no-service", "gone.shop.svc.cluster.local. A"},
		"outside":    {respond.Config{}, "www.example", dnswire.TypeA, "no-upstream", "www.example. A"},
		"a strange type": {
			respond.Config{}, "web.shop.svc.cluster.local", 65280, "nodata", "web.shop.svc.cluster.local. TYPE65280",
		},
		"escapes":    {respond.Config{}, `\000\"x\.y.gone.svc.cluster.local`, dnswire.TypeA, "no-namespace", `\000\"x\.y.gone.svc.cluster.local. A`},
		"dropped":    {respond.Config{Rules: rules}, "dropped.example", dnswire.TypeA, "not-allowed", "dropped.example. A"},
		"refused":    {respond.Config{Rules: rules}, "refused.example", dnswire.TypeA, "not-allowed", "refused.example. A"},
		"blocked":    {respond.Config{Rules: rules}, "blocked.example", dnswire.TypeA, "blocked", "blocked.example. A"},
		"no data":    {respond.Config{Data: silent{}}, "www.example", dnswire.TypeA, "servfail", "www.example. A"},
		"a transfer": {respond.Config{}, "cluster.local", dnswire.TypeAXFR, "not-allowed", "cluster.local. AXFR"},
	} {
		cfg, ring := withEvidence(test.cfg, evidence.Config{OneIn: 1})
		if cfg.Data == nil {
			cfg.Data = exampleDB(t)
		}
		respondNow(newWorker(t, cfg), query(t, dnswire.QuerySpec{Name: test.name, Type: test.qtype}), client)
		events := ring.Events()
		if len(events) != 1 {
			t.Errorf("%s: %d events, want 1", claim, len(events))
			continue
		}
		e := events[0]
		if got := e.Subject + " " + e.Detail; e.Reason != test.reason || got != test.event || e.Kind != "query" ||
			e.ClientText() != client.Addr.String() {
			t.Errorf("%s: event %s of %s: %q; want %s and %q", claim, e.Reason, e.ClientText(), got, test.reason, test.event)
		}
	}
}

// TestEvidenceOfLimits verifies that queries over the rate limit are told of, and packets that are
// no queries are not.
func TestEvidenceOfLimits(t *testing.T) {
	t.Parallel()
	for _, slip := range []int{0, 1} {
		cfg, ring := withEvidence(respond.Config{
			Data:    exampleDB(t),
			Limiter: filter.NewRateLimiter(filter.RateLimit{PerSecond: 1, Burst: 1, Prefix4: 32, Prefix6: 128, Slip: slip}),
		}, evidence.Config{OneIn: 1})
		w := newWorker(t, cfg)
		packet := query(t, questions["A"])
		for range 2 {
			respondNow(w, packet, client)
		}
		respondNow(w, packet[:5], client)
		respondNow(w, append([]byte{0, 0, 0x80}, packet[3:]...), client)
		events := ring.Events()
		if len(events) != 2 || events[1].Reason != "rate-limited" || events[1].Detail != "A" {
			t.Errorf("slip %d: %d events, the last %+v; want 2, the last rate-limited", slip, len(events), events[len(events)-1])
		}
	}
}

// TestLongNames verifies that the longest names, of escapes only, are cut and nothing else.
func TestLongNames(t *testing.T) {
	t.Parallel()
	cfg, ring := withEvidence(respond.Config{Data: exampleDB(t)}, evidence.Config{OneIn: 1})
	label := strings.Repeat(`\007`, 63)
	name := label + "." + label + "." + label + "." + strings.Repeat(`\007`, 61)
	respondNow(newWorker(t, cfg), query(t, dnswire.QuerySpec{Name: name, Type: dnswire.TypeA}), client)
	if got := ring.Events()[0]; got.Subject != (name + ".")[:evidence.MaxText] || got.Detail != "A" {
		t.Errorf("event of the longest name: %d octets, %q", len(got.Subject), got.Detail)
	}
}

// TestEvidenceAllocatesNothing verifies that answers allocate nothing, whether they are sampled
// or not, and with an Observer.
func TestEvidenceAllocatesNothing(t *testing.T) {
	for claim, of := range map[string]evidence.Config{
		"the defaults": {OneIn: 128, PerSecond: 10}, "all": {OneIn: 1}, "every other": {OneIn: 2},
	} {
		cfg, ring := withEvidence(respond.Config{Data: exampleDB(t), Observer: new(lastObservation)}, of)
		worker := newWorker(t, cfg)
		buf := make([]byte, 0, dnswire.MaxMessage)
		for question, q := range questions {
			packet := query(t, q)
			if n := testing.AllocsPerRun(1000, func() { worker.Respond(packet, client, buf) }); n != 0 {
				t.Errorf("%s: %s: %v allocations, want 0", claim, question, n)
			}
			if len(ring.Events()) == 0 && of.OneIn < 3 {
				t.Errorf("%s: %s: no events", claim, question)
			}
		}
	}
}

// lastObservation is an Observer that keeps a copy of the client.
type lastObservation struct{ client netip.Addr }

func (l *lastObservation) Observe(o *respond.Observation) { l.client = o.Client.Addr }

// TestEvidenceReasons verifies that each reason has a word of its own and a meaning.
func TestEvidenceReasons(t *testing.T) {
	t.Parallel()
	words := make(map[string]bool)
	for i, r := range respond.EvidenceReasons() {
		if r.Word == "" || r.Meaning == "" || words[r.Word] {
			t.Errorf("reason %d: %+v is incomplete, or there twice", i, r)
		}
		words[r.Word] = true
	}
}

// BenchmarkRespondEvidence is BenchmarkRespond with the defaults of evidence, drained as in a process.
func BenchmarkRespondEvidence(b *testing.B) {
	cfg, ring := withEvidence(benchmarkConfig(b), evidence.Config{OneIn: 128, PerSecond: 10})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- ring.Run(ctx) }()
	benchmarkRespond(b, cfg)
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
