package nft_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/ruleset/rulesettest"
)

// judged returns the verdict of the kernel about a packet in both directions, as ruleset.Judge does.
func (w *world) judged(p ruleset.Packet) ruleset.Verdict {
	w.t.Helper()
	v, err := nft.Judge("", ruleset.Egress, p)
	must(w.t, err)
	if !v.Allowed || p.ToNode {
		return v
	}
	in, err := nft.Judge("", ruleset.Ingress, p)
	must(w.t, err)
	in.Reports = append(v.Reports, in.Reports...)
	return in
}

// TestJudgeEqualsRuleset checks that the rules in the kernel judge random packets as the random ruleset does
// that they were made of.
func TestJudgeEqualsRuleset(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	random := rand.New(rand.NewPCG(21, 6))
	table, m := w.table(), newModel(w, random)
	must(t, table.Sync(m))
	allowed := make(map[bool]int)
	for range 150 {
		must(t, table.Apply(m, m.change()))
		m.resolve(t, table)
		for _, p := range m.packets(12) {
			packet := ruleset.Packet{Source: p.from, Destination: p.to, Protocol: p.protocol, DestinationPort: p.port, Device: w.devices[p.sender]}
			if p.protocol == icmp {
				packet.DestinationPort = 0
			}
			_, packet.ToNode = map[netip.Addr]bool{nodeInside[0]: true, nodeInside[1]: true}[p.to]
			want := ruleset.Judge(m, packet, m.isIn)
			got := w.judged(packet)
			got.Resolved = 0 // the ruleset does not know times
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("Judge(%+v) = %+v, want %+v; the rules are\n%s", packet, got, want, w.command("list", "table", "inet", nft.DefaultName))
			}
			allowed[got.Allowed]++
		}
	}
	if allowed[true] < 100 || allowed[false] < 100 {
		t.Errorf("%v packets were allowed and denied; the test says little", allowed)
	}
}

// TestJudgeOfOthers checks verdicts of a table that another program changed.
func TestJudgeOfOthers(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	s := rulesettest.NewState()
	s.SetRanges(ranges...)
	s.PutSet("pods-a", ruleset.Set{Kind: ruleset.Hosts}, hosts(podA[0])...)
	s.PutChain("in-b", &ruleset.Chain{Direction: ruleset.Ingress, Rules: []ruleset.Rule{
		{Peers: "pods-a", Ports: []ruleset.Ports{{Protocol: ruleset.TCP, First: 80, Last: 90}}},
		{Action: ruleset.Deny, Reason: "NetworkPolicy shop/db"},
	}})
	s.PutPod(podA[0], ruleset.Pod{})
	s.PutPod(podB[0], ruleset.Pod{Ingress: "in-b"})
	packet := ruleset.Packet{Source: podA[0], Destination: podB[0], Protocol: ruleset.TCP, DestinationPort: 80}
	if _, err := nft.Judge("", ruleset.Ingress, packet); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a table: Judge returns %v, want %v", err, fs.ErrNotExist)
	}
	if there, err := nft.Exists(""); there || err != nil {
		t.Errorf("Exists() = %v, %v without a table", there, err)
	}
	denied := func(chain, reason string) ruleset.Verdict {
		return ruleset.Verdict{Denial: ruleset.Denial{Direction: ruleset.Ingress, Chain: chain, Reason: reason}}
	}
	allowed := ruleset.Verdict{Allowed: true}
	for claim, test := range map[string]struct {
		command []string
		want    ruleset.Verdict
		err     error
	}{
		"nothing changed":                {nil, allowed, nil},
		"an element was removed":         {[]string{"delete", "element", "inet", nft.DefaultName, "pods-a-4", "{ 10.244.1.11 }"}, denied("in-b", "NetworkPolicy shop/db"), nil},
		"the Pod was removed":            {[]string{"delete", "element", "inet", nft.DefaultName, "ingress-4", "{ 10.244.1.12 }"}, denied("", ruleset.ReasonNoPod), nil},
		"a rule was added":               {[]string{"insert", "rule", "inet", nft.DefaultName, "in-b", "tcp", "dport", "!=", "443", "drop"}, denied("in-b", ""), nil},
		"a rule of two addresses":        {[]string{"insert", "rule", "inet", nft.DefaultName, "ingress", "ip", "daddr", "{ 10.244.1.0/30, 10.244.1.8/29 }", "drop"}, denied("ingress", ""), nil},
		"a rule that returns":            {[]string{"insert", "rule", "inet", nft.DefaultName, "ingress", "return"}, allowed, nil},
		"the policy is to drop":          {[]string{"chain", "inet", nft.DefaultName, "forward", "{ policy drop; }"}, allowed, nil},
		"the chain was flushed":          {[]string{"flush", "chain", "inet", nft.DefaultName, "in-b"}, allowed, nil},
		"the table is dormant":           {[]string{"add", "table", "inet", nft.DefaultName, "{ flags dormant; }"}, allowed, nil},
		"a rule that nobody understands": {[]string{"insert", "rule", "inet", nft.DefaultName, "ingress", "fib", "saddr", "type", "local", "drop"}, ruleset.Verdict{}, errors.ErrUnsupported},
	} {
		_, err := nft.Cleanup(nft.DefaultName)
		must(t, err)
		table := w.table()
		must(t, table.Sync(s))
		if test.command != nil {
			w.command(test.command...)
		}
		got, err := nft.Judge("", ruleset.Ingress, packet)
		if !errors.Is(err, test.err) || err == nil && !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: Judge(%+v) = %+v, %v, want %+v, %v", claim, packet, got, err, test.want, test.err)
		}
		must(t, table.Close())
	}
	_, err := nft.Cleanup(nft.DefaultName)
	must(t, err)
	must(t, w.table().Sync(s))
	w.command("chain", "inet", nft.DefaultName, "forward", "{ policy drop; }")
	packet.Destination = outside[0]
	if v, err := nft.Judge("", ruleset.Ingress, packet); v.Allowed || err != nil {
		t.Errorf("with a policy to drop: Judge(%+v) = %+v, %v, want it denied", packet, v, err)
	}
}

// TestJudgeResolved checks for how long an address of a domain name lets packets pass.
func TestJudgeResolved(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	s := rulesettest.NewState()
	s.PutSet("names-a", ruleset.Set{Kind: ruleset.Resolved, Domains: []string{"api.example.com"}})
	s.PutChain("out-a", &ruleset.Chain{Direction: ruleset.Egress, Rules: []ruleset.Rule{
		{Peers: "names-a"}, {Action: ruleset.Deny, Reason: "NetworkPolicy shop/web"},
	}})
	s.PutPod(podA[0], ruleset.Pod{Egress: "out-a"})
	table := w.table()
	must(t, table.Sync(s))
	packet := ruleset.Packet{Source: podA[0], Destination: outside[0], Protocol: ruleset.TCP, DestinationPort: 443}
	if v, err := nft.Judge("", ruleset.Egress, packet); v.Allowed || v.Resolved != 0 || err != nil {
		t.Errorf("before an answer: Judge(%+v) = %+v, %v, want it denied", packet, v, err)
	}
	must(t, table.AddResolved("names-a", outside[:1], time.Hour))
	if v, err := nft.Judge("", ruleset.Egress, packet); !v.Allowed || v.Resolved <= 0 || v.Resolved > time.Hour || err != nil {
		t.Errorf("after an answer for an hour: Judge(%+v) = %+v, %v, want it allowed, for up to an hour", packet, v, err)
	}
}
