//go:build linux

// Package sctp sets associations of SCTP up and aborts them, on raw sockets: kernels without SCTP have
// connections with it to try rules with. It is the handshake of RFC 9260, section 5.1, over IPv4, and no
// data:
//
//	client                        server
//	INIT            ──────────►
//	                ◄──────────   INIT ACK, with a cookie
//	COOKIE ECHO     ──────────►
//	                ◄──────────   COOKIE ACK
//	ABORT           ──────────►
//
// The process must have the capability NET_RAW.
package sctp

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
)

// retransmission is how long a client waits for an answer before it sends again.
const retransmission = 500 * time.Millisecond

// largest is more than the packets of a handshake have.
const largest = 2048

// Connect sets an association up and aborts it. It returns ctx's error if the server has not answered
// until ctx is done, and ECONNREFUSED if it aborts.
func Connect(ctx context.Context, server netip.AddrPort) error {
	conn, err := net.ListenIP("ip4:"+protocol, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := &client{conn: conn, server: server, tag: rand.Uint32() | 1, port: uint16(ephemeral + rand.IntN(1<<16-ephemeral))}
	reply, err := c.request(ctx, packet{kind: initiation, value: initiationOf(c.tag)}, initiationAck)
	if err != nil {
		return err
	}
	if len(reply.value) < initiationLength+len(cookieParameter)+4 {
		return errors.New("sctp: no cookie")
	}
	c.serverTag = binary.BigEndian.Uint32(reply.value)
	cookie := reply.value[initiationLength+len(cookieParameter):]
	if _, err := c.request(ctx, packet{kind: cookieEcho, value: cookie}, cookieAck); err != nil {
		return err
	}
	return c.send(packet{kind: abort})
}

// ephemeral is the first of the ports that clients use (RFC 6335, section 6).
const ephemeral = 49152

// client is one end of an association.
type client struct {
	conn      *net.IPConn
	server    netip.AddrPort
	port      uint16
	tag       uint32
	serverTag uint32
}

// send sends a packet with a chunk.
func (c *client) send(p packet) error {
	p.source, p.destination, p.tag = c.port, c.server.Port(), c.serverTag
	_, err := c.conn.WriteTo(p.encode(), &net.IPAddr{IP: c.server.Addr().AsSlice()})
	return err
}

// request sends a packet until the server answers with a chunk of the kind, whose value is the caller's.
func (c *client) request(ctx context.Context, p packet, answer kind) (packet, error) {
	data := make([]byte, largest)
	for ctx.Err() == nil {
		if err := c.send(p); err != nil && !errors.Is(err, syscall.EPERM) { // a rule of this machine's drops it
			return packet{}, err
		}
		if err := c.conn.SetReadDeadline(time.Now().Add(retransmission)); err != nil {
			return packet{}, err
		}
		for ctx.Err() == nil {
			n, from, err := c.conn.ReadFromIP(data)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return packet{}, err
			}
			reply, ok := decode(data[:n])
			switch {
			case !ok || !from.IP.Equal(c.server.Addr().AsSlice()) || reply.source != c.server.Port() ||
				reply.destination != c.port || reply.tag != c.tag:
			case reply.kind == abort:
				return packet{}, syscall.ECONNREFUSED
			case reply.kind == answer:
				return reply, nil
			}
		}
	}
	return packet{}, ctx.Err()
}

// Server accepts associations.
type Server struct {
	conn *net.IPConn
	port uint16
	tag  uint32 // of all associations
}

// Listen returns a server at a port of all addresses of IPv4, in the network namespace of the caller's thread.
func Listen(port uint16) (*Server, error) {
	conn, err := net.ListenIP("ip4:"+protocol, nil)
	if err != nil {
		return nil, err
	}
	return &Server{conn: conn, port: port, tag: rand.Uint32() | 1}, nil
}

// Close ends Serve.
func (s *Server) Close() error { return s.conn.Close() }

// Serve answers clients until Close.
func (s *Server) Serve() error {
	conn := ipv4.NewPacketConn(s.conn)
	// Answers leave from the address to which a client sent: a node has several.
	if err := conn.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return err
	}
	data := make([]byte, largest)
	for {
		n, control, from, err := conn.ReadFrom(data)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		p, ok := decode(data[:n])
		if !ok || p.destination != s.port {
			continue
		}
		reply, ok := s.answer(p)
		if !ok {
			continue
		}
		// The client sends again if the answer is lost.
		_, _ = conn.WriteTo(reply.encode(), &ipv4.ControlMessage{Src: control.Dst}, from)
	}
}

// answer returns the answer to a packet, if it has one. The cookie is the client's tag: all that the server would
// have to remember.
func (s *Server) answer(p packet) (reply packet, ok bool) {
	reply = packet{source: s.port, destination: p.source}
	switch {
	case p.kind == initiation && p.tag == 0 && len(p.value) >= initiationLength:
		reply.tag, reply.kind = binary.BigEndian.Uint32(p.value), initiationAck
		reply.value = append(append(initiationOf(s.tag), cookieParameter...), p.value[:4]...)
	case p.kind == cookieEcho && p.tag == s.tag && len(p.value) == 4:
		reply.tag, reply.kind = binary.BigEndian.Uint32(p.value), cookieAck
	default:
		return packet{}, false
	}
	return reply, true
}
