package dnsserver

import "time"

// ReplyControl is replyControl.
var ReplyControl = replyControl

// MaxUDPQuery is maxUDPQuery.
const MaxUDPQuery = maxUDPQuery

// ReceiveBuffer is receiveBuffer.
const ReceiveBuffer = receiveBuffer

// Processors are those that the process may run on.
func Processors() []int { return processors() }

// TakePacket takes a packet that waits at the socket numbered i, and tells
// whether there was one.
func (s *Server) TakePacket(i int) bool {
	_ = s.udp[i].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, _, err := s.udp[i].ReadFromUDPAddrPort(nil)
	return err == nil
}
