package app

import (
	"net/netip"
	"slices"
	"testing"
)

// TestMerged checks that ranges become the fewest with the same addresses.
func TestMerged(t *testing.T) {
	t.Parallel()
	ranges := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	for claim, c := range map[string]struct{ in, want []netip.Prefix }{
		"none":                    {},
		"within another one":      {ranges("10.244.1.0/24", "10.244.0.0/16", "10.244.0.0/24"), ranges("10.244.0.0/16")},
		"twice":                   {ranges("10.244.1.0/24", "10.244.1.0/24"), ranges("10.244.1.0/24")},
		"neighbors":               {ranges("10.0.3.0/24", "10.0.1.0/24", "10.0.0.0/24", "10.0.2.0/24"), ranges("10.0.0.0/22")},
		"neighbors of two ranges": {ranges("10.0.1.0/24", "10.0.2.0/24"), ranges("10.0.1.0/24", "10.0.2.0/24")},
		"all addresses":           {ranges("0.0.0.0/1", "128.0.0.0/1", "::/0"), ranges("0.0.0.0/0", "::/0")},
		"both families":           {ranges("fd00:0:0:1::/64", "10.0.0.0/24", "fd00::/64"), ranges("10.0.0.0/24", "fd00::/63")},
	} {
		if got := merged(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%s: merged(%v) = %v, want %v", claim, c.in, got, c.want)
		}
	}
}
