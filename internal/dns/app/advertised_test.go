package app

import (
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

func TestLists(t *testing.T) {
	t.Parallel()
	slice := func(change func(*cluster.EndpointSlice)) *cluster.EndpointSlice {
		s := &cluster.EndpointSlice{
			Ports: []cluster.Port{{Protocol: cluster.TCP, Number: 9153}, {Protocol: cluster.UDP, Number: 53}},
			Endpoints: []cluster.Endpoint{
				{Addr: netip.MustParseAddr("10.244.1.1"), Ready: true, Serving: true},
				{Addr: netip.MustParseAddr("10.244.2.2"), Serving: true, Terminating: true},
			},
		}
		change(s)
		return s
	}
	tests := map[string]struct {
		slice *cluster.EndpointSlice
		want  bool
	}{
		"a serving endpoint, also if it terminates": {slice(func(*cluster.EndpointSlice) {}), true},
		"an endpoint that does not serve":           {slice(func(s *cluster.EndpointSlice) { s.Endpoints[1].Serving = false }), false},
		"other addresses":                           {slice(func(s *cluster.EndpointSlice) { s.Endpoints = s.Endpoints[:1] }), false},
		"another port":                              {slice(func(s *cluster.EndpointSlice) { s.Ports[1].Number = 5353 }), false},
		"the port over TCP":                         {slice(func(s *cluster.EndpointSlice) { s.Ports[1].Protocol = cluster.TCP }), false},
	}
	own := []netip.AddrPort{netip.MustParseAddrPort("10.244.2.2:53")}
	for claim, test := range tests {
		if got := lists(test.slice, own); got != test.want {
			t.Errorf("%s: lists(%v, %v) = %t, want %t", claim, *test.slice, own, got, test.want)
		}
	}
}

// TestServed checks that an unspecified address stands for the host's addresses.
func TestServed(t *testing.T) {
	t.Parallel()
	set := netip.MustParseAddrPort("192.0.2.1:53")
	if got := served([]netip.AddrPort{set}); len(got) != 1 || got[0] != set {
		t.Errorf("served(%s) = %v, want the same", set, got)
	}
	for _, a := range served([]netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:53")}) {
		if a.Port() != 53 || a.Addr().IsUnspecified() || a.Addr().IsLoopback() {
			t.Errorf("served(0.0.0.0:53) has %s", a)
		}
	}
}
