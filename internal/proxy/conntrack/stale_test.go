package conntrack

import (
	"fmt"
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

// TestAsKubeProxy has the entries of kube-proxy's tests (pkg/proxy/conntrack/cleanup_test.go,
// TestCleanStaleEntries and TestServiceWithoutEndpoints of 1.36.3). SCTP is different: kube-proxy
// keeps its entries. So is a Service without endpoints: kube-proxy deletes its entries since 1.37.
func TestAsKubeProxy(t *testing.T) {
	t.Parallel()
	const (
		serving, notServing, deleted                 = "10.240.0.4", "10.240.1.5", "10.240.2.6"
		clusterIP, external, balancer, node, without = "172.30.1.1", "192.168.99.100", "1.2.3.4", "192.0.2.1", "172.30.1.2"
	)
	at := func(addr string, port int, p frontend.Protocol) frontend.Address {
		return address(fmt.Sprintf("%s:%d", addr, port), p)
	}
	all := make(targets)
	for _, p := range []frontend.Protocol{frontend.UDP, frontend.SCTP} {
		for _, addr := range []string{clusterIP, external, balancer} {
			all[at(addr, 8000, p)] = endpoints(serving + ":9090")
		}
		all[at(node, 32000, p)] = endpoints(serving + ":9090")
		all[at(without, 8000, p)] = nil
	}
	n := 0
	check := func(to frontend.Address, replies string, want bool) {
		n++
		e := entry{destination: to, replies: netip.MustParseAddrPort(replies)}
		if got := all.stale(&e); got != want {
			t.Errorf("stale(%s, replies from %s) = %v, want %v", to, replies, got, want)
		}
	}
	for _, addr := range []string{clusterIP, external, balancer} {
		check(at(addr, 8000, frontend.UDP), serving+":8080", true) // the endpoint's former port
		for _, port := range []int{8000, 3000} {
			untranslated := fmt.Sprintf("%s:%d", addr, port)
			check(at(addr, port, frontend.UDP), untranslated, port == 8000)
		}
	}
	for _, endpoint := range []string{serving, notServing, deleted} {
		for _, p := range []frontend.Protocol{frontend.TCP, frontend.UDP, frontend.SCTP} {
			stale := p != frontend.TCP && endpoint != serving
			for _, addr := range []string{clusterIP, external, balancer} {
				check(at(addr, 8000, p), endpoint+":9090", stale)
				check(at(addr, 3000, p), endpoint+":9090", false)
			}
			check(at(node, 32000, p), endpoint+":9090", stale)
			check(at(without, 8000, p), endpoint+":9090", p != frontend.TCP)
		}
	}
	if n != 81 {
		t.Errorf("%d entries, want 81", n)
	}
}
