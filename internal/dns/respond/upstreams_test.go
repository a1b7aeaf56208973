package respond_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/budget"
)

// scripted is upstreams that do as do says; they are told apart by their ports.
func scripted(_ *testing.T, do func(port uint16, q, m *dns.Msg)) func(context.Context, forward.Upstream, []byte) ([]byte, error) {
	return func(_ context.Context, to forward.Upstream, query []byte) ([]byte, error) {
		var q dns.Msg
		if err := q.Unpack(query); err != nil {
			return nil, err
		}
		m := new(dns.Msg)
		m.SetReply(&q)
		m.SetEdns0(1232, false)
		m.Compress = true
		do(to.Addr.Port(), &q, m)
		return m.Pack()
	}
}

func rr(s string) dns.RR {
	r, err := dns.NewRR(s)
	if err != nil {
		panic(err)
	}
	return r
}

// withUpstreams makes a Worker with routes, each to an upstream of its own: the
// first has port 53, the next one 54, and so on.
func withUpstreams(t *testing.T, edit func(*respond.Config), routes []forward.Route, do func(port uint16, q, m *dns.Msg)) *respond.Worker {
	t.Helper()
	store, err := cache.New(cache.Config{Size: 1 << 20, MaxTTL: 86400, MaxNegativeTTL: 3600, Stale: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i := range routes {
		routes[i].Timeout, routes[i].Policy = time.Second, forward.Sequential
		routes[i].Upstreams = []forward.Upstream{{Addr: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.53"), uint16(53+i))}}
	}
	f, err := forward.New(forward.Config{Routes: routes, Cache: store, Limits: budget.Limits{Total: 100, PerSource: 100}, StaleAfter: time.Second, Exchange: scripted(t, do)})
	if err != nil {
		t.Fatal(err)
	}
	cfg := respond.Config{Data: exampleDB(t), Upstreams: f}
	if edit != nil {
		edit(&cfg)
	}
	return newWorker(t, cfg)
}

// askAll asks with EDNS, waiting for others, and gives the answer.
func askAll(t *testing.T, w *respond.Worker, name string, qtype uint16, flags func(*dns.Msg)) *dns.Msg {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	q.SetEdns0(1232, false)
	if flags != nil {
		flags(q)
	}
	packet, _ := q.Pack()
	answer, later := w.Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
	if later != nil {
		answer = later.Answer(t.Context())
	}
	m := new(dns.Msg)
	if err := m.Unpack(answer); err != nil {
		t.Fatalf("%s: unpack: %v: %x", name, err, answer)
	}
	return m
}

// TestDenialOfAnAncestor checks that a validated denial of a name applies to names below
// it, in a valid response.
func TestDenialOfAnAncestor(t *testing.T) {
	w := withUpstreams(t, nil, []forward.Route{{}}, func(_ uint16, _, m *dns.Msg) {
		m.Rcode, m.AuthenticatedData = dns.RcodeNameError, true
		m.Ns = append(m.Ns, rr("example. 60 SOA ns.example. host.example. 1 2 3 4 60"))
	})
	askAll(t, w, "gone.example.", dns.TypeA, nil)
	m := askAll(t, w, "a.b.gone.example.", dns.TypeA, nil)
	if len(m.Ns) != 1 || m.Ns[0].Header().Name != "example." {
		t.Errorf("authority %v, want the SOA of example.", m.Ns)
	}
}

// TestDenialOfAnotherRoute checks that a validated denial does not apply to names of
// another route.
func TestDenialOfAnotherRoute(t *testing.T) {
	w := withUpstreams(t, nil, []forward.Route{{}, {Suffix: dnsname.MustParse("service.consul")}}, func(port uint16, q, m *dns.Msg) {
		if port == 53 {
			m.Rcode, m.AuthenticatedData = dns.RcodeNameError, true
			m.Ns = append(m.Ns, rr(". 60 SOA a.root-servers.net. nstld.verisign-grs.com. 1 2 3 4 60"))
			return
		}
		m.Answer = append(m.Answer, rr(q.Question[0].Name+" 60 A 10.1.1.1"))
	})
	askAll(t, w, "consul.", dns.TypeA, nil)
	if m := askAll(t, w, "web.service.consul.", dns.TypeA, nil); m.Rcode != 0 || len(m.Answer) != 1 {
		t.Errorf("web.service.consul.: %s, want the stub route's answer", dns.RcodeToString[m.Rcode])
	}
}

// TestDenialBehindAlias checks that NXDOMAIN for the target of an alias does not apply
// to the alias.
func TestDenialBehindAlias(t *testing.T) {
	w := withUpstreams(t, nil, []forward.Route{{}}, func(_ uint16, q, m *dns.Msg) {
		m.AuthenticatedData = true
		if strings.EqualFold(q.Question[0].Name, "www.example.") && q.Question[0].Qtype != dns.TypeCNAME {
			m.Rcode = dns.RcodeNameError
			m.Answer = append(m.Answer, rr("www.example. 60 CNAME gone.example."))
			m.Ns = append(m.Ns, rr("example. 60 SOA ns.example. host.example. 1 2 3 4 60"))
			return
		}
		if q.Question[0].Qtype == dns.TypeCNAME {
			m.Answer = append(m.Answer, rr("www.example. 60 CNAME gone.example."))
			return
		}
		m.Answer = append(m.Answer, rr(q.Question[0].Name+" 60 A 192.0.2.1"))
	})
	askAll(t, w, "www.example.", dns.TypeA, nil)
	if m := askAll(t, w, "www.example.", dns.TypeCNAME, nil); m.Rcode != 0 {
		t.Errorf("www.example. CNAME: %s", dns.RcodeToString[m.Rcode])
	}
	if m := askAll(t, w, "a.www.example.", dns.TypeA, nil); m.Rcode != 0 {
		t.Errorf("a.www.example. A: %s", dns.RcodeToString[m.Rcode])
	}
}

// TestUnvalidatedAnswersHaveNoAD: no AD over records that nobody has validated.
func TestUnvalidatedAnswersHaveNoAD(t *testing.T) {
	do := func(_ uint16, q, m *dns.Msg) {
		m.AuthenticatedData = true
		if strings.EqualFold(q.Question[0].Name, "in.example.") {
			m.Answer = append(m.Answer, rr("in.example. 60 CNAME web.shop.svc.cluster.local."))
			return
		}
		m.Answer = append(m.Answer, rr(q.Question[0].Name+" 60 A 192.0.2.1"))
	}
	w := withUpstreams(t, nil, []forward.Route{{}}, do)
	ad := func(q *dns.Msg) { q.AuthenticatedData = true }
	if m := askAll(t, w, "in.example.", dns.TypeA, ad); m.AuthenticatedData {
		t.Errorf("AD, with unsigned records of the cluster:\n%s", m)
	}
	w = withUpstreams(t, func(c *respond.Config) {
		r, err := filter.New(filter.Config{Rewrites: []filter.Rewrite{{From: dnsname.MustParse("old.example"), To: dnsname.MustParse("new.example")}}})
		if err != nil {
			t.Fatal(err)
		}
		c.Rules = r
	}, []forward.Route{{}}, do)
	if m := askAll(t, w, "a.old.example.", dns.TypeA, ad); m.AuthenticatedData {
		t.Errorf("AD, of a name that was rewritten:\n%s", m)
	}
}

// TestPublicAliasOfClusterName checks that a public name cannot be an alias of one in the cluster's
// zones.
func TestPublicAliasOfClusterName(t *testing.T) {
	w := withUpstreams(t, nil, []forward.Route{{NoPrivate: true}}, func(_ uint16, q, m *dns.Msg) {
		m.Answer = append(m.Answer, rr(q.Question[0].Name+" 60 CNAME web.shop.svc.cluster.local."))
	})
	if m := askAll(t, w, "evil.example.", dns.TypeA, nil); len(m.Answer) > 1 {
		t.Errorf("a public name has a cluster address:\n%s", m)
	}
}

// TestLongDenial checks that a denial that does not fit with its proof is truncated.
func TestLongDenial(t *testing.T) {
	w := withUpstreams(t, nil, []forward.Route{{}}, func(_ uint16, _, m *dns.Msg) {
		m.Rcode = dns.RcodeNameError
		m.Ns = append(m.Ns, rr("example. 60 SOA ns.example. host.example. 1 2 3 4 60"))
		for range 6 {
			m.Ns = append(m.Ns, rr("example. 60 RRSIG SOA 8 1 60 20300101000000 20200101000000 1 example. "+strings.Repeat("QUJD", 86)))
		}
	})
	m := askAll(t, w, "gone.example.", dns.TypeA, func(q *dns.Msg) { q.Extra = nil; q.SetEdns0(1232, true) })
	if len(m.Ns) == 0 && !m.Truncated {
		t.Errorf("neither proof nor TC:\n%s", m)
	}
}

// TestDenialReplacesOlderAddress checks that a denial takes precedence over an older
// address.
func TestDenialReplacesOlderAddress(t *testing.T) {
	asked := 0
	gone := false
	w := withUpstreams(t, nil, []forward.Route{{}}, func(_ uint16, q, m *dns.Msg) {
		asked++
		if gone {
			m.Rcode, m.AuthenticatedData = dns.RcodeNameError, true
			m.Ns = append(m.Ns, rr("example. 60 SOA ns.example. host.example. 1 2 3 4 60"))
			return
		}
		m.Answer = append(m.Answer, rr(q.Question[0].Name+" 1 A 192.0.2.1"))
	})
	askAll(t, w, "www.example.", dns.TypeA, nil)
	time.Sleep(1100 * time.Millisecond)
	gone = true
	before := asked
	for range 10 {
		askAll(t, w, "www.example.", dns.TypeA, nil)
	}
	if asked-before > 1 {
		t.Errorf("a validated denial with TTL 60 was asked for %d times", asked-before)
	}
}

// TestOwnerCase checks that owner names in upstreams' replies are converted to lower
// case.
func TestOwnerCase(t *testing.T) {
	w := withUpstreams(t, nil, []forward.Route{{}}, func(_ uint16, _, m *dns.Msg) {
		m.Compress = false
		m.Answer = append(m.Answer, rr("WwW.ExAmPlE. 60 A 192.0.2.1"))
	})
	m := askAll(t, w, "www.example.", dns.TypeA, nil)
	if len(m.Answer) != 1 || m.Answer[0].Header().Name != "www.example." {
		t.Errorf("answer %v", m.Answer)
	}
}

// TestPrivateAddressHintsAreRejected checks that address hints in HTTPS records of
// public names must not be private either.
func TestPrivateAddressHintsAreRejected(t *testing.T) {
	for hint, want := range map[string]int{
		"ipv4hint=192.0.2.1": dns.RcodeSuccess, "ipv4hint=192.0.2.1,10.0.0.1": dns.RcodeServerFailure,
		"ipv6hint=2001:db8::1": dns.RcodeSuccess, "ipv6hint=64:ff9b::a00:1": dns.RcodeServerFailure,
	} {
		w := withUpstreams(t, nil, []forward.Route{{NoPrivate: true}}, func(_ uint16, q, m *dns.Msg) {
			m.Answer = append(m.Answer, rr(q.Question[0].Name+" 60 HTTPS 1 . "+hint))
		})
		if m := askAll(t, w, "www.example.", dns.TypeHTTPS, nil); m.Rcode != want {
			t.Errorf("%s: %s, want %s", hint, dns.RcodeToString[m.Rcode], dns.RcodeToString[want])
		}
	}
}
