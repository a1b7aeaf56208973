package plan

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestSorted: many ranges stay in order, however they come and go.
func TestSorted(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var s sorted
	want := make(map[netip.Prefix]bool)
	for range 20 * maxPart {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(32)), byte(r.IntN(256))}), 20+r.IntN(13)).Masked()
		switch {
		case !want[p]:
			s.insert(p)
		case r.IntN(3) > 0:
			continue
		default:
			s.remove(p)
		}
		want[p] = !want[p]
	}
	var all []netip.Prefix
	for p, is := range want {
		if is {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	if got := slices.Collect(s.all()); !slices.Equal(got, all) || len(s.parts) < 3 {
		t.Fatalf("%d ranges in %d parts, want %d in order", len(got), len(s.parts), len(all))
	}
	for _, i := range []int{0, 1, maxPart, len(all) / 2, len(all) - 1} {
		if got := slices.Collect(s.from(all[i])); !slices.Equal(got, all[i:]) {
			t.Errorf("from(%s): %d ranges, want %d", all[i], len(got), len(all)-i)
		}
	}
	for _, p := range all {
		s.remove(p)
	}
	if got := slices.Collect(s.all()); len(got) > 0 {
		t.Errorf("%v is left", got)
	}
}
