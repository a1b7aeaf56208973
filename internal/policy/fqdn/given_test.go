package fqdn

import (
	"net/netip"
	"testing"
)

// TestGivenIsBounded verifies that what is remembered is bounded, and that addresses which are looked up
// stay.
func TestGivenIsBounded(t *testing.T) {
	t.Parallel()
	const most = 10
	g := given{most: most}
	of := func(i int) givenAddress {
		return givenAddress{domain{wire: "api"}, netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})}
	}
	for i := range 100 * most {
		g.insert(of(i))
		if !g.has(of(0)) {
			t.Fatalf("after %d addresses, one that is looked up has gone", i)
		}
		if n := len(g.recent) + len(g.before); n > 2*most {
			t.Fatalf("%d addresses are remembered, want %d at most", n, 2*most)
		}
	}
	if g.has(of(1)) {
		t.Error("an address of long ago is remembered")
	}
}
