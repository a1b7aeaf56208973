package dnsserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/respond"
)

// serveUDP answers the packets of one socket, one after another.
func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	local := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
	p := &packets{conn: conn, answerer: s.cfg.NewAnswerer()}
	if local.IsUnspecified() {
		p.control = make([]byte, controlLen)
	}
	for {
		err := p.answerOne()
		switch {
		case err == nil:
		case ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			// An error that a client caused, such as an ICMP message, is told
			// once and is no reason to stop.
			s.cfg.Log.Debug("udp socket", "err", err)
		}
	}
}

// packets is a UDP socket and what its packets are read into and answered in.
type packets struct {
	conn     *net.UDPConn
	answerer Answerer
	query    [dnswire.MaxMessage]byte
	answer   [dnswire.MaxMessage]byte
	// control holds, on a socket of every address, the address that a packet
	// was sent to, so that the answer comes from there.
	control []byte
}

// answerOne reads one packet and answers it.
func (p *packets) answerOne() error {
	var n, controlN int
	var from netip.AddrPort
	var err error
	if p.control == nil {
		n, from, err = p.conn.ReadFromUDPAddrPort(p.query[:])
	} else {
		n, controlN, _, from, err = p.conn.ReadMsgUDPAddrPort(p.query[:], p.control)
	}
	if err != nil {
		return err
	}
	client := respond.Client{Addr: from.Addr().Unmap(), Transport: respond.UDP}
	answer := p.answerer.Respond(p.query[:n], client, p.answer[:0])
	if answer == nil {
		return nil
	}
	if p.control == nil {
		_, err = p.conn.WriteToUDPAddrPort(answer, from)
	} else {
		_, _, err = p.conn.WriteMsgUDPAddrPort(answer, replyControl(p.control[:controlN]), from)
	}
	return err
}
