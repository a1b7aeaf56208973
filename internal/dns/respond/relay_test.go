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
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/budget"
)

// relaying is a node's cache before a server of the cluster.
type relaying struct {
	*respond.Worker
	mu     sync.Mutex
	gone   atomic.Bool  // the server does not answer any more
	option atomic.Value // that the last query to it had
}

// newRelaying makes one that tells what to search in by the given form; what is
// not the cluster's nobody knows.
func newRelaying(t *testing.T, form respond.Relay, edit ...func(agent, server *respond.Config)) *relaying {
	t.Helper()
	nothing, err := zone.New()
	if err != nil {
		t.Fatal(err)
	}
	store, err := cache.New(cache.Config{Size: 1 << 20, MaxTTL: 86400, MaxNegativeTTL: 3600})
	if err != nil {
		t.Fatal(err)
	}
	ofServer, cfg := respond.Config{Data: exampleDB(t)}, respond.Config{Data: nothing, Relay: form}
	searchConfig(&ofServer)
	searchConfig(&cfg)
	for _, e := range edit {
		e(&cfg, &ofServer)
	}
	server, r := newWorker(t, ofServer), new(relaying)
	routes := []forward.Route{{Suffix: dnsname.MustParse("cluster.local")}, {}}
	for i := range routes {
		routes[i].Timeout, routes[i].Policy = time.Second, forward.Sequential
		routes[i].Upstreams = []forward.Upstream{{Addr: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.53"), uint16(53+i))}}
	}
	f, err := forward.New(forward.Config{
		Routes: routes, Cache: store, Limits: budget.Limits{Total: 100, PerSource: 100}, StaleAfter: time.Second,
		SearchZone: dnsname.MustParse("cluster.local"), SearchOption: autopath.DefaultOption,
		Exchange: func(_ context.Context, to forward.Upstream, packet []byte) ([]byte, error) {
			var q dns.Msg
			if err := q.Unpack(packet); err != nil {
				return nil, err
			}
			if to.Addr.Port() != 53 {
				return nil, fmt.Errorf("%s is not the cluster's", q.Question[0].Name)
			}
			if r.gone.Load() {
				return nil, fmt.Errorf("%s is asked of a server that is gone", q.Question[0].Name)
			}
			r.mu.Lock() // one Worker answers one query at a time
			defer r.mu.Unlock()
			r.option.Store(optionOf(&q))
			return slices.Clone(respondNow(server, packet, client)), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Upstreams = f
	r.Worker = newWorker(t, cfg)
	return r
}

// optionOf is the value of the option with search paths.
func optionOf(m *dns.Msg) string {
	for _, o := range m.IsEdns0().Option {
		if local, ok := o.(*dns.EDNS0_LOCAL); ok && local.Code == autopath.DefaultOption {
			return string(local.Data)
		}
	}
	return "none"
}

// TestRelay checks that the suffix is removed and the option added, that the answer has
// the queried name, and that it is cached.
func TestRelay(t *testing.T) {
	const name = "web.search.shop.cluster.local.ap.k8s.io."
	for form, want := range map[respond.Relay]string{
		respond.RelayPaths:   "shop.svc.cluster.local,svc.cluster.local,cluster.local,corp.example,host.example",
		respond.RelayCompact: "\x01shop,cluster.local",
	} {
		r := newRelaying(t, form)
		for _, gone := range []bool{false, true} {
			r.gone.Store(gone)
			m := askAll(t, r.Worker, name, dns.TypeA, nil)
			got := fmt.Sprint(m.Answer)
			if len(m.Answer) != 2 || m.Answer[0].Header().Name != name || !strings.Contains(got, "CNAME\tweb.shop.svc.cluster.local.") {
				t.Errorf("server gone %t: %s: answer %s", gone, dns.RcodeToString[m.Rcode], got)
			}
		}
		if got := r.option.Load(); got != want {
			t.Errorf("option %q, want %q", got, want)
		}
	}
}

// TestRelayCachesPerSearchPath checks that answers are cached separately for each search
// path, and for none.
func TestRelayCachesPerSearchPath(t *testing.T) {
	r := newRelaying(t, respond.RelayPaths)
	asked := map[string]int{
		"web.search.shop.cluster.local.ap.k8s.io.":    dns.RcodeSuccess,
		"web.search.other.cluster.local.ap.k8s.io.":   dns.RcodeNameError,
		"web.shop.svc.cluster.local.":                 dns.RcodeSuccess,
		"web.other.svc.cluster.local.":                dns.RcodeNameError,
		"none.search.shop.cluster.local.ap.k8s.io.":   dns.RcodeNameError,
		"a.none.search.shop.cluster.local.ap.k8s.io.": dns.RcodeNameError,
	}
	for _, gone := range []bool{false, true} {
		r.gone.Store(gone)
		for name, want := range asked {
			if m := askAll(t, r.Worker, name, dns.TypeA, nil); m.Rcode != want {
				t.Errorf("%s, server gone %t: %s, want %s", name, gone, dns.RcodeToString[m.Rcode], dns.RcodeToString[want])
			}
		}
	}
}

// TestRelayOption checks that a client's option is forwarded unchanged.
func TestRelayOption(t *testing.T) {
	r := newRelaying(t, respond.RelayPaths)
	m := askAll(t, r.Worker, "web.", dns.TypeA, func(q *dns.Msg) {
		q.IsEdns0().Option = append(q.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: autopath.DefaultOption, Data: []byte("x,shop.svc.cluster.local")})
	})
	if len(m.Answer) != 2 || r.option.Load() != "x,shop.svc.cluster.local" {
		t.Errorf("%s %v, option %q", dns.RcodeToString[m.Rcode], m.Answer, r.option.Load())
	}
}

// TestRelayAllocatesNothing checks that an answer from the cache allocates nothing.
func TestRelayAllocatesNothing(t *testing.T) {
	r := newRelaying(t, respond.RelayPaths)
	packet := query(t, dnswire.QuerySpec{Name: "web.search.shop.cluster.local.ap.k8s.io", Type: dnswire.TypeA, UDPSize: 1232, Flags: dnswire.FlagRD})
	buf := make([]byte, 0, dnswire.MaxMessage)
	if _, later := r.Respond(packet, client, buf); later != nil {
		later.Answer(t.Context())
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, later := r.Respond(packet, client, buf); later != nil {
			t.Fatal("not known")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRelayAppliesFilters checks that searches do not bypass the filters of the agent.
func TestRelayAppliesFilters(t *testing.T) {
	web := dnsname.MustParse("web.shop.svc.cluster.local")
	for claim, tt := range map[string]struct {
		rules filter.Config
		want  string
	}{
		"access":  {filter.Config{Access: []filter.AccessRule{{Action: filter.Refuse, Names: []dnsname.Name{web}}}}, "[]"},
		"block":   {filter.Config{Block: filter.Blocklist{Names: []dnsname.Name{web}}}, "[]"},
		"hosts":   {filter.Config{Hosts: filter.Hosts{Lines: []string{"192.0.2.7 web.shop.svc.cluster.local"}, TTL: 60}}, "192.0.2.7"},
		"another": {filter.Config{Block: filter.Blocklist{Names: []dnsname.Name{dnsname.MustParse("example")}}}, "10.96.0.1"},
	} {
		r := newRelaying(t, respond.RelayPaths, func(agent, _ *respond.Config) {
			var err error
			if agent.Rules, err = filter.New(tt.rules); err != nil {
				t.Fatal(err)
			}
		})
		for _, name := range []string{"web.search.shop.cluster.local.ap.k8s.io.", "web.shop.svc.cluster.local.search.other.cluster.local.ap.k8s.io."} {
			if m := askAll(t, r.Worker, name, dns.TypeA, nil); !strings.Contains(fmt.Sprint(m.Answer), tt.want) {
				t.Errorf("%s: %s: %s %v, want %s", claim, name, dns.RcodeToString[m.Rcode], m.Answer, tt.want)
			}
		}
	}
}

// TestRelaySuppresses checks that servers search for a type that is suppressed outside the
// cluster too, and that only records of names outside are left out of what they found.
func TestRelaySuppresses(t *testing.T) {
	const suffix = ".search.shop.cluster.local.ap.k8s.io."
	const reason = "records of this type are not given for names outside"
	byOption := func(q *dns.Msg) {
		q.IsEdns0().Option = append(q.IsEdns0().Option,
			&dns.EDNS0_LOCAL{Code: autopath.DefaultOption, Data: []byte("shop.svc.cluster.local")})
	}
	r := newRelaying(t, respond.RelayPaths, func(agent, server *respond.Config) {
		var err, bad error
		agent.Rules, err = filter.New(filter.Config{
			Suppress: []filter.Suppression{{Types: []dnswire.Type{dnswire.TypeAAAA}}},
			Served:   []dnsname.Name{dnsname.MustParse("cluster.local")},
		})
		server.Rules, bad = filter.New(filter.Config{Hosts: filter.Hosts{
			Lines: []string{"2001:db8::80 www.example.com", "192.0.2.80 www.example.com"}, TTL: 60,
		}})
		if err = errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
	})
	for claim, tt := range map[string]struct {
		name  string
		qtype uint16
		edit  func(*dns.Msg)
		data  string // of the last answer record; empty for none
		text  string
	}{
		"a name of the cluster":             {"web" + suffix, dns.TypeAAAA, nil, "fd00::1", ""},
		"a name of the cluster, by option":  {"web.", dns.TypeAAAA, byOption, "fd00::1", ""},
		"a name outside":                    {"www.example.com" + suffix, dns.TypeAAAA, nil, "", reason},
		"a name outside, by option":         {"www.example.com.", dns.TypeAAAA, byOption, "", reason},
		"a name outside, of another type":   {"www.example.com" + suffix, dns.TypeA, nil, "192.0.2.80", ""},
		"a name that does not exist at all": {"none" + suffix, dns.TypeAAAA, nil, "", "nothing was found"},
	} {
		r.option.Store("not asked")
		m := askAll(t, r.Worker, tt.name, tt.qtype, tt.edit)
		if got := fmt.Sprint(r.option.Load()); !strings.Contains(got, "shop.svc.cluster.local") {
			t.Errorf("%s: the servers were asked with option %q, want search paths", claim, got)
		}
		got := ""
		if n := len(m.Answer); n > 0 {
			got = fmt.Sprint(m.Answer[n-1])
		}
		if (got == "") != (tt.data == "") || !strings.Contains(got, tt.data) || !strings.Contains(fmt.Sprint(m), tt.text) {
			t.Errorf("%s: %v, want %q and %q", claim, m, tt.data, tt.text)
		}
	}
}

// TestRelayToServersWithoutSearch checks that the denial of a server that does not
// search is not accepted.
func TestRelayToServersWithoutSearch(t *testing.T) {
	r := newRelaying(t, respond.RelayPaths, func(_, server *respond.Config) { server.Search = nil })
	m := askAll(t, r.Worker, "none.shop.svc.cluster.local.search.shop.cluster.local.ap.k8s.io.", dns.TypeA, nil)
	if m.Rcode != dns.RcodeServerFailure || !strings.Contains(fmt.Sprint(m), "it does not search for names by option 65001") {
		t.Errorf("%v, want SERVFAIL and why", m)
	}
}

// TestRelayStale checks that a server's stale mark is forwarded.
func TestRelayStale(t *testing.T) {
	r := newRelaying(t, respond.RelayPaths, func(_, server *respond.Config) {
		server.Data = aged{server.Data}
	})
	m := askAll(t, r.Worker, "web.search.shop.cluster.local.ap.k8s.io.", dns.TypeA, nil)
	if len(m.Answer) != 2 || !strings.Contains(fmt.Sprint(m), "old data") {
		t.Errorf("%v, want the Extended DNS Error", m)
	}
}

// aged is data of an earlier time.
type aged struct{ respond.Data }

func (a aged) Lookup(s *zone.Scratch, name []byte, t dnswire.Type) zone.Answer {
	answer := a.Data.Lookup(s, name, t)
	answer.StaleEDE = &zone.EDE{Code: dnswire.EDEStale, Text: "old data"}
	return answer
}

// TestRelayDenial checks that a denial has the SOA of the suffix and the server's
// Extended DNS Error.
func TestRelayDenial(t *testing.T) {
	r := newRelaying(t, respond.RelayPaths)
	for range 2 {
		m := askAll(t, r.Worker, "none.search.shop.cluster.local.ap.k8s.io.", dns.TypeA, nil)
		if m.Rcode != dns.RcodeNameError || len(m.Ns) != 1 || m.Ns[0].Header().Name != "ap.k8s.io." || m.Ns[0].Header().Ttl > 5 ||
			!strings.Contains(fmt.Sprint(m), "nothing was found in the search paths") {
			t.Errorf("%v", m)
		}
	}
}
