package app

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// liveTime is the timeout of a query, the default of resolvers (resolv.conf(5),
// timeout).
const liveTime = 5 * time.Second

// askLive returns a QueryFunc that queries servers on port 53, with TCP if the question says
// so. A server that the question names replaces the cluster DNS.
func askLive(ctx context.Context, asked Question, isClusterDNS func(netip.Addr) bool) explain.QueryFunc {
	return func(server netip.Addr, q stubresolver.Query) explain.Answer {
		switch {
		case server == explain.UnknownServer():
			return explain.Answer{NotAsked: serverUnknown}
		case asked.Server.IsValid() && !isClusterDNS(server):
			return explain.Answer{
				NotAsked: server.String() + " is not the cluster's DNS, which --server replaces, and was not asked",
			}
		}
		q.TCP = q.TCP || asked.TCP
		at := netip.AddrPortFrom(server, 53)
		if asked.Server.IsValid() {
			at = asked.Server
		}
		m, err := exchange(ctx, at, q)
		switch {
		case err == nil:
			return explain.Answer{Message: m}
		case errors.Is(err, syscall.ECONNREFUSED):
			return explain.Answer{Loss: stubresolver.Unreachable}
		}
		return explain.Answer{Loss: stubresolver.Timeout}
	}
}

// exchange sends one query and waits for its answer for up to liveTime.
func exchange(ctx context.Context, server netip.AddrPort, q stubresolver.Query) (*dnswire.Message, error) {
	packet, err := packetOf(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, liveTime)
	defer cancel()
	network := "udp"
	if q.TCP {
		network = "tcp"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if q.TCP {
		return overTCP(conn, packet)
	}
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	buf := make([]byte, dnswire.MaxMessage)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		if isAnswer(buf[:n], packet) {
			return dnswire.ParseMessage(buf[:n])
		}
	}
}

// overTCP sends a query over a connection, with a length before each message (RFC 1035,
// section 4.2.2).
func overTCP(conn net.Conn, packet []byte) (*dnswire.Message, error) {
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
		return nil, err
	}
	var length uint16
	if err := binary.Read(conn, binary.BigEndian, &length); err != nil {
		return nil, err
	}
	buf := make([]byte, length)
	if _, err := io.ReadFull(conn, buf); err != nil {
		return nil, err
	}
	if !isAnswer(buf, packet) {
		return nil, errors.New("the answer is to another question")
	}
	return dnswire.ParseMessage(buf)
}

// isAnswer reports whether a message answers the query.
func isAnswer(message, query []byte) bool {
	r, err := dnswire.ParseReply(message)
	if err != nil {
		return false
	}
	id, question, _ := r.MatchQuery(query)
	return id && question
}
