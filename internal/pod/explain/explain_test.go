package explain

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

func TestMeaningOf(t *testing.T) {
	t.Parallel()
	web := cluster.Key{Namespace: "shop", Name: "web"}
	tests := map[string]struct {
		want meaning
		ok   bool
	}{
		"web.shop.svc.cluster.local.":            {meaning{service: web}, true},
		"WEB.Shop.SVC.Cluster.Local":             {meaning{service: web}, true},
		"web.shop.svc.b.example.":                {meaning{service: web}, true},
		"web-0.web.shop.svc.cluster.local.":      {meaning{service: web, host: "web-0"}, true},
		"_http._tcp.web.shop.svc.cluster.local.": {meaning{service: web, port: "http", protocol: "tcp"}, true},
		"_http.web.shop.svc.cluster.local.":      {},
		"a.b.web.shop.svc.cluster.local.":        {},
		"shop.svc.cluster.local.":                {},
		"svc.cluster.local.":                     {},
		"10-0-0-1.shop.pod.cluster.local.":       {},
		"web.shop.svc.example.":                  {},
		"web.shop.":                              {},
		".":                                      {},
	}
	for name, test := range tests {
		if got, ok := meaningOf(name, []string{"cluster.local", "b.example"}); got != test.want || ok != test.ok {
			t.Errorf("meaningOf(%q) = %+v, %v; want %+v, %v", name, got, ok, test.want, test.ok)
		}
	}
}

// request returns a Request for a Pod in an empty cluster, whose DNS answers every query
// with a response code.
func request(name string, code dnswire.RCode) Request {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	var c *lint.Linter
	node := dnsconfig.NodeSettings{ClusterDomain: "cluster.local", ClusterDNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")}}
	store.View(func(v *cluster.View) {
		c = &lint.Linter{View: v, Domains: []string{"cluster.local"}, Node: func(*dnsconfig.Subject) dnsconfig.NodeSettings { return node }}
	})
	return Request{
		Name: name, Libc: dnsconfig.Glibc, Node: node, Linter: c,
		Subject: dnsconfig.SubjectOfPod(&cluster.Pod{Key: cluster.Key{Namespace: "shop", Name: "client"}}),
		Query: func(netip.Addr, stubresolver.Query) Answer {
			return Answer{Message: &dnswire.Message{Code: code, Status: code.String()}}
		},
	}
}

// TestDiffers verifies that an answer with the records of an alias's target outside the
// cluster does not differ from the model, and that other answers do.
func TestDiffers(t *testing.T) {
	t.Parallel()
	alias := dnswire.Record{Name: "pay.shop.svc.cluster.local.", Type: "CNAME", Data: "pay.example.com."}
	followed := dnswire.Record{Name: alias.Data, Type: "A", Data: "192.0.2.1"}
	for _, test := range []struct {
		live []dnswire.Record
		want bool
	}{
		{[]dnswire.Record{alias, followed}, false},
		{[]dnswire.Record{{Name: alias.Name, Type: "CNAME", Data: "old.example.com."}, followed}, true},
		{[]dnswire.Record{followed}, true},
	} {
		r := request("pay", dnswire.NoError)
		r.Type = dnswire.TypeA
		r.Query = func(netip.Addr, stubresolver.Query) Answer {
			return Answer{Message: &dnswire.Message{Answer: test.live}}
		}
		r.Model = func(netip.Addr, stubresolver.Query) Answer {
			return Answer{FromModel: true, Message: &dnswire.Message{Answer: []dnswire.Record{alias}}}
		}
		e := Explain(r)
		differs := slices.ContainsFunc(e.Diagnoses, func(d Diagnosis) bool { return d.Rule == "server-differs" })
		if differs != test.want {
			t.Errorf("%+v: differs %v, want %v: %+v", test.live, differs, test.want, e.Diagnoses)
		}
	}
}

// TestZoneNotLoaded verifies that the cause is the file that this command cannot use or, of
// a live server, what that server says; the file of this command is not the server's.
func TestZoneNotLoaded(t *testing.T) {
	t.Parallel()
	notReady := func(_ netip.Addr, q stubresolver.Query) Answer {
		m := &dnswire.Message{Code: dnswire.NXDomain, Status: dnswire.NXDomain.String()}
		if q.Name == "www.corp.example." {
			m.Code, m.Status = dnswire.ServFail, dnswire.ServFail.String()
			m.Errors = []dnswire.ExtendedError{{Code: uint16(dnswire.EDENotReady), Text: "its note"}}
		}
		return Answer{Message: m}
	}
	for claim, tt := range map[string]struct {
		model QueryFunc
		want  string
	}{
		"from the model": {nil, "www.corp.example. does not resolve because the zone corp.example. is not loaded: x.zone:2: bad"},
		"live":           {notReady, "10.96.0.10 has not loaded the zone of www.corp.example. (SERVFAIL: its note)"},
	} {
		r := request("www.corp.example", dnswire.NXDomain)
		r.Query, r.Model = notReady, tt.model
		r.ZoneProblem = func(string) *localzone.ZoneError {
			return &localzone.ZoneError{Zone: dnsname.MustParse("corp.example"), Err: errors.New("x.zone:2: bad")}
		}
		if e := Explain(r); len(e.Diagnoses) != 1 || e.Diagnoses[0].Why != tt.want {
			t.Errorf("%s: diagnoses %+v, want %q", claim, e.Diagnoses, tt.want)
		}
	}
}

// TestWidth verifies that no line is longer than the terminal, unless a word is.
func TestWidth(t *testing.T) {
	t.Parallel()
	e := Explain(request("web.data", dnswire.NXDomain))
	for _, width := range []int{60, 80, 200} {
		var b strings.Builder
		if err := e.WriteText(&b, Style{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if line = strings.TrimSuffix(line, "\n"); len(line) > width {
				t.Errorf("width %d: a line of %d: %s", width, len(line), line)
			}
		}
	}
}

// FuzzExplain verifies that no name makes Explain panic, send unlimited queries, or return
// a failure without a diagnosis.
func FuzzExplain(f *testing.F) {
	for _, name := range []string{"web", "web.shop.svc", "", ".", "..", "_a._b.c.d.svc", "a b", "\x00", strings.Repeat("a.", 200), "10.0.0.1", "localhost"} {
		f.Add(name, uint8(1), uint16(0), uint16(3))
		f.Add(name, uint8(2), uint16(33), uint16(2))
		f.Add(name, uint8(3), uint16(28), uint16(0))
		f.Add(name, uint8(4), uint16(0), uint16(5))
	}
	f.Fuzz(func(t *testing.T, name string, libc uint8, rrtype, code uint16) {
		r := request(name, dnswire.RCode(code%16))
		r.Libc, r.Type = dnsconfig.Libc(libc%5), dnswire.Type(rrtype)
		e := Explain(r)
		const most = 1000
		if e.Packets > most {
			t.Errorf("%q: %d packets", name, e.Packets)
		}
		if !e.Found() && len(e.Diagnoses) == 0 && r.Libc != dnsconfig.LibcUnknown {
			t.Errorf("Explain(%q), resolver %s, type %s: %s without a diagnosis", name, e.Resolver, r.Type, e.Outcome)
		}
		var b strings.Builder
		if err := e.WriteText(&b, Style{Width: 40}); err != nil {
			t.Fatal(err)
		}
	})
}
