package plan

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// TestManyAddresses checks that a Service of many ports at many addresses, which anybody may create
// who may create Services, takes neither the time nor the memory of others.
func TestManyAddresses(t *testing.T) {
	for claim, test := range map[string]struct {
		ports, addresses int
		want             int // frontends
		large            bool
	}{
		"22,500 are served":         {150, 149, 150 * 150, false},
		"of 4,000,000 some are not": {2000, 1999, maxSize / 8, true},
	} {
		s := &cluster.Service{
			Key: key("shop", "web"), ClusterIPs: addrs("10.96.0.1"), Spec: &cluster.ServiceSpec{Type: cluster.ClusterIP},
		}
		for i := range test.ports {
			s.Ports = append(s.Ports, cluster.Port{Name: "http", Protocol: cluster.TCP, Number: 1 + uint16(i)})
		}
		for i := range test.addresses {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}))
		}
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, s.Spec.ExternalIPs[0]) // twice
		store := cluster.NewStore()
		store.Update(func(tx *cluster.Tx) { tx.Put(s) })
		begin := time.Now()
		var got Service
		store.View(func(v *cluster.View) { got = Compile(v, &theNode, s.Key) })
		if n := len(got.Frontends); n != test.want {
			t.Errorf("%s: Compile: %d frontends, want %d", claim, n, test.want)
		}
		if large := slices.Contains(got.Verdicts, Verdict{Reason: TooLarge}); large != test.large {
			t.Errorf("%s: Compile says that the Service is too large: %v, want %v", claim, large, test.large)
		}
		if took := time.Since(begin); took > 10*time.Second { // comparing all with all takes longer
			t.Errorf("%s: Compile took %s", claim, took)
		}
	}
}
