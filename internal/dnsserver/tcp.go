package dnsserver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/respond"
)

// maxUnsent is how many octets of answers may wait for clients that do not
// read, over all connections; who would add more is cut off.
const maxUnsent = 64 << 20

// drainTime is how long connections may take to end when the server stops.
const drainTime = 5 * time.Second

// tcpServer serves the connections of all listeners.
type tcpServer struct {
	cfg     *Config
	workers sync.Pool // of *tcpWorker
	unsent  atomic.Int64

	mu    sync.Mutex
	conns map[*tcpConn]struct{}
	wg    sync.WaitGroup
}

// tcpWorker answers one query at a time.
type tcpWorker struct {
	answerer Answerer
	answer   [dnswire.MaxMessage]byte
}

func newTCPServer(cfg *Config) *tcpServer {
	t := &tcpServer{cfg: cfg, conns: make(map[*tcpConn]struct{})}
	t.workers.New = func() any { return &tcpWorker{answerer: cfg.NewAnswerer()} }
	return t
}

// serve accepts connections until ctx is done.
func (t *tcpServer) serve(ctx context.Context, l *net.TCPListener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.AcceptTCP()
		switch {
		case err == nil:
			t.start(conn)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // out of files, say: wait for some to be given back
			t.cfg.Log.Warn("accept", "err", err)
			pause(ctx, 50*time.Millisecond)
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

// start serves conn, in place of the connection that was idle longest when
// there are as many as may be.
func (t *tcpServer) start(conn *net.TCPConn) {
	remote := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	c := &tcpConn{server: t, conn: conn, client: remote.Addr().Unmap(), slots: make(chan struct{}, t.cfg.MaxInFlight)}
	c.touch()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.conns) >= t.cfg.MaxConnections {
		t.evict()
	}
	t.conns[c] = struct{}{}
	t.wg.Go(c.serve)
}

func (t *tcpServer) evict() {
	var oldest *tcpConn
	for c := range t.conns {
		if oldest == nil || c.active.Load() < oldest.active.Load() {
			oldest = c
		}
	}
	delete(t.conns, oldest)
	oldest.conn.Close()
}

func (t *tcpServer) forget(c *tcpConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// drain stops reading from every connection and waits until what was read is
// answered, for drainTime at most.
func (t *tcpServer) drain() {
	t.each(func(c *tcpConn) {
		c.stopping.Store(true)
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	})
	cut := time.AfterFunc(drainTime, func() { t.each(func(c *tcpConn) { c.conn.Close() }) })
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

// tcpConn is one connection. One goroutine reads queries, one for each query
// in flight answers it, so that a slow answer does not hold up the others (RFC
// 7766, section 6.2.1.1).
type tcpConn struct {
	server   *tcpServer
	conn     *net.TCPConn
	client   netip.Addr
	slots    chan struct{} // a token for each query in flight
	active   atomic.Int64  // when a query came last, Unix nanoseconds
	stopping atomic.Bool
	inFlight sync.WaitGroup
	writing  sync.Mutex
}

func (c *tcpConn) touch() { c.active.Store(time.Now().UnixNano()) }

// serve reads queries until the client ends, errs, or asked enough.
func (c *tcpConn) serve() {
	defer c.server.forget(c)
	defer c.conn.Close()
	defer c.inFlight.Wait()
	limit := c.server.cfg.MaxQueries
	for n := 0; limit == 0 || n < limit; n++ {
		query, err := c.read()
		if err != nil {
			return
		}
		c.touch()
		c.slots <- struct{}{}
		c.inFlight.Go(func() {
			defer func() { <-c.slots }()
			c.answer(query)
		})
	}
}

// read reads one message, each part in the time that a connection may idle.
func (c *tcpConn) read() ([]byte, error) {
	var length [2]byte
	if err := c.readFull(length[:]); err != nil {
		return nil, err
	}
	query := make([]byte, binary.BigEndian.Uint16(length[:]))
	return query, c.readFull(query)
}

func (c *tcpConn) readFull(b []byte) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(c.server.cfg.Idle)); err != nil {
		return err
	}
	if c.stopping.Load() {
		return net.ErrClosed
	}
	_, err := io.ReadFull(c.conn, b)
	return err
}

// answer answers one query, and closes the connection when that can't be sent.
func (c *tcpConn) answer(query []byte) {
	message := c.message(query)
	if message == nil {
		return
	}
	t := c.server
	defer t.unsent.Add(-int64(len(message)))
	if t.unsent.Add(int64(len(message))) > maxUnsent || c.write(message) != nil {
		c.conn.Close()
	}
}

// message is the answer behind its length, in memory of its own: the worker's
// is free for others while the client takes it in.
func (c *tcpConn) message(query []byte) []byte {
	w := c.server.workers.Get().(*tcpWorker)
	defer c.server.workers.Put(w)
	answer := w.answerer.Respond(query, respond.Client{Addr: c.client, Transport: respond.TCP}, w.answer[:0])
	if answer == nil {
		return nil
	}
	message := make([]byte, 0, 2+len(answer))
	message = binary.BigEndian.AppendUint16(message, uint16(len(answer)))
	return append(message, answer...)
}

func (c *tcpConn) write(message []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.server.cfg.Idle)); err != nil {
		return err
	}
	_, err := c.conn.Write(message)
	return err
}
