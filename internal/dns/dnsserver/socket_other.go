//go:build !linux

package dnsserver

import (
	"net"
	"net/netip"
	"syscall"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// On other systems one socket serves a port, a batch is one packet, and the system
// chooses the source address of answers.
const sharesPorts = false

func controlUDP(int, netip.Addr) func(string, string, syscall.RawConn) error { return nil }

func processors() []int { return nil }

type batch struct {
	conn      *net.UDPConn
	impatient bool // it is never used to receive
	from      netip.AddrPort
	length    int
	query     [dnswire.MaxMessage]byte
	answers   [dnswire.MaxMessage]byte
	answer    []byte
}

func newBatch(conn *net.UDPConn) (*batch, error) { return &batch{conn: conn}, nil }

func (b *batch) receive() (n int, err error) {
	if b.length, b.from, err = b.conn.ReadFromUDPAddrPort(b.query[:]); err != nil {
		return 0, err
	}
	return 1, nil
}

func (b *batch) receiveNext() (n int) { return 0 }

func (b *batch) take() (n int) { return 0 }

func (b *batch) yieldProcessor() {}

func (b *batch) packet(int) (packet []byte, from netip.AddrPort) {
	return b.query[:b.length], netip.AddrPortFrom(b.from.Addr().Unmap(), b.from.Port())
}

type returnPath struct{ to netip.AddrPort }

func (b *batch) returnPath(int) returnPath { return returnPath{b.from} }

func (w returnPath) send(conn *net.UDPConn, answer []byte) error {
	_, err := conn.WriteToUDPAddrPort(answer, w.to)
	return err
}

func (b *batch) room() []byte { return b.answers[:0] }

func (b *batch) reply(_ int, answer []byte) { b.answer = answer }

func (b *batch) send() (err error) {
	if b.answer != nil {
		_, err = b.conn.WriteToUDPAddrPort(b.answer, b.from)
		b.answer = nil
	}
	return err
}

// leave does nothing: sockets cannot share ports here.
func leave(*net.UDPConn) {}
