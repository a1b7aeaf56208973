package attack

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/miekg/dns"
)

// forwarding are the settings of a server that listens on port 53 and forwards all names.
func forwarding(upstreams string) string {
	return fmt.Sprintf("dns:\n  listen: ['%s']\n  forward: {routes: [{upstreams: [%s]}]}\n", serverAddr, upstreams)
}

// slowName is a different name for each number, which the upstream never answers.
func slowName(n int) *dns.Msg {
	return new(dns.Msg).SetQuestion(fmt.Sprintf("n%d.slow.", n), dns.TypeA)
}

// TestSlowNames floods the server with names that are never answered.
func TestSlowNames(t *testing.T) {
	for claim, from := range map[string]int{"5 addresses": 5, "200 addresses": 200} {
		t.Run(claim, func(t *testing.T) {
			serveUpstream(t)
			s := start(t, forwarding(upstreamAddr))
			s.attack(t, bounds{160, 10_000, 200}, []string{clusterName, fastName}, func(ctx context.Context) {
				t.Logf("%d queries", flood(ctx, t, 3000, addresses(from), slowName))
			})
		})
	}
}

// TestManySlowNames floods the server with more than this machine can answer. Lookups of
// others may fail then, but the server stays within its bounds.
func TestManySlowNames(t *testing.T) {
	serveUpstream(t)
	s := start(t, forwarding(upstreamAddr))
	s.attack(t, bounds{160, 10_000, 200}, nil, func(ctx context.Context) {
		t.Logf("%d queries", flood(ctx, t, 20_000, addresses(5), slowName))
	})
}

// TestDeadUpstream floods the server with names of which the first upstream answers none.
func TestDeadUpstream(t *testing.T) {
	serveUpstream(t)
	keepSilent(t)
	s := start(t, forwarding(deadAddr+", "+upstreamAddr))
	s.attack(t, bounds{100, 2000, 150}, []string{clusterName, fastName}, func(ctx context.Context) {
		flood(ctx, t, 800, addresses(5), func(n int) *dns.Msg {
			return new(dns.Msg).SetQuestion(fmt.Sprintf("a%d.fast.example.", n), dns.TypeA)
		})
	})
}

// TestSlowRoute floods one route; names of another one from the same clients are answered.
func TestSlowRoute(t *testing.T) {
	serveUpstream(t)
	keepSilent(t)
	s := start(t, fmt.Sprintf("dns:\n  listen: ['%s']\n  forward: {routes: [{suffix: slow, upstreams: [%s]}, {upstreams: [%s]}]}\n",
		serverAddr, deadAddr, upstreamAddr))
	s.attack(t, bounds{160, 10_000, 200}, []string{clusterName, fastName}, func(ctx context.Context) {
		flood(ctx, t, 3000, append(addresses(4), victim), slowName)
	})
}

// keepSilent makes the server at deadAddr receive all queries and answer none.
func keepSilent(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", deadAddr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
}
