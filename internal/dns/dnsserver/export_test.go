package dnsserver

import (
	"context"
	"net"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/budget"
)

// NewClient is newClient.
func NewClient(remote netip.AddrPort, transport respond.Transport) respond.Client {
	return newClient(remote, transport)
}

// SetDrainTime sets the time that connections have to end when s stops.
func (s *Server) SetDrainTime(d time.Duration) { s.drainTime = d }

// SetLingerTime sets how long a connection that s ends waits for the client to close
// it.
func (s *Server) SetLingerTime(d time.Duration) { s.lingerTime = d }

// SetMaxHeld sets the highest number of octets of queries and answers that s may hold.
func (s *Server) SetMaxHeld(octets int) { s.maxHeld = octets }

// SetAnswerer makes a answer all queries.
func (s *Server) SetAnswerer(a Answerer) { s.cfg.NewAnswerer = func(int) Answerer { return a } }

// KeepOneUDPSocket closes all UDP sockets of s but one, so that this one receives every
// packet, and returns it.
func (s *Server) KeepOneUDPSocket() *net.UDPConn {
	for _, c := range s.udp[1:] {
		c.Close()
	}
	s.udp = s.udp[:1]
	return s.udp[0]
}

// SetMaxWebRequests sets the highest number of requests over HTTPS.
func (s *Server) SetMaxWebRequests(n int) {
	s.webRequests = budget.NewAccount("https-requests", budget.Limits{Total: n, PerSource: n})
}

// WebRequests returns the number of requests over HTTPS.
func (s *Server) WebRequests() int { return s.webRequests.Stats().Used }

// WebConnections returns the number of HTTPS connections.
func (s *Server) WebConnections() int { return s.webConnections.Stats().Used }

// Listener returns the first TCP listener of s.
func (s *Server) Listener() *net.TCPListener { return s.tcp[0] }

// ServePackets returns a function that waits for packets at the first UDP socket of s
// and answers them.
func (s *Server) ServePackets() (func() error, error) {
	p, err := newPackets(s.udp[0], s.cfg.NewAnswerer(0))
	return func() error {
		_, err := p.answer(context.Background())
		return err
	}, err
}
