package frontend

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The addresses of the tests. The node is 192.0.2.1 and has the Pods 10.1.0.0/24.
const (
	thePod     = "10.1.0.9"
	otherPod   = "10.1.1.9" // on another node
	theNode    = "192.0.2.1"
	theClient  = "198.51.100.7"
	localEnd   = "10.1.0.5:8080"
	remoteEnd  = "10.1.1.5:8080"
	clusterIP  = "10.96.0.10"
	externalIP = "203.0.113.1"
)

func TestForward(t *testing.T) {
	t.Parallel()
	both := ends(localEnd, remoteEnd)
	cidr := Node{Addresses: []netip.Addr{addr(theNode)}, Pods: Pods{CIDRs: prefixes("10.1.0.0/24", "fd01::/64")}}
	all := cidr
	all.MasqueradeAll = true
	none, iface, prefix := cidr, cidr, cidr
	none.Pods, iface.Pods, prefix.Pods = Pods{}, Pods{Interface: "cni0"}, Pods{InterfacePrefix: "cali"}
	plain := Frontend{Address: at(clusterIP, 80), Endpoints: both}
	external := Frontend{Address: at(externalIP, 80), Policy: External, Endpoints: both}
	local := Frontend{Address: at(externalIP, 80), Policy: ExternalLocal, Endpoints: both, Local: ends(localEnd)}
	for claim, test := range map[string]struct {
		source string // file:line in pkg/proxy of k8s.io/kubernetes v1.36.3, unless it says otherwise
		node   Node
		state  State
		from   Connection
		want   Verdict
	}{
		"what is no Service's passes": {
			"nftables/proxier.go:385, no other chain", cidr, State{}, from(theClient, at("192.0.2.80", 80)),
			Verdict{Action: Pass, Reason: NoService},
		},
		"another port of the node passes": {
			"nftables/proxier.go:1455", cidr,
			State{Frontends: []*Frontend{{Address: at(theNode, 30080), Policy: External, Endpoints: both}}},
			from(theClient, at(theNode, 22)), Verdict{Action: Pass, Reason: NoService},
		},
		"another port of an external address passes": {
			"nftables/proxier.go:504, cluster IPs only", cidr, stateOf(external), from(theClient, at(externalIP, 81)),
			Verdict{Action: Pass, Reason: NoService},
		},

		"a Pod reaches a cluster IP with its own address": {
			"nftables/proxier.go:654", cidr, stateOf(plain), from(thePod, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both},
		},
		"a Pod of another node is masqueraded": {
			"nftables/proxier.go:654", cidr, stateOf(plain), from(otherPod, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both, Masquerade: SourceNotPod},
		},
		"the node is masqueraded at a cluster IP": {
			"nftables/proxier.go:654", cidr, stateOf(plain), fromNode(theNode, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both, Masquerade: SourceNotPod},
		},
		"the node with an address of the Pods' range counts as a Pod": {
			"nftables/proxier.go:654", cidr, stateOf(plain), fromNode("10.1.0.1", plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both},
		},
		"masqueradeAll masquerades Pods at a cluster IP": {
			"nftables/proxier.go:635", all, stateOf(plain), from(thePod, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both, Masquerade: MasqueradedAll},
		},
		"without a detector no source is masqueraded": {
			"cmd/kube-proxy/app/server_linux.go:300", none, stateOf(plain), from(theClient, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both},
		},
		"without a range of its family there is no detector": {
			"cmd/kube-proxy/app/server_linux.go:300", Node{Pods: Pods{CIDRs: prefixes("fd01::/64")}},
			stateOf(plain), from(theClient, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both},
		},
		"a bridge recognizes Pods": {
			"proxy/util/localdetector.go, BridgeInterface", iface, stateOf(plain), arriving("cni0", otherPod, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both},
		},
		"another interface than the bridge brings no Pods": {
			"proxy/util/localdetector.go, BridgeInterface", iface, stateOf(plain), arriving("cni01", thePod, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both, Masquerade: SourceNotPod},
		},
		"a prefix recognizes the interfaces of Pods": {
			"proxy/util/localdetector.go, InterfaceNamePrefix", prefix, stateOf(plain), arriving("cali12", thePod, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both},
		},
		"what the node sends arrives at no interface of Pods": {
			"proxy/util/localdetector.go, InterfaceNamePrefix", prefix, stateOf(plain), fromNode(theNode, plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both, Masquerade: SourceNotPod},
		},
		"an endpoint that connects to itself is masqueraded": {
			"nftables/proxier.go:481, :1231", cidr,
			State{Frontends: []*Frontend{&plain}, Hairpins: []netip.Addr{addr("10.1.0.5")}},
			from("10.1.0.5", plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both, Hairpins: ends(localEnd)},
		},
		"an endpoint on another node is no hairpin here": {
			"nftables/proxier.go:1231", none, stateOf(plain), from("10.1.1.5", plain.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both},
		},

		"an undefined port of a cluster IP is rejected": {
			"nftables/proxier.go:504", cidr, stateOf(plain), from(thePod, at(clusterIP, 81)),
			Verdict{Action: Refuse, Reason: UndefinedPort},
		},
		"another protocol of a cluster IP is rejected": {
			"nftables/proxier.go:504", cidr, stateOf(plain), from(thePod, Address{addr(clusterIP), UDP, 80}),
			Verdict{Action: Refuse, Reason: UndefinedPort},
		},
		"ping to a cluster IP is rejected": {
			"nftables/proxier.go:504", cidr, stateOf(plain), from(thePod, Address{addr(clusterIP), 1, 0}),
			Verdict{Action: Refuse, Reason: UndefinedPort},
		},
		"a cluster IP without endpoints still rejects other ports": {
			"nftables/proxier.go:1326", cidr, stateOf(Frontend{Address: at(clusterIP, 80)}), from(thePod, at(clusterIP, 81)),
			Verdict{Action: Refuse, Reason: UndefinedPort},
		},
		"an unallocated address of a Service range is dropped": {
			"nftables/proxier.go:509", cidr, State{ServiceCIDRs: prefixes("10.96.0.0/16")}, from(thePod, at("10.96.9.9", 80)),
			Verdict{Action: Discard, Reason: Unallocated},
		},
		"an address of a Service range that the node has passes": {
			"nftables/proxier.go:385, not input", Node{Addresses: []netip.Addr{addr("10.96.9.9")}},
			State{ServiceCIDRs: prefixes("10.96.0.0/16")}, from(thePod, at("10.96.9.9", 80)),
			Verdict{Action: Pass, Reason: NoService},
		},
		"outside the Service ranges packets pass": {
			"nftables/proxier.go:509", cidr, State{ServiceCIDRs: prefixes("10.96.0.0/16")}, from(thePod, at("10.97.0.1", 80)),
			Verdict{Action: Pass, Reason: NoService},
		},
		"without an endpoint anywhere connections are rejected": {
			"nftables/proxier.go:1306", cidr, stateOf(Frontend{Address: at(clusterIP, 80)}), from(thePod, at(clusterIP, 80)),
			Verdict{Action: Refuse, Reason: NoEndpoints},
		},
		"without an endpoint on the node internalTrafficPolicy Local drops": {
			"nftables/proxier.go:1313", cidr, stateOf(Frontend{Address: at(clusterIP, 80), Empty: Drop}),
			from(thePod, at(clusterIP, 80)), Verdict{Action: Discard, Reason: NoLocalEndpoints},
		},
		"external traffic without an endpoint anywhere is rejected": {
			"nftables/proxier.go:1307", cidr, stateOf(Frontend{Address: at(externalIP, 80), Policy: ExternalLocal}),
			from(theClient, at(externalIP, 80)), Verdict{Action: Refuse, Reason: NoEndpoints},
		},

		"external traffic is masqueraded": {
			"nftables/proxier.go:1505", cidr, stateOf(external), from(theClient, external.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both, Masquerade: ExternalTraffic},
		},
		"a Pod's external traffic is masqueraded": {
			"nftables/proxier.go:1505", cidr, stateOf(external), from(thePod, external.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both, Masquerade: ExternalTraffic},
		},
		"with policy Local clients outside keep their source": {
			"nftables/proxier.go:1556", cidr, stateOf(local), from(theClient, local.Address),
			Verdict{Action: DNAT, Reason: OutsideClient, Endpoints: ends(localEnd)},
		},
		"with policy Local a Pod uses all endpoints": {
			"nftables/proxier.go:1522", cidr, stateOf(local), from(thePod, local.Address),
			Verdict{Action: DNAT, Reason: PodClient, Endpoints: both},
		},
		"with policy Local a Pod of another node is a client outside": {
			"nftables/proxier.go:1522", cidr, stateOf(local), from(otherPod, local.Address),
			Verdict{Action: DNAT, Reason: OutsideClient, Endpoints: ends(localEnd)},
		},
		"without a detector there is no short cut for Pods": {
			"nftables/proxier.go:1511", none, stateOf(local), from(thePod, local.Address),
			Verdict{Action: DNAT, Reason: OutsideClient, Endpoints: ends(localEnd)},
		},
		"with policy Local the node uses all endpoints, masqueraded": {
			"nftables/proxier.go:1535", cidr, stateOf(local), fromNode(theNode, local.Address),
			Verdict{Action: DNAT, Reason: NodeClient, Endpoints: both, Masquerade: NodeItself},
		},
		"a loopback source is the node": {
			"nftables/proxier.go:1535, fib", cidr, stateOf(local), fromNode("127.0.0.1", local.Address),
			Verdict{Action: DNAT, Reason: NodeClient, Endpoints: both, Masquerade: NodeItself},
		},
		"without an endpoint on the node policy Local drops clients outside": {
			"nftables/proxier.go:1321", cidr, stateOf(Frontend{Address: at(externalIP, 80), Policy: ExternalLocal, Endpoints: both}),
			from(theClient, at(externalIP, 80)), Verdict{Action: Discard, Reason: NoLocalEndpoints},
		},
		"the short cut for Pods does not need an endpoint on the node": {
			"nftables/proxier.go:1291", cidr, stateOf(Frontend{Address: at(externalIP, 80), Policy: ExternalLocal, Endpoints: both}),
			from(thePod, at(externalIP, 80)), Verdict{Action: DNAT, Reason: PodClient, Endpoints: both},
		},
		"nor does that for the node": {
			"nftables/proxier.go:1291", cidr, stateOf(Frontend{Address: at(externalIP, 80), Policy: ExternalLocal, Endpoints: both}),
			fromNode(theNode, at(externalIP, 80)),
			Verdict{Action: DNAT, Reason: NodeClient, Endpoints: both, Masquerade: NodeItself},
		},
		"an endpoint that reaches itself by an external address is masqueraded": {
			"nftables/proxier.go:481", cidr, State{Frontends: []*Frontend{&local}, Hairpins: []netip.Addr{addr("10.1.0.5")}},
			from("10.1.0.5", local.Address),
			Verdict{Action: DNAT, Reason: PodClient, Endpoints: both, Hairpins: ends(localEnd)},
		},
		"an external address that is also a cluster IP is masqueraded like one": {
			"package nft, layout: cluster-ips holds addresses", cidr,
			State{Frontends: []*Frontend{
				{Address: at(externalIP, 443), Endpoints: both}, &local,
			}},
			from(theClient, local.Address),
			Verdict{Action: DNAT, Reason: OutsideClient, Endpoints: ends(localEnd), Masquerade: SourceNotPod},
		},

		"a source outside the source ranges is dropped": {
			"nftables/proxier.go:1587", cidr, stateOf(limited(external, "198.51.100.8/32")), from(theClient, external.Address),
			Verdict{Action: Discard, Reason: OutsideSourceRanges},
		},
		"a source in the source ranges is admitted": {
			"nftables/proxier.go:1587", cidr, stateOf(limited(external, "192.0.2.9/32", "198.51.100.0/24")),
			from(theClient, external.Address),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: both, Masquerade: ExternalTraffic},
		},
		"source ranges hold for Pods and policy Local, too": {
			"nftables/proxier.go:1587", cidr, stateOf(limited(local, "198.51.100.0/24")), from(thePod, local.Address),
			Verdict{Action: Discard, Reason: OutsideSourceRanges},
		},
		"source ranges come before the reject": {
			"nftables/proxier.go:382, before DNAT", cidr,
			stateOf(limited(Frontend{Address: at(externalIP, 80), Policy: External}, "192.0.2.9/32")),
			from(theClient, at(externalIP, 80)), Verdict{Action: Discard, Reason: OutsideSourceRanges},
		},
		"an empty list of source ranges admits none": {
			"package object, sourceRanges", cidr, stateOf(limited(external)), from(theClient, external.Address),
			Verdict{Action: Discard, Reason: OutsideSourceRanges},
		},

		"IPv6 has the same verdicts": {
			"nftables/proxier.go:654", cidr,
			stateOf(Frontend{Address: at("fd96::10", 80), Endpoints: ends("[fd01::5]:8080")}), from("fd01::9", at("fd96::10", 80)),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: ends("[fd01::5]:8080")},
		},
		"an IPv6 source outside the Pods' range is masqueraded": {
			"nftables/proxier.go:654", cidr,
			stateOf(Frontend{Address: at("fd96::10", 80), Endpoints: ends("[fd01::5]:8080")}), from("2001:db8::1", at("fd96::10", 80)),
			Verdict{Action: DNAT, Reason: AllClients, Endpoints: ends("[fd01::5]:8080"), Masquerade: SourceNotPod},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			got := NewEvaluator(test.node, &test.state).Forward(test.from)
			if (got.Frontend != nil) != (got.Action == DNAT || got.Reason == NoEndpoints ||
				got.Reason == NoLocalEndpoints || got.Reason == OutsideSourceRanges) {
				t.Errorf("Forward(%+v).Frontend = %v with reason %s", test.from, got.Frontend, got.Reason)
			}
			opts := cmp.Options{
				cmpopts.IgnoreFields(Verdict{}, "Frontend"), cmpopts.EquateEmpty(),
				cmpopts.EquateComparable(netip.AddrPort{}),
			}
			if diff := cmp.Diff(test.want, got, opts); diff != "" {
				t.Errorf("Forward(%+v), as in %s: (-want +got)\n%s", test.from, test.source, diff)
			}
		})
	}
}

func TestMasqueradeTo(t *testing.T) {
	t.Parallel()
	self, other := netip.MustParseAddrPort(localEnd), netip.MustParseAddrPort(remoteEnd)
	for claim, test := range map[string]struct {
		verdict     Verdict
		self, other Masquerade
	}{
		"only the client itself is a hairpin": {Verdict{Hairpins: ends(localEnd)}, Hairpin, NotMasqueraded},
		"what is masqueraded anyway says why": {
			Verdict{Masquerade: ExternalTraffic, Hairpins: ends(localEnd)}, ExternalTraffic, ExternalTraffic,
		},
		"nothing is masqueraded without reason": {Verdict{}, NotMasqueraded, NotMasqueraded},
	} {
		if got := test.verdict.MasqueradeTo(self); got != test.self {
			t.Errorf("%s: MasqueradeTo(%s) = %q, want %q", claim, self, got, test.self)
		}
		if got := test.verdict.MasqueradeTo(other); got != test.other {
			t.Errorf("%s: MasqueradeTo(%s) = %q, want %q", claim, other, got, test.other)
		}
	}
}

// TestEvaluatorApply checks that changes have their effect on verdicts, and nothing else has.
func TestEvaluatorApply(t *testing.T) {
	t.Parallel()
	web, sql := at(clusterIP, 80), at(clusterIP, 5432)
	e := NewEvaluator(Node{}, &State{ServiceCIDRs: prefixes("10.96.0.0/16")})
	for _, step := range []struct {
		claim   string
		changes Changes
		want    map[Address]Reason
	}{
		{"nothing is there", Changes{}, map[Address]Reason{web: Unallocated, sql: Unallocated}},
		{
			"a frontend is added", Changes{Put: []*Frontend{{Address: web, Endpoints: ends(localEnd)}}},
			map[Address]Reason{web: AllClients, sql: UndefinedPort},
		},
		{
			"it loses its endpoints, and another is added",
			Changes{Put: []*Frontend{{Address: web}, {Address: sql, Endpoints: ends(remoteEnd)}}},
			map[Address]Reason{web: NoEndpoints, sql: AllClients},
		},
		{"the first is deleted", Changes{Delete: []Address{web}}, map[Address]Reason{web: UndefinedPort, sql: AllClients}},
		{"both are", Changes{Delete: []Address{web, sql}}, map[Address]Reason{web: Unallocated, sql: Unallocated}},
		{"the ranges are", Changes{ServiceCIDRs: prefixes()}, map[Address]Reason{web: NoService, sql: NoService}},
	} {
		e.Apply(&step.changes)
		for to, want := range step.want {
			if got := e.Forward(from(thePod, to)).Reason; got != want {
				t.Errorf("%s: Forward(to %s).Reason = %q, want %q", step.claim, to, got, want)
			}
		}
	}
	self := addr("10.1.0.5")
	e.Apply(&Changes{
		Put:      []*Frontend{{Address: web, Endpoints: ends(localEnd)}},
		Hairpins: map[netip.Addr]bool{self: true},
	})
	if v := e.Forward(from(self.String(), web)); len(v.Hairpins) != 1 {
		t.Errorf("Forward(%s to %s).Hairpins = %v, want itself", self, web, v.Hairpins)
	}
	e.Apply(&Changes{Hairpins: map[netip.Addr]bool{self: false}})
	if v := e.Forward(from(self.String(), web)); len(v.Hairpins) != 0 {
		t.Errorf("after its Pod is gone: Forward(%s to %s).Hairpins = %v", self, web, v.Hairpins)
	}
}

// TestForwardDoesNotAllocate checks that evaluation is cheap enough for every connection.
func TestForwardDoesNotAllocate(t *testing.T) {
	f := Frontend{Address: at(clusterIP, 80), Endpoints: ends(localEnd, remoteEnd)}
	e := NewEvaluator(Node{Pods: Pods{CIDRs: prefixes("10.1.0.0/24")}}, &State{
		Frontends: []*Frontend{&f}, Hairpins: []netip.Addr{addr("10.1.0.5")},
	})
	c := from("10.1.0.5", f.Address)
	if n := testing.AllocsPerRun(100, func() { e.Forward(c) }); n != 0 {
		t.Errorf("Forward allocates %v times, want 0", n)
	}
}

func stateOf(f Frontend) State { return State{Frontends: []*Frontend{&f}} }

func limited(f Frontend, to ...string) Frontend {
	f.Sources = prefixes(to...)
	return f
}

func from(source string, to Address) Connection { return arriving("eth0", source, to) }

func fromNode(source string, to Address) Connection { return arriving("", source, to) }

func arriving(iface, source string, to Address) Connection {
	return Connection{Source: addr(source), To: to, Interface: iface}
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func at(text string, port uint16) Address { return Address{addr(text), TCP, port} }

func ends(texts ...string) (all []netip.AddrPort) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
