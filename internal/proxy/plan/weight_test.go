package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// TestWeighted checks which endpoints get connections, and how many slots each has.
func TestWeighted(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		weights []int
		used    []int // indexes; nil is all
		shares  []uint8
	}{
		"no endpoint":                            {},
		"equal weights need no shares":           {weights: []int{100, 100, 100}},
		"an exact proportion":                    {weights: []int{100, 100, 25}, shares: []uint8{4, 4, 1}},
		"small numbers stay":                     {weights: []int{3, 2}, shares: []uint8{3, 2}},
		"sixteenths of the largest":              {weights: []int{1000, 499, 90}, shares: []uint8{16, 8, 1}},
		"a small weight is not none":             {weights: []int{1000, 1}, shares: []uint8{16, 1}},
		"weight 0 gets none":                     {weights: []int{100, 0, 100}, used: []int{0, 2}},
		"weight 0 is used if there is no other":  {weights: []int{0, 0}},
		"one with weight takes all from those 0": {weights: []int{0, 7}, used: []int{1}},
	} {
		var all []endpoint
		for i, w := range test.weights {
			all = append(all, endpoint{addr: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:80", i)), weight: w})
		}
		var want []netip.AddrPort
		for i := range all {
			if test.used == nil || slices.Contains(test.used, i) {
				want = append(want, all[i].addr)
			}
		}
		list, shares := weighted(all)
		if !slices.Equal(list, want) || !slices.Equal(shares, test.shares) {
			t.Errorf("%s: weighted(%v) = %v, %v, want %v, %v", claim, test.weights, list, shares, want, test.shares)
		}
	}
}

// TestParseWeight checks which annotations are weights.
func TestParseWeight(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 100, "0": 0, "1": 1, "1000": 1000, "1001": -1, "-1": -1, "10%": -1} {
		got, err := ParseWeight(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("ParseWeight(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
}
