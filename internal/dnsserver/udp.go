package dnsserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/respond"
)

// quietTime is how long no packet comes to a socket that the server drains until
// it is empty: what the system took in before is there at once.
const quietTime = 20 * time.Millisecond

// serveUDP answers the packets of one socket, one after another.
func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	p := newPackets(conn, s.cfg.NewAnswerer())
	unread := 0 // errors of reading in a row
	for {
		received, err := p.answerOne()
		if received {
			unread = 0
		} else {
			unread++
		}
		switch {
		case err == nil:
		case ctx.Err() != nil && !received:
			<-woken
			p.drain(s.drainTime)
			// Whoever asks from now on is told that nobody is here, and need
			// not wait: connections may take longer to end.
			conn.Close()
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case unread > 1:
			s.cfg.Log.Warn("udp socket can't be read", "err", err)
			pause(ctx, retryTime)
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

func newPackets(conn *net.UDPConn, answerer Answerer) *packets {
	p := &packets{conn: conn, answerer: answerer}
	if conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().IsUnspecified() {
		p.control = make([]byte, controlLen)
	}
	return p
}

// drain answers the packets that wait, for as long as it may take.
func (p *packets) drain(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if err := p.conn.SetReadDeadline(time.Now().Add(quietTime)); err != nil {
			return
		}
		if received, _ := p.answerOne(); !received {
			return
		}
	}
}

// answerOne reads one packet and answers it. It tells whether one was
// received; if so, an error is one of sending.
func (p *packets) answerOne() (received bool, err error) {
	var n, controlN int
	var from netip.AddrPort
	if p.control == nil {
		n, from, err = p.conn.ReadFromUDPAddrPort(p.query[:])
	} else {
		n, controlN, _, from, err = p.conn.ReadMsgUDPAddrPort(p.query[:], p.control)
	}
	if err != nil {
		return false, err
	}
	client := respond.Client{Addr: from.Addr().Unmap(), Transport: respond.UDP}
	answer := p.answerer.Respond(p.query[:n], client, p.answer[:0])
	if answer == nil {
		return true, nil
	}
	if p.control == nil {
		_, err = p.conn.WriteToUDPAddrPort(answer, from)
	} else {
		_, _, err = p.conn.WriteMsgUDPAddrPort(answer, replyControl(p.control[:controlN]), from)
	}
	return true, err
}
