package semantics

import (
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// TestUnknownAddresses: a block has an address that is not known if it may be in it; where it is doubted, if it is in it
// whatever it is.
func TestUnknownAddresses(t *testing.T) {
	t.Parallel()
	pods := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/48")}
	for _, test := range []struct {
		block     cluster.PolicyPeer
		within    []netip.Prefix
		may, must bool
	}{
		{block("0.0.0.0/0"), nil, true, true},
		{block("::/0"), nil, true, true},
		{block("0.0.0.0/0", "10.0.0.0/8"), nil, true, false},
		{block("203.0.113.0/24"), nil, true, false},
		{block("203.0.113.0/24", "203.0.113.0/24"), nil, false, false},
		{block("0.0.0.0/0"), pods, true, true},
		{block("0.0.0.0/0", "10.0.0.0/8"), pods, false, false},
		{block("0.0.0.0/0", "10.244.7.0/24"), pods, true, false},
		{block("0.0.0.0/0", "192.168.0.0/16"), pods, true, true},
		{block("203.0.113.0/24"), pods, false, false},
		{block("10.0.0.0/8"), pods, true, true},
		{block("10.244.1.0/24"), pods, true, false},
		{block("fd00::/8"), pods, true, true},
		{block("10.0.0.0/8"), pods[1:], false, false},
	} {
		for doubted, want := range map[bool]bool{false: test.may, true: test.must} {
			e := &End{Namespace: "shop", Within: test.within, Doubted: doubted}
			if got := e.isIn(test.block.Block, test.block.Except); got != want {
				t.Errorf("an address of %v is in %v except %v, doubted %t: %t, want %t", test.within, test.block.Block, test.block.Except, doubted, got, want)
			}
		}
	}
}

// TestDoubtedTiers: where an address that is not known is doubted, a rule that denies some addresses denies it, and one
// that accepts some does not accept it.
func TestDoubtedTiers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		action         cluster.Action
		network        string
		favor, doubted bool // whether it is allowed
	}{
		{cluster.Deny, "10.0.0.0/8", true, false}, {cluster.Deny, "0.0.0.0/0", false, false},
		{cluster.Accept, "10.0.0.0/8", true, false}, {cluster.Accept, "0.0.0.0/0", true, true},
	} {
		store := cluster.NewStore()
		store.Update(func(tx *cluster.Tx) {
			network := netip.MustParsePrefix(test.network)
			tx.Put(&cluster.ClusterNetworkPolicy{Name: "guard", Tier: cluster.AdminTier, EgressRules: []cluster.TierRule{
				{Action: test.action, Peers: []cluster.TierPeer{{Networks: []netip.Prefix{network}}}},
			}})
			if test.action == cluster.Accept { // what it does not accept is denied
				tx.Put(&cluster.NetworkPolicy{Key: cluster.Key{Namespace: "shop", Name: "deny"}, Egress: true})
			}
		})
		store.View(func(v *cluster.View) {
			s := NewSet(v)
			for doubted, want := range map[bool]bool{false: test.favor, true: test.doubted} {
				to := &End{Namespace: "data", Doubted: doubted}
				if got := s.Egress(&End{Namespace: "shop"}, to, cluster.Port{Protocol: cluster.TCP, Number: 80}).Allowed; got != want {
					t.Errorf("%s %s, doubted %t: allowed %t, want %t", test.action, test.network, doubted, got, want)
				}
			}
		})
	}
}
