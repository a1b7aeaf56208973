package ruleset

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

const (
	client, server, stranger = "10.1.0.1", "10.1.0.2", "192.0.2.1"
)

func packet(from, to string, port uint16) Packet {
	return Packet{Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(to), Protocol: TCP, DestinationPort: port}
}

func toNode(p Packet) Packet {
	p.ToNode = true
	return p
}

func element(text string) Element { return Element{Prefix: netip.MustParsePrefix(text)} }

// testState has a client whose egress is restricted, and a server whose ingress is.
func testState() *State {
	s := NewState()
	s.SetRanges(netip.MustParsePrefix("10.1.0.0/24"))
	s.PutSet("pods-a", Set{Kind: Hosts}, element(client+"/32"))
	s.PutSet("blocks-a", Set{Kind: Blocks}, element("192.0.0.0/16"), element("198.51.100.7/32"))
	s.PutSet("ports-a", Set{Kind: HostPorts}, Element{netip.MustParsePrefix(server + "/32"), TCP, 8080})
	s.PutSet("names-a", Set{Kind: Resolved, Domains: []string{"example.com"}})
	s.PutChain("out-a", &Chain{Direction: Egress, Rules: []Rule{
		{Peers: "blocks-a", Ports: []Ports{{UDP, 53, 53}, {TCP, 80, 90}}},
		{Peers: "ports-a"},
		{Peers: "names-a"},
		{Ports: []Ports{{TCP, 1, 1}}, Action: Goto, Chain: "out-b"},
		{Where: ToNode},
		{Where: ToSelf},
		{Action: Deny, Reason: "no"},
	}})
	s.PutChain("out-b", &Chain{Direction: Egress, Rules: []Rule{{Action: Report, Reason: "audit"}}})
	s.PutChain("in-a", &Chain{Direction: Ingress, Rules: []Rule{{Peers: "pods-a"}, {Action: Deny, Reason: "stay out"}}})
	s.PutPod(netip.MustParseAddr(client), Pod{Egress: "out-a"})
	s.PutPod(netip.MustParseAddr(server), Pod{Ingress: "in-a"})
	return s
}

func TestJudge(t *testing.T) {
	t.Parallel()
	allowed := Verdict{Allowed: true}
	egress := Verdict{Denial: Denial{Egress, "out-a", "no"}}
	icmp := packet(client, "192.0.2.1", 0)
	icmp.Protocol = 1
	for claim, test := range map[string]struct {
		packet Packet
		want   Verdict
	}{
		"a block and a port of a range":             {packet(client, stranger, 85), allowed},
		"a block with a single address":             {packet(client, "198.51.100.7", 80), allowed},
		"an address between blocks":                 {packet(client, "198.51.100.8", 80), egress},
		"a port after the range":                    {packet(client, stranger, 91), egress},
		"a protocol without ports":                  {icmp, egress},
		"a port of one host":                        {packet(client, server, 8080), allowed},
		"another port of it":                        {packet(client, server, 8081), egress},
		"the address of a name":                     {packet(client, "203.0.113.1", 9), allowed},
		"a chain that ends":                         {packet(client, "2001:db8::1", 1), Verdict{Allowed: true, Reports: []Denial{{Egress, "out-b", "audit"}}}},
		"the node":                                  {toNode(packet(client, "192.168.0.1", 9)), allowed},
		"itself":                                    {packet(client, client, 9), allowed},
		"ingress from another":                      {packet(stranger, server, 80), Verdict{Denial: Denial{Ingress, "in-a", "stay out"}}},
		"ingress does not matter to the node":       {toNode(packet(stranger, server, 80)), allowed},
		"egress of what is not restricted":          {packet(server, stranger, 80), allowed},
		"from an address that no Pod has":           {packet("10.1.0.9", stranger, 80), Verdict{Denial: Denial{Direction: Egress, Reason: ReasonNoPod}}},
		"to an address that no Pod has":             {packet(stranger, "10.1.0.9", 80), Verdict{Denial: Denial{Direction: Ingress, Reason: ReasonNoPod}}},
		"between addresses that are not the node's": {packet(stranger, "10.1.1.9", 80), allowed},
	} {
		got := Judge(testState(), test.packet, func(set string, addr netip.Addr) bool {
			return set == "names-a" && addr == netip.MustParseAddr("203.0.113.1")
		})
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: Judge(%+v) = %+v, want %+v", claim, test.packet, got, test.want)
		}
	}
}

func TestJudgeMissingChain(t *testing.T) {
	t.Parallel()
	s := testState()
	s.PutPod(netip.MustParseAddr(client), Pod{Egress: "out-x"})
	if v := Judge(s, packet(client, stranger, 80), nil); v.Allowed {
		t.Errorf("Judge with a chain that is missing = %+v, want it denied", v)
	}
}

func TestStateApply(t *testing.T) {
	t.Parallel()
	s, next := Copy(testState()), testState()
	if !reflect.DeepEqual(s, next) {
		t.Fatalf("Copy returns\n%+v, want\n%+v", s, next)
	}
	next.PutSet("pods-a", Set{Kind: Hosts}, element(server+"/32"))
	next.PutSet("pods-b", Set{Kind: Hosts}, element(client+"/32"))
	next.DeleteSet("names-a")
	delete(next.chains, "out-b")
	next.PutChain("out-c", &Chain{Direction: Egress})
	delete(next.pods, netip.MustParseAddr(server))
	next.PutPod(netip.MustParseAddr(client), Pod{Egress: "out-c"})
	next.SetRanges()
	s.Apply(&Delta{
		NewSets: []string{"pods-b"}, GoneSets: []string{"names-a"}, NewChains: []string{"out-c"}, GoneChains: []string{"out-b"},
		Elements: map[string]Change{"pods-a": {Add: []Element{element(server + "/32")}, Remove: []Element{element(client + "/32")}}},
		Pods:     []netip.Addr{netip.MustParseAddr(server), netip.MustParseAddr(client)}, Ranges: true,
	}, next)
	if len(s.Ranges()) != 0 {
		t.Errorf("Apply leaves the ranges %v", s.Ranges())
	}
	s.ranges, next.ranges = nil, nil
	if !reflect.DeepEqual(s, next) {
		t.Errorf("after Apply the state is\n%+v, want\n%+v", s, next)
	}
	if got := slices.Collect(s.Elements("pods-b")); len(got) != 1 {
		t.Errorf("Elements(pods-b) = %v, want one", got)
	}
}

func BenchmarkJudge(b *testing.B) {
	s, p := testState(), packet(client, stranger, 85)
	b.ReportAllocs()
	for b.Loop() {
		Judge(s, p, nil)
	}
}
