package connection

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// TestLimits checks what is said of Services that limits leave out, in whole or in part.
func TestLimits(t *testing.T) {
	t.Parallel()
	const addresses, endpoints = 300, 1000 // more than the 262,144 of a Service
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.ServiceCIDR{Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}})
		// Four of these do not fit into 786,432, and a namespace has half of that: room for one.
		for i, name := range []string{"first", "second", "third", "fourth"} {
			port := cluster.Port{Protocol: cluster.TCP, Number: 80}
			s := &cluster.Service{
				Key: cluster.Key{Namespace: "shop", Name: name}, Created: 1 + int64(i), Ports: []cluster.Port{port},
				ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, 1 + byte(i)})},
				Spec:       &cluster.ServiceSpec{Type: cluster.ClusterIP},
			}
			for a := range addresses {
				ip := netip.AddrFrom4([4]byte{203, byte(i), byte(a >> 8), byte(a)})
				s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, ip)
			}
			slice := &cluster.EndpointSlice{Key: s.Key, Service: name, AddressType: cluster.IPv4, Ports: []cluster.Port{port}}
			for e := range endpoints {
				at := netip.AddrFrom4([4]byte{10, 1, byte(e >> 8), byte(e)})
				slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: at, Ready: true, Serving: true})
			}
			tx.Put(s)
			tx.Put(slice)
		}
	})
	settings := new(Settings)
	for claim, test := range map[string]struct {
		service, address string
		note             string // of the VIP; empty without one
		outcome, because string
	}{
		"an address that does not fit": {
			"first", "203.0.1.43:80", "", NotKnown,
			"Service shop/first has too many ports, addresses and endpoints: 203.0.1.43:80/tcp is left out",
		},
		"another address of the Service": {
			"first", "10.96.0.1:80", "some addresses are left out: the Service has too many ports, addresses and endpoints", Connected, "",
		},
		"a Service that does not fit": {
			"second", "10.96.0.2:80", "not served: the proxy has no room", TimedOut,
			"Service shop/second is not served: older Services of the cluster, or of its namespace, have all that the proxy holds",
		},
	} {
		store.View(func(v *cluster.View) {
			var note string
			for _, vip := range VIPs(v, settings, "node-1") {
				if vip.Service == test.service && vip.Address == test.address {
					note = vip.Note
				}
			}
			if note != test.note {
				t.Errorf("%s: VIPs says of %s %q, want %q", claim, test.address, note, test.note)
			}
			at := netip.MustParseAddrPort(test.address)
			_, port, _ := strings.Cut(test.address, ":")
			e := Explain(&Request{
				World: NewWorld(v, &lint.Linter{View: v}, settings), Client: Client{Place: OnNode, Node: "node-1"},
				Target: Target{Host: at.Addr().String(), Port: port, Protocol: frontend.TCP},
			})
			said := slices.ContainsFunc(e.Diagnoses, func(d explain.Diagnosis) bool { return d.Why == test.because })
			if e.Outcome != test.outcome || test.because != "" && !said {
				t.Errorf("%s: Explain of %s: %s, %+v, want %s, %q", claim, test.address, e.Outcome, e.Diagnoses, test.outcome, test.because)
			}
		})
	}
}
