package nft

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestPlace checks, over random changes, that endpoints fill the first slots, each as often as it
// should, and that those that stay keep their slots unless that would leave a gap.
func TestPlace(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var slots []netip.AddrPort
	for range 10000 {
		var endpoints []netip.AddrPort
		for i := range random.IntN(20) {
			for range random.IntN(3) * random.IntN(2) {
				endpoints = append(endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80))
			}
		}
		before := slices.Clone(slots)
		slots = place(before, endpoints)
		sorted := slices.SortedFunc(slices.Values(slots), netip.AddrPort.Compare)
		if !slices.Equal(sorted, endpoints) {
			t.Fatalf("place(%v, %v) = %v", before, endpoints, slots)
		}
		for i, e := range before {
			if i < len(slots) && count(endpoints, e) >= count(before[:i+1], e) && slots[i] != e {
				t.Fatalf("place(%v, %v) = %v: %s moved", before, endpoints, slots, e)
			}
		}
	}
}

func count(all []netip.AddrPort, e netip.AddrPort) (n int) {
	for _, o := range all {
		if o == e {
			n++
		}
	}
	return n
}

// TestSizes checks that a chain is at most a quarter larger than the number of endpoints, and
// that it draws from slots that are never empty in the end.
func TestSizes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 1<<16; n++ {
		size := sizeFor(n)
		if size < n || n > maxExact && size*4 > n*5+4 || n <= maxExact && size != n {
			t.Fatalf("sizeFor(%d) = %d", n, size)
		}
		if all := draws(size); all[len(all)-1] != 1 || n > maxExact && all[len(all)-3] > n {
			t.Fatalf("%d endpoints: draws(%d) = %d", n, size, all)
		}
	}
}
