package app

import (
	"log/slog"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/support/ctnetlink"
	"portolan.dev/portolan/internal/support/ctnetlink/ctnetlinktest"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestFlows: of all flows, those of UDP to a port of the node are deleted when a Pod gets the port, and those that lead
// to the Pod when it ends.
func TestFlows(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	flow := func(protocol uint8, client, to string) ctnetlinktest.Flow {
		return ctnetlinktest.Flow{
			Protocol: protocol, Client: netip.MustParseAddrPort(client), Destination: netip.MustParseAddrPort(to),
			Replies: netip.MustParseAddrPort(to),
		}
	}
	if err := ctnetlinktest.Create(
		flow(unix.IPPROTO_UDP, "198.51.100.1:1000", "192.0.2.1:53"), flow(unix.IPPROTO_UDP, "198.51.100.1:1000", "192.0.2.1:54"),
		flow(unix.IPPROTO_TCP, "198.51.100.1:1000", "192.0.2.1:53"), flow(unix.IPPROTO_UDP, "198.51.100.1:1000", "192.0.2.2:55"),
		flow(unix.IPPROTO_UDP, "198.51.100.1:1000", "192.0.2.1:55"), flow(unix.IPPROTO_UDP, "[2001:db8::9]:1000", "[2001:db8::1]:53"),
	); err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort("10.244.1.7:53")
	own := flow(unix.IPPROTO_UDP, "198.51.100.2:1000", "192.0.2.1:56")
	own.Replies = to
	if err := ctnetlinktest.Create(own, flow(unix.IPPROTO_UDP, "198.51.100.3:1000", "192.0.2.3:56")); err != nil {
		t.Fatal(err)
	}
	tracked := trackedFlows{slog.New(slog.DiscardHandler)}
	tracked.begin([]nft.Port{
		{Protocol: nft.UDP, HostPort: 53, To: to}, {Protocol: nft.TCP, HostPort: 54, To: to},
		{Protocol: nft.UDP, HostIP: netip.MustParseAddr("192.0.2.1"), HostPort: 55, To: to},
	})
	tracked.end([]nft.Port{{Protocol: nft.UDP, HostPort: 56, To: to}})
	left := make(map[string]bool)
	table, err := ctnetlink.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	for _, f := range []ctnetlink.Family{ctnetlink.IPv4, ctnetlink.IPv6} {
		if err := table.Each(ctnetlink.Filter{Family: f}, func(e *ctnetlink.Entry) { left[e.Original.Destination.String()] = true }); err != nil {
			t.Fatal(err)
		}
	}
	for to, want := range map[string]bool{
		"192.0.2.1:53": true /* of TCP */, "192.0.2.1:54": true, "192.0.2.2:55": true, "192.0.2.1:55": false, "[2001:db8::1]:53": true,
		"192.0.2.1:56": false, "192.0.2.3:56": true,
	} {
		if left[to] != want {
			t.Errorf("a flow to %s is left: %t, want %t", to, left[to], want)
		}
	}
	if len(left) != 5 {
		t.Errorf("left: %v", left)
	}
}
