package forward

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// stream queries over TCP or TLS connections, which carry many queries at once
// and are reused (RFC 7766, section 6.2).
type stream struct {
	to     Upstream
	tls    *tls.Config // nil for TCP
	counts *upstreamCounts

	mu    sync.Mutex
	conns []*streamConn
}

// Limits of connections to one upstream and of queries on each.
const (
	maxConns   = 8
	maxWaiting = 512
)

// idleTime is how long a connection without queries stays open.
const idleTime = 10 * time.Second

func newStream(to Upstream, config *tls.Config, counts *upstreamCounts) *stream {
	return &stream{to: to, tls: config, counts: counts}
}

// sessions is how many TLS sessions per upstream are kept for resumption.
const sessions = 8

// tlsConfig verifies the server's certificate for its name or its address.
func tlsConfig(u Upstream) *tls.Config {
	name := u.ServerName
	if name == "" {
		name = u.Addr.Addr().WithZone("").String()
	}
	return &tls.Config{
		ServerName:         name,
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(sessions),
		RootCAs:            u.Roots,
	}
}

var (
	errTooMany = errors.New("too many queries on the connections to the server")
	errClosed  = errors.New("the server closed the connection")
	errOther   = errors.New("the reply is to another question")
)

// exchange sends a query over an open connection, and again over another one if
// that is closed before the reply: the server may have closed it while the
// query was on its way (RFC 7766, section 6.2.4).
func (s *stream) exchange(ctx context.Context, query []byte) (*dnswire.Reply, error) {
	for {
		c, used, err := s.conn(ctx)
		if err != nil {
			return nil, err
		}
		reply, err := c.exchange(ctx, query)
		if err == nil || !used || ctx.Err() != nil {
			return reply, err
		}
	}
}

// conn returns a connection with capacity for a query, and reports whether it
// was open before.
func (s *stream) conn(ctx context.Context) (c *streamConn, used bool, err error) {
	s.mu.Lock()
	for _, c := range s.conns {
		if c.reserve() {
			s.mu.Unlock()
			s.counts.reused.Add(1)
			return c, c.isReady(), nil
		}
	}
	if len(s.conns) >= maxConns {
		s.mu.Unlock()
		return nil, false, errTooMany
	}
	c = &streamConn{of: s, ready: make(chan struct{}), waiting: make(map[uint16]chan *dnswire.Reply), reserved: 1}
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	s.counts.opened.Add(1)
	c.open(ctx)
	return c, false, nil
}

// forget removes c, so that it gets no more queries.
func (s *stream) forget(c *streamConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.conns {
		if s.conns[i] == c {
			s.conns = append(s.conns[:i], s.conns[i+1:]...)
			return
		}
	}
}

// close retires all connections.
func (s *stream) close() {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for _, c := range conns {
		c.retire()
	}
}

// streamConn is one connection.
type streamConn struct {
	of    *stream
	ready chan struct{} // closed when conn is set, or err if it failed

	mu       sync.Mutex
	conn     net.Conn
	err      error // why the connection ended
	reserved int   // queries that have reserved capacity
	retired  bool  // it gets no more queries
	heard    time.Time
	waiting  map[uint16]chan *dnswire.Reply

	write sync.Mutex
}

// reserve reserves capacity for a query and reports whether there was any.
func (c *streamConn) reserve() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.reserved >= maxWaiting {
		return false
	}
	c.reserved++
	return true
}

// isReady reports whether the connection is open.
func (c *streamConn) isReady() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// retire closes the connection as soon as no query waits.
func (c *streamConn) retire() {
	c.of.forget(c)
	c.mu.Lock()
	c.retired = true
	done := c.reserved == 0
	c.mu.Unlock()
	if done {
		c.end(errClosed)
	}
}

// silentTime is how long a query waits without any message on the connection
// until the connection counts as dead: the peer may have gone silently.
const silentTime = 900 * time.Millisecond

// abandon is called when a query, sent at the given time, is abandoned. It
// retires the connection if that is silent.
func (c *streamConn) abandon(sent time.Time) {
	c.mu.Lock()
	silent := time.Since(sent) >= silentTime && c.heard.Before(sent)
	c.mu.Unlock()
	if silent {
		c.retire()
	}
}

// openTime bounds the time to open a connection.
const openTime = 3 * time.Second

// open opens the connection in the background, independent of the query that
// caused it.
func (c *streamConn) open(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTime)
	go func() {
		defer cancel()
		conn, err := c.of.dial(ctx)
		if err != nil {
			c.end(err)
			close(c.ready)
			return
		}
		c.mu.Lock()
		c.conn = conn
		ended := c.err != nil
		c.mu.Unlock()
		close(c.ready)
		if ended {
			conn.Close()
			return
		}
		c.read(conn)
	}()
}

func (s *stream) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.to.Addr.String())
	if err != nil || s.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, s.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// exchange sends a query with reserved capacity and waits for the reply.
func (c *streamConn) exchange(ctx context.Context, query []byte) (*dnswire.Reply, error) {
	defer c.release()
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	id, reply, err := c.register()
	if err != nil {
		return nil, err
	}
	defer c.unregister(id)
	sent := time.Now()
	if err := c.send(ctx, id, query); err != nil {
		c.end(err)
		return nil, err
	}
	select {
	case r := <-reply:
		if r == nil {
			return nil, c.why()
		}
		if _, question, _ := r.MatchQuery(query); !question {
			c.end(errOther)
			return nil, errOther
		}
		r.ID = binary.BigEndian.Uint16(query)
		return r, nil
	case <-ctx.Done():
		c.abandon(sent)
		return nil, ctx.Err()
	}
}

// register assigns an ID that is unique on the connection.
func (c *streamConn) register() (uint16, chan *dnswire.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	for {
		id := uint16(rand.Uint32())
		if _, used := c.waiting[id]; !used {
			reply := make(chan *dnswire.Reply, 1)
			c.waiting[id] = reply
			return id, reply, nil
		}
	}
}

func (c *streamConn) unregister(id uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *streamConn) release() {
	c.mu.Lock()
	c.reserved--
	done := c.retired && c.reserved == 0
	c.mu.Unlock()
	if done {
		c.end(errClosed)
	}
}

func (c *streamConn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// send writes the query with the given ID.
func (c *streamConn) send(ctx context.Context, id uint16, query []byte) error {
	message := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(query)), uint16(len(query)))
	message = append(message, query...)
	binary.BigEndian.PutUint16(message[2:], id)
	c.write.Lock()
	defer c.write.Unlock()
	if end, ok := ctx.Deadline(); ok {
		_ = c.conn.SetWriteDeadline(end)
	}
	_, err := c.conn.Write(message)
	return err
}

// read delivers replies to waiting queries until the connection ends.
func (c *streamConn) read(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		message, err := c.readMessage(conn, in)
		if err != nil {
			c.end(err)
			return
		}
		reply, err := dnswire.ParseReply(message)
		if err != nil {
			c.end(err)
			return
		}
		c.mu.Lock()
		c.heard = time.Now()
		waiting := c.waiting[reply.ID]
		delete(c.waiting, reply.ID)
		c.mu.Unlock()
		if waiting != nil {
			waiting <- reply
		}
	}
}

// readMessage reads one message. A timeout is an error only if no query waits.
func (c *streamConn) readMessage(conn net.Conn, in *bufio.Reader) ([]byte, error) {
	var length [2]byte
	for {
		_ = conn.SetReadDeadline(time.Now().Add(idleTime))
		n, err := io.ReadFull(in, length[:])
		if err == nil {
			break
		}
		var late net.Error
		if n != 0 || !errors.As(err, &late) || !late.Timeout() || c.closeIdle() {
			return nil, ended(err)
		}
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(in, message)
	return message, ended(err)
}

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errClosed
	}
	return err
}

// closeIdle reports whether no query waits, and if so prevents new ones.
func (c *streamConn) closeIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reserved > 0 {
		return false
	}
	c.err = errClosed
	return true
}

// end closes the connection; waiting queries fail with err.
func (c *streamConn) end(err error) {
	c.of.forget(c)
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	for id, reply := range c.waiting {
		delete(c.waiting, id)
		reply <- nil
	}
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}
