//go:build !linux

package dnsserver

import (
	"net"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/dnswire"
)

// Elsewhere one socket serves a port, a batch is one packet, and the system
// chooses the address that answers come from.
const sharesPorts = false

type udpSocket struct{ conn *net.UDPConn }

func listenUDP(addr netip.AddrPort, _ int) (*udpSocket, error) {
	family := "udp6"
	if addr.Addr().Is4() {
		family = "udp4"
	}
	conn, err := net.ListenUDP(family, net.UDPAddrFromAddrPort(addr))
	return &udpSocket{conn}, err
}

func (s *udpSocket) interrupt() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }

func (s *udpSocket) close() { s.conn.Close() }

func processors() []int { return nil }

type batch struct {
	socket   *udpSocket
	from     netip.AddrPort
	length   int
	query    [dnswire.MaxMessage]byte
	answers  [dnswire.MaxMessage]byte
	answered []byte
}

func newBatch(socket *udpSocket) *batch { return &batch{socket: socket} }

func (b *batch) receive() (n int, err error) {
	if b.length, b.from, err = b.socket.conn.ReadFromUDPAddrPort(b.query[:]); err != nil {
		return 0, err
	}
	return 1, nil
}

func (b *batch) packet(int) (packet []byte, from netip.Addr) {
	return b.query[:b.length], b.from.Addr().Unmap()
}

func (b *batch) room() []byte { return b.answers[:0] }

func (b *batch) reply(_ int, answer []byte) { b.answered = answer }

func (b *batch) send() (err error) {
	if b.answered != nil {
		_, err = b.socket.conn.WriteToUDPAddrPort(b.answered, b.from)
		b.answered = nil
	}
	return err
}
