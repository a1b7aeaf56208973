// Package bgp tells routers the addresses of load balancers that a node serves, with BGP (RFC 4271), so that they
// spread packets over all nodes that do.
//
//	speaker.go: which routers, and which addresses
//	peer.go:    connections to a router, one after the other
//	session.go: what goes on in a connection
//	message.go: messages, with the extensions for IPv6 (RFC 4760), AS numbers of four octets (RFC 6793), communities
//	            (RFC 1997) and graceful restart (RFC 4724)
//
// A node connects to routers and never listens, it announces its own addresses only, and ignores all routes that
// routers announce.
package bgp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// Port is the port of BGP.
const Port = 179

// DefaultHoldTime is for how long a router keeps the routes of a node that it does not hear (RFC 4271, section 10).
const DefaultHoldTime = 90 * time.Second

// Config configures a Speaker.
type Config struct {
	// ASN is the number of the nodes' autonomous system.
	ASN uint32
	// RouterID identifies the node; if it is invalid, the node's first address of IPv4 does.
	RouterID netip.Addr
	// HoldTime is proposed to routers; 0 is DefaultHoldTime. It is at least 3 s.
	HoldTime time.Duration
	Peers    []Peer
	Log      *slog.Logger
}

// Peer is a router.
type Peer struct {
	Address netip.Addr
	// ASN is the router's. If it is that of the nodes, the connection is internal (iBGP).
	ASN uint32
	// Port is 0 for Port.
	Port uint16
	// Password returns the password of TCP MD5 signatures (RFC 2385); nil is none. It is called for each connection.
	Password func() (string, error)
	// Communities are those of all routes.
	Communities []uint32
	// LocalPreference is that of all routes, for internal connections; 0 is 100.
	LocalPreference uint32
	// GracefulRestart is for how long the router keeps the routes when the connection ends; 0 is not at all.
	GracefulRestart time.Duration
	// NodeSelector are labels of the nodes that connect to the router; none is all nodes.
	NodeSelector map[string]string
}

func (p *Peer) selects(labels map[string]string) bool {
	for k, v := range p.NodeSelector {
		if has, ok := labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

func (p *Peer) addrPort() netip.AddrPort {
	if p.Port == 0 {
		return netip.AddrPortFrom(p.Address, Port)
	}
	return netip.AddrPortFrom(p.Address, p.Port)
}

// State is what routers are told.
type State struct {
	// Addrs are the addresses that the node serves.
	Addrs []netip.Addr
	// NextHops are the node's own addresses. The first of each family is where packets go, unless the connection itself
	// has an address of that family.
	NextHops []netip.Addr
	// Labels are those of the Node.
	Labels map[string]string
}

// NotificationError is an error that ended a connection, and that was told to the other end or by it (RFC 4271, section
// 4.5).
type NotificationError struct {
	Code, Subcode uint8
	// Received: the router sent it.
	Received bool
}

// The codes of errors, and subcodes where the name depends on them.
var codes = map[uint8]string{
	1: "message header error", 2: "OPEN message error", 3: "UPDATE message error", 4: "hold timer expired",
	5: "finite state machine error", 6: "cease", 7: "ROUTE-REFRESH message error",
}

// Error returns the name of the error's code, and its subcode.
func (e *NotificationError) Error() string {
	name, known := codes[e.Code]
	if !known {
		name = fmt.Sprintf("code %d", e.Code)
	}
	text := fmt.Sprintf("%s, subcode %d", name, e.Subcode)
	if e.Received {
		return "the router ended the session: " + text
	}
	return text
}
