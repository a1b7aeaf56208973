package dnsserver_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

// whoAsks answers with the client, the transport and the query.
func whoAsks(packet []byte, client respond.Client, buf []byte) []byte {
	transport := map[respond.Transport]string{respond.UDP: "UDP", respond.TCP: "TCP"}[client.Transport]
	return fmt.Appendf(buf, "%s %s %s", client.Addr, transport, packet)
}

func TestAnswersEveryTransportAndFamily(t *testing.T) {
	tests := map[string]struct {
		listen, client string
	}{
		"an IPv4 address":                   {"127.0.0.1:0", "127.0.0.1"},
		"an IPv6 address":                   {"[::1]:0", "::1"},
		"every IPv4 address":                {"0.0.0.0:0", "127.0.0.1"},
		"every IPv6 address":                {"[::]:0", "::1"},
		"an IPv4 address written as IPv6's": {"[::ffff:127.0.0.1]:0", "127.0.0.1"},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			needsAddress(t, tt.client)
			listen := netip.MustParseAddrPort(tt.listen)
			s := start(t, dnsserver.Config{Listen: []netip.AddrPort{listen}}, whoAsks)
			if got := s.addr(); got.Addr() != listen.Addr().Unmap() || got.Port() == 0 {
				t.Errorf("Addrs() = [%s], want %s with a port", got, listen.Addr().Unmap())
			}
			addr := netip.AddrPortFrom(netip.MustParseAddr(tt.client), s.addr().Port())

			want := tt.client + " UDP hello"
			if got, err := exchange(dialUDP(t, addr), "hello"); err != nil || got != want {
				t.Errorf("over UDP: %q, %v, want %q", got, err, want)
			}
			c := dialTCP(t, addr)
			c.ask("hello")
			c.want(tt.client + " TCP hello")
		})
	}
}

// needsAddress skips the test if the host lacks the address.
func needsAddress(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		t.Skipf("this host has no %s: %v", addr, err)
	}
	l.Close()
}

func TestAddrsAreInTheOrderOfListen(t *testing.T) {
	needsAddress(t, "::1")
	listen := []netip.AddrPort{
		netip.MustParseAddrPort("[::1]:0"),
		netip.MustParseAddrPort("127.0.0.1:0"),
		netip.MustParseAddrPort("[::]:0"),
	}
	s := start(t, dnsserver.Config{Listen: listen}, echo)
	got := s.Addrs()
	for i, addr := range listen {
		if i >= len(got) || got[i].Addr() != addr.Addr() {
			t.Fatalf("Addrs() = %v, want the order of %v", got, listen)
		}
	}
	for _, addr := range got[:2] {
		wantEcho(t, dialUDP(t, addr), addr.String())
	}
}

// TestIPv6UnspecifiedDoesNotListenOnIPv4 uses another server on an IPv4 address with the
// same port.
func TestIPv6UnspecifiedDoesNotListenOnIPv4(t *testing.T) {
	needsAddress(t, "::1")
	v6 := start(t, dnsserver.Config{Listen: []netip.AddrPort{netip.MustParseAddrPort("[::]:0")}}, echo)
	v4 := netip.AddrPortFrom(ownAddr(t, 1), v6.addr().Port())
	s := start(t, dnsserver.Config{Listen: []netip.AddrPort{v4}}, echo)
	wantEcho(t, dialUDP(t, s.addr()), "hello")
}

// ownAddr returns the n-th loopback address that only this package's servers use: on
// 127.0.0.1, a client's port may be the one that a test needs.
func ownAddr(t *testing.T, n byte) netip.Addr {
	t.Helper()
	addr := netip.AddrFrom4([4]byte{127, 53, 0, n})
	needsAddress(t, addr.String())
	return addr
}

// ownPort returns a port that stays free when the server has closed it.
func ownPort(t *testing.T) []netip.AddrPort {
	t.Helper()
	return []netip.AddrPort{netip.AddrPortFrom(ownAddr(t, 1), 0)}
}

func TestListenFailureNamesTheAddress(t *testing.T) {
	addr := ownAddr(t, 1).AsSlice()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: addr})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: addr})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()

	tests := map[string]struct {
		addr string
		want string
		is   error
	}{
		"a port taken for TCP":          {l.Addr().String(), " (tcp): bind: ", syscall.EADDRINUSE},
		"a port taken for UDP":          {u.LocalAddr().String(), " (udp): bind: ", syscall.EADDRINUSE},
		"an address of another host":    {"203.0.113.1:0", " (tcp): bind: ", syscall.EADDRNOTAVAIL},
		"an IPv6 address of no network": {"[2001:db8::1]:0", " (tcp): bind: ", syscall.EADDRNOTAVAIL},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			addr := netip.MustParseAddrPort(tt.addr)
			if addr.Addr().Is6() {
				needsAddress(t, "::1")
			}
			_, err := dnsserver.Listen(t.Context(), dnsserver.Config{Listen: []netip.AddrPort{addr}})
			want := "listen on " + tt.addr + tt.want
			if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, tt.is) {
				t.Errorf("Listen(%s) = %v, want %s and %v", tt.addr, err, want, tt.is)
			}
		})
	}
}

// TestListenFailureClosesBoundSockets covers sockets of the same address and of those
// before it.
func TestListenFailureClosesBoundSockets(t *testing.T) {
	taken, err := net.ListenUDP("udp4", &net.UDPAddr{IP: ownAddr(t, 1).AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	second := taken.LocalAddr().(*net.UDPAddr).AddrPort()
	first := netip.AddrPortFrom(ownAddr(t, 2), second.Port())

	if _, err := dnsserver.Listen(t.Context(), dnsserver.Config{Listen: []netip.AddrPort{first, second}}); err == nil {
		t.Fatalf("Listen(%s, %s) = nil, want an error: the second is taken", first, second)
	}
	taken.Close()
	s := start(t, dnsserver.Config{Listen: []netip.AddrPort{first, second}}, echo)
	for _, addr := range s.Addrs() {
		wantEcho(t, dialUDP(t, addr), "hello")
	}
}

// TestRunFreesThePort also checks that connections of a stopped server do not block the
// port.
func TestRunFreesThePort(t *testing.T) {
	first := start(t, dnsserver.Config{Listen: ownPort(t)}, echo)
	c := dialTCP(t, first.addr())
	c.ask("hello")
	c.want("hello")
	first.stop()
	c.wantEnd()
	c.Close()
	if err := first.end(); err != nil {
		t.Fatalf("Run() = %v, want nil", err)
	}
	second := start(t, dnsserver.Config{Listen: first.Addrs()}, echo)
	for range 20 { // if a socket of the first server were left, some of these clients would reach it
		wantEcho(t, dialUDP(t, second.addr()), "hello")
	}
}

// TestRunEndsWithTheErrorOfASocket also checks that all other sockets are closed.
func TestRunEndsWithTheErrorOfASocket(t *testing.T) {
	tests := map[string]func(*running){
		"UDP": func(s *running) { s.KeepOneUDPSocket().Close() },
		"TCP": func(s *running) { s.Listener().Close() },
	}
	for claim, breakIt := range tests {
		t.Run(claim, func(t *testing.T) {
			s := listen(t, dnsserver.Config{Listen: ownPort(t)}, echo)
			addr := s.addr()
			breakIt(s)
			s.run()
			if err := s.end(); !errors.Is(err, net.ErrClosed) {
				t.Fatalf("Run() = %v, want %v", err, net.ErrClosed)
			}
			if conn, err := net.DialTimeout("tcp", addr.String(), time.Second); err == nil {
				conn.Close()
				t.Errorf("%s takes connections after Run ended", addr)
			}
		})
	}
}
