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
)

// tcpConn is one connection. Its goroutine reads as many queries as have come,
// answers them, and sends their answers at once.
type tcpConn struct {
	server   *tcpServer
	conn     conn
	tcp      *net.TCPConn // below conn
	in       *bufio.Reader
	client   respond.Client
	stopping atomic.Bool
	later    sync.WaitGroup // answers that take time
	slots    chan struct{}  // one taken by each of them
	writing  sync.Mutex

	// of the server, under its lock
	held   int    // octets of queries and answers
	active uint64 // the turn when a query came last, or an answer went
}

// conn is TCP's or TLS'.
type conn interface {
	net.Conn
	CloseWrite() error
}

// Octets that a connection reads at once, enough for a pipeline of some queries;
// and of answers that are enough to be sent.
const (
	readBuffer  = 2 << 10
	writeBuffer = 16 << 10
)

const lengthLen = 2 // before each message (RFC 1035, section 4.2.2)

func newTCPConn(t *tcpServer, tcp *net.TCPConn, transport respond.Transport) *tcpConn {
	remote := tcp.RemoteAddr().(*net.TCPAddr).AddrPort()
	var conn conn = tcp
	if transport == respond.TLS {
		// Its handshake is part of the first read, and of the time for that.
		conn = tls.Server(tcp, t.secure)
	}
	return &tcpConn{
		server: t, conn: conn, tcp: tcp, in: bufio.NewReaderSize(conn, readBuffer),
		client: respond.Client{Addr: remote.Addr().Unmap(), Port: remote.Port(), Transport: transport},
		slots:  make(chan struct{}, t.cfg.MaxInFlight),
	}
}

// stop makes the connection read no more. serve sees the deadline, or that it
// is stopping when it sets another one at the same time.
func (c *tcpConn) stop() {
	c.stopping.Store(true)
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
}

// serve serves the connection to its end. Answers may take time until ctx is
// done.
func (c *tcpConn) serve(ctx context.Context) {
	// Closed last: a client that sees the end finds that there is room.
	defer c.conn.Close()
	defer c.server.forget(c)
	enough := c.answerAll(ctx)
	c.later.Wait()
	if enough || c.stopping.Load() {
		c.linger()
	}
}

// answerAll answers queries until the client ends, errs, or asked enough, and
// reports whether it asked enough.
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

// answerSome waits for a query and answers it, and those that have come with it
// up to so many; it says how many there were.
func (c *tcpConn) answerSome(ctx context.Context, most int) (n int, err error) {
	query, err := c.read()
	if err != nil {
		return 0, err
	}
	c.identify()
	c.server.touch(c)
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

// identify notes who the client is, which the handshake told.
func (c *tcpConn) identify() {
	if secure, ok := c.conn.(*tls.Conn); ok && c.client.Certificate == nil {
		if chains := secure.ConnectionState().VerifiedChains; len(chains) > 0 {
			c.client.Certificate = chains[0][0]
		}
	}
}

// appendAnswer appends the answer behind its length, or nothing when there is
// none, or when it takes time: then it is sent when it is there.
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

// writeEach sends messages one by one, each in the time that a connection may
// idle, until the client is gone.
func (c *tcpConn) writeEach(messages iter.Seq[[]byte]) {
	var out []byte
	for m := range messages {
		if out = appendMessage(out[:0], m); c.write(out) != nil {
			return
		}
	}
}

// takeSlot takes a place for an answer that takes time. Where it must wait for
// one, the answers so far are sent first; it gives what is left to send.
func (c *tcpConn) takeSlot(b []byte) []byte {
	select {
	case c.slots <- struct{}{}:
	default:
		_ = c.write(b) // a client that is gone is seen by the next read
		b = b[:0]
		c.slots <- struct{}{}
	}
	return b
}

// cut closes the connection at once, without a word over TLS, which could wait.
func (c *tcpConn) cut() { c.tcp.Close() }

// appendMessage appends a message behind its length, when there is one.
func appendMessage(b, message []byte) []byte {
	if message == nil {
		return b
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(message)))
	return append(b, message...)
}

// hasQuery reports whether the next query has come and can be read without
// waiting; one that the buffer does not hold has not.
func (c *tcpConn) hasQuery() bool {
	n := c.in.Buffered()
	if n < lengthLen {
		return false
	}
	length, _ := c.in.Peek(lengthLen) // which is there
	return n >= lengthLen+int(binary.BigEndian.Uint16(length))
}

// read reads one message, each part in the time that a connection may idle. It
// is good until the next read, and the connection holds it until letGo.
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
	_, _ = c.in.Discard(len(message)) // which is there
	return message[lengthLen:], nil
}

// peek gives the next n octets, waiting for them if need be.
func (c *tcpConn) peek(n int) ([]byte, error) {
	if c.in.Buffered() < n {
		if err := c.mayWait(); err != nil {
			return nil, err
		}
	}
	return c.in.Peek(n)
}

// readLong reads a message of n octets that the buffer has no room for.
func (c *tcpConn) readLong(n int) ([]byte, error) {
	_, _ = c.in.Discard(lengthLen) // which was read
	c.server.hold(c, n)
	if err := c.mayWait(); err != nil {
		return nil, err
	}
	message := make([]byte, n)
	_, err := io.ReadFull(c.in, message)
	return message, err
}

// letGo ends the use of a message that read gave.
func (c *tcpConn) letGo(message []byte) {
	if n := len(message); lengthLen+n > readBuffer {
		c.server.release(c, n)
	}
}

// mayWait sets the time that reading may take.
func (c *tcpConn) mayWait() error {
	if err := c.conn.SetReadDeadline(time.Now().Add(c.server.cfg.Idle)); err != nil {
		return err
	}
	if c.stopping.Load() {
		return net.ErrClosed
	}
	return nil
}

// write sends messages, all of them in the time that a connection may idle. The
// connection holds them meanwhile.
func (c *tcpConn) write(messages []byte) error {
	if len(messages) == 0 {
		return nil
	}
	c.server.touch(c)
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

// linger ends the connection so that answers on their way are not lost: one
// that is closed before all that was sent to it is read is reset (RFC 1122,
// section 4.2.2.13), and what the client's system did not take yet is dropped.
func (c *tcpConn) linger() {
	c.server.letLinger(c)
	if c.conn.CloseWrite() != nil || c.conn.SetReadDeadline(time.Now().Add(c.server.lingerTime)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.conn)
}
