package resolvconf

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func TestString(t *testing.T) {
	tests := map[string]struct {
		config Config
		want   string
	}{
		"nothing gives nothing": {Config{}, ""},
		"a Pod's, as the kubelet writes it": {
			Config{
				Nameservers: addrs("10.96.0.10", "fd00::a"),
				Searches:    []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"},
				Options:     []Option{{"ndots", "5"}, {"edns0", ""}},
			},
			"nameserver 10.96.0.10\nnameserver fd00::a\n" +
				"search shop.svc.cluster.local svc.cluster.local cluster.local\n" +
				"options ndots:5 edns0\n",
		},
		"only nameservers":             {Config{Nameservers: addrs("127.0.0.1")}, "nameserver 127.0.0.1\n"},
		"only searches":                {Config{Searches: []string{"."}}, "search .\n"},
		"only options":                 {Config{Options: []Option{{"rotate", ""}}}, "options rotate\n"},
		"a zone is written":            {Config{Nameservers: addrs("fe80::1%eth0")}, "nameserver fe80::1%eth0\n"},
		"an option's value may hold :": {Config{Options: []Option{{"x", "a:b"}}}, "options x:a:b\n"},
		"empty slices give nothing": {
			Config{Nameservers: []netip.Addr{}, Searches: []string{}, Options: []Option{}}, ""},
		"the zero address is left out": {
			Config{Nameservers: []netip.Addr{{}, netip.IPv6Loopback()}}, "nameserver ::1\n"},
		"a zone can't break its line": {
			Config{Nameservers: []netip.Addr{netip.MustParseAddr("fe80::1").WithZone("a\nsearch evil")}}, ""},
		"a search domain can't break its line": {
			Config{Searches: []string{"a\nnameserver 192.0.2.1", "b c", "d\te", "f\r", "g\x00", "", "ok"}}, "search ok\n"},
		"searches that can't be written leave no line": {Config{Searches: []string{"", " "}}, ""},
		"an option can't break its line": {
			Config{Options: []Option{{"a\nb", ""}, {"c", "1 d"}, {"e", "\x7f"}, {"ok", "1"}}}, "options ok:1\n"},
		"an option needs a name, without a colon": {
			Config{Options: []Option{{"", "5"}, {"a:b", ""}, {"", ""}}}, ""},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			if got := test.config.String(); got != test.want {
				t.Errorf("%#v.String() = %q, want %q", test.config, got, test.want)
			}
		})
	}
}

func TestAppendToPreservesPrefix(t *testing.T) {
	c := Config{Searches: []string{"a"}}
	if got, want := string(c.AppendTo([]byte("# by portolan\n"))), "# by portolan\nsearch a\n"; got != want {
		t.Errorf("%#v.AppendTo(comment) = %q, want %q", c, got, want)
	}
}

func TestOptionString(t *testing.T) {
	for option, want := range map[Option]string{
		{"ndots", "5"}: "ndots:5",
		{"edns0", ""}:  "edns0",
		{"x", "a:b"}:   "x:a:b",
	} {
		if got := option.String(); got != want {
			t.Errorf("%#v.String() = %q, want %q", option, got, want)
		}
		if got := option.octets(); got != len(want) {
			t.Errorf("%#v.octets() = %d, want %d", option, got, len(want))
		}
	}
}

// A Config made from valid values survives a round trip.
func TestRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		c := randomConfig(random)
		text := c.String()
		got, problems, err := Parse(strings.NewReader(text))
		if err != nil || len(problems) > 0 || !reflect.DeepEqual(got, c) {
			t.Fatalf("Parse(%q) = %#v, %v, %v, want %#v", text, got, problems, err, c)
		}
	}
}

func randomConfig(random *rand.Rand) Config {
	var c Config
	for range random.IntN(5) {
		var octets [16]byte
		for i := range octets {
			octets[i] = byte(random.IntN(256)) * byte(random.IntN(2))
		}
		addr := netip.AddrFrom16(octets)
		switch random.IntN(3) {
		case 0:
			addr = netip.AddrFrom4([4]byte(octets[:4]))
		case 1:
			addr = addr.WithZone(randomWord(random))
		}
		c.Nameservers = append(c.Nameservers, addr)
	}
	for range random.IntN(8) {
		c.Searches = append(c.Searches, randomWord(random))
	}
	named := make(map[string]bool)
	for range random.IntN(8) {
		o := Option{Name: strings.ReplaceAll(randomWord(random), ":", "-")}
		if random.IntN(2) == 0 {
			o.Value = randomWord(random)
		}
		if !named[o.Name] {
			named[o.Name] = true
			c.Options = append(c.Options, o)
		}
	}
	return c
}

// randomWord returns a word of characters that are special in the file.
func randomWord(random *rand.Rand) string {
	alphabet := []rune("abz019.-_:#;%\\\"=ü\u00a0")
	word := make([]rune, 1+random.IntN(12))
	for i := range word {
		word[i] = alphabet[random.IntN(len(alphabet))]
	}
	return string(word)
}
