package ruleset_test

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/ruleset/rulesettest"
)

const (
	client, server, stranger = "10.1.0.1", "10.1.0.2", "192.0.2.1"
)

func packet(from, to string, port uint16) ruleset.Packet {
	return ruleset.Packet{Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(to), Protocol: ruleset.TCP, DestinationPort: port}
}

func toNode(p ruleset.Packet) ruleset.Packet {
	p.ToNode = true
	return p
}

func by(device uint32, p ruleset.Packet) ruleset.Packet {
	p.Device = device
	return p
}

func element(text string) ruleset.Element {
	return ruleset.Element{Prefix: netip.MustParsePrefix(text)}
}

// testState has a client whose egress is restricted, and a server whose ingress is.
func testState() *rulesettest.State {
	s := rulesettest.NewState()
	s.SetRanges(netip.MustParsePrefix("10.1.0.0/24"))
	s.PutSet("pods-a", ruleset.Set{Kind: ruleset.Hosts}, element(client+"/32"))
	s.PutSet("blocks-a", ruleset.Set{Kind: ruleset.Blocks}, element("192.0.0.0/16"), element("198.51.100.7/32"))
	s.PutSet("ports-a", ruleset.Set{Kind: ruleset.HostPorts}, ruleset.Element{netip.MustParsePrefix(server + "/32"), ruleset.TCP, 8080})
	s.PutSet("names-a", ruleset.Set{Kind: ruleset.Resolved, Domains: []string{"example.com"}})
	s.PutChain("out-a", &ruleset.Chain{Direction: ruleset.Egress, Rules: []ruleset.Rule{
		{Peers: "blocks-a", Ports: []ruleset.Ports{{ruleset.UDP, 53, 53}, {ruleset.TCP, 80, 90}}},
		{Peers: "ports-a"},
		{Peers: "names-a"},
		{Ports: []ruleset.Ports{{ruleset.TCP, 1, 1}}, Action: ruleset.Goto, Chain: "out-b"},
		{Where: ruleset.ToNode},
		{Where: ruleset.ToSelf},
		{Action: ruleset.Deny, Reason: "no"},
	}})
	s.PutChain("out-b", &ruleset.Chain{Direction: ruleset.Egress, Rules: []ruleset.Rule{{Action: ruleset.Report, Reason: "audit"}}})
	s.PutChain("in-a", &ruleset.Chain{Direction: ruleset.Ingress, Rules: []ruleset.Rule{{Peers: "pods-a"}, {Action: ruleset.Deny, Reason: "stay out"}}})
	s.PutPod(netip.MustParseAddr(client), ruleset.Pod{Egress: "out-a"})
	s.PutPod(netip.MustParseAddr(server), ruleset.Pod{Ingress: "in-a"})
	s.PutDevice(7, ruleset.Device{Addrs: []netip.Addr{netip.MustParseAddr(client)}, Egress: "out-a"})
	s.PutDevice(8, ruleset.Device{Addrs: []netip.Addr{netip.MustParseAddr(server)}})
	return s
}

func TestJudge(t *testing.T) {
	t.Parallel()
	allowed := ruleset.Verdict{Allowed: true}
	egress := ruleset.Verdict{Denial: ruleset.Denial{ruleset.Egress, "out-a", "no"}}
	forged := ruleset.Verdict{Denial: ruleset.Denial{Direction: ruleset.Egress, Reason: ruleset.ReasonForged}}
	icmp := packet(client, "192.0.2.1", 0)
	icmp.Protocol = 1
	for claim, test := range map[string]struct {
		packet ruleset.Packet
		want   ruleset.Verdict
	}{
		"a block and a port of a range":             {packet(client, stranger, 85), allowed},
		"a block with a single address":             {packet(client, "198.51.100.7", 80), allowed},
		"an address between blocks":                 {packet(client, "198.51.100.8", 80), egress},
		"a port after the range":                    {packet(client, stranger, 91), egress},
		"a protocol without ports":                  {icmp, egress},
		"a port of one host":                        {packet(client, server, 8080), allowed},
		"another port of it":                        {packet(client, server, 8081), egress},
		"the address of a name":                     {packet(client, "203.0.113.1", 9), allowed},
		"a chain that ends":                         {packet(client, "2001:db8::1", 1), ruleset.Verdict{Allowed: true, Reports: []ruleset.Denial{{ruleset.Egress, "out-b", "audit"}}}},
		"the node":                                  {toNode(packet(client, "192.168.0.1", 9)), allowed},
		"itself":                                    {packet(client, client, 9), allowed},
		"ingress from another":                      {packet(stranger, server, 80), ruleset.Verdict{Denial: ruleset.Denial{ruleset.Ingress, "in-a", "stay out"}}},
		"ingress does not matter to the node":       {toNode(packet(stranger, server, 80)), allowed},
		"egress of what is not restricted":          {packet(server, stranger, 80), allowed},
		"from an address that no ruleset.Pod has":   {packet("10.1.0.9", stranger, 80), ruleset.Verdict{Denial: ruleset.Denial{Direction: ruleset.Egress, Reason: ruleset.ReasonNoPod}}},
		"to an address that no ruleset.Pod has":     {packet(stranger, "10.1.0.9", 80), ruleset.Verdict{Denial: ruleset.Denial{Direction: ruleset.Ingress, Reason: ruleset.ReasonNoPod}}},
		"by its own device":                         {by(7, packet(client, stranger, 85)), allowed},
		"by its own device, what is denied":         {by(7, packet(client, stranger, 91)), egress},
		"by another device":                         {by(9, packet(client, stranger, 85)), allowed},
		"with the address of another Pod":           {by(8, packet(client, stranger, 85)), forged},
		"with the address of another, to the node":  {by(7, toNode(packet(server, "192.168.0.1", 9))), forged},
		"from an address of the link":               {by(8, toNode(packet("fe80::8", "2001:db8::1", 9))), allowed},
		"from an address of the link that may":      {by(7, toNode(packet("fe80::7", "2001:db8::1", 9))), allowed},
		"from an address of the link that may not":  {by(7, packet("fe80::7", "2001:db8::1", 9)), egress},
		"between addresses that are not the node's": {packet(stranger, "10.1.1.9", 80), allowed},
	} {
		got := ruleset.Judge(testState(), test.packet, func(set string, addr netip.Addr) bool {
			return set == "names-a" && addr == netip.MustParseAddr("203.0.113.1")
		})
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: ruleset.Judge(%+v) = %+v, want %+v", claim, test.packet, got, test.want)
		}
	}
}

func TestJudgeMissingChain(t *testing.T) {
	t.Parallel()
	s := testState()
	s.PutPod(netip.MustParseAddr(client), ruleset.Pod{Egress: "out-x"})
	if v := ruleset.Judge(s, packet(client, stranger, 80), nil); v.Allowed {
		t.Errorf("Judge with a chain that is missing = %+v, want it denied", v)
	}
}

func TestStateApply(t *testing.T) {
	t.Parallel()
	s, next := rulesettest.Copy(testState()), testState()
	if !reflect.DeepEqual(s, next) {
		t.Fatalf("rulesettest.Copy returns\n%+v, want\n%+v", s, next)
	}
	next.PutSet("pods-a", ruleset.Set{Kind: ruleset.Hosts}, element(server+"/32"))
	next.PutSet("pods-b", ruleset.Set{Kind: ruleset.Hosts}, element(client+"/32"))
	next.DeleteSet("names-a")
	next.DeleteChain("out-b")
	next.PutChain("out-c", &ruleset.Chain{Direction: ruleset.Egress})
	next.DeletePod(netip.MustParseAddr(server))
	next.PutPod(netip.MustParseAddr(client), ruleset.Pod{Egress: "out-c"})
	next.SetRanges()
	s.Apply(&ruleset.Delta{
		NewSets: []string{"pods-b"}, GoneSets: []string{"names-a"}, NewChains: []string{"out-c"}, GoneChains: []string{"out-b"},
		Elements: map[string]ruleset.Change{"pods-a": {Add: []ruleset.Element{element(server + "/32")}, Remove: []ruleset.Element{element(client + "/32")}}},
		Pods:     []netip.Addr{netip.MustParseAddr(server), netip.MustParseAddr(client)}, Ranges: true,
	}, next)
	if len(s.Ranges()) != 0 {
		t.Errorf("Apply leaves the ranges %v", s.Ranges())
	}
	s.SetRanges()
	next.SetRanges()
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
		ruleset.Judge(s, p, nil)
	}
}
