package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// theNode is what the tests compile for.
var theNode = Node{
	Name: "here", Zone: "east",
	NodePorts: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")},
	Addresses: []netip.Addr{addr("127.0.0.1"), addr("192.0.2.1"), addr("2001:db8::1")},
}

// planTest is a Service with slices, and what it is compiled into, as text.
type planTest struct {
	source  string // file:line in pkg/proxy of k8s.io/kubernetes v1.36.3, unless it says otherwise
	service func(*cluster.Service)
	slices  []*cluster.EndpointSlice
	want    []string
}

// TestServices checks which Services and which of their addresses are served.
func TestServices(t *testing.T) {
	t.Parallel()
	web := list(slice("a", ep("10.1.0.5")))
	dual := list(slice("a", ep("10.1.0.5")), slice("b", ep("fd01::5")))
	run(t, map[string]planTest{
		"a headless Service is not served": {
			"util/utils.go:56", func(s *cluster.Service) { s.Headless, s.ClusterIPs = true, nil }, web,
			[]string{"verdict headless"},
		},
		"a Service of type ExternalName is not served, whatever else it has": {
			"util/utils.go:56", func(s *cluster.Service) { s.ExternalName, s.Spec.Type = "example.com", cluster.ExternalName }, web,
			[]string{"verdict external-name"},
		},
		"a Service without a cluster IP is not served, not even at a node port": {
			"util/utils.go:56", func(s *cluster.Service) { s.ClusterIPs, s.Spec.NodePorts = nil, []uint16{30080} }, web,
			[]string{"verdict no-cluster-ip"},
		},
		"the label service-proxy-name has another proxy serve it": {
			"cmd/kube-proxy/app/server.go:573",
			func(s *cluster.Service) { s.Spec.Labels = map[string]string{cluster.LabelProxyName: "other"} }, web,
			[]string{"verdict other-proxy"},
		},
		"so does the label with an empty value": {
			"cmd/kube-proxy/app/server.go:573, DoesNotExist",
			func(s *cluster.Service) { s.Spec.Labels = map[string]string{cluster.LabelProxyName: ""} }, web,
			[]string{"verdict other-proxy"},
		},
		"a Service without a spec has the defaults": {
			"package cluster, Service.Spec", func(s *cluster.Service) { s.Spec = nil }, web,
			[]string{"10.96.0.10:80/tcp plain 10.1.0.5:8080"},
		},
		"a Service that is being deleted is served until it is gone": {
			"servicechangetracker.go:76", func(s *cluster.Service) { s.Spec.Deleting = true }, web,
			[]string{"10.96.0.10:80/tcp plain 10.1.0.5:8080"},
		},
		"each family has the endpoints of its own": {
			"endpointslicecache.go, addressType", func(s *cluster.Service) { s.ClusterIPs = append(s.ClusterIPs, addr("fd96::10")) }, dual,
			[]string{"10.96.0.10:80/tcp plain 10.1.0.5:8080", "[fd96::10]:80/tcp plain [fd01::5]:8080"},
		},
		"without an address of a family it has nothing in that family": {
			"nftables/proxier.go, one for each family", func(s *cluster.Service) {
				s.Spec.NodePorts, s.Spec.ExternalIPs = []uint16{30080}, addrs("203.0.113.1", "2001:db8:1::1")
				s.Spec.Type, s.Spec.Ingress = cluster.LoadBalancer, ingress("203.0.113.2", "2001:db8:1::2")
			}, dual,
			[]string{
				"10.96.0.10:80/tcp plain 10.1.0.5:8080", "192.0.2.1:30080/tcp external 10.1.0.5:8080",
				"203.0.113.1:80/tcp external 10.1.0.5:8080", "203.0.113.2:80/tcp external 10.1.0.5:8080",
			},
		},
		"each port has its own protocol and endpoints": {
			"endpointslicecache.go:181", func(s *cluster.Service) {
				s.Ports = []cluster.Port{{Name: "dns", Protocol: cluster.UDP, Number: 53}, {Name: "s", Protocol: cluster.SCTP, Number: 9}}
			},
			list(
				ports(slice("a", ep("10.1.0.5")), cluster.Port{Name: "dns", Protocol: cluster.UDP, Number: 5353}),
				ports(slice("b", ep("10.1.0.6")), cluster.Port{Name: "s", Protocol: cluster.SCTP, Number: 99}),
			),
			[]string{"10.96.0.10:53/udp plain 10.1.0.5:5353", "10.96.0.10:9/sctp plain 10.1.0.6:99"},
		},
		"ipMode Proxy leaves packets to the load balancer": {
			"serviceport.go:227, KEP-1860", func(s *cluster.Service) {
				s.Spec.Type, s.Spec.Ingress = cluster.LoadBalancer, ingress("203.0.113.2", "203.0.113.3")
				s.Spec.Ingress[0].Proxy = true
			}, web,
			[]string{"10.96.0.10:80/tcp plain 10.1.0.5:8080", "203.0.113.3:80/tcp external 10.1.0.5:8080"},
		},
		"a load balancer's address counts for all types": {
			"serviceport.go:224, gate AllowServiceLBStatusOnNonLB", func(s *cluster.Service) { s.Spec.Ingress = ingress("203.0.113.2") }, web,
			[]string{"10.96.0.10:80/tcp plain 10.1.0.5:8080", "203.0.113.2:80/tcp external 10.1.0.5:8080"},
		},
		"a node port is at all node port addresses of the family": {
			"nftables/proxier.go:1455", func(s *cluster.Service) {
				s.Spec.Type, s.Spec.NodePorts, s.ClusterIPs = cluster.NodePort, []uint16{30080}, append(s.ClusterIPs, addr("fd96::10"))
			}, dual,
			[]string{
				"10.96.0.10:80/tcp plain 10.1.0.5:8080", "192.0.2.1:30080/tcp external 10.1.0.5:8080",
				"[2001:db8::1]:30080/tcp external [fd01::5]:8080", "[fd96::10]:80/tcp plain [fd01::5]:8080",
			},
		},
		"ports without a node port have none": {
			"nftables/proxier.go:1449", func(s *cluster.Service) {
				s.Ports = append(s.Ports, cluster.Port{Name: "sql", Protocol: cluster.TCP, Number: 5432})
				s.Spec.NodePorts = []uint16{0, 30432}
			}, list(ports(slice("a", ep("10.1.0.5")), cluster.Port{Name: "http", Protocol: cluster.TCP, Number: 8080},
				cluster.Port{Name: "sql", Protocol: cluster.TCP, Number: 5432})),
			[]string{
				"10.96.0.10:80/tcp plain 10.1.0.5:8080", "10.96.0.10:5432/tcp plain 10.1.0.5:5432",
				"192.0.2.1:30432/tcp external 10.1.0.5:5432",
			},
		},
		"an external IP that is also the cluster IP is served once, as a cluster IP": {
			"here: an address has one frontend", func(s *cluster.Service) { s.Spec.ExternalIPs = addrs("10.96.0.10") }, web,
			[]string{"10.96.0.10:80/tcp plain 10.1.0.5:8080"},
		},
		"affinity is shared by all addresses of a port": {
			"nftables/proxier.go:1622", func(s *cluster.Service) {
				s.Spec.AffinitySeconds, s.Spec.ExternalIPs = 60, addrs("203.0.113.1")
			}, web,
			[]string{
				"10.96.0.10:80/tcp plain 10.1.0.5:8080 affinity shop/web:http/tcp 1m0s",
				"203.0.113.1:80/tcp external 10.1.0.5:8080 affinity shop/web:http/tcp 1m0s",
			},
		},
		"ports do not share affinity": {
			"nftables/proxier.go:1622", func(s *cluster.Service) {
				s.Ports = append(s.Ports, cluster.Port{Name: "http", Protocol: cluster.UDP, Number: 80})
				s.Spec.AffinitySeconds = 60
			}, list(ports(slice("a", ep("10.1.0.5")), cluster.Port{Name: "http", Protocol: cluster.TCP, Number: 8080},
				cluster.Port{Name: "http", Protocol: cluster.UDP, Number: 8080})),
			[]string{
				"10.96.0.10:80/tcp plain 10.1.0.5:8080 affinity shop/web:http/tcp 1m0s",
				"10.96.0.10:80/udp plain 10.1.0.5:8080 affinity shop/web:http/udp 1m0s",
			},
		},
	})
}

// TestSlices checks which endpoints a port has.
func TestSlices(t *testing.T) {
	t.Parallel()
	additional := slice("a", ep("10.1.0.5"), ep("10.1.0.6"))
	additional.Spec.Places[1].Additional = true
	none := func(*cluster.Service) {}
	run(t, map[string]planTest{
		"only the first address of an endpoint": {
			"endpointslicecache.go:231", none, list(additional), []string{"10.96.0.10:80/tcp plain 10.1.0.5:8080"},
		},
		"a slice without places has addresses of endpoints only": {
			"package object, Endpoints", none, list(&cluster.EndpointSlice{
				Key: cluster.Key{Namespace: "shop", Name: "a"}, Service: "web", AddressType: cluster.IPv4,
				Ports: []cluster.Port{http}, Endpoints: []cluster.Endpoint{{Addr: addr("10.1.0.5"), Ready: true, Serving: true}},
			}), []string{"10.96.0.10:80/tcp plain 10.1.0.5:8080"},
		},
		"a port without a number is ignored": {
			"endpointslicecache.go:177", none,
			list(ports(slice("a", ep("10.1.0.5")), cluster.Port{Name: "http", Protocol: cluster.TCP})),
			[]string{"10.96.0.10:80/tcp plain", "verdict no-endpoints 10.96.0.10:80/tcp"},
		},
		"a port of another name is another": {
			"endpointslicecache.go:181", none,
			list(ports(slice("a", ep("10.1.0.5")), cluster.Port{Protocol: cluster.TCP, Number: 8080})),
			[]string{"10.96.0.10:80/tcp plain", "verdict no-endpoints 10.96.0.10:80/tcp"},
		},
		"a port of another protocol is another": {
			"endpointslicecache.go:181", none,
			list(ports(slice("a", ep("10.1.0.5")), cluster.Port{Name: "http", Protocol: cluster.UDP, Number: 8080})),
			[]string{"10.96.0.10:80/tcp plain", "verdict no-endpoints 10.96.0.10:80/tcp"},
		},
		"each slice has its own target port": {
			"endpointslicecache.go:187", none,
			list(slice("a", ep("10.1.0.5")), ports(slice("b", ep("10.1.0.6")), cluster.Port{Name: "http", Protocol: cluster.TCP, Number: 81})),
			[]string{"10.96.0.10:80/tcp plain 10.1.0.5:8080 10.1.0.6:81"},
		},
		"an endpoint in two slices counts once": {
			"endpointslicecache.go:247", none, list(slice("a", ep("10.1.0.5")), slice("b", ep("10.1.0.5"))),
			[]string{"10.96.0.10:80/tcp plain 10.1.0.5:8080"},
		},
		"of an address that is there twice the one that does not terminate counts": {
			"endpointslicecache.go:247", none,
			list(slice("a", ep("10.1.0.5").terminating()), slice("b", ep("10.1.0.5")), slice("c", ep("10.1.0.5").terminating())),
			[]string{"10.96.0.10:80/tcp plain 10.1.0.5:8080"},
		},
		"even if it is not ready": {
			"endpointslicecache.go:247", none, list(slice("a", ep("10.1.0.5").terminating()), slice("b", ep("10.1.0.5").unready())),
			[]string{"10.96.0.10:80/tcp plain", "verdict no-endpoints 10.96.0.10:80/tcp"},
		},
		"slices of the other family and of names are ignored": {
			"endpointschangetracker.go:81", none, list(slice("a", ep("fd01::5")), &cluster.EndpointSlice{
				Key: cluster.Key{Namespace: "shop", Name: "b"}, Service: "web", AddressType: cluster.FQDN, Ports: []cluster.Port{http},
			}), []string{"10.96.0.10:80/tcp plain", "verdict no-endpoints 10.96.0.10:80/tcp"},
		},
		"a slice without the label of a Service is ignored": {
			"endpointslicecache.go:316", none, list(func() *cluster.EndpointSlice {
				s := slice("web", ep("10.1.0.5"))
				s.Service = ""
				return s
			}()), []string{"10.96.0.10:80/tcp plain", "verdict no-endpoints 10.96.0.10:80/tcp"},
		},
	})
}

// TestChoice checks which endpoints are chosen, by readiness and topology.
func TestChoice(t *testing.T) {
	t.Parallel()
	both := func(s *cluster.Service) { s.Spec.ExternalIPs = addrs("203.0.113.1") }
	local := func(s *cluster.Service) {
		both(s)
		s.Spec.ExternalLocal, s.Spec.InternalLocal = true, true
	}
	tests := make(map[string]planTest)
	for claim, test := range map[string]struct {
		source    string
		endpoints []endpointOf
		// cluster are the endpoints for policy Cluster, local those for Local.
		cluster, local string
	}{
		"ready ones, on the node for policy Local": {
			"topology.go:54", []endpointOf{ep("10.1.0.5").on("here"), ep("10.1.0.6"), ep("10.1.0.7").unready()}, "5 6", "5",
		},
		"an endpoint without a node is on none": {"endpointslicecache.go:206", []endpointOf{ep("10.1.0.5")}, "5", ""},
		"terminating ones only if none is ready": {
			"topology.go:70", []endpointOf{ep("10.1.0.5"), ep("10.1.0.6").terminating()}, "5", "",
		},
		"if none is ready, those that serve while they terminate": {
			"topology.go:70", []endpointOf{ep("10.1.0.5").unready(), ep("10.1.0.6").terminating(), ep("10.1.0.7").ended()}, "6", "",
		},
		"policy Local falls back by itself": {
			"topology.go:114", []endpointOf{ep("10.1.0.5"), ep("10.1.0.6").terminating().on("here")}, "5", "6",
		},
		"one that is not ready does not serve unless it terminates": {
			"topology.go:71", []endpointOf{ep("10.1.0.5").unready().on("here")}, "", "",
		},
		"hints for zones narrow policy Cluster, not Local": {
			"topology.go:197", []endpointOf{
				ep("10.1.0.5").zones("east"), ep("10.1.0.6").zones("west").on("here"), ep("10.1.0.7").zones("west", "east"),
			}, "5 7", "6",
		},
		"hints for nodes come before those for zones": {
			"topology.go:187", []endpointOf{
				ep("10.1.0.5").zones("east").nodes("there"), ep("10.1.0.6").zones("west").nodes("here"),
			}, "6", "",
		},
		"without a hint for the node those for zones count": {
			"topology.go:197", []endpointOf{
				ep("10.1.0.5").zones("east").nodes("there"), ep("10.1.0.6").zones("west").nodes("there"),
			}, "5", "",
		},
		"without a hint for node and zone all count": {
			"topology.go:197", []endpointOf{ep("10.1.0.5").zones("west"), ep("10.1.0.6").zones("north")}, "5 6", "",
		},
		"one ready endpoint without hints has all count": {
			"topology.go:174", []endpointOf{ep("10.1.0.5").zones("east"), ep("10.1.0.6")}, "5 6", "",
		},
		"those that are not ready need no hints": {
			"topology.go:164", []endpointOf{
				ep("10.1.0.5").zones("east"), ep("10.1.0.6").zones("west"), ep("10.1.0.7").unready(), ep("10.1.0.8").terminating(),
			}, "5", "",
		},
		"hints do not count among terminating ones": {
			"topology.go:70", []endpointOf{ep("10.1.0.5").terminating().zones("west"), ep("10.1.0.6").terminating().zones("east")}, "5 6", "",
		},
		"no endpoint": {"topology.go:48", nil, "", ""},
	} {
		wide := func(tail string) []string {
			return []string{"10.96.0.10:80/tcp plain" + tail, "203.0.113.1:80/tcp external" + tail}
		}
		want := wide(expand(test.cluster))
		if test.cluster == "" {
			want = append(want, "verdict no-endpoints 10.96.0.10:80/tcp", "verdict no-endpoints 203.0.113.1:80/tcp")
		}
		tests[claim+"; policy Cluster"] = planTest{test.source, both, list(slice("a", test.endpoints...)), want}
		switch {
		case test.local != "":
			want = []string{
				"10.96.0.10:80/tcp plain" + expand(test.local),
				"203.0.113.1:80/tcp external-local" + expand(test.cluster) + " local" + expand(test.local),
			}
		case test.cluster != "":
			want = []string{
				"10.96.0.10:80/tcp plain drop", "203.0.113.1:80/tcp external-local" + expand(test.cluster) + " local",
				"verdict no-local-endpoints 10.96.0.10:80/tcp", "verdict no-local-endpoints 203.0.113.1:80/tcp",
			}
		default:
			want = []string{
				"10.96.0.10:80/tcp plain", "203.0.113.1:80/tcp external-local local",
				"verdict no-endpoints 10.96.0.10:80/tcp", "verdict no-endpoints 203.0.113.1:80/tcp",
			}
		}
		tests[claim+"; policy Local"] = planTest{test.source, local, list(slice("a", test.endpoints...)), want}
	}
	run(t, tests)
}

// TestPolicies checks that internal and external traffic policy hold for their own addresses.
func TestPolicies(t *testing.T) {
	t.Parallel()
	everywhere := func(s *cluster.Service) {
		s.Spec.Type, s.Spec.NodePorts = cluster.LoadBalancer, []uint16{30080}
		s.Spec.ExternalIPs, s.Spec.Ingress = addrs("203.0.113.1"), ingress("203.0.113.2")
	}
	two := list(slice("a", ep("10.1.0.5").on("here"), ep("10.1.0.6").on("there")))
	run(t, map[string]planTest{
		"externalTrafficPolicy Local is for external addresses": {
			"nftables/proxier.go:1270", func(s *cluster.Service) {
				everywhere(s)
				s.Spec.ExternalLocal = true
			}, two, []string{
				"10.96.0.10:80/tcp plain 10.1.0.5:8080 10.1.0.6:8080",
				"192.0.2.1:30080/tcp external-local 10.1.0.5:8080 10.1.0.6:8080 local 10.1.0.5:8080",
				"203.0.113.1:80/tcp external-local 10.1.0.5:8080 10.1.0.6:8080 local 10.1.0.5:8080",
				"203.0.113.2:80/tcp external-local 10.1.0.5:8080 10.1.0.6:8080 local 10.1.0.5:8080",
			},
		},
		"internalTrafficPolicy Local is for cluster IPs": {
			"nftables/proxier.go:1265", func(s *cluster.Service) {
				everywhere(s)
				s.Spec.InternalLocal = true
			}, two, []string{
				"10.96.0.10:80/tcp plain 10.1.0.5:8080",
				"192.0.2.1:30080/tcp external 10.1.0.5:8080 10.1.0.6:8080",
				"203.0.113.1:80/tcp external 10.1.0.5:8080 10.1.0.6:8080",
				"203.0.113.2:80/tcp external 10.1.0.5:8080 10.1.0.6:8080",
			},
		},
	})
}

// TestSourceRanges checks which clients may connect to a load balancer's address.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	slices := list(slice("a", ep("10.1.0.5")), slice("b", ep("fd01::5")))
	balancer := func(ranges ...string) func(*cluster.Service) {
		return func(s *cluster.Service) {
			s.ClusterIPs = append(s.ClusterIPs, addr("fd96::10"))
			s.Spec.Type, s.Spec.Ingress = cluster.LoadBalancer, ingress("203.0.113.2", "2001:db8:1::2")
			s.Spec.NodePorts, s.Spec.ExternalIPs = []uint16{30080}, addrs("203.0.113.1")
			s.Spec.SourceRanges = prefixes(ranges...)
		}
	}
	want := func(v4, v6 string) []string {
		return []string{
			"10.96.0.10:80/tcp plain 10.1.0.5:8080",
			"192.0.2.1:30080/tcp external 10.1.0.5:8080",
			"203.0.113.1:80/tcp external 10.1.0.5:8080",
			"203.0.113.2:80/tcp external 10.1.0.5:8080" + v4,
			"[2001:db8::1]:30080/tcp external [fd01::5]:8080",
			"[2001:db8:1::2]:80/tcp external [fd01::5]:8080" + v6,
			"[fd96::10]:80/tcp plain [fd01::5]:8080",
		}
	}
	run(t, map[string]planTest{
		"they hold for load balancers' addresses only, by family": {
			"nftables/proxier.go:1395", balancer("198.51.100.0/24", "2001:db8:9::/48"), slices,
			want(" from 198.51.100.0/24", " from 2001:db8:9::/48"),
		},
		"a family without a range has no limit": {
			"serviceport.go:215", balancer("198.51.100.0/24"), slices, want(" from 198.51.100.0/24", ""),
		},
		"a range of all addresses of a family is no limit of that family": {
			"serviceport.go:217", balancer("0.0.0.0/0", "198.51.100.0/24", "2001:db8:9::/48"), slices, want("", " from 2001:db8:9::/48"),
		},
		"a range in another is left out": {
			"nft: an element that overlaps another is refused", balancer("198.51.100.0/24", "198.51.100.7/32", "198.51.100.128/25", "198.51.0.0/16"), slices,
			want(" from 198.51.0.0/16", ""),
		},
		"without ranges there is no limit": {"serviceport.go:215", balancer(), slices, want("", "")},
		"a range with the node's address admits the load balancers' own": {
			"nftables/proxier.go:1571", balancer("192.0.2.0/24"), slices, want(" from 192.0.2.0/24 203.0.113.2/32", ""),
		},
		"all of them": {
			"nftables/proxier.go:1581", func(s *cluster.Service) {
				s.Spec.Type, s.Spec.Ingress = cluster.LoadBalancer, ingress("203.0.113.2", "203.0.113.3")
				s.Spec.SourceRanges = prefixes("192.0.2.1/32")
			}, slices, []string{
				"10.96.0.10:80/tcp plain 10.1.0.5:8080",
				"203.0.113.2:80/tcp external 10.1.0.5:8080 from 192.0.2.1/32 203.0.113.2/32 203.0.113.3/32",
				"203.0.113.3:80/tcp external 10.1.0.5:8080 from 192.0.2.1/32 203.0.113.2/32 203.0.113.3/32",
			},
		},
	})
}

// TestHealthChecks checks what load balancers are told.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	balancer := func(s *cluster.Service) {
		s.Spec.Type, s.Spec.ExternalLocal, s.Spec.HealthCheckNodePort = cluster.LoadBalancer, true, 32000
	}
	for claim, test := range map[string]struct {
		source  string
		service func(*cluster.Service)
		slices  []*cluster.EndpointSlice
		want    *HealthCheck
	}{
		"ready endpoints on the node count": {
			"endpointschangetracker.go:276", balancer,
			list(slice("a", ep("10.1.0.5").on("here"), ep("10.1.0.6"), ep("10.1.0.7").on("here").unready())),
			&HealthCheck{32000, map[cluster.AddressType]int{cluster.IPv4: 1}},
		},
		"terminating ones do not count, though connections may use them": {
			"endpointschangetracker.go:252", balancer, list(slice("a", ep("10.1.0.5").on("here").terminating())),
			&HealthCheck{32000, map[cluster.AddressType]int{cluster.IPv4: 0}},
		},
		"an endpoint of two ports counts once": {
			"endpointschangetracker.go:281", func(s *cluster.Service) {
				balancer(s)
				s.Ports = append(s.Ports, cluster.Port{Name: "tls", Protocol: cluster.TCP, Number: 443})
			}, list(ports(slice("a", ep("10.1.0.5").on("here")), http, cluster.Port{Name: "tls", Protocol: cluster.TCP, Number: 8443})),
			&HealthCheck{32000, map[cluster.AddressType]int{cluster.IPv4: 1}},
		},
		"families count by themselves": {
			"healthcheck, one server for each proxier", func(s *cluster.Service) {
				balancer(s)
				s.ClusterIPs = append(s.ClusterIPs, addr("fd96::10"))
			}, list(slice("a", ep("10.1.0.5").on("here"), ep("10.1.0.6").on("here")), slice("b", ep("fd01::5").on("here"))),
			&HealthCheck{32000, map[cluster.AddressType]int{cluster.IPv4: 2, cluster.IPv6: 1}},
		},
		"policy Cluster has none": {
			"serviceport.go:237", func(s *cluster.Service) {
				balancer(s)
				s.Spec.ExternalLocal = false
			}, nil, nil,
		},
		"other types have none": {
			"serviceport.go:237", func(s *cluster.Service) {
				balancer(s)
				s.Spec.Type = cluster.NodePort
			}, nil, nil,
		},
		"without a port there is none": {
			"serviceport.go:239", func(s *cluster.Service) {
				balancer(s)
				s.Spec.HealthCheckNodePort = 0
			}, nil, nil,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store, key := storeOf(test.service, test.slices)
			store.View(func(v *cluster.View) {
				if diff := cmp.Diff(test.want, Compile(v, &theNode, key).Check); diff != "" {
					t.Errorf("Compile(%s).Check, as in %s: (-want +got)\n%s", key, test.source, diff)
				}
			})
		})
	}
}

// TestHairpins checks which endpoints may connect to themselves.
func TestHairpins(t *testing.T) {
	t.Parallel()
	store, key := storeOf(
		func(s *cluster.Service) { s.ClusterIPs = append(s.ClusterIPs, addr("fd96::10")) },
		list(
			slice("a", ep("10.1.0.6").on("here").terminating(), ep("10.1.0.5").on("here"), ep("10.1.0.7").on("there")),
			slice("b", ep("fd01::5").on("here")),
			ports(slice("c", ep("10.1.0.5").on("here")), cluster.Port{Name: "http", Protocol: cluster.TCP, Number: 81}),
		),
	)
	store.View(func(v *cluster.View) {
		want := addrs("10.1.0.5", "10.1.0.6", "fd01::5")
		if got := Compile(v, &theNode, key).Local; !slices.Equal(got, want) {
			t.Errorf("Compile(%s).Local = %v, want each endpoint on the node once: %v", key, got, want)
		}
	})
}

// TestNothing checks that a Service that does not exist is compiled into nothing.
func TestNothing(t *testing.T) {
	t.Parallel()
	cluster.NewStore().View(func(v *cluster.View) {
		if got := Compile(v, &theNode, cluster.Key{Namespace: "shop", Name: "web"}); !cmp.Equal(got, Service{}) {
			t.Errorf("Compile of a Service that does not exist = %+v", got)
		}
	})
}

// run compiles each test's Service.
func run(t *testing.T, tests map[string]planTest) {
	t.Helper()
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store, key := storeOf(test.service, test.slices)
			store.View(func(v *cluster.View) {
				if diff := cmp.Diff(test.want, textOf(Compile(v, &theNode, key))); diff != "" {
					t.Errorf("Compile(%s), as in %s: (-want +got)\n%s", key, test.source, diff)
				}
			})
		})
	}
}

// storeOf returns a Store with the Service shop/web, changed by change, and slices.
func storeOf(change func(*cluster.Service), slices []*cluster.EndpointSlice) (*cluster.Store, cluster.Key) {
	s := &cluster.Service{
		Key:        cluster.Key{Namespace: "shop", Name: "web"},
		ClusterIPs: addrs("10.96.0.10"),
		Ports:      []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}},
		Spec:       &cluster.ServiceSpec{Type: cluster.ClusterIP},
	}
	change(s)
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		tx.Put(s)
		for _, slice := range slices {
			tx.Put(slice)
		}
	})
	return store, s.Key
}

// textOf returns a line for each frontend and verdict.
func textOf(s Service) (lines []string) {
	for _, f := range s.Frontends {
		lines = append(lines, frontendText(f))
	}
	for _, v := range s.Verdicts {
		line := "verdict " + string(v.Reason)
		if v.Address != (frontend.Address{}) {
			line += " " + v.Address.String()
		}
		if v.Other != (cluster.Key{}) {
			line += " by " + v.Other.String()
		}
		lines = append(lines, line)
	}
	return lines
}

func frontendText(f *frontend.Frontend) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", f.Address, [...]string{"plain", "external", "external-local"}[f.Policy])
	for _, e := range f.Endpoints {
		fmt.Fprintf(&b, " %s", e)
	}
	if f.Policy == frontend.ExternalLocal {
		b.WriteString(" local")
		for _, e := range f.Local {
			fmt.Fprintf(&b, " %s", e)
		}
	}
	if f.Choice != frontend.Random {
		fmt.Fprintf(&b, " by %s", f.Choice)
	}
	if f.Shares != nil || f.LocalShares != nil {
		fmt.Fprintf(&b, " shares %d %d", f.Shares, f.LocalShares)
	}
	if f.Empty == frontend.Drop {
		b.WriteString(" drop")
	}
	if f.Sources != nil {
		b.WriteString(" from")
		for _, p := range f.Sources {
			fmt.Fprintf(&b, " %s", p)
		}
	}
	if f.Affinity != nil {
		fmt.Fprintf(&b, " affinity %s %s", f.Affinity.Group, f.Affinity.Timeout)
	}
	return b.String()
}

// expand returns the endpoints whose addresses end in the given numbers.
func expand(numbers string) string {
	var b strings.Builder
	for n := range strings.FieldsSeq(numbers) {
		fmt.Fprintf(&b, " 10.1.0.%s:8080", n)
	}
	return b.String()
}

// endpointOf is an endpoint and its place.
type endpointOf struct {
	cluster.Endpoint
	cluster.Place
}

// ep returns a ready endpoint.
func ep(text string) endpointOf {
	return endpointOf{Endpoint: cluster.Endpoint{Addr: addr(text), Ready: true, Serving: true}}
}

func (e endpointOf) unready() endpointOf {
	e.Ready, e.Serving = false, false
	return e
}

// terminating returns e as it serves and terminates.
func (e endpointOf) terminating() endpointOf {
	e.Ready, e.Terminating = false, true
	return e
}

// ended returns e as it terminates and does not serve.
func (e endpointOf) ended() endpointOf {
	e.Ready, e.Serving, e.Terminating = false, false, true
	return e
}

func (e endpointOf) on(node string) endpointOf {
	e.Node = node
	return e
}

func (e endpointOf) zones(names ...string) endpointOf {
	e.Hints = &cluster.Hints{Zones: names, Nodes: e.HintNodes()}
	return e
}

func (e endpointOf) nodes(names ...string) endpointOf {
	e.Hints = &cluster.Hints{Zones: e.HintZones(), Nodes: names}
	return e
}

// http is the target port of slices.
var http = cluster.Port{Name: "http", Protocol: cluster.TCP, Number: 8080}

// slice returns a slice of the Service shop/web, of the family of its first endpoint.
func slice(name string, endpoints ...endpointOf) *cluster.EndpointSlice {
	s := &cluster.EndpointSlice{
		Key: cluster.Key{Namespace: "shop", Name: name}, Service: "web", AddressType: cluster.IPv4, Ports: []cluster.Port{http},
		Spec: new(cluster.SliceSpec),
	}
	for _, e := range endpoints {
		s.AddressType = cluster.FamilyOf(e.Addr)
		s.Endpoints, s.Spec.Places = append(s.Endpoints, e.Endpoint), append(s.Spec.Places, e.Place)
	}
	return s
}

func ports(s *cluster.EndpointSlice, ports ...cluster.Port) *cluster.EndpointSlice {
	s.Ports = ports
	return s
}

func list(all ...*cluster.EndpointSlice) []*cluster.EndpointSlice { return all }

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, addr(text))
	}
	return all
}

// prefixes is not nil.
func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func ingress(texts ...string) (all []cluster.IngressIP) {
	for _, text := range texts {
		all = append(all, cluster.IngressIP{Addr: addr(text)})
	}
	return all
}
