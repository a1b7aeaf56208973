package forward

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// udp asks with packets: each from a socket of its own, whose port the system
// chooses by chance (RFC 5452, section 9.2), and which hears that server only.
type udp struct{ of *upstream }

// maxForged is how many packets that are no reply to its query a socket takes
// until the query goes over a connection.
const maxForged = 16

// errFlood says that there were that many.
var errFlood = errors.New("too many packets that are no reply to the query")

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
