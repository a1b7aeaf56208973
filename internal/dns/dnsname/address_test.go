package dnsname_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// randomAddr returns an address of either family, often with runs of zeros.
func randomAddr(rnd *rand.Rand) netip.Addr {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], rnd.Uint64())
	binary.BigEndian.PutUint64(raw[8:], rnd.Uint64())
	for mask := rnd.Uint32() & rnd.Uint32(); mask != 0; mask &= mask - 1 {
		raw[(mask^(mask-1))%15] = 0
	}
	switch rnd.IntN(4) {
	case 0:
		return netip.AddrFrom4([4]byte(raw[:4]))
	case 1: // groups of zeros at random positions
		for i := range 8 {
			if rnd.IntN(2) == 0 {
				raw[2*i], raw[2*i+1] = 0, 0
			}
		}
	case 2:
		if rnd.IntN(8) == 0 { // IPv4-mapped
			copy(raw[:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff")
		}
	}
	return netip.AddrFrom16(raw)
}

func TestReverse(t *testing.T) {
	tests := map[string]struct{ addr, want string }{
		"RFC 1035, section 3.5":            {"10.2.0.52", "52.0.2.10.in-addr.arpa."},
		"RFC 3596, section 2.5":            {"4321:0:1:2:3:4:567:89ab", "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2.3.4.ip6.arpa."},
		"octets of one and three digits":   {"0.9.99.255", "255.99.9.0.in-addr.arpa."},
		"a shortened address is spelled":   {"::1", "1." + strings.Repeat("0.", 31) + "ip6.arpa."},
		"a scope's zone is ignored":        {"fe80::1%eth0", "1." + strings.Repeat("0.", 28) + "8.e.f.ip6.arpa."},
		"an IPv4-mapped address is IPv6's": {"::ffff:1.2.3.4", "4.0.3.0.2.0.1.0.f.f.f.f." + strings.Repeat("0.", 20) + "ip6.arpa."},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			if got := dnsname.Reverse(netip.MustParseAddr(tt.addr)).String(); got != tt.want {
				t.Errorf("Reverse(%s) = %s, want %s", tt.addr, got, tt.want)
			}
		})
	}
	if got := dnsname.Reverse(netip.Addr{}); got != dnsname.Root {
		t.Errorf("Reverse(netip.Addr{}) = %v, want the root", got)
	}
}

func TestReverseAddrIsTheInverseOfReverse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		addr := randomAddr(rnd)
		name := dnsname.Reverse(addr)
		if got, ok := dnsname.ReverseAddr(name); !ok || got != addr {
			t.Fatalf("ReverseAddr(%v) = %v, %v, want %v, true", name, got, ok, addr)
		}
		if again, err := dnsname.Parse(strings.ToUpper(name.String())); err != nil || again != name {
			t.Fatalf("Parse(%q) = %v, %v, want %v", strings.ToUpper(name.String()), again, err, name)
		}
	}
}

func TestReverseAddrRefuses(t *testing.T) {
	nibbles := strings.Repeat("0.", 31)
	tests := map[string]string{
		"the root":                     ".",
		"another tree":                 "1.0.0.10.example",
		"the IPv4 tree itself":         "in-addr.arpa",
		"three octets":                 "1.0.10.in-addr.arpa",
		"five octets":                  "9.1.0.0.10.in-addr.arpa",
		"a label below an address":     "_dns.1.0.0.10.in-addr.arpa",
		"an octet of 256":              "256.0.0.10.in-addr.arpa",
		"a leading zero":               "01.0.0.10.in-addr.arpa",
		"two zeros":                    "00.0.0.10.in-addr.arpa",
		"a sign":                       "+1.0.0.10.in-addr.arpa",
		"a letter":                     "a.0.0.10.in-addr.arpa",
		"RFC 2317's slash":             "0/25.2.0.192.in-addr.arpa",
		"an escaped dot":               `1\.2.0.0.10.in-addr.arpa`,
		"IPv4 labels under IPv6":       "1.0.0.10.ip6.arpa",
		"IPv6 labels under IPv4":       "0." + nibbles + "in-addr.arpa",
		"the IPv6 tree itself":         "ip6.arpa",
		"31 nibbles":                   nibbles + "ip6.arpa",
		"33 nibbles":                   "0.0." + nibbles + "ip6.arpa",
		"a nibble that is no digit":    "g." + nibbles + "ip6.arpa",
		"two digits in one label":      "00." + nibbles + "ip6.arpa",
		"a digit and what is no digit": "0g." + nibbles + "ip6.arpa",
		"a label below a nibble name":  "x.0." + nibbles + "ip6.arpa",
		"the old tree of IPv6":         "0." + nibbles + "ip6.int",
	}
	for claim, name := range tests {
		t.Run(claim, func(t *testing.T) {
			if got, ok := dnsname.ReverseAddr(dnsname.MustParse(name)); ok {
				t.Errorf("ReverseAddr(%s) = %v, true, want false", name, got)
			}
		})
	}
}

// TestParseReverseIsTheInverseOfAppendReverse covers whole addresses and their
// leading octets or nibbles.
func TestParseReverseIsTheInverseOfAppendReverse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 10_000 {
		addr, bits := randomAddr(rnd), 4*rnd.IntN(33)
		if addr.Is4() {
			bits = 8 * rnd.IntN(5)
		}
		want := netip.PrefixFrom(addr, bits).Masked()
		name := dnsname.AppendReverse(nil, want)
		if got, ok := dnsname.ParseReverse(name); !ok || got != want {
			t.Fatalf("ParseReverse(%q) = %v, %v, want %v, true", name, got, ok, want)
		}
	}
}

func TestReverseZones(t *testing.T) {
	// octets returns the zones from.rest. to to.rest.
	octets := func(from, to int, rest string) (zones []string) {
		for i := from; i <= to; i++ {
			zones = append(zones, fmt.Sprintf("%d.%s", i, rest))
		}
		return zones
	}
	fd := "a." + strings.Repeat("0.", 23) + "d.f.ip6.arpa." // fd00::a00:0/104
	tests := map[string]struct {
		prefix string
		want   []string
	}{
		"/8 is one zone":                           {"10.0.0.0/8", []string{"10.in-addr.arpa."}},
		"/16 is one zone":                          {"10.96.0.0/16", []string{"96.10.in-addr.arpa."}},
		"/24 is one zone":                          {"10.96.1.0/24", []string{"1.96.10.in-addr.arpa."}},
		"/12 is 16 zones":                          {"10.96.0.0/12", octets(96, 111, "10.in-addr.arpa.")},
		"/20 is 16 zones":                          {"192.168.240.0/20", octets(240, 255, "168.192.in-addr.arpa.")},
		"/9 is 128 zones":                          {"10.128.0.0/9", octets(128, 255, "10.in-addr.arpa.")},
		"/7 is 2 zones":                            {"10.0.0.0/7", octets(10, 11, "in-addr.arpa.")},
		"/1 is 128 zones":                          {"128.0.0.0/1", octets(128, 255, "in-addr.arpa.")},
		"/25 is in the zone around it":             {"10.96.1.128/25", []string{"1.96.10.in-addr.arpa."}},
		"/32 is in the zone around it":             {"10.96.1.1/32", []string{"1.96.10.in-addr.arpa."}},
		"bits behind the prefix do not count":      {"10.99.1.1/12", octets(96, 111, "10.in-addr.arpa.")},
		"IPv6 /4 is one zone":                      {"f000::/4", []string{"f.ip6.arpa."}},
		"IPv6 /3 is 2 zones":                       {"2000::/3", []string{"2.ip6.arpa.", "3.ip6.arpa."}},
		"IPv6 /108 is one zone":                    {"fd00::a10:0/108", []string{"1." + fd}},
		"IPv6 /112 is one zone":                    {"fd00::a12:0/112", []string{"2.1." + "" + fd}},
		"IPv6 /110 is 4 zones":                     {"fd00::a14:0/110", []string{"4.1." + fd, "5.1." + fd, "6.1." + fd, "7.1." + fd}},
		"IPv6 /107 is 2 zones of the upper nibble": {"fd00::aa0:0/107", []string{"a." + fd, "b." + fd}},
		"IPv6 /124 is one zone":                    {"fd00::a12:3450/124", []string{"5.4.3.2.1." + fd}},
		"IPv6 /125 is in the zone around it":       {"fd00::a12:3458/125", []string{"5.4.3.2.1." + fd}},
		"IPv6 /128 is in the zone around it":       {"fd00::a12:3456/128", []string{"5.4.3.2.1." + fd}},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			zones, err := dnsname.ReverseZones(netip.MustParsePrefix(tt.prefix))
			var got []string
			for _, z := range zones {
				got = append(got, z.String())
			}
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("ReverseZones(%s) = %q, %v, want %q", tt.prefix, got, err, tt.want)
			}
		})
	}
}

func TestReverseZonesRefuses(t *testing.T) {
	tests := map[string]netip.Prefix{
		"all of IPv4":       netip.MustParsePrefix("0.0.0.0/0"),
		"all of IPv6":       netip.MustParsePrefix("::/0"),
		"the zero Prefix":   {},
		"one without bits":  netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), -1),
		"one of many bits":  netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 33),
		"one of no address": netip.PrefixFrom(netip.Addr{}, 8),
	}
	for claim, prefix := range tests {
		t.Run(claim, func(t *testing.T) {
			if zones, err := dnsname.ReverseZones(prefix); !errors.Is(err, dnsname.ErrPrefix) || zones != nil {
				t.Errorf("ReverseZones(%v) = %v, %v, want %v", prefix, zones, err, dnsname.ErrPrefix)
			}
		})
	}
}

// TestReverseZonesCover checks that an address is in the prefix if and only if
// its reverse name is in exactly one of the zones. Zones that enclose longer
// prefixes contain more addresses.
func TestReverseZonesCover(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		base := randomAddr(rnd)
		longest := 124
		if base.Is4() {
			longest = 24
		}
		prefix := netip.PrefixFrom(base, 1+rnd.IntN(base.BitLen()))
		zones, err := dnsname.ReverseZones(prefix)
		if err != nil {
			t.Fatalf("ReverseZones(%v): %v", prefix, err)
		}
		if !slices.IsSortedFunc(zones, func(a, b dnsname.Name) int { return lowest(t, a).Compare(lowest(t, b)) }) {
			t.Fatalf("ReverseZones(%v) = %v, want them in the addresses' order", prefix, zones)
		}
		for _, addr := range []netip.Addr{base, flip(base, prefix.Bits()-1), flip(base, rnd.IntN(base.BitLen())), randomAddr(rnd)} {
			in := 0
			for _, z := range zones {
				if dnsname.Reverse(addr).IsSubdomainOf(z) {
					in++
				}
			}
			want := 0
			if prefix.Contains(addr) {
				want = 1
			}
			if in != want && (want == 1 || prefix.Bits() <= longest) {
				t.Fatalf("ReverseZones(%v) = %v: %d of them hold %v, want %d", prefix, zones, in, addr, want)
			}
		}
	}
}

// flip returns addr with one bit changed.
func flip(addr netip.Addr, bit int) netip.Addr {
	raw := addr.AsSlice()
	raw[bit/8] ^= 0x80 >> (bit % 8)
	flipped, _ := netip.AddrFromSlice(raw)
	return flipped
}

// lowest returns the lowest address in a reverse zone.
func lowest(t *testing.T, zone dnsname.Name) netip.Addr {
	t.Helper()
	all := 2 + 4
	if zone.IsSubdomainOf(dnsname.ReverseIPv6) {
		all = 2 + 32
	}
	for zone.Labels() < all {
		zone, _ = zone.Child("0")
	}
	addr, ok := dnsname.ReverseAddr(zone)
	if !ok {
		t.Fatalf("ReverseAddr(%v) = _, false, want an address", zone)
	}
	return addr
}

func TestDashedAddr(t *testing.T) {
	tests := map[string]struct{ addr, want string }{
		"IPv4":                            {"10.0.0.255", "10-0-0-255"},
		"IPv6":                            {"2001:db8:0:1:2:3:4:5", "2001-db8-0-1-2-3-4-5"},
		"IPv6 shortened inside":           {"fd00::1", "fd00--1"},
		"a leading dash has a 0 before":   {"::1", "0--1"},
		"a trailing dash has a 0 behind":  {"fd00::", "fd00--0"},
		"two outer dashes have both":      {"::", "0--0"},
		"the longest":                     {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff-ffff-ffff-ffff-ffff-ffff-ffff-ffff"},
		"a scope's zone is ignored":       {"fe80::1%eth0", "fe80--1"},
		"IPv4-mapped is unlike its like":  {"::ffff:1.2.3.4", "0--ffff-102-304"},
		"groups that look like an IPv4's": {"::ffff:1:2:3:4", "0--ffff-1-2-3-4"},
		"IPv4-mapped with a zero group":   {"::ffff:0.0.0.0", "0--ffff-0-0"},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			addr := netip.MustParseAddr(tt.addr)
			if got := dnsname.DashedAddr(addr); got != tt.want {
				t.Errorf("DashedAddr(%v) = %q, want %q", addr, got, tt.want)
			}
			if got := string(dnsname.AppendDashedAddr([]byte("-:."), addr)); got != "-:."+tt.want {
				t.Errorf(`AppendDashedAddr("-:.", %v) = %q, want %q`, addr, got, "-:."+tt.want)
			}
		})
	}
	if got := dnsname.DashedAddr(netip.Addr{}); got != "" {
		t.Errorf(`DashedAddr(netip.Addr{}) = %q, want ""`, got)
	}
}

func TestParseDashedAddr(t *testing.T) {
	tests := map[string]struct{ label, want string }{ // want "" means not ok
		"IPv4":                                 {"10-0-0-255", "10.0.0.255"},
		"IPv4 as IPv6 groups":                  {"0-0-0-0-0-0-0a-1", "::a:1"},
		"an octet of 256 is none":              {"256-0-0-1", ""},
		"an octet of 1000 is none":             {"1000-0-0-1", ""},
		"a leading zero in an octet":           {"010-0-0-1", ""},
		"three octets":                         {"1-2-3", ""},
		"five octets":                          {"1-2-3-4-5", ""},
		"an empty octet":                       {"1-2--4", "1:2::4"}, // that is IPv6
		"an octet missing at the end":          {"1-2-3-", ""},
		"IPv6 in full":                         {"2001-db8-0-1-2-3-4-5", "2001:db8:0:1:2:3:4:5"},
		"IPv6 with leading zeros":              {"2001-0db8-0000-0001-2-3-4-5", "2001:db8:0:1:2:3:4:5"},
		"IPv6 in upper case":                   {"FD00--ABCD", "fd00::abcd"},
		"shortened at the start":               {"--1", "::1"},
		"shortened at the start, with a 0":     {"0--1", "::1"},
		"shortened at the end":                 {"1--", "1::"},
		"shortened at the end, with a 0":       {"1--0", "1::"},
		"all of it":                            {"--", "::"},
		"shortened by one group":               {"1-2-3-4-5-6-7--", "1:2:3:4:5:6:7:0"},
		"shortened by no group":                {"1-2-3-4--5-6-7-8", ""},
		"shortened by no group at the end":     {"1-2-3-4-5-6-7-8--", ""},
		"shortened by no group at the start":   {"--1-2-3-4-5-6-7-8", ""},
		"shortened twice":                      {"1--2--3", ""},
		"shortened at both ends":               {"--1--", ""},
		"three dashes":                         {"1---2", ""},
		"three dashes alone":                   {"---", ""},
		"seven groups":                         {"1-2-3-4-5-6-7", ""},
		"nine groups":                          {"1-2-3-4-5-6-7-8-9", ""},
		"five digits":                          {"0fd00--1", ""},
		"a letter that is no digit":            {"fd0g--1", ""},
		"one dash at the start":                {"-1--2", ""},
		"one dash at the end":                  {"1--2-", ""},
		"one dash":                             {"-", ""},
		"nothing":                              {"", ""},
		"a word":                               {"web", ""},
		"a number":                             {"1", ""},
		"dots":                                 {"10.0.0.1", ""},
		"colons":                               {"fd00::1", ""},
		"a scope's zone":                       {"fe80--1%eth0", ""},
		"mixed IPv6 and IPv4 are groups":       {"0--ffff-1-2-3-4", "::ffff:1:2:3:4"},
		"a digit that is not ASCII's":          {"١-0-0-1", ""},
		"a longest label":                      {strings.Repeat("0", 63), ""},
		"eight groups of four digits":          {"0001-0002-0003-0004-0005-0006-0007-0008", "1:2:3:4:5:6:7:8"},
		"IPv4 numbers in more than four parts": {"10-0-0-1--", "10:0:0:1::"},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			var want netip.Addr
			if tt.want != "" {
				want = netip.MustParseAddr(tt.want)
			}
			got, ok := dnsname.ParseDashedAddr([]byte(tt.label))
			if ok != (tt.want != "") || ok && got != want {
				t.Errorf("ParseDashedAddr(%q) = %v, %v, want %q", tt.label, got, ok, tt.want)
			}
			checkDashed(t, tt.label)
		})
	}
}

// checkDashed compares ParseDashedAddr with what netip parses after the dashes
// are replaced by dots or colons, and checks the label of the address. It
// reports whether label spells an address.
func checkDashed(t *testing.T, label string) bool {
	t.Helper()
	var want netip.Addr
	wantOK := false
	if !strings.ContainsAny(label, ".:%") {
		for _, sep := range []string{".", ":"} {
			if addr, err := netip.ParseAddr(strings.ReplaceAll(label, "-", sep)); err == nil {
				want, wantOK = addr, true
			}
		}
	}
	got, ok := dnsname.ParseDashedAddr([]byte(label))
	if ok != wantOK || ok && got != want {
		t.Fatalf("ParseDashedAddr(%q) = %v, %v, want %v, %v", label, got, ok, want, wantOK)
	}
	if ok {
		checkDashedLabel(t, got)
	}
	return ok
}

// checkDashedLabel checks that addr's label is a valid host name (RFC 1123,
// section 2.1) and spells addr.
func checkDashedLabel(t *testing.T, addr netip.Addr) {
	t.Helper()
	label := dnsname.DashedAddr(addr)
	if len(label) > dnsname.MaxLabel || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") ||
		strings.Trim(label, "0123456789abcdef-") != "" {
		t.Fatalf("DashedAddr(%v) = %q, want a host name's label", addr, label)
	}
	if got, ok := dnsname.ParseDashedAddr([]byte(label)); !ok || got != addr {
		t.Fatalf("ParseDashedAddr(DashedAddr(%v)) = ParseDashedAddr(%q) = %v, %v, want the same address", addr, label, got, ok)
	}
}

func TestParseDashedAddrAgreesWithNetip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	pieces := []string{
		"-", "-", "-", "-", "--", "---", "0", "1", "7", "9", "00", "01", "10", "99", "100", "249", "255", "256", "299", "999", "1000",
		"a", "F", "fd00", "FFFF", "0000", "00000", "12345", "g", ".", ":", "%", "x", " ", "\x00", "\xff",
	}
	good, bad := 0, 0
	count := func(label string) {
		if checkDashed(t, label) {
			good++
		} else {
			bad++
		}
	}
	for range 200_000 {
		var b strings.Builder
		for range rnd.IntN(16) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		count(b.String())
	}
	for range 20_000 { // addresses in any spelling, some of them malformed
		label := spell(rnd, randomAddr(rnd))
		count(label)
		i := rnd.IntN(len(label))
		count(label[:i] + label[i+1:])
		count(label[:i] + pieces[rnd.IntN(len(pieces))] + label[i:])
	}
	if good < 10_000 || bad < 10_000 {
		t.Errorf("%d good and %d bad labels were tried, want 10000 of each", good, bad)
	}
}

// spell returns addr with dashes in one of the forms that netip accepts.
func spell(rnd *rand.Rand, addr netip.Addr) string {
	s := addr.String()
	if rnd.IntN(3) == 0 && !addr.Is4() {
		s = addr.StringExpanded()
	}
	if rnd.IntN(3) == 0 {
		s = strings.ToUpper(s)
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(s)
}

// TestParseDashedAddrAgreesOnAllShort tries every short label over the
// characters that matter.
func TestParseDashedAddrAgreesOnAllShort(t *testing.T) {
	const alphabet, longest = "-19f", 8
	var try func(label string)
	try = func(label string) {
		checkDashed(t, label)
		if len(label) < longest {
			for _, c := range alphabet {
				try(label + string(c))
			}
		}
	}
	try("")
}

func TestDashedAddrIsAHostLabelAndUnique(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for range 20_000 {
		checkDashedLabel(t, randomAddr(rnd))
	}
}

func TestDashedAddrAllocatesNothing(t *testing.T) {
	tests := map[string]string{
		"IPv4":        "255.255.255.255",
		"IPv6":        "2001:db8::1",
		"longest":     "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		"IPv4-mapped": "::ffff:255.255.255.255",
		"scoped":      "fe80::1%eth0",
	}
	for claim, text := range tests {
		t.Run(claim, func(t *testing.T) {
			addr := netip.MustParseAddr(text)
			buf := make([]byte, 0, dnsname.MaxLabel)
			if got := testing.AllocsPerRun(100, func() { dnsname.AppendDashedAddr(buf, addr) }); got != 0 {
				t.Errorf("AppendDashedAddr(buf, %v) allocates %v times, want 0", addr, got)
			}
		})
	}
}

func TestParseDashedAddrAllocatesNothing(t *testing.T) {
	for _, label := range []string{
		"10-0-0-1", "fd00--1", "FFFF-FFFF-FFFF-FFFF-FFFF-FFFF-FFFF-FFFF", "web", "10-0-0-256", "1--2--3", "", label63,
	} {
		octets := []byte(label)
		if got := testing.AllocsPerRun(100, func() { dnsname.ParseDashedAddr(octets) }); got != 0 {
			t.Errorf("ParseDashedAddr(%q) allocates %v times, want 0", label, got)
		}
	}
}

func FuzzDashedAddr(f *testing.F) {
	for _, label := range []string{
		"", "-", "--", "---", "10-0-0-1", "010-0-0-1", "256-0-0-1", "1-2-3-4-5", "fd00--1", "0--0", "--1", "1--", "1-2-3-4-5-6-7-8",
		"1-2-3-4-5-6-7--", "1-2-3-4-5-6-7-8--", "--ffff-1-2-3-4", "0--ffff-102-304", "FFFF--0", "fe80--1%eth0", "::ffff:1.2.3.4",
	} {
		f.Add(label)
	}
	f.Fuzz(func(t *testing.T, label string) { checkDashed(t, label) })
}
