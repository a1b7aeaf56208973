// Package freeport finds ports for servers of tests that cannot choose one themselves.
package freeport

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
)

// Sockets that bind port 0 or none get ports of systems' ephemeral ranges, which begin at 32768 (Linux,
// net.ipv4.ip_local_port_range) or above. A port below them stays free until the server binds it.
const first, end = 10000, 32768

// At returns an address with a port that is free for TCP and UDP. It fails the test if it finds none.
func At(tb testing.TB, addr netip.Addr) netip.AddrPort {
	tb.Helper()
	const attempts = 100
	var last error
	for range attempts {
		at := netip.AddrPortFrom(addr, uint16(first+rand.IntN(end-first)))
		if last = free(at); last == nil {
			return at
		}
	}
	tb.Fatal("no port is free: ", last)
	return netip.AddrPort{}
}

// Loopback is At of 127.0.0.1.
func Loopback(tb testing.TB) netip.AddrPort {
	tb.Helper()
	return At(tb, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

func free(at netip.AddrPort) error {
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return err
	}
	defer l.Close()
	packets, err := net.ListenPacket("udp", at.String())
	if err != nil {
		return err
	}
	return packets.Close()
}
