package app

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/live"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// liveTime is the timeout of a query, the default of resolvers (resolv.conf(5),
// timeout).
const liveTime = 5 * time.Second

// mostLost is how many queries in a row a server may not answer before it is taken to answer none: a lookup with a
// search list would take a minute.
const mostLost = 2

// Sending is how packets are sent.
type Sending struct {
	// Dialer opens sockets where the Pod is; nil is where the command runs.
	Dialer live.Dialer
	// Server, if it is valid, is queried instead of the cluster DNS, and TCP sends all queries over TCP, whatever the
	// resolver does.
	Server netip.AddrPort
	TCP    bool
	// Wait is how long an answer is waited for; 0 is a usual time.
	Wait time.Duration

	sent *[]path.Sent // where it is recorded what was sent; nil does not
}

// questioner sends the queries of a lookup.
type questioner struct {
	*Sending
	lost map[netip.AddrPort]int // queries in a row without an answer
}

// askLive returns a QueryFunc that queries servers on port 53, with TCP if the question says
// so. A server that the question names replaces the cluster DNS.
func askLive(ctx context.Context, how *Sending, isClusterDNS func(netip.Addr) bool) explain.QueryFunc {
	asker := &questioner{how, make(map[netip.AddrPort]int)}
	return func(server netip.Addr, q stubresolver.Query) explain.Answer {
		switch {
		case server == explain.UnknownServer():
			return explain.Answer{NotAsked: serverUnknown}
		case how.Server.IsValid() && !isClusterDNS(server):
			return explain.Answer{
				NotAsked: server.String() + " is not the cluster's DNS, which --server replaces, and was not asked",
			}
		}
		q.TCP = q.TCP || how.TCP
		at := netip.AddrPortFrom(server, 53)
		if how.Server.IsValid() {
			at = how.Server
		}
		answer := asker.ask(ctx, at, q)
		answer.Instead = how.Server
		return answer
	}
}

// ask sends a query, unless the server answered none of those before.
func (a *questioner) ask(ctx context.Context, at netip.AddrPort, q stubresolver.Query) explain.Answer {
	if a.lost[at] >= mostLost || ctx.Err() != nil {
		return explain.Answer{Loss: stubresolver.Timeout}
	}
	begin := time.Now()
	m, err := a.exchange(ctx, at, q)
	var answer explain.Answer
	var result string
	switch {
	case err == nil:
		a.lost[at] = 0
		answer.Message = m
		result = fmt.Sprintf("%s, %d records", m.Status, len(m.Answer))
	case errors.Is(err, syscall.ECONNREFUSED):
		answer.Loss, result = stubresolver.Unreachable, "refused"
	default:
		a.lost[at]++
		answer.Loss, result = stubresolver.Timeout, "no answer"
	}
	if a.sent != nil {
		what := fmt.Sprintf("query of %s %s to %s", q.Name, q.Type, at)
		*a.sent = append(*a.sent, live.SentOf(what, result, time.Since(begin)))
	}
	return answer
}

// exchange sends one query and waits for its answer.
func (a *questioner) exchange(
	ctx context.Context, server netip.AddrPort, q stubresolver.Query,
) (*dnswire.Message, error) {
	packet, err := packetOf(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.Wait, liveTime))
	defer cancel()
	network := "udp"
	if q.TCP {
		network = "tcp"
	}
	dialer := a.Dialer
	if dialer == nil {
		dialer = live.Here().Dialer
	}
	conn, err := dialer.Dial(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
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
