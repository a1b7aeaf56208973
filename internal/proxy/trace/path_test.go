package trace_test

import (
	"net/netip"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/proxy/trace"
)

// TestAssembler checks Paths of events that packets make only when other programs act, or when
// the kernel uses the number of a packet again.
func TestAssembler(t *testing.T) {
	t.Parallel()
	headers := func(from, to string, in, out string) *nft.TraceHeaders {
		return &nft.TraceHeaders{
			Source: netip.MustParseAddrPort(from), Destination: netip.MustParseAddrPort(to), Protocol: frontend.UDP, In: in, Out: out,
		}
	}
	client := headers("10.244.1.2:5000", "10.96.0.10:53", "veth1", "")
	begin := nft.TraceEvent{Packet: 1, Begins: true, Hook: "prerouting", Table: "ip t", Chain: "prerouting", Verdict: "continue", Headers: client}
	endpoint := headers("10.244.1.2:5000", "10.244.2.2:53", "veth1", "eth0")
	end := nft.TraceEvent{Packet: 1, Ends: true, Hook: "postrouting", Table: "ip t", Chain: "postrouting", Verdict: "accept", Headers: endpoint}
	const first = "10.244.1.2:5000 → 10.96.0.10:53/udp (Service kube-system/kube-dns), in through veth1\n"
	for claim, c := range map[string]struct {
		events []nft.TraceEvent
		idle   time.Duration // after the events
		want   []string
	}{
		"a known flow meets no chain": {
			events: []nft.TraceEvent{begin, end},
			want: []string{
				first + "  sent to 10.244.2.2:53/udp (Pod dns) through eth0, as connection tracking remembers, with its own source\n",
			},
		},
		"events of packets that others trace": {
			events: []nft.TraceEvent{{Packet: 2, Table: "ip filter", Chain: "input", Verdict: "drop", Headers: client}, end},
			idle:   time.Hour,
		},
		"dropped by a policy": {
			events: []nft.TraceEvent{begin, {Packet: 1, Table: "ip filter", Chain: "forward", Verdict: "drop", Headers: endpoint}},
			want: []string{
				first + "  ip filter: forward: drop\n  dropped by ip filter, chain forward, by its policy: a table of another program\n",
			},
		},
		"dropped while tables are replaced": {
			events: []nft.TraceEvent{
				begin,
				{Packet: 1, Table: "ip vips-next", Chain: "prerouting", Rule: 3, Verdict: "jump", Target: "services", Headers: client},
				{Packet: 1, Table: "ip vips-next", Chain: "services", Rule: 4, Verdict: "goto", Target: "refuse"},
				{Packet: 1, Table: "ip vips-next", Chain: "refuse", Rule: 5, Verdict: "drop"},
			},
			want: []string{
				first + "  ip vips-next: prerouting → services → refuse: drop\n  rejected by ip vips-next, chain refuse: no endpoint\n",
			},
		},
		"not complete yet": {events: []nft.TraceEvent{begin}, idle: 500 * time.Millisecond},
		"its number is used again": {
			events: []nft.TraceEvent{begin, begin, end},
			want: []string{
				first + "  lost: no rule dropped it, and it did not leave (no route, the reverse-path filter, or iptables-legacy)\n",
				first + "  sent to 10.244.2.2:53/udp (Pod dns) through eth0, as connection tracking remembers, with its own source\n",
			},
		},
		"silent": {
			events: []nft.TraceEvent{begin, {Packet: 1, Table: "ip filter", Chain: "forward", Verdict: "accept", Headers: endpoint}},
			idle:   time.Second,
			want: []string{
				first + "  ip filter: forward: accept\n" +
					"  lost: no rule dropped it, and it did not leave (no route, the reverse-path filter, or iptables-legacy)\n",
			},
		},
	} {
		names := trace.Names{
			Services: map[frontend.Address]string{
				{Addr: netip.MustParseAddr("10.96.0.10"), Protocol: frontend.UDP, Port: 53}: "Service kube-system/kube-dns",
			},
			Pods: map[netip.Addr]string{netip.MustParseAddr("10.244.2.2"): "Pod dns"},
		}
		a := trace.NewAssembler("vips", names)
		now := time.Unix(0, 0)
		var got []string
		for _, e := range c.events {
			if p := a.Add(e, now); p != nil {
				got = append(got, p.String())
			}
		}
		for _, p := range a.Expire(now.Add(c.idle)) {
			got = append(got, p.String())
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", claim, got, c.want)
			continue
		}
		for i, want := range c.want {
			if got[i] != want {
				t.Errorf("%s:\n%s\nwant\n%s", claim, got[i], want)
			}
		}
	}
}
