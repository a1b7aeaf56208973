package dnsserver

import (
	"net"
	"time"
)

// SetDrainTime sets how long connections may take to end when s stops.
func (s *Server) SetDrainTime(d time.Duration) { s.drainTime = d }

// SetLingerTime sets how long a connection that s ends waits for the client.
func (s *Server) SetLingerTime(d time.Duration) { s.lingerTime = d }

// SetMaxHeld sets how many octets of queries and answers s may hold.
func (s *Server) SetMaxHeld(octets int) { s.maxHeld = octets }

// UDPSocket is a UDP socket of a Server.
type UDPSocket struct{ *udpSocket }

// Close closes it under the server's hands.
func (s UDPSocket) Close() { s.close() }

// KeepOneUDPSocket closes all UDP sockets of s but one, so that every packet
// comes to that one, and gives it.
func (s *Server) KeepOneUDPSocket() UDPSocket {
	for _, socket := range s.udp[1:] {
		socket.close()
	}
	s.udp = s.udp[:1]
	return UDPSocket{s.udp[0]}
}

// Listener is the first of s.
func (s *Server) Listener() *net.TCPListener { return s.tcp[0] }

// ServePackets gives what answers packets that wait at the first UDP socket of
// s, or waits for them, each time it is called.
func (s *Server) ServePackets() func() error {
	p := packets{batch: newBatch(s.udp[0]), answerer: s.cfg.NewAnswerer()}
	return func() error {
		_, err := p.answer()
		return err
	}
}
