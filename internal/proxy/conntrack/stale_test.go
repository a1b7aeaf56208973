package conntrack

import (
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/proxy/frontend"
)

func address(text string, p frontend.Protocol) frontend.Address {
	a := netip.MustParseAddrPort(text)
	return frontend.Address{Addr: a.Addr(), Protocol: p, Port: a.Port()}
}

func endpoints(texts ...string) (all []netip.AddrPort) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

func TestStale(t *testing.T) {
	t.Parallel()
	const (
		vip, vip6      = "10.96.0.10:53", "[fd00:96::a]:53"
		nodePort       = "192.0.2.1:30053"
		bare           = "10.96.0.11:53"
		pod1, pod2     = "10.244.1.7:5353", "10.244.2.8:5353"
		gone           = "10.244.3.9:5353"
		otherPort      = "10.244.1.7:5354"
		pod6, gone6    = "[fd00:244::7]:5353", "[fd00:244::9]:5353"
		other, client  = "10.96.0.99:53", "203.0.113.5:53"
		hostNetworkPod = "192.0.2.1:30054"
	)
	serving := endpoints(pod1, pod2)
	all := targets{
		address(vip, frontend.UDP):             serving,
		address(vip, frontend.SCTP):            serving,
		address(nodePort, frontend.UDP):        serving,
		address(bare, frontend.UDP):            nil,
		address(vip6, frontend.UDP):            endpoints(pod6),
		address(hostNetworkPod, frontend.UDP):  endpoints(hostNetworkPod),
		address("10.96.0.12:80", frontend.TCP): serving,
	}
	tests := map[string]struct {
		to       string
		protocol frontend.Protocol
		replies  string
		zone     uint16
		want     bool
	}{
		"a flow to a serving endpoint goes on":                 {to: vip, protocol: frontend.UDP, replies: pod1},
		"a flow to any serving endpoint goes on":               {to: vip, protocol: frontend.UDP, replies: pod2},
		"a flow to a removed endpoint is stale":                {to: vip, protocol: frontend.UDP, replies: gone, want: true},
		"a flow to a removed endpoint is stale in other zones": {to: vip, protocol: frontend.UDP, replies: gone, zone: 5, want: true},
		"a flow to the former port of an endpoint is stale":    {to: vip, protocol: frontend.UDP, replies: otherPort, want: true},
		"a flow to a removed endpoint of a node port is stale": {to: nodePort, protocol: frontend.UDP, replies: gone, want: true},
		"a flow to a serving endpoint of a node port goes on":  {to: nodePort, protocol: frontend.UDP, replies: pod1},
		"SCTP is as UDP":                     {to: vip, protocol: frontend.SCTP, replies: gone, want: true},
		"SCTP to a serving endpoint goes on": {to: vip, protocol: frontend.SCTP, replies: pod1},
		"the same address over another protocol is another frontend":       {to: vip, protocol: frontend.TCP, replies: gone},
		"TCP is as UDP where it is a target":                               {to: "10.96.0.12:80", protocol: frontend.TCP, replies: gone, want: true},
		"another port of the address is another frontend":                  {to: "10.96.0.10:54", protocol: frontend.UDP, replies: gone},
		"a flow to another Service is not ours":                            {to: other, protocol: frontend.UDP, replies: gone},
		"a flow to a removed endpoint's own address is not ours":           {to: gone, protocol: frontend.UDP, replies: gone},
		"a flow to the outside is not ours":                                {to: client, protocol: frontend.UDP, replies: client},
		"a flow from before the first endpoint is stale":                   {to: vip, protocol: frontend.UDP, replies: vip, want: true},
		"a flow from before the node port is stale":                        {to: nodePort, protocol: frontend.UDP, replies: nodePort, want: true},
		"a flow that another zone tracks before its translation goes on":   {to: vip, protocol: frontend.UDP, replies: vip, zone: 5},
		"a flow to an endpoint of a deleted frontend is stale":             {to: bare, protocol: frontend.UDP, replies: pod1, want: true},
		"a flow without endpoint to a deleted frontend is somebody else's": {to: bare, protocol: frontend.UDP, replies: bare},
		"an endpoint may have the frontend's address":                      {to: hostNetworkPod, protocol: frontend.UDP, replies: hostNetworkPod},
		"IPv6: a flow to a serving endpoint goes on":                       {to: vip6, protocol: frontend.UDP, replies: pod6},
		"IPv6: a flow to a removed endpoint is stale":                      {to: vip6, protocol: frontend.UDP, replies: gone6, want: true},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			e := entry{destination: address(tt.to, tt.protocol), replies: netip.MustParseAddrPort(tt.replies), zone: tt.zone}
			if got := all.stale(&e); got != tt.want {
				t.Errorf("stale(%s, replies from %s, zone %d) = %v, want %v", e.destination, e.replies, e.zone, got, tt.want)
			}
		})
	}
}

func TestCommon(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("10.96.0.10")
	some := endpoints("10.244.1.7:5353")
	tests := map[string]struct {
		targets targets
		want    common
	}{
		"one frontend has all in common with itself": {
			targets{address("10.96.0.10:53", frontend.UDP): some}, common{addr: addr, port: 53},
		},
		"an entry without endpoint cannot be stale if no frontend has one": {
			targets{address("10.96.0.10:53", frontend.UDP): nil}, common{addr: addr, port: 53, translated: true},
		},
		"ports of one Service have the address in common": {
			targets{address("10.96.0.10:53", frontend.UDP): nil, address("10.96.0.10:54", frontend.UDP): some}, common{addr: addr},
		},
		"addresses of one Service have the port in common": {
			targets{address("10.96.0.10:53", frontend.UDP): some, address("192.0.2.7:53", frontend.UDP): some}, common{port: 53},
		},
		"a cluster IP and a node port have nothing in common": {
			targets{address("10.96.0.10:53", frontend.UDP): some, address("192.0.2.1:30053", frontend.UDP): some}, common{},
		},
		"three frontends have in common what each two have": {
			targets{address("10.96.0.10:53", frontend.UDP): nil, address("10.96.0.10:54", frontend.UDP): nil, address("10.96.0.11:53", frontend.UDP): nil}, common{translated: true},
		},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			if got := tt.targets.common(); got != tt.want {
				t.Errorf("common(%v) = %+v, want %+v", tt.targets, got, tt.want)
			}
		})
	}
}
