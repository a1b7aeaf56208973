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

// maxHeld is the highest number of octets of queries, and of answers not yet sent, over
// all connections, and heldShare the highest share of the memory limit. Above it, the
// connection that holds most is closed.
const (
	maxHeld   = 64 << 20
	heldShare = 0.125
)

// drainTime is the time that connections have to end when the server stops.
const drainTime = 5 * time.Second

// lingerTime is how long a connection that the server ends waits for the client to
// close it.
const lingerTime = 500 * time.Millisecond

// retryTime is the pause after an error of a socket.
const retryTime = 50 * time.Millisecond

// tcpServer serves the connections of all TCP and TLS listeners.
type tcpServer struct {
	*Server
	workers sync.Pool     // of *tcpWorker
	made    atomic.Uint32 // number of workers made
	outs    sync.Pool     // of *[]byte, for answers being sent
	secure  *tls.Config   // shared by all connections, so that sessions can be resumed
	wg      sync.WaitGroup

	mu    sync.Mutex
	conns map[*tcpConn]struct{}
	held  int // octets, the sum of held of all conns
}

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

// putOut returns a buffer of answers to the pool, unless it became large.
func (t *tcpServer) putOut(out *[]byte) {
	if cap(*out) <= 2*writeBuffer {
		*out = (*out)[:0]
		t.outs.Put(out)
	}
}

// nextSeat returns the seats after those of UDP sockets in turn. About as many workers
// as there are processors work at the same time.
func (t *tcpServer) nextSeat() int {
	return len(t.udp) + int(t.made.Add(1))%runtime.GOMAXPROCS(0)
}

// run serves until ctx is done or a listener fails, and then drains the connections.
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

// accept accepts connections until ctx is done, and closes l. Deferred answers are
// canceled when waiting is done.
func (t *tcpServer) accept(ctx, waiting context.Context, l *net.TCPListener, transport respond.Transport) error {
	// accept closes l itself, so that l is closed when accept returns. A Close in
	// another goroutine would wake AcceptTCP before the socket is closed.
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
		default: // for example too many open files: wait until some are closed
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

// start serves c, which may take the place of another connection.
func (t *tcpServer) start(ctx context.Context, c *tcpConn) {
	c.place = t.connections.Enter(c.client.Addr, func(error) {
		t.end(c)
		// Its file closes when its goroutine has noticed. Clients that connect without a pause
		// would keep accept from yielding to it.
		runtime.Gosched()
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[c] = struct{}{}
	t.wg.Go(func() { c.serve(ctx) })
}

// end closes c. The memory that it holds no longer counts: its goroutines are about to
// release it.
func (t *tcpServer) end(c *tcpConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(c)
	c.cut()
}

func (t *tcpServer) remove(c *tcpConn) {
	delete(t.conns, c)
	t.held -= c.held
	c.held = 0
}

// letLinger records that c only waits for the client to close it.
func (t *tcpServer) letLinger(c *tcpConn) {
	c.place.Age() // it is the first to be replaced
	t.mu.Lock()
	defer t.mu.Unlock()
	c.lingering = true
}

// forget removes c from the connections. Its place is free last, as its file is about to be
// closed then: nothing is waited for in between.
func (t *tcpServer) forget(c *tcpConn) {
	defer c.place.Leave()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(c)
}

// hold adds n octets to the memory that c holds. If the sum of all connections exceeds
// the limit, the connection that holds most is closed.
func (t *tcpServer) hold(c *tcpConn, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.conns[c]; !ok {
		return // closed by end; its goroutines are about to end
	}
	c.held += n
	t.held += n
	if t.held <= t.maxHeld {
		return
	}
	most := c
	for other := range t.conns {
		if other.held > most.held {
			most = other
		}
	}
	t.remove(most)
	most.cut()
}

// release subtracts n octets from the memory that c holds.
func (t *tcpServer) release(c *tcpConn, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.conns[c]; ok {
		c.held -= n
		t.held -= n
	}
}

// drain stops reading from every connection and waits until the queries read are
// answered. After drainTime it closes the remaining connections and cancels deferred
// answers.
func (t *tcpServer) drain(giveUp func()) {
	t.each(func(c *tcpConn) {
		if !c.lingering {
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
