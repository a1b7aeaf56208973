package nft_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/ruleset/rulesettest"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// ofLink is an address of a link.
var ofLink = netip.MustParseAddr("fe80::77")

// vip is an address that the node translates to that of Pod a.
var vip = addrs("10.96.0.1", "fd00:96::1")

// translate has the node translate vip, as a service proxy does, and masquerade what a Pod sends itself.
func (w *world) translate() {
	w.t.Helper()
	for i, family := range []string{"ip", "ip6"} {
		w.command(fmt.Sprintf(`table %[1]s services {
			chain prerouting { type nat hook prerouting priority dstnat; %[1]s daddr %[2]s dnat to %[3]s; }
			chain postrouting { type nat hook postrouting priority srcnat; %[1]s saddr %[3]s %[1]s daddr %[3]s masquerade; }
		}`, family, vip[i], podA[i]))
	}
}

// whole is all ports of a protocol, and only one of its ports.
func whole(p ruleset.Protocol) ruleset.Ports { return ruleset.Ports{Protocol: p, Last: 65535} }

func only(p ruleset.Protocol, port uint16) ruleset.Ports {
	return ruleset.Ports{Protocol: p, First: port, Last: port}
}

// rules returns a ruleset in which Pod a has chains of these rules, and Pod b of none.
func rules(ingress, egress []ruleset.Rule) *rulesettest.State {
	s := rulesettest.NewState()
	s.SetRanges(ranges...)
	var pod ruleset.Pod
	if ingress != nil {
		pod.Ingress = "in-0"
		s.PutChain("in-0", &ruleset.Chain{Direction: ruleset.Ingress, Rules: ingress})
	}
	if egress != nil {
		pod.Egress = "out-0"
		s.PutChain("out-0", &ruleset.Chain{Direction: ruleset.Egress, Rules: egress})
	}
	s.PutChain("in-1", &ruleset.Chain{Direction: ruleset.Ingress, Rules: []ruleset.Rule{{Peers: "hosts", Action: ruleset.Deny, Reason: "in-1"}}})
	for i := range 2 {
		s.PutPod(podA[i], pod)
		s.PutPod(podB[i], ruleset.Pod{})
	}
	s.PutSet("hosts", ruleset.Set{}, hosts(podB[:]...)...)
	s.PutSet("outer", ruleset.Set{}, hosts(outside[:]...)...)
	s.PutSet("blocks", ruleset.Set{Kind: ruleset.Blocks}, blocks("192.0.2.0/29", "2001:db8::/125", "10.244.1.12/32", "fd00:244:1::12/128")...)
	s.PutSet("all", ruleset.Set{Kind: ruleset.Blocks}, blocks("0.0.0.0/0", "::/0")...)
	s.PutSet("none", ruleset.Set{})
	s.PutSet("names", ruleset.Set{Kind: ruleset.Resolved, Domains: []string{"www.example.com"}})
	var ports []ruleset.Element
	for i := range 2 {
		ports = append(ports,
			ruleset.Element{Prefix: ruleset.Whole(podB[i]), Protocol: ruleset.TCP, Port: 80},
			ruleset.Element{Prefix: ruleset.Whole(podB[i]), Protocol: ruleset.UDP, Port: 53})
	}
	s.PutSet("ports", ruleset.Set{Kind: ruleset.HostPorts}, ports...)
	return s
}

func blocks(all ...string) (list []ruleset.Element) {
	for _, p := range prefixes(all...) {
		list = append(list, ruleset.Element{Prefix: p})
	}
	return list
}

// flow is what a test sends: from and to are pairs of addresses.
type flow struct {
	from, to [2]netip.Addr
	protocol ruleset.Protocol
	port     uint16
	want     bool
}

var (
	deny      = ruleset.Rule{Action: ruleset.Deny, Reason: "NetworkPolicy shop/db"}
	unknown   = addrs("10.244.1.99", "fd00:244:1::99")
	testCases = map[string]struct {
		ingress, egress []ruleset.Rule
		flows           []flow
	}{
		"nothing restricts a Pod": {nil, nil, []flow{
			{podB, podA, ruleset.TCP, 80, true}, {podA, podB, ruleset.UDP, 80, true}, {outside, podA, ruleset.SCTP, 80, true},
			{podA, outside, icmp, 0, true}, {podA, nodeInside, ruleset.TCP, 80, true}, {nodeInside, podA, ruleset.TCP, 80, true},
			{podA, vip, ruleset.TCP, 80, true}, {outside, vip, ruleset.TCP, 80, true},
		}},
		"an address that no Pod has gets and sends nothing": {nil, nil, []flow{
			{podB, podC, ruleset.TCP, 80, false}, {podC, podB, ruleset.TCP, 80, false}, {podC, outside, icmp, 0, false},
			{outside, podC, ruleset.UDP, 80, false}, {podC, nodeInside, ruleset.TCP, 80, false}, {podC, nodeOutside, icmp, 0, false},
			{nodeInside, podC, ruleset.TCP, 80, true}, {nodeOutside, podC, icmp, 0, true}, {nodeInside, nodeInside, ruleset.TCP, 80, true},
			{nodeInside, nodeOutside, ruleset.UDP, 80, true}, {nodeInside, outside, ruleset.TCP, 80, true},
		}},
		"ingress is denied": {[]ruleset.Rule{deny}, nil, []flow{
			{podB, podA, ruleset.TCP, 80, false}, {podB, podA, ruleset.UDP, 80, false}, {podB, podA, icmp, 0, false},
			{podB, podA, ruleset.SCTP, 80, false}, {outside, podA, ruleset.TCP, 80, false}, {podB, vip, ruleset.TCP, 80, false},
			{podA, podB, ruleset.TCP, 80, true}, {podA, nodeInside, ruleset.TCP, 80, true}, {nodeInside, podA, ruleset.TCP, 80, true},
			{nodeOutside, podA, icmp, 0, true},
		}},
		"egress is denied": {nil, []ruleset.Rule{deny}, []flow{
			{podA, podB, ruleset.TCP, 80, false}, {podA, podB, ruleset.UDP, 80, false}, {podA, outside, icmp, 0, false},
			{podA, nodeInside, ruleset.TCP, 80, false}, {podA, nodeOutside, icmp, 0, false}, {podB, podA, ruleset.TCP, 80, true},
			{nodeInside, podA, ruleset.UDP, 80, true},
		}},
		"the node only": {nil, []ruleset.Rule{{Where: ruleset.ToNode}, deny}, []flow{
			{podA, nodeInside, ruleset.TCP, 80, true}, {podA, nodeOutside, icmp, 0, true}, {podA, podB, ruleset.TCP, 80, false},
			{podA, outside, ruleset.UDP, 80, false},
		}},
		"some ports of the node": {nil, []ruleset.Rule{{Where: ruleset.ToNode, Ports: []ruleset.Ports{only(ruleset.UDP, 53), only(ruleset.TCP, 53)}}, deny}, []flow{
			{podA, nodeInside, ruleset.TCP, 53, true}, {podA, nodeInside, ruleset.UDP, 53, true}, {podA, nodeInside, ruleset.TCP, 80, false},
			{podA, podB, ruleset.UDP, 53, false},
		}},
		"itself only": {[]ruleset.Rule{{Where: ruleset.ToSelf}, deny}, []ruleset.Rule{{Where: ruleset.ToSelf}, deny}, []flow{
			{podA, vip, ruleset.TCP, 80, true}, {podA, vip, ruleset.UDP, 80, true}, {podB, vip, ruleset.TCP, 80, false},
			{podA, podB, ruleset.TCP, 80, false},
		}},
		"not itself": {nil, []ruleset.Rule{{Where: ruleset.ToSelf, Action: ruleset.Deny, Reason: "self"}}, []flow{
			{podA, vip, ruleset.TCP, 80, false}, {podA, podB, ruleset.TCP, 80, true}, {podB, vip, ruleset.TCP, 80, true},
		}},
		"peers of a set": {[]ruleset.Rule{{Peers: "hosts"}, {Peers: "none"}, deny}, nil, []flow{
			{podB, podA, ruleset.TCP, 80, true}, {podB, podA, icmp, 0, true}, {podB, podA, ruleset.SCTP, 80, true},
			{outside, podA, ruleset.TCP, 80, false}, {podB, vip, ruleset.UDP, 80, true}, {outside, vip, ruleset.TCP, 80, false},
		}},
		"peers of blocks": {[]ruleset.Rule{{Peers: "blocks"}, deny}, []ruleset.Rule{{Peers: "blocks"}, deny}, []flow{
			{outside, podA, ruleset.TCP, 80, true}, {outside2, podA, ruleset.TCP, 80, false}, {podB, podA, icmp, 0, true},
			{podA, outside, ruleset.UDP, 80, true}, {podA, outside2, ruleset.UDP, 80, false}, {podA, podB, ruleset.TCP, 80, true},
		}},
		"peers of the block of all": {[]ruleset.Rule{{Peers: "all", Ports: []ruleset.Ports{only(ruleset.TCP, 80)}}, deny}, nil, []flow{
			{outside, podA, ruleset.TCP, 80, true}, {podB, podA, ruleset.TCP, 80, true}, {podB, podA, ruleset.TCP, 81, false},
		}},
		"ports": {[]ruleset.Rule{{Ports: []ruleset.Ports{only(ruleset.TCP, 80), {Protocol: ruleset.UDP, First: 50, Last: 59}, whole(ruleset.SCTP)}}, deny}, nil, []flow{
			{podB, podA, ruleset.TCP, 80, true}, {podB, podA, ruleset.TCP, 81, false}, {podB, podA, ruleset.TCP, 50, false},
			{podB, podA, ruleset.UDP, 49, false}, {podB, podA, ruleset.UDP, 50, true}, {podB, podA, ruleset.UDP, 59, true},
			{podB, podA, ruleset.UDP, 60, false}, {podB, podA, ruleset.SCTP, 7, true}, {podB, podA, icmp, 0, false},
		}},
		"peers and ports": {[]ruleset.Rule{{Peers: "hosts", Ports: []ruleset.Ports{only(ruleset.TCP, 80)}}, {Peers: "outer", Ports: []ruleset.Ports{only(ruleset.TCP, 81)}}, deny}, nil, []flow{
			{podB, podA, ruleset.TCP, 80, true}, {podB, podA, ruleset.TCP, 81, false}, {outside, podA, ruleset.TCP, 80, false},
			{outside, podA, ruleset.TCP, 81, true}, {outside, vip, ruleset.TCP, 81, true},
		}},
		"named ports": {nil, []ruleset.Rule{{Peers: "ports"}, deny}, []flow{
			{podA, podB, ruleset.TCP, 80, true}, {podA, podB, ruleset.UDP, 53, true}, {podA, podB, ruleset.TCP, 53, false},
			{podA, podB, icmp, 0, false}, {podA, outside, ruleset.TCP, 80, false},
		}},
		"a denial before": {[]ruleset.Rule{{Peers: "hosts", Action: ruleset.Deny, Reason: "a"}, {}}, nil, []flow{
			{podB, podA, ruleset.TCP, 80, false}, {podB, podA, icmp, 0, false}, {outside, podA, ruleset.TCP, 80, true},
		}},
		"a chain without rules that match": {[]ruleset.Rule{{Peers: "none"}}, nil, []flow{{podB, podA, ruleset.TCP, 80, true}, {podB, podA, icmp, 0, true}}},
		"goto does not return": {[]ruleset.Rule{{Ports: []ruleset.Ports{whole(ruleset.TCP)}, Action: ruleset.Goto, Chain: "in-1"}, deny}, nil, []flow{
			{outside, podA, ruleset.TCP, 80, true}, {podB, podA, ruleset.TCP, 80, false}, {outside, podA, ruleset.UDP, 80, false},
		}},
		"reports drop nothing": {[]ruleset.Rule{{Peers: "hosts", Action: ruleset.Report, Reason: "a"}, {Peers: "hosts", Ports: []ruleset.Ports{whole(ruleset.TCP)}}, {Action: ruleset.Report, Reason: "b"}, {Peers: "outer"}, deny}, nil, []flow{
			{podB, podA, ruleset.TCP, 80, true}, {podB, podA, ruleset.UDP, 80, false}, {outside, podA, ruleset.UDP, 80, true},
		}},
	}
)

// TestPackets sends the first packets of flows through tables.
func TestPackets(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	w.translate()
	table := w.table()
	for name, c := range testCases {
		s := rules(c.ingress, c.egress)
		must(t, table.Sync(s))
		var packets []packet
		var want []bool
		for family := range families {
			i := families[family]
			for _, f := range c.flows {
				p := packet{sender: f.from[i], from: f.from[i], to: f.to[i], protocol: f.protocol, port: f.port}
				if f.to == vip {
					p.seen = podA[i]
				}
				packets, want = append(packets, p), append(want, f.want)
				if l.hosts[p.sender] == nil {
					continue // Judge knows only what Pods send and get
				}
				if v := l.judge(s, nil, p); v.Allowed != f.want {
					t.Errorf("%s: Judge says %+v of %s, want %v", name, v, p, f.want)
				}
			}
		}
		for i, got := range l.pass(packets, want) {
			if got != want[i] {
				t.Errorf("%s: %s passed: %v, want %v\n%s", name, packets[i], got, want[i], w.command("list", "table", "inet", nft.DefaultName))
			}
		}
	}
}

// TestSpoofed: a Pod's packets with the address of the range that no Pod has do not pass.
func TestSpoofed(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	table := w.table()
	must(t, table.Sync(rules(nil, nil)))
	var packets []packet
	for i := range 2 {
		for _, to := range [][2]netip.Addr{podB, outside, nodeInside} {
			packets = append(packets, packet{sender: podA[i], from: unknown[i], to: to[i], protocol: ruleset.UDP, port: 53})
		}
	}
	for i, passed := range l.pass(packets, make([]bool, len(packets))) {
		if passed {
			t.Errorf("%s passed", packets[i])
		}
	}
}

// TestDiscovery: messages of neighbor discovery that would be forwarded are no way past policies.
func TestDiscovery(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	must(t, table.Sync(rules(nil, []ruleset.Rule{{Peers: "hosts", Action: ruleset.Accept}, {Action: ruleset.Deny, Reason: "out-0"}})))
	listen := func(at netip.Addr) (conn net.PacketConn) {
		namespacetest.Do(t, w.hosts[at], func() {
			var err error
			conn, err = net.ListenPacket("ip6:ipv6-icmp", at.String())
			must(t, err)
		})
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// gets reports whether an address gets a solicitation (type 135) from Pod a.
	gets := func(at netip.Addr, within time.Duration) bool {
		conn := listen(at)
		must(t, conn.SetReadDeadline(time.Now().Add(within)))
		namespacetest.Do(t, w.hosts[podA[1]], func() {
			out, err := net.Dial("ip6:ipv6-icmp", at.String())
			must(t, err)
			defer out.Close()
			_, err = out.Write([]byte{135, 0, 0, 0, 'd', 'a', 't', 'a'})
			must(t, err)
		})
		for buf := make([]byte, 100); ; {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return false
			}
			if from.String() == podA[1].String() && string(buf[4:n]) == "data" {
				return true
			}
		}
	}
	if !gets(podB[1], time.Minute) {
		t.Error("an address that is allowed gets no message")
	}
	if gets(outside[1], 300*time.Millisecond) {
		t.Error("an address that is denied gets a message")
	}
}

// TestCounters: packets are counted by event, direction, chain and reason, also those that are not logged.
func TestCounters(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	table := w.table()
	must(t, table.Sync(rules(
		[]ruleset.Rule{{Peers: "outer", Action: ruleset.Report, Reason: "audited"}, {Peers: "hosts", Action: ruleset.Deny, Reason: "host"}, {Ports: []ruleset.Ports{whole(ruleset.TCP)}}, deny}, nil,
	)))
	var packets []packet
	add := func(n int, p packet) {
		for range n {
			packets = append(packets, p)
		}
	}
	for i := range 2 {
		add(3, packet{sender: podB[i], from: podB[i], to: podA[i], protocol: ruleset.TCP, port: 80})
		add(2, packet{sender: outside[i], from: outside[i], to: podA[i], protocol: ruleset.TCP, port: 80})
		add(20, packet{sender: outside2[i], from: outside2[i], to: podA[i], protocol: ruleset.UDP, port: 80})
		add(1, packet{sender: podB[i], from: podB[i], to: podC[i], protocol: ruleset.UDP, port: 80})
		add(4, packet{sender: podC[i], from: podC[i], to: podB[i], protocol: ruleset.UDP, port: 80})
	}
	l.pass(packets, make([]bool, len(packets)))
	all, err := table.Counters()
	must(t, err)
	got := make(map[string]uint64)
	for _, c := range all {
		got[c.String()] = c.Packets
	}
	for prefix, want := range map[string]uint64{
		"portolan-policy audit in in-0: audited":                           4,
		"portolan-policy deny in in-0: host":                               6,
		"portolan-policy deny in in-0: NetworkPolicy shop/db":              40,
		"portolan-policy deny in in-1: in-1":                               0,
		"portolan-policy unknown in unknown-in: no Pod has this address":   2,
		"portolan-policy unknown out unknown-out: no Pod has this address": 8,
	} {
		if n, ok := got[prefix]; !ok || n != want {
			t.Errorf("%q counted %d, want %d; all: %v", prefix, n, want, got)
		}
	}
	some, err := table.Counters("in-0", "none")
	must(t, err)
	for _, c := range some {
		if c.Chain != "in-0" || c.Packets != got[c.String()] {
			t.Errorf("%q counted %d of the chain in-0, want %d", c, c.Packets, got[c.String()])
		}
	}
	if len(some) != 3 {
		t.Errorf("the chain in-0 has the counters %v, want three", some)
	}
	if none, err := table.Counters("none"); err != nil || len(none) != 0 {
		t.Errorf("a chain that is not there has the counters %v, %v", none, err)
	}
}

// TestResolved: an address of a name counts from when AddResolved returns until it expires or is removed, and longer if
// it is added again; other tables and Syncs do not change that.
func TestResolved(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	for _, replaces := range []bool{false, true} {
		table := w.table()
		table.Replace(replaces)
		s := rules(nil, []ruleset.Rule{{Peers: "names", Ports: []ruleset.Ports{whole(ruleset.TCP)}}, deny})
		must(t, table.Sync(s))
		expect := func(what string, want bool) {
			t.Helper()
			var packets []packet
			for i := range 2 {
				packets = append(packets, packet{sender: podA[i], from: podA[i], to: outside[i], protocol: ruleset.TCP, port: 443})
			}
			for i, got := range l.pass(packets, []bool{want, want}) {
				if got != want {
					t.Errorf("%s: %s passed: %v, want %v", what, packets[i], got, want)
				}
			}
		}
		expect("before", false)
		must(t, table.AddResolved("names", outside[:], time.Hour))
		expect("after the answer", true)
		must(t, table.Sync(s))
		expect("after Sync", true)
		again := w.table()
		again.Replace(replaces)
		former, err := again.Resolved(s)
		must(t, err)
		if got := former["names"]; len(got) != len(outside) || !slices.Contains(got, outside[0]) {
			t.Errorf("Resolved after a restart = %v, want %v", former, outside)
		}
		must(t, again.Sync(s))
		expect("after a restart", true)
		if left := w.expires(outside[0]); left < 3000 {
			t.Errorf("%d seconds are left of an hour", left)
		}
		must(t, again.AddResolved("names", outside[:], 2*time.Hour))
		if left := w.expires(outside[0]); left < 7000 {
			t.Errorf("added again, %d seconds are left of two hours", left)
		}
		must(t, again.AddResolved("names", outside[:], 200*time.Millisecond))
		for begin := time.Now(); w.expires(outside[0]) >= 0; {
			if time.Since(begin) > patience {
				t.Fatal("an address does not expire")
			}
		}
		expect("after its time", false)
		must(t, again.AddResolved("names", outside[:], time.Hour))
		expect("after another answer", true)
		change := func(all ...ruleset.Resolution) error { return again.ChangeResolved(all) }
		add, remove := ruleset.Resolution{Set: "names", Addrs: outside[:], TTL: time.Hour}, ruleset.Resolution{Set: "names", Addrs: outside[:]}
		absent := ruleset.Resolution{Set: "absent", Addrs: outside[:], TTL: time.Hour}
		if err := change(remove, absent); !isUnknownSet(err) {
			t.Errorf("with a set that is not there: %v", err)
		}
		expect("after a change that failed", true)
		must(t, change(remove))
		expect("after the addresses were removed", false)
		must(t, change(remove)) // which are not there
		must(t, change(ruleset.Resolution{Set: "absent", Addrs: outside[:]}))
		must(t, change(remove, add))
		expect("removed and added", true)
		d := &ruleset.Delta{GoneSets: []string{"names"}, GoneChains: []string{"out-0"}, Pods: podA[:]}
		s = rules(nil, nil)
		s.DeleteSet("names")
		must(t, again.Apply(s, d))
		if err := again.AddResolved("names", outside[:], time.Hour); !isUnknownSet(err) {
			t.Errorf("to a set that is gone: %v", err)
		}
		if err := table.AddResolved("names", outside[:], time.Hour); !isUnknownSet(err) {
			t.Errorf("to a set that another process removed: %v", err)
		}
		must(t, again.Sync(rules(nil, nil)))
		if err := again.AddResolved("hosts", outside[:], time.Hour); !isUnknownSet(err) {
			t.Errorf("to a set of another kind: %v", err)
		}
		must(t, again.AddResolved("names", nil, time.Hour))
		must(t, change(remove))
		_, err = nft.Cleanup(nft.DefaultName)
		must(t, err)
	}
}

// expires returns the seconds until an address is removed from the set of names; -1 if it is not in it.
func (w *world) expires(a netip.Addr) int {
	w.t.Helper()
	var out struct {
		Nftables []struct {
			Set struct {
				Elem []struct {
					Elem struct {
						Val     string
						Expires int
					}
				}
			}
		}
	}
	must(w.t, json.Unmarshal([]byte(w.command("-j", "list", "set", "inet", nft.DefaultName, "names-4")), &out))
	for _, o := range out.Nftables {
		for _, e := range o.Set.Elem {
			if e.Elem.Val == a.String() {
				return e.Elem.Expires
			}
		}
	}
	return -1
}

// TestList: the oldest nft that is supported lists a table with all that there is, as text and as JSON.
func TestList(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	for name, c := range testCases {
		must(t, table.Sync(rules(c.ingress, c.egress)))
		if out := w.command("-j", "list", "table", "inet", nft.DefaultName); !json.Valid([]byte(out)) {
			t.Errorf("%s: nft lists no JSON:\n%s", name, out)
		}
		text := w.command("list", "table", "inet", nft.DefaultName)
		w.command("delete", "table", "inet", nft.DefaultName)
		w.command(text) // nft reads what it listed
		if again := w.command("list", "table", "inet", nft.DefaultName); again != text {
			t.Errorf("%s: nft lists\n%s\nand what it read of that as\n%s", name, text, again)
		}
	}
	s := rules([]ruleset.Rule{{Peers: "hosts", Ports: []ruleset.Ports{only(ruleset.TCP, 80), {Protocol: ruleset.UDP, First: 50, Last: 59}}, Reason: "NetworkPolicy shop/db"}, deny}, []ruleset.Rule{{Peers: "ports"}, {Where: ruleset.ToNode}, {Where: ruleset.ToSelf}, deny})
	s.PutSet("described", ruleset.Set{Comment: "Pods app=db of shop"}, hosts(podA[0])...)
	s.PutChain("in-2", &ruleset.Chain{Comment: "NetworkPolicies shop/db and shop/web"})
	must(t, table.Sync(s))
	out := w.command("list", "table", "inet", nft.DefaultName)
	for _, line := range []string{
		`comment "Pods app=db of shop"`, `comment "NetworkPolicies shop/db and shop/web"`, `oif 0 return`, `iif "lo" accept`,
		`tcp dport 80 ip saddr @hosts-4 accept comment "NetworkPolicy shop/db"`, `udp dport 50-59 ip6 saddr @hosts-6 accept comment "NetworkPolicy shop/db"`,
		`ip daddr . meta l4proto . th dport @ports-4 return`, `ip6 saddr . ip6 daddr @self-6 return`, `ip6 hoplimit 255 icmpv6 type 133-137 accept`,
		`limit rate 10/second burst 10 packets log prefix "portolan-policy deny in in-0: NetworkPolicy shop/db" group 5 snaplen 128`,
		`elements = { 10.244.1.11 : goto out-0, 10.244.1.12 : return }`, `ct state established,related accept`,
	} {
		if !strings.Contains(out, "\t"+strings.TrimSuffix(line, " }")) {
			t.Errorf("nft does not list %q:\n%s", line, out)
		}
	}

	// Other settings change the rules that log.
	other, err := nft.New(nft.Config{LogGroup: 9, LogRate: 3})
	must(t, err)
	defer other.Close()
	must(t, other.Sync(s))
	out = w.command("list", "table", "inet", nft.DefaultName)
	if !strings.Contains(out, "limit rate 3/second burst 3 packets") || strings.Contains(out, "10/second") || strings.Contains(out, "group 5") {
		t.Errorf("with group 9 and 3 packets per second nft lists\n%s", out)
	}
}
