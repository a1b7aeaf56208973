package respond_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/test/await"
)

// searchConfig has names searched for, with two paths of the host.
func searchConfig(cfg *respond.Config) {
	cfg.Search = autopath.New(autopath.Config{
		Suffix: dnsname.MustParse("ap.k8s.io"), Zones: []dnsname.Name{dnsname.MustParse("cluster.local")}, Option: autopath.DefaultOption,
		Host: []dnsname.Name{dnsname.MustParse("corp.example"), dnsname.MustParse("host.example")}, MaxPaths: 16, MaxOctets: 1024,
	})
	cfg.SearchSOA = dnswire.SOA{Zone: dnsname.MustParse("ap.k8s.io"), TTL: 5, Minimum: 5}
}

// TestSearchAllocatesNothing checks a search that ends in the cluster's zones.
func TestSearchAllocatesNothing(t *testing.T) {
	cfg := respond.Config{Data: exampleDB(t)}
	searchConfig(&cfg)
	w := newWorker(t, cfg)
	buf := make([]byte, 0, dnswire.MaxMessage)
	for _, q := range []dnswire.QuerySpec{
		{Name: "web.search.shop.cluster.local.ap.k8s.io", Type: dnswire.TypeA},
		{Name: "web.shop.search.other.cluster.local.ap.k8s.io", Type: dnswire.TypeAAAA},
		{Name: "none.search.shop.cluster.local.ap.k8s.io", Type: dnswire.TypeA},
		{Name: "web", Type: dnswire.TypeA, UDPSize: 1232, Options: map[dnswire.OptionCode][]byte{autopath.DefaultOption: []byte("shop.svc.cluster.local")}},
	} {
		packet := query(t, q)
		if n := testing.AllocsPerRun(100, func() {
			if answer, _ := w.Respond(packet, client, buf); answer == nil {
				t.Errorf("%s: no answer", q.Name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", q.Name, n)
		}
	}
}

// TestSearchQueriesUpstreamsConcurrently checks that all forwarded names of a search are
// queried at once, A and AAAA.
func TestSearchQueriesUpstreamsConcurrently(t *testing.T) {
	const names = 3 // two paths of the host, and as given
	var mu sync.Mutex
	asked, all := make(map[string]bool), make(chan struct{})
	w := withUpstreams(t, searchConfig, []forward.Route{{}}, func(_ uint16, q, m *dns.Msg) {
		mu.Lock()
		before := len(asked)
		asked[strings.ToLower(q.Question[0].String())] = true // more than once where it takes long
		if before < 2*names && len(asked) == 2*names {
			close(all)
		}
		mu.Unlock()
		<-all // none is answered before all were asked
		m.Rcode = dns.RcodeNameError
		m.Ns = append(m.Ns, rr("example. 60 SOA ns.example. host.example. 1 2 3 4 60"))
		if name := q.Question[0].Name; strings.HasPrefix(name, "www.example.com.host.") {
			m.Rcode, m.Ns = dns.RcodeSuccess, nil
			m.Answer = append(m.Answer, rr(name+" 60 A 192.0.2.1"))
		}
	})
	m := askAll(t, w, "www.example.com.search.shop.cluster.local.ap.k8s.io.", dns.TypeA, nil)
	if len(m.Answer) != 2 || !strings.Contains(fmt.Sprint(m.Answer), "CNAME\twww.example.com.host.example.") {
		t.Errorf("answer %v", m.Answer)
	}
	// The other family ends there, too.
	m = askAll(t, w, "www.example.com.search.shop.cluster.local.ap.k8s.io.", dns.TypeAAAA, nil)
	if len(m.Answer) == 0 || !strings.Contains(fmt.Sprint(m.Answer), "CNAME\twww.example.com.host.example.") {
		t.Errorf("AAAA: answer %v", m.Answer)
	}
}

// TestSearchAtCapacity checks that a search fails if queries of it lose their places, also if
// a name exists that comes after theirs: theirs may exist as well. It counts as one refused query.
func TestSearchAtCapacity(t *testing.T) {
	store, err := cache.New(cache.Config{Size: 1 << 20, MaxTTL: 86400, MaxNegativeTTL: 3600})
	if err != nil {
		t.Fatal(err)
	}
	route := forward.Route{Timeout: time.Second, Policy: forward.Sequential, Upstreams: []forward.Upstream{{Addr: netip.MustParseAddrPort("192.0.2.53:53")}}}
	f, err := forward.New(forward.Config{Routes: []forward.Route{route}, Cache: store, Limits: budget.Limits{Total: 1, PerSource: 1}, Exchange: scripted(t, func(_ uint16, q, m *dns.Msg) {
		if name := q.Question[0].Name; name == "none." {
			m.Answer = append(m.Answer, rr(name+" 60 A 192.0.2.1"))
			return
		}
		m.Rcode = dns.RcodeNameError
		m.Ns = append(m.Ns, rr("example. 60 SOA ns.example. host.example. 1 2 3 4 60"))
	})})
	if err != nil {
		t.Fatal(err)
	}
	cfg := respond.Config{Data: exampleDB(t), Upstreams: f}
	searchConfig(&cfg)
	cfg.Stats = respond.NewStats(nil, 1)
	w := newWorker(t, cfg)
	m := askAll(t, w, "none.search.shop.cluster.local.ap.k8s.io.", dns.TypeA, nil)
	if m.Rcode != dns.RcodeServerFailure {
		t.Errorf("%s, want SERVFAIL", dns.RcodeToString[m.Rcode])
	}
	if got, lost := cfg.Stats.Counts().Refused, f.Stats().Waiting.SourceFull; got != 1 || lost < 2 {
		t.Errorf("%d queries counted as refused, want 1; its questions lost %d places, want several", got, lost)
	}
	// The place is free again, as soon as the query that has it ends.
	await.NoError(t, func() error {
		if m := askAll(t, w, "www.example.org.", dns.TypeA, nil); m.Rcode != dns.RcodeNameError {
			return errors.New("afterwards: " + dns.RcodeToString[m.Rcode])
		}
		return nil
	})
}

// TestSearchWithoutCache checks that a search ends although its answers are not cached.
func TestSearchWithoutCache(t *testing.T) {
	store, err := cache.New(cache.Config{})
	if err != nil {
		t.Fatal(err)
	}
	route := forward.Route{Timeout: time.Second, Policy: forward.Sequential, Upstreams: []forward.Upstream{{Addr: netip.MustParseAddrPort("192.0.2.53:53")}}}
	f, err := forward.New(forward.Config{Routes: []forward.Route{route}, Cache: store, Limits: budget.Limits{Total: 100, PerSource: 100}, Exchange: scripted(t, func(_ uint16, q, m *dns.Msg) {
		switch name := q.Question[0].Name; {
		case name == "www.example.com." && q.Question[0].Qtype == dns.TypeA:
			m.Answer = append(m.Answer, rr(name+" 60 CNAME a.example.net."))
		case name == "a.example.net.":
			m.Answer = append(m.Answer, rr(name+" 60 A 192.0.2.1"))
		default:
			m.Rcode = dns.RcodeNameError
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	cfg := respond.Config{Data: exampleDB(t), Upstreams: f}
	searchConfig(&cfg)
	m := askAll(t, newWorker(t, cfg), "www.example.com.search.shop.cluster.local.ap.k8s.io.", dns.TypeA, nil)
	if len(m.Answer) != 3 {
		t.Errorf("%s %v", dns.RcodeToString[m.Rcode], m.Answer)
	}
}

// TestUpstreamQueriesAreBounded checks that one query causes at most 12 upstream queries.
// Asked again, it goes on with what the cache has learned.
func TestUpstreamQueriesAreBounded(t *testing.T) {
	const most, paths = 12, 16
	var asked atomic.Int32
	w := withUpstreams(t, searchConfig, []forward.Route{{}}, func(_ uint16, _, m *dns.Msg) {
		asked.Add(1)
		m.Rcode = dns.RcodeNameError
		m.Ns = append(m.Ns, rr("example. 60 SOA ns.example. host.example. 1 2 3 4 60"))
	})
	var option []string
	for i := range paths {
		option = append(option, fmt.Sprintf("p%d.example", i))
	}
	packet := query(t, dnswire.QuerySpec{
		Name: "www", Type: dnswire.TypeA, Flags: dnswire.FlagRD, UDPSize: 1232,
		Options: map[dnswire.OptionCode][]byte{autopath.DefaultOption: []byte(strings.Join(option, ","))},
	})
	for _, want := range []int{dns.RcodeServerFailure, dns.RcodeServerFailure, dns.RcodeNameError} {
		before := asked.Load()
		answer, later := w.Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
		if later != nil {
			answer = later.Answer(t.Context())
		}
		var m dns.Msg
		if err := m.Unpack(answer); err != nil {
			t.Fatal(err)
		}
		if n := asked.Load() - before; n > most || m.Rcode != want {
			t.Errorf("%d upstream queries and %s, want %d at most and %s", n, dns.RcodeToString[m.Rcode], most, dns.RcodeToString[want])
		}
	}
}

// TestSearchAtShutdown checks that a waiting client gets a response when the server
// stops.
func TestSearchAtShutdown(t *testing.T) {
	w := withUpstreams(t, searchConfig, []forward.Route{{}}, func(uint16, *dns.Msg, *dns.Msg) { time.Sleep(time.Second) })
	packet := query(t, dnswire.QuerySpec{Name: "www.example.com.search.shop.cluster.local.ap.k8s.io", Type: dnswire.TypeA, Flags: dnswire.FlagRD})
	_, later := w.Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if later == nil || later.Answer(ctx) == nil {
		t.Error("no answer")
	}
}

// TestSearchStats checks that searches are counted by their source and result.
func TestSearchStats(t *testing.T) {
	cfg := respond.Config{Data: exampleDB(t), Stats: respond.NewStats(nil, 1)}
	searchConfig(&cfg)
	w := newWorker(t, cfg)
	for _, q := range []dnswire.QuerySpec{
		{Name: "web.search.shop.cluster.local.ap.k8s.io", Type: dnswire.TypeA},
		{Name: "web.search.shop.cluster.local.ap.k8s.io", Type: dnswire.TypeAAAA},
		{Name: "none.search.shop.cluster.local.ap.k8s.io", Type: dnswire.TypeA},
		{Name: "web", Type: dnswire.TypeA, UDPSize: 1232, Options: map[dnswire.OptionCode][]byte{autopath.DefaultOption: []byte("shop.svc.cluster.local")}},
		{Name: "web.shop.svc.cluster.local", Type: dnswire.TypeA},
	} {
		respondNow(w, query(t, q), client)
	}
	want := []respond.Searches{{By: "name", End: "found", Count: 2}, {By: "name", End: "none", Count: 1}, {By: "option", End: "found", Count: 1}}
	if got := cfg.Stats.Counts().Searches; !slices.Equal(got, want) {
		t.Errorf("searches %+v, want %+v", got, want)
	}
}

// TestSearchDoesNotWait checks that a search does not wait for names after the one that
// was found.
func TestSearchDoesNotWait(t *testing.T) {
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	w := withUpstreams(t, searchConfig, []forward.Route{{}}, func(_ uint16, q, m *dns.Msg) {
		name := q.Question[0].Name
		if !strings.HasSuffix(name, ".corp.example.") {
			<-never
		}
		m.Answer = append(m.Answer, rr(name+" 60 A 192.0.2.1"))
	})
	began := time.Now()
	m := askAll(t, w, "intra.search.shop.cluster.local.ap.k8s.io.", dns.TypeA, nil)
	if took := time.Since(began); len(m.Answer) != 2 || took > 900*time.Millisecond {
		t.Errorf("%v after %s", m.Answer, took)
	}
}

// TestSearchEndsAtTruncatedReply checks that a truncated reply counts as found.
func TestSearchEndsAtTruncatedReply(t *testing.T) {
	w := withUpstreams(t, searchConfig, []forward.Route{{}}, func(_ uint16, q, m *dns.Msg) {
		switch name := q.Question[0].Name; name {
		case "intra.corp.example.":
			m.Truncated = true
		case "intra.host.example.":
			m.Answer = append(m.Answer, rr(name+" 60 A 192.0.2.1"))
		default:
			m.Rcode = dns.RcodeNameError
			m.Ns = append(m.Ns, rr(". 60 SOA a. b. 1 2 3 4 60"))
		}
	})
	if m := askAll(t, w, "intra.search.shop.cluster.local.ap.k8s.io.", dns.TypeA, nil); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("%s %v, want SERVFAIL", dns.RcodeToString[m.Rcode], m.Answer)
	}
}
