package dnsserver_test

import (
	"net"
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

// TestClientAddresses checks that the addresses of clients match the prefixes of rules.
func TestClientAddresses(t *testing.T) {
	t.Parallel()
	for claim, tt := range map[string]struct{ remote, want string }{
		"IPv4":                     {"192.0.2.1:5353", "192.0.2.1"},
		"IPv4 in IPv6":             {"[::ffff:192.0.2.1]:5353", "192.0.2.1"},
		"IPv6":                     {"[2001:db8::1]:5353", "2001:db8::1"},
		"link-local with its link": {"[fe80::1%eth0]:5353", "fe80::1"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			want := respond.Client{Addr: netip.MustParseAddr(tt.want), Port: 5353, Transport: respond.TLS}
			if got := dnsserver.NewClient(netip.MustParseAddrPort(tt.remote), respond.TLS); got != want {
				t.Errorf("NewClient(%s, TLS) = %v, want %v", tt.remote, got, want)
			}
		})
	}
}

// TestLinkLocalClients checks that connections and packets from a link-local address have
// clients without its zone.
func TestLinkLocalClients(t *testing.T) {
	t.Parallel()
	local := linkLocal(t)
	s := listen(t, dnsserver.Config{Listen: []netip.AddrPort{netip.AddrPortFrom(local, 0)}},
		func(_ []byte, client respond.Client, buf []byte) []byte { return append(buf, client.Addr.String()...) }).run()
	at, want := netip.AddrPortFrom(local, s.addr().Port()), local.WithZone("").String()
	if got, err := exchange(dialUDP(t, at), "who?"); err != nil || got != want {
		t.Errorf("the client over UDP is %q, %v, want %q", got, err, want)
	}
	c := dialTCP(t, at)
	c.ask("who?")
	c.want(want)
}

// linkLocal returns a link-local address of this machine, with its zone.
func linkLocal(t *testing.T) netip.Addr {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		addrs, _ := link.Addrs()
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if addr := prefix.Addr(); err == nil && addr.Is6() && addr.IsLinkLocalUnicast() && link.Flags&net.FlagUp != 0 {
				return addr.WithZone(link.Name)
			}
		}
	}
	t.Skip("no link-local address")
	return netip.Addr{}
}
