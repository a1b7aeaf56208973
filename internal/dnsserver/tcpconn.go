package dnsserver

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/respond"
)

// tcpConn is one connection. One goroutine reads queries, one for each query
// in flight answers it, so that a slow answer does not hold up the others (RFC
// 7766, section 6.2.1.1).
type tcpConn struct {
	server   *tcpServer
	conn     *net.TCPConn
	client   netip.Addr
	slots    chan struct{} // a token for each query in flight
	stopping atomic.Bool
	inFlight sync.WaitGroup
	writing  sync.Mutex

	// of the server, under its lock
	held   int    // octets of queries and answers
	active uint64 // the turn when a query came last, or an answer went
}

func newTCPConn(t *tcpServer, conn *net.TCPConn) *tcpConn {
	remote := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	return &tcpConn{
		server: t,
		conn:   conn,
		client: remote.Addr().Unmap(),
		slots:  make(chan struct{}, t.cfg.MaxInFlight),
	}
}

// stop makes the connection read no more. serve sees the deadline, or that it
// is stopping when it sets another one at the same time.
func (c *tcpConn) stop() {
	c.stopping.Store(true)
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
}

// serve serves the connection to its end.
func (c *tcpConn) serve() {
	// Closed last: a client that sees the end finds that there is room.
	defer c.conn.Close()
	defer c.server.forget(c)
	enough := c.readAll()
	c.inFlight.Wait()
	if enough || c.stopping.Load() {
		c.linger()
	}
}

// readAll has queries answered until the client ends, errs, or asked enough,
// and tells whether it asked enough.
func (c *tcpConn) readAll() (enough bool) {
	limit := c.server.cfg.MaxQueries
	for n := 0; limit == 0 || n < limit; n++ {
		query, err := c.read()
		if err != nil {
			return false
		}
		c.server.touch(c)
		c.slots <- struct{}{}
		c.inFlight.Go(func() {
			defer func() { <-c.slots }()
			c.answer(query)
		})
	}
	return true
}

// read reads one message, each part in the time that a connection may idle.
// The connection holds what it returns.
func (c *tcpConn) read() ([]byte, error) {
	var length [2]byte
	if err := c.readFull(length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	c.server.hold(c, n)
	query := make([]byte, n)
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
	defer c.server.release(c, len(query)+len(message))
	if message == nil {
		return
	}
	c.server.hold(c, len(message))
	c.server.touch(c)
	if c.write(message) != nil {
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

// write sends one message after another, so that each has its own time.
func (c *tcpConn) write(message []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.server.cfg.Idle)); err != nil {
		return err
	}
	_, err := c.conn.Write(message)
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
