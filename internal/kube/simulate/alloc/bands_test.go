package alloc

import (
	"math"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var compareAddrs = cmp.Comparer(func(x, y netip.Addr) bool { return x == y })

// The first three cases of TestSplitRange are the examples of the page "Service ClusterIP
// allocation".
func TestSplitRange(t *testing.T) {
	ip := netip.MustParseAddr
	tests := map[string]Bands{
		"10.96.0.0/24": {Size: 254, Offset: 16, StaticStart: ip("10.96.0.1"), StaticEnd: ip("10.96.0.16"),
			Start: ip("10.96.0.1"), End: ip("10.96.0.254")},
		"10.96.0.0/20": {Size: 4094, Offset: 256, StaticStart: ip("10.96.0.1"), StaticEnd: ip("10.96.1.0"),
			Start: ip("10.96.0.1"), End: ip("10.96.15.254")},
		"10.96.0.0/16": {Size: 65534, Offset: 256, StaticStart: ip("10.96.0.1"), StaticEnd: ip("10.96.1.0"),
			Start: ip("10.96.0.1"), End: ip("10.96.255.254")},
		"10.96.0.32/27": {Size: 30, Offset: 16, StaticStart: ip("10.96.0.33"), StaticEnd: ip("10.96.0.48"),
			Start: ip("10.96.0.33"), End: ip("10.96.0.62")},
		"10.96.0.0/28": {Size: 14, Start: ip("10.96.0.1"), End: ip("10.96.0.14")},
		"fd00::/112": {Size: 65535, Offset: 256, StaticStart: ip("fd00::1"), StaticEnd: ip("fd00::100"),
			Start: ip("fd00::1"), End: ip("fd00::ffff")},
		"fd00::/64": {Size: math.MaxUint64, Offset: 256, StaticStart: ip("fd00::1"), StaticEnd: ip("fd00::100"),
			Start: ip("fd00::1"), End: ip("fd00::ffff:ffff:ffff:ffff")},
		"fd00::/48": {Size: math.MaxUint64, Offset: 256, StaticStart: ip("fd00::1"), StaticEnd: ip("fd00::100"),
			Start: ip("fd00::1"), End: ip("fd00::ffff:ffff:ffff:ffff:ffff")},
		"fd00::/65": {Size: 1<<63 - 1, Offset: 256, StaticStart: ip("fd00::1"), StaticEnd: ip("fd00::100"),
			Start: ip("fd00::1"), End: ip("fd00::7fff:ffff:ffff:ffff")},
		"10.96.0.0/32": {Start: ip("10.96.0.1"), End: ip("10.95.255.255")},
	}
	for text, want := range tests {
		want.Range = netip.MustParsePrefix(text)
		if d := cmp.Diff(want, SplitRange(want.Range), compareAddrs, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); d != "" {
			t.Errorf("SplitRange(%s), -want +got:\n%s", text, d)
		}
	}
	if got := SplitRange(netip.MustParsePrefix("10.96.0.77/24")).Range.String(); got != "10.96.0.0/24" {
		t.Errorf("SplitRange(10.96.0.77/24).Range = %s, want 10.96.0.0/24", got)
	}
}

// The default range is that of "Avoid Collisions Assigning Ports to NodePort Services",
// whose static band ends at 30085.
func TestPortsOffset(t *testing.T) {
	for p, want := range map[Ports]int{
		{30000, 32767}: 86,
		{30000, 30015}: 0,
		{30000, 30016}: 16,
		{30000, 30511}: 16,
		{30000, 30543}: 17,
		{1, 65535}:     128,
	} {
		if got := p.Offset(); got != want {
			t.Errorf("Ports{%s}.Offset() = %d, want %d", p, got, want)
		}
	}
}

func TestNewRejectsInvalidRanges(t *testing.T) {
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	tests := map[string]struct {
		c    Config
		want string
	}{
		"no range":     {Config{}, "ranges of cluster IPs: got 0, want one, or two of different families"},
		"three":        {Config{Ranges: prefixes("10.0.0.0/16", "fd00::/112", "10.1.0.0/16")}, "ranges of cluster IPs: got 3, want one, or two of different families"},
		"one family":   {Config{Ranges: prefixes("10.0.0.0/16", "10.1.0.0/16")}, "range of cluster IPs 10.1.0.0/16: the two must be of different families"},
		"too small":    {Config{Ranges: prefixes("10.0.0.0/30")}, "range of cluster IPs 10.0.0.0/30: the service cluster IP range must be at least 8 IP addresses"},
		"too large":    {Config{Ranges: prefixes("fd00::/48")}, "range of cluster IPs fd00::/48: shortest allowed prefix length for service CIDR is 64, got 48"},
		"mapped":       {Config{Ranges: prefixes("::ffff:10.0.0.0/112")}, "range of cluster IPs ::ffff:10.0.0.0/112: must be an IPv4 or IPv6 prefix"},
		"ports turned": {Config{Ranges: prefixes("10.0.0.0/16"), NodePorts: Ports{2, 1}}, "node ports 2-1: must be from 1 to 65535, and the first must not be greater than the last"},
		"port 0":       {Config{Ranges: prefixes("10.0.0.0/16"), NodePorts: Ports{0, 1}}, "node ports 0-1: must be from 1 to 65535, and the first must not be greater than the last"},
	}
	for name, test := range tests {
		if _, err := New(test.c); err == nil || err.Error() != test.want {
			t.Errorf("%s: New() = %v, want %s", name, err, test.want)
		}
	}
	for _, good := range [][]netip.Prefix{prefixes("10.0.0.0/29"), prefixes("fd00::/64", "10.0.0.0/8"), prefixes("0.0.0.0/0")} {
		if _, err := New(Config{Ranges: good}); err != nil {
			t.Errorf("New(%s) = %v", good, err)
		}
	}
}
