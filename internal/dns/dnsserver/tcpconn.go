package dnsserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/budget"
)

// tcpConn is one connection. Its goroutine reads the queries that have arrived, answers
// them, and sends their answers together.
type tcpConn struct {
	server   *tcpServer
	conn     conn
	tcp      *net.TCPConn // the connection below conn
	in       *bufio.Reader
	client   respond.Client
	stopping atomic.Bool
	later    sync.WaitGroup // deferred answers
	slots    chan struct{}  // one element for each deferred answer
	writing  sync.Mutex
	place    *budget.Entry // set by the server's start

	// The server's lock guards these.
	held      int  // octets of queries and answers
	lingering bool // it only waits for the client to close it
}

// conn is a TCP or TLS connection.
type conn interface {
	net.Conn
	CloseWrite() error
}

// readBuffer is the number of octets read at once, enough for several pipelined
// queries. Answers are sent when writeBuffer octets have accumulated.
const (
	readBuffer  = 2 << 10
	writeBuffer = 16 << 10
)

const lengthLen = 2 // length of the field before each message (RFC 1035, section 4.2.2)

func newTCPConn(t *tcpServer, tcp *net.TCPConn, transport respond.Transport) *tcpConn {
	remote := tcp.RemoteAddr().(*net.TCPAddr).AddrPort()
	var conn conn = tcp
	if transport == respond.TLS {
		// The first read performs the handshake, within the same time limit.
		conn = tls.Server(tcp, t.secure)
	}
	return &tcpConn{
		server: t, conn: conn, tcp: tcp, in: bufio.NewReaderSize(conn, readBuffer),
		client: newClient(remote, transport),
		slots:  make(chan struct{}, t.cfg.MaxInFlight),
	}
}

// stop makes the connection stop reading. serve sees either the read deadline or, if it
// sets another deadline at the same time, the flag stopping.
func (c *tcpConn) stop() {
	c.stopping.Store(true)
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
}

// serve serves the connection until it ends. Deferred answers are canceled when ctx is
// done.
func (c *tcpConn) serve(ctx context.Context) {
	// Closed last: when the client sees the end, there is room for a new connection.
	defer c.conn.Close()
	defer c.server.forget(c)
	enough := c.answerAll(ctx)
	c.later.Wait()
	if enough || c.stopping.Load() {
		c.linger()
	}
}

// answerAll answers queries until the client closes the connection, an error occurs, or
// the limit of queries is reached. It reports whether the limit was reached.
func (c *tcpConn) answerAll(ctx context.Context) (enough bool) {
	limit := c.server.cfg.MaxQueries
	for asked := 0; limit == 0 || asked < limit; {
		most := c.server.cfg.MaxInFlight
		if limit > 0 {
			most = min(most, limit-asked)
		}
		n, err := c.answerSome(ctx, most)
		if err != nil {
			return false
		}
		asked += n
	}
	return true
}

// answerSome waits for a query and answers it and the queries that arrived with it, up
// to most. It returns the number of queries answered.
func (c *tcpConn) answerSome(ctx context.Context, most int) (n int, err error) {
	query, err := c.read()
	if err != nil {
		return 0, err
	}
	c.identify()
	c.place.Touch()
	out := c.server.outs.Get().(*[]byte)
	defer c.server.putOut(out)
	w := c.server.workers.Get().(*tcpWorker)
	for {
		*out = c.appendAnswer(ctx, *out, w, query)
		n++
		c.letGo(query)
		if n == most || len(*out) >= writeBuffer || !c.hasQuery() {
			break
		}
		if query, err = c.read(); err != nil {
			break
		}
	}
	c.server.workers.Put(w)
	return n, errors.Join(err, c.write(*out))
}

// identify records the client certificate from the handshake.
func (c *tcpConn) identify() {
	if secure, ok := c.conn.(*tls.Conn); ok && c.client.Certificate == nil {
		if chains := secure.ConnectionState().VerifiedChains; len(chains) > 0 {
			c.client.Certificate = chains[0][0]
		}
	}
}

// appendAnswer appends the answer to query, with its length before it. It appends
// nothing if there is no answer or the answer is deferred; a deferred answer is sent as
// soon as it is available.
func (c *tcpConn) appendAnswer(ctx context.Context, b []byte, w *tcpWorker, query []byte) []byte {
	answer, deferred := w.answerer.Respond(query, c.client, w.answer[:0])
	if deferred != nil {
		b = c.takeSlot(b)
		c.later.Go(func() {
			defer func() { <-c.slots }()
			c.writeEach(deferred.Answers(ctx))
		})
	}
	return appendMessage(b, answer)
}

// writeEach sends messages one by one, each within the idle timeout, until the client
// is gone.
func (c *tcpConn) writeEach(messages iter.Seq[[]byte]) {
	var out []byte
	for m := range messages {
		if out = appendMessage(out[:0], m); c.write(out) != nil {
			return
		}
	}
}

// takeSlot reserves a slot for a deferred answer. If it has to wait for a slot, it
// sends the answers in b first. It returns the buffer with what is left to send.
func (c *tcpConn) takeSlot(b []byte) []byte {
	select {
	case c.slots <- struct{}{}:
	default:
		_ = c.write(b) // the next read detects a client that is gone
		b = b[:0]
		c.slots <- struct{}{}
	}
	return b
}

// cut closes the connection at once, without a TLS close alert, which could block.
func (c *tcpConn) cut() { c.tcp.Close() }

// appendMessage appends a message with its length before it; nothing if message is nil.
func appendMessage(b, message []byte) []byte {
	if message == nil {
		return b
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(message)))
	return append(b, message...)
}

// hasQuery reports whether the whole next query is in the read buffer.
func (c *tcpConn) hasQuery() bool {
	n := c.in.Buffered()
	if n < lengthLen {
		return false
	}
	length, _ := c.in.Peek(lengthLen) // always buffered here
	return n >= lengthLen+int(binary.BigEndian.Uint16(length))
}

// read reads one message, each part within the idle timeout. The message is valid until
// the next read, and counts as held until letGo.
func (c *tcpConn) read() ([]byte, error) {
	length, err := c.peek(lengthLen)
	if err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length))
	if lengthLen+n > readBuffer {
		return c.readLong(n)
	}
	message, err := c.peek(lengthLen + n)
	if err != nil {
		return nil, err
	}
	_, _ = c.in.Discard(len(message)) // always buffered here
	return message[lengthLen:], nil
}

// peek returns the next n octets. It waits for them if necessary.
func (c *tcpConn) peek(n int) ([]byte, error) {
	if c.in.Buffered() < n {
		if err := c.mayWait(); err != nil {
			return nil, err
		}
	}
	return c.in.Peek(n)
}

// readLong reads a message of n octets that does not fit into the read buffer.
func (c *tcpConn) readLong(n int) ([]byte, error) {
	_, _ = c.in.Discard(lengthLen) // already read
	c.server.hold(c, n)
	if err := c.mayWait(); err != nil {
		return nil, err
	}
	message := make([]byte, n)
	_, err := io.ReadFull(c.in, message)
	return message, err
}

// letGo releases a message that read returned.
func (c *tcpConn) letGo(message []byte) {
	if n := len(message); lengthLen+n > readBuffer {
		c.server.release(c, n)
	}
}

// mayWait sets the read deadline.
func (c *tcpConn) mayWait() error {
	if err := c.conn.SetReadDeadline(time.Now().Add(c.server.cfg.Idle)); err != nil {
		return err
	}
	if c.stopping.Load() {
		return net.ErrClosed
	}
	return nil
}

// write sends messages, all of them within the idle timeout. They count as held
// meanwhile.
func (c *tcpConn) write(messages []byte) error {
	if len(messages) == 0 {
		return nil
	}
	c.place.Touch()
	c.server.hold(c, len(messages))
	defer c.server.release(c, len(messages))
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.server.cfg.Idle)); err != nil {
		return err
	}
	_, err := c.conn.Write(messages)
	return err
}

// linger closes the connection in a way that loses no answers. A connection closed with
// unread input is reset (RFC 1122, section 4.2.2.13), and answers that the client has
// not received are dropped.
func (c *tcpConn) linger() {
	c.server.letLinger(c)
	if c.conn.CloseWrite() != nil || c.conn.SetReadDeadline(time.Now().Add(c.server.lingerTime)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.conn)
}
