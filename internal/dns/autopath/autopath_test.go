package autopath_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnsname"
)

func name(s string) dnsname.Name { return dnsname.MustParse(s) }

func wire(s string) []byte { return []byte(name(s).WireLabels()) }

// text is a name in wire form as people write it.
func text(t *testing.T, wire []byte) string {
	t.Helper()
	n, _, err := dnsname.FromWire(append(slices.Clone(wire), 0))
	if err != nil {
		t.Fatalf("%x: %v", wire, err)
	}
	return strings.TrimSuffix(n.String(), ".")
}

func example(edit func(*autopath.Config)) *autopath.Reader {
	cfg := autopath.Config{
		Suffix: name("ap.k8s.io"), Zones: []dnsname.Name{name("cluster.local"), name("other.example")},
		Host: []dnsname.Name{name("corp.example")}, MaxPaths: 4, MaxOctets: 100,
	}
	if edit != nil {
		edit(&cfg)
	}
	return autopath.New(cfg)
}

// candidates are the names to look for, one after the other.
func candidates(t *testing.T, s *autopath.Search) string {
	t.Helper()
	var all []string
	for i := range s.Len() {
		if c := s.Append(nil, i); c != nil {
			all = append(all, text(t, c))
		} else {
			all = append(all, "too long")
		}
	}
	return strings.Join(all, " ")
}

// TestParseName checks which names carry a search path, and the path of each.
func TestParseName(t *testing.T) {
	for _, tc := range []struct {
		name  string
		place autopath.Place
		want  string
	}{
		{"web.search.shop.cluster.local.ap.k8s.io", autopath.Named, "web.shop.svc.cluster.local web.svc.cluster.local web.cluster.local web.corp.example web"},
		{"web.other.search.shop.other.example.ap.k8s.io", autopath.Named, "web.other.shop.svc.other.example web.other.svc.other.example web.other.other.example web.other.corp.example web.other"},
		// The label that counts is the one before the Namespace.
		{"search.search.search.cluster.local.ap.k8s.io", autopath.Named, "search.search.svc.cluster.local search.svc.cluster.local search.cluster.local search.corp.example search"},
		{"search.shop.cluster.local.ap.k8s.io", autopath.Above, ""},
		{"shop.cluster.local.ap.k8s.io", autopath.Above, ""},
		{"cluster.local.ap.k8s.io", autopath.Above, ""},
		{"local.ap.k8s.io", autopath.Above, ""},
		{"example.ap.k8s.io", autopath.Above, ""},
		{"ap.k8s.io", autopath.Above, ""},
		{"k8s.io", autopath.Outside, ""},
		{"xap.k8s.io", autopath.Outside, ""},
		{"web.shop.svc.cluster.local", autopath.Outside, ""},
		{"web.find.shop.cluster.local.ap.k8s.io", autopath.Nothing, ""},
		{"research.shop.cluster.local.ap.k8s.io", autopath.Nothing, ""},
		{"web.search.shop.cluster.example.ap.k8s.io", autopath.Nothing, ""},
		{"web.search.a(b.cluster.local.ap.k8s.io", autopath.Nothing, ""},
		{"web.search.a,b.cluster.local.ap.k8s.io", autopath.Nothing, ""},
		{`web.search.a\.b.cluster.local.ap.k8s.io`, autopath.Nothing, ""},
		{"web.search.shop.xcluster.local.ap.k8s.io", autopath.Nothing, ""},
		{"al.ap.k8s.io", autopath.Nothing, ""},
	} {
		var s autopath.Search
		if got := example(nil).Name(wire(tc.name), &s); got != tc.place {
			t.Errorf("%s: place %d, want %d", tc.name, got, tc.place)
			continue
		}
		if tc.place != autopath.Named {
			continue
		}
		if got := candidates(t, &s); got != tc.want {
			t.Errorf("%s:\n%s, want\n%s", tc.name, got, tc.want)
		}
	}
	none := example(func(cfg *autopath.Config) { cfg.Suffix = dnsname.Root })
	var s autopath.Search
	if got := none.Name(wire("web.search.shop.cluster.local.ap.k8s.io"), &s); got != autopath.Outside {
		t.Errorf("without a suffix: place %d, want Outside", got)
	}
}

// TestParseOption checks each form of the option, its limits, and malformed options.
func TestParseOption(t *testing.T) {
	for _, tc := range []struct {
		value string
		err   error
		want  string
	}{
		{"shop.svc.cluster.local,Corp.Example.", nil, "web.shop.svc.cluster.local web.corp.example web"},
		{".", nil, "web web"},
		{"", nil, "web"},
		{"\x01shop,cluster.local", nil, "web.shop.svc.cluster.local web.svc.cluster.local web.cluster.local web.corp.example web"},
		{"\x01shop,elsewhere.example", nil, "web.shop.svc.elsewhere.example web.svc.elsewhere.example web.elsewhere.example web.corp.example web"},
		{"a,b,c,d", nil, "web.a web.b web.c web.d web"},
		{"a,b,c,d,e", autopath.ErrTooMany, ""},
		{strings.Repeat("a", 101), autopath.ErrTooLong, ""},
		{"a,,b", autopath.ErrPath, ""},
		{"a,", autopath.ErrPath, ""},
		{"a..b", autopath.ErrPath, ""},
		{"a b", autopath.ErrPath, ""},
		{`a\046b`, autopath.ErrPath, ""},
		{"\xff", autopath.ErrPath, ""},
		{strings.Repeat("a", 64), autopath.ErrPath, ""},
		{"\x02shop,cluster.local", autopath.ErrVersion, ""},
		{"\x00", autopath.ErrVersion, ""},
		{"\x01", autopath.ErrNamespace, ""},
		{"\x01shop", autopath.ErrNamespace, ""},
		{"\x01a.b,cluster.local", autopath.ErrNamespace, ""},
		{"\x01.,cluster.local", autopath.ErrNamespace, ""},
		{"\x01shop,cluster..local", autopath.ErrNamespace, ""},
	} {
		var s autopath.Search
		err := example(nil).Option([]byte(tc.value), wire("web"), &s)
		if !errors.Is(err, tc.err) || err == nil && tc.err != nil {
			t.Errorf("%q: error %v, want %v", tc.value, err, tc.err)
			continue
		}
		if err != nil {
			continue
		}
		if got := candidates(t, &s); got != tc.want {
			t.Errorf("%q:\n%s, want\n%s", tc.value, got, tc.want)
		}
	}
}

// TestLongPaths checks that a search path longer than a name is rejected, and that a
// domain is skipped if the name in it is too long.
func TestLongPaths(t *testing.T) {
	r := example(func(cfg *autopath.Config) { cfg.MaxOctets = 1000 })
	label := strings.Repeat("a", 63)
	long := strings.Join([]string{label, label, label, label[:61]}, ".")
	var s autopath.Search
	if err := r.Option([]byte(long), wire("web"), &s); err != nil {
		t.Fatal(err)
	}
	if got := candidates(t, &s); got != "too long web" {
		t.Errorf("candidates %s", got)
	}
	if err := r.Option([]byte(long+"a"), wire("web"), &s); !errors.Is(err, autopath.ErrPath) {
		t.Errorf("a path of 256 octets: %v", err)
	}
}

// TestAppendOption checks that a name's search path can be encoded as an option with the
// same meaning.
func TestAppendOption(t *testing.T) {
	r := example(func(cfg *autopath.Config) { cfg.MaxOctets = 1000 })
	var of, again autopath.Search
	r.Name(wire("web.search.shop.cluster.local.ap.k8s.io"), &of)
	for _, form := range []struct {
		value []byte
		want  string
	}{
		{of.AppendPaths(nil), "shop.svc.cluster.local,svc.cluster.local,cluster.local,corp.example"},
		{of.AppendCompact(nil), "\x01shop,cluster.local"},
	} {
		if string(form.value) != form.want {
			t.Errorf("value %q, want %q", form.value, form.want)
		}
		if err := r.Option(form.value, of.Name(), &again); err != nil {
			t.Fatalf("%q: %v", form.value, err)
		}
		if got, want := candidates(t, &again), candidates(t, &of); got != want {
			t.Errorf("%q: %s, want %s", form.value, got, want)
		}
	}
}

// TestAllowedClients checks that clients in the given ranges may send the option, or all
// clients if there are no ranges.
func TestAllowedClients(t *testing.T) {
	inside, outside := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("192.0.2.1")
	if r := example(nil); !r.MayAsk(inside) || !r.MayAsk(outside) {
		t.Error("with no ranges not all may")
	}
	r := example(func(cfg *autopath.Config) { cfg.Clients = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	if !r.MayAsk(inside) || r.MayAsk(outside) {
		t.Error("the ranges do not count")
	}
}

// TestParseReusesMemory checks that parsing reuses its memory.
func TestParseReusesMemory(t *testing.T) {
	r := example(nil)
	var s autopath.Search
	qname, value := wire("web.search.shop.cluster.local.ap.k8s.io"), []byte("shop.svc.cluster.local,corp.example")
	web := wire("web")
	room := make([]byte, 0, dnsname.MaxWire)
	if n := testing.AllocsPerRun(100, func() {
		r.Name(qname, &s)
		for i := range s.Len() {
			s.Append(room, i)
		}
		_ = r.Option(value, web, &s)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzOption checks that the domains parsed from any option are valid names within the
// limits.
func FuzzOption(f *testing.F) {
	f.Add([]byte("a.b,c"), "web")
	f.Add([]byte("\x01shop,cluster.local"), "web.other")
	f.Fuzz(func(t *testing.T, value []byte, asked string) {
		n, err := dnsname.Parse(asked)
		if err != nil {
			return
		}
		var s autopath.Search
		if example(nil).Option(value, []byte(n.WireLabels()), &s) != nil {
			return
		}
		if s.Len() > 5 {
			t.Errorf("%d names", s.Len())
		}
		candidates(t, &s)
	})
}

// FuzzName checks that the domains parsed from any name are valid names.
func FuzzName(f *testing.F) {
	f.Add("web.search.shop.cluster.local.ap.k8s.io")
	f.Add("search.shop.cluster.local.ap.k8s.io")
	f.Fuzz(func(t *testing.T, asked string) {
		n, err := dnsname.Parse(asked)
		if err != nil {
			return
		}
		var s autopath.Search
		if example(nil).Name([]byte(n.WireLabels()), &s) == autopath.Named {
			candidates(t, &s)
		}
	})
}
