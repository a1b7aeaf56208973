package dnsserver

import (
	"context"
	"net"
	"time"
)

// SetDrainTime sets how long connections may take to end when s stops.
func (s *Server) SetDrainTime(d time.Duration) { s.drainTime = d }

// SetLingerTime sets how long a connection that s ends waits for the client.
func (s *Server) SetLingerTime(d time.Duration) { s.lingerTime = d }

// SetMaxHeld sets how many octets of queries and answers s may hold.
func (s *Server) SetMaxHeld(octets int) { s.maxHeld = octets }

// SetAnswerer has a answer everything.
func (s *Server) SetAnswerer(a Answerer) { s.cfg.NewAnswerer = func(int) Answerer { return a } }

// KeepOneUDPSocket closes all UDP sockets of s but one, so that every packet
// comes to that one, and gives it.
func (s *Server) KeepOneUDPSocket() *net.UDPConn {
	for _, c := range s.udp[1:] {
		c.Close()
	}
	s.udp = s.udp[:1]
	return s.udp[0]
}

// WebConnections is how many there are over HTTPS.
func (s *Server) WebConnections() int {
	s.web[0].mu.Lock()
	defer s.web[0].mu.Unlock()
	return len(s.web[0].conns)
}

// Listener is the first of s.
func (s *Server) Listener() *net.TCPListener { return s.tcp[0] }

// ServePackets gives what answers packets that wait at the first UDP socket of
// s, or waits for them, each time it is called.
func (s *Server) ServePackets() (func() error, error) {
	p, err := newPackets(s.udp[0], s.cfg.NewAnswerer(0))
	return func() error {
		_, err := p.answer(context.Background())
		return err
	}, err
}
