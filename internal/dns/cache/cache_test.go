package cache_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

var start = time.Unix(1_700_000_000, 123)

func after(d time.Duration) time.Time { return start.Add(d) }

const second = time.Second

func newCache(t *testing.T, edit func(*cache.Config)) *cache.Cache {
	t.Helper()
	cfg := cache.Config{Size: 1 << 20, MaxTTL: 86400, MaxNegativeTTL: 3600, Stale: time.Hour}
	if edit != nil {
		edit(&cfg)
	}
	c, err := cache.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func question(name string, t dnswire.Type) cache.Key {
	return cache.Key{Name: []byte(dnsname.MustParse(name).WireLabels()), Type: t}
}

// reply returns a reply with the given records. SOA records go to the authority
// section.
func reply(t *testing.T, name string, rcode int, records ...string) *dnswire.Reply {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	m.Response, m.Rcode = true, rcode
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		if rr.Header().Rrtype == dns.TypeSOA {
			m.Ns = append(m.Ns, rr)
		} else {
			m.Answer = append(m.Answer, rr)
		}
	}
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	r, err := dnswire.ParseReply(wire)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ttls returns the TTLs of an entry's answer; nil if it has no answer.
func ttls(e *cache.Entry, now time.Time) (shown []uint32, stale bool) {
	if e == nil {
		return nil, false
	}
	reply, as, stale := e.Answer(now)
	if reply == nil {
		return nil, false
	}
	for rec := range reply.Records {
		shown = append(shown, as.TTL(rec.TTL()))
	}
	return shown, stale
}

const soa = "example. %d SOA ns.example. host.example. 1 2 3 4 %d"

// TestTTL checks which records are returned, and the time for which they are.
func TestTTL(t *testing.T) {
	const a = "www.example. %d A 192.0.2.1"
	for name, c := range map[string]struct {
		rcode   int
		records []string
		edit    func(*cache.Config)
		at      time.Duration
		want    []uint32 // nil: no reply is cached
		stale   bool
	}{
		"at once":                           {records: []string{fmt.Sprintf(a, 60)}, want: []uint32{60}},
		"later":                             {records: []string{fmt.Sprintf(a, 60)}, at: 59*second + 999*time.Millisecond, want: []uint32{1}},
		"each its own":                      {records: []string{"www.example. 60 CNAME a.example.", "a.example. 300 A 192.0.2.1"}, at: 10 * second, want: []uint32{50, 290}},
		"past the least of them":            {records: []string{"www.example. 60 CNAME a.example.", "a.example. 300 A 192.0.2.1"}, at: 60 * second, want: []uint32{30, 30}, stale: true},
		"past its TTL":                      {records: []string{fmt.Sprintf(a, 60)}, at: 60 * second, want: []uint32{30}, stale: true},
		"past its TTL, lowered":             {records: []string{fmt.Sprintf(a, 60)}, edit: func(c *cache.Config) { c.MaxTTL = 5 }, at: 5 * second, want: []uint32{5}, stale: true},
		"past all":                          {records: []string{fmt.Sprintf(a, 60)}, at: 60*second + time.Hour},
		"0 is not kept":                     {records: []string{fmt.Sprintf(a, 0)}},
		"0 is not raised":                   {records: []string{fmt.Sprintf(a, 0)}, edit: func(c *cache.Config) { c.MinTTL = 30 }},
		"raised":                            {records: []string{fmt.Sprintf(a, 1)}, edit: func(c *cache.Config) { c.MinTTL = 30 }, want: []uint32{30}},
		"lowered":                           {records: []string{fmt.Sprintf(a, 900)}, edit: func(c *cache.Config) { c.MaxTTL = 60 }, want: []uint32{60}},
		"NXDOMAIN, the SOA's TTL":           {rcode: dns.RcodeNameError, records: []string{fmt.Sprintf(soa, 20, 60)}, want: []uint32{20}},
		"NXDOMAIN, the SOA's minimum":       {rcode: dns.RcodeNameError, records: []string{fmt.Sprintf(soa, 60, 20)}, at: 5 * second, want: []uint32{15}},
		"NXDOMAIN, lowered":                 {rcode: dns.RcodeNameError, records: []string{fmt.Sprintf(soa, 60, 60)}, edit: func(c *cache.Config) { c.MaxNegativeTTL = 5 }, want: []uint32{5}},
		"NXDOMAIN, lowered below the least": {rcode: dns.RcodeNameError, records: []string{fmt.Sprintf(soa, 60, 60)}, edit: func(c *cache.Config) { c.MaxNegativeTTL, c.MinTTL = 5, 30 }, want: []uint32{5}},
		"NXDOMAIN without SOA is not kept":  {rcode: dns.RcodeNameError},
		"NODATA":                            {records: []string{fmt.Sprintf(soa, 60, 60)}, want: []uint32{60}},
		"NODATA without SOA is not kept":    {},
		"a TTL with the first bit set is 0": {records: []string{fmt.Sprintf(a, uint32(1<<31+5))}},
		"not kept at all":                   {records: []string{fmt.Sprintf(a, 60)}, edit: func(c *cache.Config) { c.Size = 0 }},
		"never stale":                       {records: []string{fmt.Sprintf(a, 60)}, edit: func(c *cache.Config) { c.Stale = 0 }, at: 60 * second},
		"SERVFAIL is not kept as an answer": {rcode: dns.RcodeServerFailure, records: []string{fmt.Sprintf(a, 60)}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCache(t, c.edit)
			q := question("www.example.", dnswire.TypeA)
			fresh := k.Put(q, reply(t, "www.example.", c.rcode, c.records...), cache.Terms{}, start)
			if r, _, stale := fresh.Answer(start); r == nil || stale {
				t.Error("Put gives an entry that does not answer")
			}
			got, stale := ttls(k.Get(q, after(c.at)), after(c.at))
			if !slices.Equal(got, c.want) || stale != c.stale {
				t.Errorf("TTLs %v (stale: %v), want %v (%v)", got, stale, c.want, c.stale)
			}
		})
	}
}

// TestKey checks that questions with possibly different answers have separate entries.
func TestKey(t *testing.T) {
	k := newCache(t, nil)
	q := question("www.example.", dnswire.TypeA)
	k.Put(q, reply(t, "www.example.", 0, "www.example. 60 A 192.0.2.1"), cache.Terms{}, start)
	for name, edit := range map[string]func(*cache.Key){
		"DO":           func(q *cache.Key) { q.DO = true },
		"CD":           func(q *cache.Key) { q.CD = true },
		"another type": func(q *cache.Key) { q.Type = dnswire.TypeAAAA },
		"another name": func(q *cache.Key) { q.Name = question("ww.example.", q.Type).Name },
	} {
		other := q
		if edit(&other); k.Get(other, start) != nil {
			t.Errorf("%s: the same entry", name)
		}
	}
}

// TestDenialOfOtherTypesAndSubdomains checks that a negative answer applies to other
// types and to names below only if Terms.Below is set.
func TestDenialOfOtherTypesAndSubdomains(t *testing.T) {
	denial := func() *dnswire.Reply { return reply(t, "gone.example.", dns.RcodeNameError, fmt.Sprintf(soa, 60, 60)) }
	for cut, want := range map[cache.Terms]bool{{}: false, {Below: true}: true} {
		k := newCache(t, nil)
		q := question("gone.example.", dnswire.TypeA)
		k.Put(q, denial(), cut, start)
		if k.Get(q, start) == nil {
			t.Errorf("%+v: not kept", cut)
		}
		if got := k.Get(question("gone.example.", dnswire.TypeAAAA), start) != nil; got != want {
			t.Errorf("%+v: of another type: %v, want %v", cut, got, want)
		}
		below := question("a.b.gone.example.", dnswire.TypeA)
		if got := k.Above(below, 0, start) != nil; got != want {
			t.Errorf("%+v: of what is below: %v, want %v", cut, got, want)
		}
		if k.Above(below, 0, after(time.Minute)) != nil {
			t.Errorf("%+v: of what is below, past its TTL", cut)
		}
		if k.Above(question("other.example.", dnswire.TypeA), 0, start) != nil {
			t.Errorf("%+v: of another name", cut)
		}
	}
	// A different route starts between the two names.
	k := newCache(t, nil)
	k.Put(question("gone.example.", dnswire.TypeA), denial(), cache.Terms{Below: true}, start)
	route := question("b.gone.example.", dnswire.TypeA).Name
	if k.Above(question("a.b.gone.example.", dnswire.TypeA), len(route), start) != nil {
		t.Error("a denial of one route is one of another's names")
	}
	// With an alias, the negative answer applies to its target.
	k.Put(question("www.example.", dnswire.TypeA), reply(t, "www.example.", dns.RcodeNameError, "www.example. 60 CNAME gone.example.", fmt.Sprintf(soa, 60, 60)), cache.Terms{Below: true}, start)
	if k.Get(question("www.example.", dnswire.TypeAAAA), start) != nil || k.Above(question("a.www.example.", dnswire.TypeA), 0, start) != nil {
		t.Error("a denial behind an alias is one of the alias")
	}
	// NODATA does not apply to names below.
	k = newCache(t, nil)
	k.Put(question("gone.example.", dnswire.TypeA), reply(t, "gone.example.", 0, fmt.Sprintf(soa, 60, 60)), cache.Terms{Below: true}, start)
	if k.Above(question("a.gone.example.", dnswire.TypeA), 0, start) != nil {
		t.Error("NODATA denies what is below")
	}
}

// TestFailuresAreCached checks that failures are cached for 1, 2, 4 and then 5 seconds,
// and do not replace stale answers.
func TestFailuresAreCached(t *testing.T) {
	k := newCache(t, nil)
	q := question("www.example.", dnswire.TypeA)
	now := start
	for _, pause := range []time.Duration{second, 2 * second, 4 * second, 5 * second, 5 * second} {
		k.Fail(q, &cache.Failure{Text: "nobody answers"}, now)
		if e := k.Get(q, now.Add(pause-1)); e == nil || !e.Failed(now.Add(pause-1)) {
			t.Errorf("forgotten before %s", pause)
		}
		now = now.Add(pause)
		if e := k.Get(q, now); e != nil && e.Failed(now) {
			t.Errorf("remembered after %s", pause)
		}
	}
	k.Put(q, reply(t, "www.example.", 0, "www.example. 60 A 192.0.2.1"), cache.Terms{}, now)
	now = now.Add(time.Minute)
	k.Fail(q, &cache.Failure{Text: "nobody answers"}, now)
	e := k.Get(q, now)
	if shown, stale := ttls(e, now); !stale || !e.Failed(now) || len(shown) != 1 {
		t.Errorf("after a failure: TTLs %v, stale %v; want the answer from before", shown, stale)
	}
	k.Put(q, reply(t, "www.example.", 0, "www.example. 60 A 192.0.2.1"), cache.Terms{}, now)
	if e := k.Get(q, now); !e.Fresh(now) || e.Failed(now) {
		t.Error("a failure outlives the next answer")
	}
}

// TestLatestReplyReplacesOthers checks that the latest reply replaces earlier ones, even
// if it is not cached or denies all types.
func TestLatestReplyReplacesOthers(t *testing.T) {
	k := newCache(t, nil)
	q := question("www.example.", dnswire.TypeA)
	old := func() {
		k.Put(q, reply(t, "www.example.", 0, "www.example. 60 A 192.0.2.1"), cache.Terms{}, start)
	}
	now := after(2 * time.Minute)
	old()
	k.Put(q, reply(t, "www.example.", dns.RcodeNameError, fmt.Sprintf(soa, 60, 60)), cache.Terms{Below: true}, now)
	if e := k.Get(q, now); e == nil || !e.Fresh(now) {
		t.Error("a denial is not found behind a stale address")
	}
	e := k.Fail(q, &cache.Failure{Text: "nobody answers"}, now)
	if r, _, _ := e.Answer(now); r != nil {
		t.Error("a denied address comes back")
	}
	old()
	k.Put(q, reply(t, "www.example.", 0, "www.example. 0 A 192.0.2.2"), cache.Terms{}, now)
	if e := k.Get(q, now); e != nil {
		t.Error("an address stays behind another one that is not kept")
	}
}

// TestPopularAnswersAreRefreshed checks that a popular answer is refreshed once, when a
// tenth of its TTL is left.
func TestPopularAnswersAreRefreshed(t *testing.T) {
	k := newCache(t, nil)
	q := question("www.example.", dnswire.TypeA)
	put := func() *cache.Entry {
		return k.Put(q, reply(t, "www.example.", 0, "www.example. 100 A 192.0.2.1"), cache.Terms{}, start)
	}
	popular := put()
	for range 10 {
		if popular.Use(after(50 * second)) {
			t.Fatal("asked for anew with half of its time left")
		}
	}
	if !popular.Use(after(90*second)) || popular.Use(after(91*second)) {
		t.Error("not asked for anew at the end of its time, once")
	}
	if rare := put(); rare.Use(after(95 * second)) {
		t.Error("one that is used once is asked for anew")
	}
}

// TestSizeLimit checks that the cache does not exceed its size by much, and that popular
// answers survive many names used once.
func TestSizeLimit(t *testing.T) {
	const size = 256 << 10
	k := newCache(t, func(c *cache.Config) { c.Size = size })
	put := func(name string) {
		k.Put(question(name, dnswire.TypeA), reply(t, name, 0, name+" 3600 A 192.0.2.1"), cache.Terms{}, start)
	}
	const hot, scan = 100, 2000 // more than the cache has room for
	used := func() (kept int) {
		for i := range hot {
			name := fmt.Sprintf("hot%d.example.", i)
			if k.Get(question(name, dnswire.TypeA), start) != nil {
				kept++
			} else {
				put(name)
			}
		}
		return kept
	}
	for round := range 10 {
		used()
		used()
		for i := range scan {
			put(fmt.Sprintf("scan%d-%d.example.", round, i))
		}
	}
	stats := k.Stats()
	if stats.Octets > size*11/10 || stats.Octets < size*8/10 {
		t.Errorf("%d octets in %d entries, want about %d", stats.Octets, stats.Entries, size)
	}
	kept := used()
	if kept < hot*8/10 {
		t.Errorf("%d of %d entries in use outlive a scan", kept, hot)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  cache.Config
		want string
	}{
		"size": {cache.Config{Size: -1}, "size"},
		"TTLs": {cache.Config{MinTTL: 2, MaxTTL: 1}, "TTL"},
	} {
		if _, err := cache.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGetAllocatesNothing checks that Get does not allocate.
func TestGetAllocatesNothing(t *testing.T) {
	k := newCache(t, nil)
	q := question("www.example.", dnswire.TypeA)
	k.Put(q, reply(t, "www.example.", 0, "www.example. 3600 A 192.0.2.1"), cache.Terms{}, start)
	if n := testing.AllocsPerRun(1000, func() { k.Get(q, start).Use(start) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGet(b *testing.B) {
	t := &testing.T{}
	k, _ := cache.New(cache.Config{Size: 64 << 20, MaxTTL: 86400, MaxNegativeTTL: 3600})
	var all []cache.Key
	for i := range 50_000 {
		name := fmt.Sprintf("host%d.example.", i)
		q := question(name, dnswire.TypeA)
		all = append(all, q)
		k.Put(q, reply(t, name, 0, name+" 3600 A 192.0.2.1"), cache.Terms{}, start)
	}
	i := 0
	for b.Loop() {
		k.Get(all[i%len(all)], start)
		i += 7919
	}
}

// TestGuardedReplyStaysGuardedWhenStale checks that a failure does not remove the mark
// Guarded of a cached reply.
func TestGuardedReplyStaysGuardedWhenStale(t *testing.T) {
	k, q := newCache(t, nil), question("www.example.", dnswire.TypeA)
	k.Put(q, reply(t, "www.example.", dns.RcodeSuccess, "www.example. 60 CNAME in.cluster.local."), cache.Terms{Guarded: true}, start)
	if e := k.Fail(q, &cache.Failure{}, after(2*time.Minute)); !e.Guarded {
		t.Error("the stale reply is not guarded any more")
	}
}

// TestFailuresWithSubnet checks that a failure applies to all clients unless it is for a
// subnet, and that a stale reply is only used for its own clients.
func TestFailuresWithSubnet(t *testing.T) {
	plain := question("www.example.", dnswire.TypeA)
	here, there := plain, plain
	here.Subnet, there.Subnet = dnswire.Subnet{0, 1, 8, 0, 10}, dnswire.Subnet{0, 1, 8, 0, 11}

	k := newCache(t, nil)
	k.Fail(here, &cache.Failure{Text: "nobody answers"}, start)
	for name, q := range map[string]cache.Key{"nobody's": plain, "the same": here, "another": there} {
		if e := k.Get(q, start); e == nil || !e.Failed(start) {
			t.Errorf("a failure is not known of %s subnet", name)
		}
	}
	k.Fail(there, &cache.Failure{Text: "nobody answers"}, after(second))
	if now := after(3*second - 1); !k.Get(plain, now).Failed(now) {
		t.Error("a second failure is not remembered for twice as long")
	}

	k = newCache(t, nil)
	if e := k.Fail(here, &cache.Failure{OfSubnet: true}, start); !e.Failed(start) {
		t.Error("a failure of one subnet is none")
	}
	if k.Get(plain, start) != nil || k.Get(there, start) != nil {
		t.Error("a failure of one subnet is known of another")
	}

	now := after(time.Minute)
	for ofSubnet, want := range map[string]bool{"": false, "\x00\x01\x08\x00\x0a": true} {
		k = newCache(t, nil)
		q, r := plain, reply(t, "www.example.", 0, "www.example. 60 A 192.0.2.1")
		if ofSubnet != "" {
			q, r.Subnet = here, dnswire.Subnet(ofSubnet)
		}
		k.Put(q, r, cache.Terms{}, start)
		if e := k.Fail(there, &cache.Failure{}, now); e.Stale(now) != want || !e.Failed(now) {
			t.Errorf("a reply to %x is given to another subnet: %t, want %t", ofSubnet, e.Stale(now), want)
		}
		if e := k.Get(there, now); e.Stale(now) != want || !e.Failed(now) {
			t.Errorf("a reply to %x is found by another subnet: %t, want %t", ofSubnet, e.Stale(now), want)
		}
		if e := k.Get(plain, now); !e.Stale(now) || !e.Failed(now) {
			t.Errorf("a reply to %x is lost with a failure", ofSubnet)
		}
	}
}

// TestListAndFlush verifies that all entries are listed with their state, and that a name is
// removed with all names below it.
func TestListAndFlush(t *testing.T) {
	t.Parallel()
	c := newCache(t, nil)
	for _, name := range []string{"www.example.", "a.b.example.", "other.test."} {
		c.Put(question(name, dnswire.TypeA), reply(t, name, dns.RcodeSuccess, name+" 60 A 192.0.2.1"), cache.Terms{}, start)
	}
	c.Fail(question("broken.test.", dnswire.TypeA), &cache.Failure{Text: "no answer"}, start)
	var got []string
	for _, l := range c.List(after(10 * second)) {
		got = append(got, fmt.Sprintf("%s %s %s %d %s %s", l.Name, l.Type, l.RCode, l.Records, l.TTL, l.Failed))
	}
	want := []string{
		"a.b.example. A NOERROR 1 50s ", "broken.test. A  0 0s no answer", "other.test. A NOERROR 1 50s ",
		"www.example. A NOERROR 1 50s ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("List() = %q, want %q", got, want)
	}
	for _, step := range []struct {
		name        string
		gone, stays int
	}{{"nothing.example", 0, 4}, {"b.example", 1, 3}, {"example", 1, 2}, {"EXAMPLE", 0, 2}, {".", 2, 0}} {
		if n := c.Flush(dnsname.MustParse(step.name)); n != step.gone || len(c.List(start)) != step.stays {
			t.Errorf("Flush(%s) = %d, and %d stay; want %d and %d", step.name, n, len(c.List(start)), step.gone, step.stays)
		}
	}
	if off := newCache(t, func(cfg *cache.Config) { cfg.Size = 0 }); off.List(start) != nil || off.Flush(dnsname.MustParse(".")) != 0 {
		t.Error("a cache that is off has entries")
	}
}

// TestFlushBelowDenial checks that a name whose parent is denied can be flushed.
func TestFlushBelowDenial(t *testing.T) {
	t.Parallel()
	c := newCache(t, nil)
	for _, name := range []string{"gone.example.", "other.example."} {
		denial := reply(t, name, dns.RcodeNameError, fmt.Sprintf(soa, 60, 60))
		c.Put(question(name, dnswire.TypeA), denial, cache.Terms{Below: true}, start)
	}
	below := question("a.b.gone.example.", dnswire.TypeA)
	if c.Above(below, 0, start) == nil {
		t.Fatal("a.b.gone.example is not denied by its parent")
	}
	if n := c.Flush(dnsname.MustParse("a.b.gone.example")); n != 1 || c.Above(below, 0, start) != nil {
		t.Errorf("Flush(a.b.gone.example) = %d, want 1 and that nothing denies the name", n)
	}
	if c.Get(question("other.example.", dnswire.TypeA), start) == nil {
		t.Error("Flush(a.b.gone.example) removed the denial of other.example")
	}
}
