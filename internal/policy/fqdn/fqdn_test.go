package fqdn

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/policy/ruleset"
)

var (
	pod   = netip.MustParseAddr("10.244.1.7")
	other = netip.MustParseAddr("10.244.2.9")
	evil  = netip.MustParseAddr("10.244.1.66")
)

// namespaces are those of the Pods of the node.
var namespaces = map[netip.Addr]string{pod: "shop", evil: "evil"}

// shops returns sets, given by their domain names, of the Namespace of pod.
func shops(domains map[string][]string) map[string]Set {
	sets := make(map[string]Set)
	for name, of := range domains {
		sets[name] = Set{Domains: of, Namespaces: []string{"shop"}}
	}
	return sets
}

// kernel is a Programmer that remembers.
type kernel struct {
	mu    sync.Mutex
	sets  map[string]map[netip.Addr]time.Time // until when
	calls int
	err   error
	delay time.Duration
}

func newKernel(sets ...string) *kernel {
	k := &kernel{sets: make(map[string]map[netip.Addr]time.Time)}
	for _, set := range sets {
		k.sets[set] = make(map[netip.Addr]time.Time)
	}
	return k
}

var errNoSet = errors.New("no such set")

func (k *kernel) ChangeResolved(all []ruleset.Resolution) error {
	time.Sleep(k.delay)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.err != nil {
		return k.err
	}
	for _, r := range all {
		if r.TTL > 0 && k.sets[r.Set] == nil {
			return errNoSet
		}
	}
	for _, r := range all {
		for _, a := range r.Addrs {
			if r.TTL > 0 {
				k.sets[r.Set][a] = time.Now().Add(r.TTL)
			} else {
				delete(k.sets[r.Set], a)
			}
		}
	}
	return nil
}

// set makes the kernel have a set, and its calls fail with err.
func (k *kernel) change(set string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	if k.sets[set] == nil {
		k.sets[set] = make(map[netip.Addr]time.Time)
	}
}

// has lists the addresses of a set that have not expired.
func (k *kernel) has(set string) (addrs []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for a, until := range k.sets[set] {
		if until.After(time.Now()) {
			addrs = append(addrs, a.String())
		}
	}
	slices.Sort(addrs)
	return addrs
}

func (k *kernel) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls
}

// start returns a Gate that runs until the test ends.
func start(t *testing.T, k Programmer, cfg Config) *Gate {
	t.Helper()
	cfg.Programmer = k
	cfg.Grace = max(cfg.Grace, time.Minute)
	if cfg.Namespace == nil {
		cfg.Namespace = func(a netip.Addr) string { return namespaces[a] }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	g := New(cfg)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return g
}

// answerOf returns a message that answers a query for a name with records.
func answerOf(tb testing.TB, name string, records ...string) []byte {
	tb.Helper()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), dns.TypeA)
	m.Response, m.Compress = true, true
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			tb.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	wire, err := m.Pack()
	if err != nil {
		tb.Fatal(err)
	}
	return wire
}

func wireOf(name string) []byte { return []byte(dnsname.MustParse(name).WireLabels()) }

// hold shows an answer to g and waits as long as the answer does. It reports whether it
// waits.
func hold(t *testing.T, g *Gate, client netip.Addr, name string, records ...string) (waits bool) {
	t.Helper()
	wait := g.Hold(client, wireOf(name), answerOf(t, name, records...))
	if wait != nil {
		wait(t.Context())
	}
	return wait != nil
}

func TestMatch(t *testing.T) {
	p := compile(shops(map[string][]string{
		"exact": {"api.example.com"}, "under": {"*.example.com"}, "deep": {"*.b.example.com"},
		"both": {"*.example.com", "api.example.com"}, "bad": {"a..b"}, "top": {"*.org"},
	}), slog.New(slog.DiscardHandler))
	for name, want := range map[string][]string{
		"api.example.com":        {"both", "exact", "under"},
		"www.example.com":        {"both", "under"},
		"a.b.example.com":        {"both", "deep", "under"},
		"b.example.com":          {"both", "under"},
		"example.com":            nil,
		"notexample.com":         nil,
		"api.example.com.search": nil,
		"x.org":                  {"top"},
		"org":                    nil,
		".":                      nil,
	} {
		got := p.match("shop", wireOf(name))
		if d := diff.Diff(want, got); d != "" || p.matches(wireOf(name)) != (len(want) > 0) {
			t.Errorf("match(%s) = %v, want %v; matches = %t", name, got, want, p.matches(wireOf(name)))
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	sets := map[string][]string{"api": {"api.example.com"}, "cdn": {"*.cdn.net"}, "end": {"e7.edge.org"}}
	for claim, c := range map[string]struct {
		asked, question string // the name that was searched for, if it is not the question's
		records         []string
		want            map[string][]string
	}{
		"an address of the name": {
			asked: "api.example.com", records: []string{"api.example.com. 30 A 192.0.2.1", "api.example.com. 30 A 192.0.2.2"},
			want: map[string][]string{"api": {"192.0.2.1", "192.0.2.2"}},
		},
		"IPv6": {
			asked: "api.example.com", records: []string{"api.example.com. 30 AAAA 2001:db8::1"},
			want: map[string][]string{"api": {"2001:db8::1"}},
		},
		"letters in upper case": {
			asked: "api.example.com", question: "API.example.COM", records: []string{"aPI.example.com. 30 A 192.0.2.1"},
			want: map[string][]string{"api": {"192.0.2.1"}},
		},
		"each name of a chain counts": {
			asked: "api.example.com", records: []string{
				"api.example.com. 30 CNAME x.cdn.net.", "x.cdn.net. 30 CNAME e7.edge.org.", "e7.edge.org. 30 A 192.0.2.7",
			},
			want: map[string][]string{"api": {"192.0.2.7"}, "cdn": {"192.0.2.7"}, "end": {"192.0.2.7"}},
		},
		"a name in the middle counts from there on": {
			asked: "www.else.com", records: []string{
				"www.else.com. 30 CNAME x.cdn.net.", "x.cdn.net. 30 CNAME y.else.com.", "y.else.com. 30 A 192.0.2.8",
			},
			want: map[string][]string{"cdn": {"192.0.2.8"}},
		},
		"records in another order": {
			asked: "api.example.com", records: []string{
				"y.else.com. 30 A 192.0.2.8", "x.else.com. 30 CNAME y.else.com.", "api.example.com. 30 CNAME x.else.com.",
			},
			want: map[string][]string{"api": {"192.0.2.8"}},
		},
		"an address of a name that no alias leads to": {
			asked: "www.else.com", records: []string{"www.else.com. 30 A 192.0.2.9", "api.example.com. 30 A 192.0.2.10"},
		},
		"an alias that nothing leads to": {
			asked: "api.example.com", records: []string{
				"a.else.com. 30 CNAME b.else.com.", "b.else.com. 30 A 192.0.2.9", "api.example.com. 30 A 192.0.2.1",
			},
			want: map[string][]string{"api": {"192.0.2.1"}},
		},
		"aliases in a circle": {
			asked: "api.example.com", records: []string{
				"api.example.com. 30 CNAME x.cdn.net.", "x.cdn.net. 30 CNAME api.example.com.",
			},
		},
		"no records": {asked: "api.example.com"},
		"a search that found the name as given": {
			asked: "api.example.com", question: "api.example.com.search.shop.cluster.local",
			records: []string{
				"api.example.com.search.shop.cluster.local. 5 CNAME api.example.com.", "api.example.com. 30 A 192.0.2.1",
			},
			want: map[string][]string{"api": {"192.0.2.1"}},
		},
		"a search by an upstream": {
			asked: "api.example.com", question: "api.example.com.search.shop.cluster.local",
			records: []string{"api.example.com.search.shop.cluster.local. 5 A 192.0.2.1"},
			want:    map[string][]string{"api": {"192.0.2.1"}},
		},
		"a search that found another name": {
			asked: "api.example.com.svc.cluster.local", question: "api.example.com",
			records: []string{
				"api.example.com. 5 CNAME api.example.com.svc.cluster.local.",
				"api.example.com.svc.cluster.local. 5 A 10.96.0.9",
			},
		},
		"addresses of the node": {
			asked: "api.example.com", records: []string{
				"api.example.com. 30 A 127.0.0.1", "api.example.com. 30 A 169.254.169.254", "api.example.com. 30 A 0.0.0.0",
				"api.example.com. 30 AAAA ::1", "api.example.com. 30 AAAA ::ffff:192.0.2.1", "api.example.com. 30 A 224.0.0.1",
			},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			k := newKernel("api", "cdn", "end")
			g := start(t, k, Config{HoldLimit: time.Minute})
			g.Update(shops(sets))
			wait := g.Hold(pod, wireOf(c.asked), answerOf(t, cmp.Or(c.question, c.asked), c.records...))
			if (wait != nil) != (len(c.want) > 0) {
				t.Fatalf("waits: %t, want %t", wait != nil, len(c.want) > 0)
			}
			if wait != nil {
				wait(t.Context())
			}
			for set := range sets {
				if d := diff.Diff(c.want[set], k.has(set)); d != "" {
					t.Errorf("set %s:\n%s", set, d)
				}
			}
		})
	}
}

func TestOtherClientsChangeNothing(t *testing.T) {
	k := newKernel("api")
	g := start(t, k, Config{})
	g.Update(shops(map[string][]string{"api": {"api.example.com"}}))
	if hold(t, g, other, "api.example.com", "api.example.com. 30 A 192.0.2.1") {
		t.Error("the answer to a client that is no Pod of the node waits")
	}
	if s := g.Stats(); s.Names+s.Elements != 0 || k.count() != 0 {
		t.Errorf("Stats() = %+v after the answer to a client that is no Pod of the node", s)
	}
}

// TestTimes: what the kernel has for long enough is not added again, what expires soon is
// renewed without holding the answer, and what expired is added before the answer leaves.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel("api")
		g := start(t, k, Config{})
		g.Update(shops(map[string][]string{"api": {"api.example.com"}}))
		for _, step := range []struct {
			after time.Duration
			ttl   int
			waits bool
			calls int // so far
		}{
			{0, 5, true, 1},
			{0, 5, false, 1},
			{20 * time.Second, 5, false, 1},
			{20 * time.Second, 5, false, 2},    // renewed: until 2:40
			{100 * time.Second, 5, true, 3},    // 20 s are left
			{0, 600, true, 4},                  // used for longer than it stays
			{200 * time.Second, 400, false, 4}, // from a cache
			{800 * time.Second, 5, true, 5},    // expired
		} {
			time.Sleep(step.after)
			waits := hold(t, g, pod, "api.example.com", "api.example.com. "+strconv.Itoa(step.ttl)+" A 192.0.2.1")
			synctest.Wait()
			if waits != step.waits || k.count() != step.calls {
				t.Fatalf("%+v: waits %t, %d calls", step, waits, k.count())
			}
			if len(k.has("api")) != 1 {
				t.Fatalf("%+v: the kernel has %v", step, k.has("api"))
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := g.Stats(); s.Names+s.Elements != 0 {
			t.Errorf("Stats() = %+v after everything expired", s)
		}
	})
}

// TestLongTTLs: the time in the kernel is bounded, and the bound does not renew at each
// answer.
func TestLongTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel("api")
		g := start(t, k, Config{MaxTTL: time.Hour})
		g.Update(shops(map[string][]string{"api": {"api.example.com"}}))
		for range 20 {
			hold(t, g, pod, "api.example.com", "api.example.com. 86400 A 192.0.2.1")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if k.count() != 1 {
			t.Errorf("%d transactions, want 1", k.count())
		}
		if left := time.Until(k.sets["api"][netip.MustParseAddr("192.0.2.1")]); left > time.Hour+time.Minute+ttlUnit {
			t.Errorf("the address stays for %v", left)
		}
	})
}

// TestSharedAddress: a name with a short TTL does not shorten the time of an address that
// another name has, too.
func TestSharedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel("all")
		g := start(t, k, Config{})
		g.Update(shops(map[string][]string{"all": {"*.example.com"}}))
		hold(t, g, pod, "a.example.com", "a.example.com. 3600 A 192.0.2.1")
		hold(t, g, pod, "b.example.com", "b.example.com. 5 A 192.0.2.1")
		time.Sleep(50 * time.Minute)
		if len(k.has("all")) != 1 {
			t.Error("the address left the set before a.example.com's TTL")
		}
	})
}

// TestUpdate: a set that comes gets the addresses of known names, also if the kernel has
// it only later.
func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel("old")
		g := start(t, k, Config{})
		g.Update(shops(map[string][]string{"old": {"a.example.com"}}))
		hold(t, g, pod, "a.example.com", "a.example.com. 300 A 192.0.2.1")
		g.Update(shops(map[string][]string{"old": {"a.example.com"}, "new": {"a.example.com", "b.example.com"}}))
		time.Sleep(100 * time.Millisecond)
		// The answer waits for the new set, although the old one has the address.
		waited := make(chan time.Duration)
		go func() {
			began := time.Now()
			hold(t, g, pod, "a.example.com", "a.example.com. 300 A 192.0.2.1")
			waited <- time.Since(began)
		}()
		time.Sleep(30 * time.Millisecond)
		k.change("new", nil)
		if d := <-waited; d < 30*time.Millisecond || d >= DefaultHoldLimit {
			t.Errorf("the answer left after %v", d)
		}
		if got := k.has("new"); !slices.Equal(got, []string{"192.0.2.1"}) {
			t.Errorf("the new set has %v", got)
		}
		g.Update(nil)
		if hold(t, g, pod, "a.example.com", "a.example.com. 300 A 192.0.2.2") {
			t.Error("an answer waits although there are no sets")
		}
		if s := g.Stats(); s.Late != 0 {
			t.Errorf("Stats() = %+v", s)
		}
	})
}

// TestFailures: an answer leaves after HoldLimit, what failed is tried again, and the log
// says so once.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel("api")
		k.change("api", errors.New("no buffer space"))
		g := start(t, k, Config{})
		g.Update(shops(map[string][]string{"api": {"api.example.com"}}))
		began := time.Now()
		hold(t, g, pod, "api.example.com", "api.example.com. 60 A 192.0.2.1")
		if d := time.Since(began); d != DefaultHoldLimit {
			t.Errorf("the answer left after %v, want %v", d, DefaultHoldLimit)
		}
		if s := g.Stats(); s.Held != 1 || s.Late != 1 || s.Failed == 0 || s.Added != 0 {
			t.Errorf("Stats() = %+v", s)
		}
		k.change("api", nil)
		time.Sleep(2 * maxPause)
		if got := k.has("api"); len(got) != 1 {
			t.Errorf("after the failure the kernel has %v", got)
		}
		k.mu.Lock()
		clear(k.sets["api"])
		k.mu.Unlock()
		g.Refill()
		synctest.Wait()
		if got := k.has("api"); len(got) != 1 {
			t.Errorf("after Refill the kernel has %v", got)
		}
	})
}

// TestManyNamesAtOnce: a thousand names share few transactions.
func TestManyNamesAtOnce(t *testing.T) {
	k := newKernel("all")
	k.delay = 5 * time.Millisecond
	g := start(t, k, Config{HoldLimit: time.Minute, MaxHeld: 5000})
	g.Update(shops(map[string][]string{"all": {"*.example.com"}}))
	var group sync.WaitGroup
	for i := range 1000 {
		group.Go(func() {
			name := "n" + strconv.Itoa(i) + ".example.com"
			addr := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
			hold(t, g, pod, name, name+". 60 A "+addr.String())
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.sets["all"][addr].IsZero() {
				t.Errorf("%s: not in the kernel", name)
			}
		})
	}
	group.Wait()
	if n := k.count(); n > 100 {
		t.Errorf("%d transactions for 1000 names at once", n)
	}
}

// TestHoldIsBounded: answers beyond the limit do not wait.
func TestHoldIsBounded(t *testing.T) {
	k := newKernel("all")
	k.change("all", errNoSet)
	g := start(t, k, Config{MaxHeld: 8})
	g.Update(shops(map[string][]string{"all": {"*.example.com"}}))
	waits := 0
	for i := range 100 {
		name := "n" + strconv.Itoa(i) + ".example.com"
		if g.Hold(pod, wireOf(name), answerOf(t, name, name+". 60 A 192.0.2.1")) != nil {
			waits++
		}
	}
	if a := g.Account(); waits != 2 || a.SourceFull != 98 {
		t.Errorf("%d answers wait, want 2 of one client; %+v", waits, a)
	}
}

func TestHoldAllocatesNothing(t *testing.T) {
	k := newKernel("api")
	g := start(t, k, Config{})
	g.Update(shops(map[string][]string{"api": {"api.example.com", "*.cdn.net"}}))
	hold(t, g, pod, "api.example.com", "api.example.com. 60 A 192.0.2.1")
	for name, answer := range map[string][]byte{
		"www.else.com":    answerOf(t, "www.else.com", "www.else.com. 60 A 192.0.2.1"),
		"a.else.com":      answerOf(t, "a.else.com", "a.else.com. 60 CNAME b.else.com.", "b.else.com. 60 A 192.0.2.1"),
		"api.example.com": answerOf(t, "api.example.com", "api.example.com. 60 A 192.0.2.1"),
	} {
		wire := wireOf(name)
		if n := testing.AllocsPerRun(1000, func() {
			if g.Hold(pod, wire, answer) != nil {
				t.Fatal("it waits")
			}
		}); n != 0 {
			t.Errorf("Hold(%s): %v allocations", name, n)
		}
	}
}

func FuzzResolve(f *testing.F) {
	p := compile(shops(map[string][]string{"api": {"api.example.com"}, "cdn": {"*.cdn.net", "*.com"}}), slog.New(slog.DiscardHandler))
	f.Add(answerOf(f, "api.example.com", "api.example.com. 30 CNAME x.cdn.net.", "x.cdn.net. 30 A 192.0.2.7"))
	f.Add(answerOf(f, "x.org", "x.org. 30 AAAA 2001:db8::1"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		var r resolution
		name := wireOf("api.example.com")
		found := p.resolve(&r, name, answer)
		if found && (len(r.addresses) == 0 || r.count == 0) {
			t.Errorf("resolve found %d names, %d addresses", r.count, len(r.addresses))
		}
		if found && !p.isPossible(name, answer) {
			t.Error("isPossible denies what resolve finds")
		}
	})
}

func BenchmarkHold(b *testing.B) {
	k := newKernel("api")
	g := New(Config{Programmer: k, Namespace: func(netip.Addr) string { return "shop" }, Log: slog.New(slog.DiscardHandler)})
	sets := map[string][]string{"api": {"api.example.com", "*.cdn.net"}}
	for i := range 1000 {
		sets["more"] = append(sets["more"], "n"+strconv.Itoa(i)+".example.com", "*.w"+strconv.Itoa(i)+".example.org")
	}
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	go func() { _ = g.Run(ctx) }()
	for claim, c := range map[string]struct {
		name    string
		records []string
	}{
		"no match, Service":     {"web.shop.svc.cluster.local", []string{"web.shop.svc.cluster.local. 5 A 10.96.0.1"}},
		"no match":              {"www.else.com", []string{"www.else.com. 60 A 192.0.2.1"}},
		"no match, same length": {"n999.example.net", []string{"n999.example.net. 60 A 192.0.2.1"}},
		"no match, alias":       {"www.else.com", []string{"www.else.com. 60 CNAME b.else.com.", "b.else.com. 60 A 192.0.2.1"}},
		"match":                 {"api.example.com", []string{"api.example.com. 60 A 192.0.2.1"}},
	} {
		for kind, of := range map[string]map[string][]string{"none": nil, "2001 names": sets} {
			g.Update(shops(of))
			name, answer := wireOf(c.name), answerOf(b, c.name, c.records...)
			if wait := g.Hold(pod, name, answer); wait != nil {
				wait(ctx)
			}
			b.Run(claim+"/"+kind, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					g.Hold(pod, name, answer)
				}
			})
		}
	}
}

// TestBeforeSets: an answer that comes before the sets are known waits for them and for its addresses, but not
// longer than HoldLimit after the beginning.
func TestBeforeSets(t *testing.T) {
	const name, record = "api.example.com", "api.example.com. 60 A 192.0.2.1"
	for claim, test := range map[string]struct {
		update time.Duration // after the beginning; 0 is never
		client netip.Addr
		takes  time.Duration
		has    int
	}{
		"the sets come":           {time.Second, pod, time.Second, 1},
		"the sets do not come":    {0, pod, DefaultHoldLimit, 0},
		"the client is not a Pod": {time.Second, netip.MustParseAddr("192.0.2.99"), time.Second, 0},
	} {
		t.Run(claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel("api")
				g := start(t, k, Config{})
				began := time.Now()
				if test.update > 0 {
					time.AfterFunc(test.update, func() { g.Update(shops(map[string][]string{"api": {name}})) })
				}
				if g.Hold(test.client, wireOf(name), answerOf(t, name)) != nil {
					t.Error("an answer without addresses waits")
				}
				hold(t, g, test.client, name, record)
				if d := time.Since(began); d != test.takes {
					t.Errorf("the answer left after %v, want %v", d, test.takes)
				}
				if got := k.has("api"); len(got) != test.has {
					t.Errorf("the kernel has %v, want %d addresses", got, test.has)
				}
				if test.update == 0 && hold(t, g, pod, name, record) {
					t.Error("an answer after that time waits")
				}
				if s := g.Stats(); s.Held != 1 {
					t.Errorf("Stats() = %+v, want one answer held", s)
				}
			})
		})
	}
}
