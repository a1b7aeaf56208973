package dnsserver

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/respond"
)

// quietTime is how long a drained socket must receive no packet until it counts as
// empty. Packets that the system received before are available at once.
const quietTime = 20 * time.Millisecond

// serveUDP answers the packets of one socket, batch by batch.
func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn, seat int) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		if s.cfg.SharePorts {
			leave(conn)
		}
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	p, err := newPackets(conn, s.cfg.NewAnswerer(seat))
	if err != nil {
		return err
	}
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer p.end(giveUp)
	defer s.waiting.add(func() { p.answerWaiting(waiting) })()
	unread := 0 // consecutive read errors
	for {
		p.yieldProcessor()
		received, err := p.answer(waiting)
		if received {
			unread = 0
		} else {
			unread++
		}
		switch {
		case err == nil:
		case ctx.Err() != nil && !received:
			<-woken
			p.drain(waiting, s.drainTime)
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case unread > 1:
			s.cfg.Log.Warn("udp socket can't be read", "err", err)
			pause(ctx, retryTime)
		default:
			// A client can cause such an error, for example with an ICMP message. The
			// error is reported once and does not stop the server.
			s.cfg.Log.Debug("udp socket", "err", err)
		}
	}
}

// packets receives and answers the packets of one socket.
type packets struct {
	*batch
	conn    *net.UDPConn
	later   sync.WaitGroup // deferred answers
	pending atomic.Int32   // number of deferred answers

	mu       sync.Mutex // held while packets are answered
	answerer Answerer
	waiting  *batch // of answerWaiting; nil before its first call
}

// end cancels the deferred answers and closes the socket, so that the system
// rejects further packets at once while connections may take longer to end.
func (p *packets) end(giveUp func()) {
	giveUp()
	p.later.Wait()
	p.conn.Close()
}

func newPackets(conn *net.UDPConn, answerer Answerer) (*packets, error) {
	b, err := newBatch(conn)
	return &packets{batch: b, conn: conn, answerer: answerer}, err
}

// answer receives packets and answers them. Deferred answers are sent in the background
// until ctx is done. received reports whether there were any packets; if so, err is an
// error of sending.
func (p *packets) answer(ctx context.Context) (received bool, err error) {
	n := 0
	if p.pending.Load() == 0 { // otherwise replies of upstreams come through the poller
		n = p.receiveNext()
	}
	if n == 0 {
		if n, err = p.receive(); err != nil {
			return false, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return true, p.answerAll(ctx, p.batch, n)
}

// answerWaiting answers the waiting packets, unless another goroutine is answering. It does
// not wait.
func (p *packets) answerWaiting(ctx context.Context) {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if p.waiting == nil {
		b, err := newBatch(p.conn)
		if err != nil {
			return
		}
		b.impatient, p.waiting = true, b
	}
	if n := p.waiting.take(); n > 0 {
		_ = p.answerAll(ctx, p.waiting, n) // an error means that a client is unreachable
	}
}

// answerAll answers the n packets of b.
func (p *packets) answerAll(ctx context.Context, b *batch, n int) error {
	for i := range n {
		packet, from := b.packet(i)
		answer, deferred := p.answerer.Respond(packet, newClient(from, respond.UDP), b.room())
		switch {
		case deferred != nil:
			back := b.returnPath(i)
			p.pending.Add(1)
			p.later.Go(func() {
				defer p.pending.Add(-1)
				if answer := first(ctx, deferred); answer != nil {
					_ = back.send(p.conn, answer) // an error means that the client is unreachable
				}
			})
		case answer != nil:
			b.reply(i, answer)
		}
	}
	return b.send()
}

// drain answers the waiting packets and finishes deferred answers, for at most limit.
func (p *packets) drain(ctx context.Context, limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if err := p.conn.SetReadDeadline(time.Now().Add(quietTime)); err != nil {
			return
		}
		if received, _ := p.answer(ctx); !received && p.pending.Load() == 0 {
			return
		}
	}
}
