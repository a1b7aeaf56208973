package dnsserver

import (
	"context"
	"time"
)

// ReplyControl is replyControl.
var ReplyControl = replyControl

// MaxUDPQuery is maxUDPQuery.
const MaxUDPQuery = maxUDPQuery

// ReceiveBuffer is receiveBuffer.
const ReceiveBuffer = receiveBuffer

// Processors returns the processors that the process may run on.
func Processors() []int { return processors() }

// LookPause is lookPause.
const LookPause = lookPause

// AddToAnswerWaiting registers the first UDP socket of s with AnswerWaiting until
// remove is called. No worker serves that socket.
func (s *Server) AddToAnswerWaiting() (remove func(), err error) {
	p, err := newPackets(s.udp[0], s.cfg.NewAnswerer(0))
	if err != nil {
		return nil, err
	}
	return s.waiting.add(func() { p.answerWaiting(context.Background()) }), nil
}

// TakePacket reads a packet from socket i and reports whether there was one.
func (s *Server) TakePacket(i int) bool {
	_ = s.udp[i].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, _, err := s.udp[i].ReadFromUDPAddrPort(nil)
	return err == nil
}
