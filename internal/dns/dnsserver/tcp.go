package dnsserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// maxHeld is how many octets of queries, and of answers for clients that do
// not read, there may be over all connections; when there are more, the
// connection that holds most is cut.
const maxHeld = 64 << 20

// drainTime is how long connections may take to end when the server stops.
const drainTime = 5 * time.Second

// lingerTime is how long a connection that the server ends waits for the
// client to end it too.
const lingerTime = 500 * time.Millisecond

// retryTime is how long a socket rests that failed.
const retryTime = 50 * time.Millisecond

// tcpServer serves the connections of all listeners, TCP's and TLS'.
type tcpServer struct {
	*Server
	workers sync.Pool     // of *tcpWorker
	made    atomic.Uint32 // workers
	outs    sync.Pool     // of *[]byte, for answers on their way
	secure  *tls.Config   // for all, which makes sessions resumable
	wg      sync.WaitGroup

	mu    sync.Mutex
	conns map[*tcpConn]struct{}
	held  int    // octets, the sum of those that conns hold
	turn  uint64 // counts what happens on connections, from 1
}

// lingering is when a connection was active that only waits for the client to
// end it: it is the first to close when another one comes.
const lingering = 0

// tcpWorker answers one query at a time.
type tcpWorker struct {
	answerer Answerer
	answer   [dnswire.MaxMessage]byte
}

func newTCPServer(s *Server) *tcpServer {
	t := &tcpServer{Server: s, conns: make(map[*tcpConn]struct{}), secure: tlsConfig(s.cfg.Certificate, "dot")}
	if s.cfg.ClientCAs != nil {
		t.secure.ClientAuth, t.secure.ClientCAs = tls.VerifyClientCertIfGiven, s.cfg.ClientCAs
	}
	t.workers.New = func() any { return &tcpWorker{answerer: s.cfg.NewAnswerer(t.nextSeat())} }
	t.outs.New = func() any { return new([]byte) }
	return t
}

// putOut keeps the memory of answers for others, unless it became large.
func (t *tcpServer) putOut(out *[]byte) {
	if cap(*out) <= 2*writeBuffer {
		*out = (*out)[:0]
		t.outs.Put(out)
	}
}

// nextSeat gives the seats behind those of UDP sockets, in turn: as many Workers
// as there are processors work at the same time, about.
func (t *tcpServer) nextSeat() int {
	return len(t.udp) + int(t.made.Add(1))%runtime.GOMAXPROCS(0)
}

// run serves until ctx is done or a listener fails, and drains.
func (t *tcpServer) run(ctx context.Context) error {
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range t.tcp {
		group.Go(func() error { return t.accept(ctx, waiting, l, respond.TCP) })
	}
	for _, l := range t.tls {
		group.Go(func() error { return t.accept(ctx, waiting, l, respond.TLS) })
	}
	err := group.Wait()
	t.drain(giveUp)
	return err
}

// accept accepts connections until ctx is done, and closes l. Their answers may
// take time until waiting is done.
func (t *tcpServer) accept(ctx, waiting context.Context, l *net.TCPListener, transport respond.Transport) error {
	// Closed here, where nothing else uses it, so that it is when this ends;
	// another goroutine's Close would wake this one before that.
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		conn, err := l.AcceptTCP()
		switch {
		case err == nil:
			t.start(waiting, newTCPConn(t, conn, transport))
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // out of files, say: wait for some to be given back
			t.cfg.Log.Warn("accept", "err", err)
			pause(ctx, retryTime)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// start serves c, in place of the connection that was idle longest when
// there are as many as may be.
func (t *tcpServer) start(ctx context.Context, c *tcpConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.conns) >= t.cfg.MaxConnections {
		t.cut(func(a, b *tcpConn) bool { return a.active < b.active })
	}
	t.conns[c] = struct{}{}
	t.turn++
	c.active = t.turn
	t.wg.Go(func() { c.serve(ctx) })
}

// cut closes the connection that comes before all others. What it holds counts
// no longer: its goroutines are about to give it back.
func (t *tcpServer) cut(before func(a, b *tcpConn) bool) {
	var first *tcpConn
	for c := range t.conns {
		if first == nil || before(c, first) {
			first = c
		}
	}
	t.remove(first)
	first.cut()
}

func (t *tcpServer) remove(c *tcpConn) {
	delete(t.conns, c)
	t.held -= c.held
	c.held = 0
}

// forget makes room for another connection.
func (t *tcpServer) forget(c *tcpConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(c)
}

// touch notes that c is not idle.
func (t *tcpServer) touch(c *tcpConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn++
	c.active = t.turn
}

// letLinger notes that c is about to linger.
func (t *tcpServer) letLinger(c *tcpConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.active = lingering
}

// hold notes that c holds n octets more. When that is too much for all, the
// connection that holds most is cut.
func (t *tcpServer) hold(c *tcpConn, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.conns[c]; !ok {
		return // cut, and soon at its end
	}
	c.held += n
	t.held += n
	if t.held > t.maxHeld {
		t.cut(func(a, b *tcpConn) bool { return a.held > b.held })
	}
}

// release notes that c holds n octets less.
func (t *tcpServer) release(c *tcpConn, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.conns[c]; ok {
		c.held -= n
		t.held -= n
	}
}

// drain stops reading from every connection and waits until what was read is
// answered. It closes those that take longer than drainTime, and gives answers up
// that do.
func (t *tcpServer) drain(giveUp func()) {
	t.each(func(c *tcpConn) {
		if c.active != lingering {
			c.stop()
		}
	})
	cut := time.AfterFunc(t.drainTime, func() {
		giveUp()
		t.each((*tcpConn).cut)
	})
	defer cut.Stop()
	t.wg.Wait()
}

func (t *tcpServer) each(do func(*tcpConn)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.conns {
		do(c)
	}
}
