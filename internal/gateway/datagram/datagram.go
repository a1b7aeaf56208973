// Package datagram passes on datagrams (Gateway API v1, UDPRoute; RFC 768). What one client sends to one address goes
// to one endpoint, as long as something is sent:
//
//	socket ──► Serve ──► session of the client and the address ──► table.Port.Stream ──► socket of its own ──► endpoint
//	client ◄── from the address that it sent to ◄── session.run ◄──────────────────────────────┘
//
// A session has a connected socket, so that the endpoint sees one client for each, and errors of ICMP are seen. Anyone
// can send a datagram in another's name: so sessions are accounted, those end first that have seen no more of their
// client than one datagram, and nothing is sent to a client but what an endpoint has sent.
package datagram

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/budget"
)

// maxDatagram is the most octets that a datagram can have (RFC 768; IPv4 and IPv6 without jumbograms).
const maxDatagram = 64 << 10

// Config is what a Server needs.
type Config struct {
	// Table returns the current table, nil before the first.
	Table func() *table.Table
	// Endpoints are where the upstreams of the Table are.
	Endpoints *balance.Set[table.Upstream]
	// Sessions accounts the sessions.
	Sessions *budget.Account
	// Idle is after how long without a datagram in either direction a session ends. Zero is 60 s.
	Idle time.Duration
	// Done is called at the end of each session, and for each datagram that was dropped; nil for none.
	Done func(*Record)
	Log  *slog.Logger // nil for none
}

// Record is what became of a session, or of a datagram that was dropped.
type Record struct {
	Client   netip.AddrPort
	Listener string
	// Rule is nil if no route matched.
	Rule *table.Rule
	// Reason is why a datagram was dropped, or the session was ended before it was idle; else empty.
	Reason   table.Reason
	Upstream table.Upstream
	Endpoint netip.AddrPort
	// Sent and Received are octets to the client, and from it.
	Sent, Received int64
	Began          time.Time
	Duration       time.Duration
}

// Reasons of a Record; there are also those of the backends of rules.
const (
	NoTable table.Reason = "not ready"
	NoRoute table.Reason = "no route"
	NoRoom  table.Reason = "too many sessions"
	Removed table.Reason = "endpoint removed"
	Stopped table.Reason = "gateway stopped"

	NoBackend   = table.NoBackend
	NoEndpoint  = table.NoEndpoint
	Unreachable = table.Unreachable
)

// Known reports whether a reason is one of those above; others are of rules.
func Known(r table.Reason) bool {
	switch r {
	case NoTable, NoRoute, NoBackend, NoEndpoint, Unreachable, NoRoom, Removed, Stopped:
		return true
	}
	return false
}

// Server passes on datagrams.
type Server struct {
	cfg   Config
	rooms sync.Pool // of *[maxDatagram]byte
	count atomic.Int64
	sent  [2]atomic.Uint64 // datagrams to endpoints, and to clients

	mu     sync.Mutex
	groups map[*balance.Endpoint]map[*session]struct{} // the sessions of endpoints
}

// New returns a Server.
func New(cfg Config) *Server {
	if cfg.Idle == 0 {
		cfg.Idle = time.Minute
	}
	if cfg.Done == nil {
		cfg.Done = func(*Record) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		cfg: cfg, rooms: sync.Pool{New: func() any { return new([maxDatagram]byte) }},
		groups: make(map[*balance.Endpoint]map[*session]struct{}),
	}
}

// Sessions returns how many there are.
func (s *Server) Sessions() int { return int(s.count.Load()) }

// Datagrams returns how many were sent to endpoints, and to clients.
func (s *Server) Datagrams() (there, back uint64) { return s.sent[0].Load(), s.sent[1].Load() }
