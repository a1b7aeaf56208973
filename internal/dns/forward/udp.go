package forward

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// udp queries over UDP. Each query has its own connected socket, so that the
// system chooses a random port (RFC 5452, section 9.2) and the socket receives
// packets of the upstream only.
type udp struct{ of *upstream }

// maxForged is how many packets that do not match its query a socket accepts
// before the query is sent over TCP.
const maxForged = 16

// errFlood reports that maxForged was exceeded.
var errFlood = errors.New("too many packets that do not match the query")

var packetBuffers = sync.Pool{New: func() any { return new([4096]byte) }}

func (t *udp) exchange(ctx context.Context, query []byte) (*dnswire.Reply, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(t.of.Addr))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buf := packetBuffers.Get().(*[4096]byte)
	defer packetBuffers.Put(buf)
	for range maxForged {
		n, err := conn.Read(buf[:])
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, err
		}
		reply, err := dnswire.ParseReply(buf[:n])
		if err == nil {
			if id, question, _ := reply.MatchQuery(query); id && question {
				return reply, nil
			}
		}
		t.of.counts.forged.Add(1)
	}
	return nil, errFlood
}

func (t *udp) close() {}
