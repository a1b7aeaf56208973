package h1

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/wire"
	"portolan.dev/portolan/internal/support/budget"
)

const (
	// bufferSize is the size of the buffers that a connection has while it is not parked, one for what it
	// receives and one for what it sends. That of a larger head grows.
	bufferSize = 4 << 10
	// holdFor is for how long a connection that waits for another request keeps its buffers and its
	// goroutine, before it is parked.
	holdFor = time.Second
	// watchAfter is how long a Handler runs before the server looks whether the client is gone. Most end
	// earlier.
	watchAfter = 10 * time.Millisecond
	// halfClosedFor is how long a Handler may go on after the client has closed its direction of the
	// connection: it may wait for the response still, but it may be gone, too.
	halfClosedFor = time.Second
	// lingerFor is how long, and lingerMost how many octets are read after a response to a request of which
	// not all was read, so that the client gets the response before it sees that the connection is closed
	// (RFC 9112, section 9.6).
	lingerFor  = time.Second
	lingerMost = 256 << 10
)

// buffers are those of connections that are not parked.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// errDone ends a connection without an answer: the client has closed it, or does not need it.
var errDone = errors.New("done")

// conn is a connection.
//
// It is in one of two states. Parked, it has a goroutine with a small stack and no buffers. Otherwise serve
// runs, and in holds what was received and not used.
type conn struct {
	server *Server
	raw    net.Conn // as it was accepted
	rwc    net.Conn // the same, or tls
	tls    *tls.Conn
	remote string
	base   context.Context // with the address of the listener

	waits atomic.Int32 // what a parked connection waits for: one of the constants below
	first [1]byte      // which ended the wait

	buffer   *[bufferSize]byte // from buffers; nil if parked
	in       wire.Buffer       // in the buffer, or in a larger one
	requests int
	tlsState *tls.ConnectionState // nil while it is parked

	watch watch
}

func newConn(s *Server, raw net.Conn) *conn {
	c := &conn{
		server: s, raw: raw, rwc: raw, remote: raw.RemoteAddr().String(),
		base: context.WithValue(context.Background(), http.LocalAddrContextKey, raw.LocalAddr()),
	}
	if s.TLS != nil {
		if config := s.TLS(); config != nil {
			c.tls = tls.Server(raw, config)
			c.rwc = c.tls
		}
	}
	return c
}

// What a parked connection waits for.
const (
	nothing      = iota // it is not parked
	firstRequest        // which may be on its way
	furtherRequest
)

// wake ends the wait of a parked connection, as the server is draining.
func (c *conn) wake() {
	switch c.waits.Load() {
	case firstRequest:
		_ = c.raw.SetReadDeadline(time.Now().Add(holdFor))
	case furtherRequest:
		_ = c.raw.SetReadDeadline(time.Unix(1, 0))
	}
}

// survive is deferred: a fault of this package must end no other connection.
func (c *conn) survive() {
	if v := recover(); v != nil {
		c.server.log.Error("serving a connection panicked", "panic", v, "stack", string(debug.Stack()))
		c.raw.Close()
		c.server.forget(c)
	}
}

// park waits for the first octet of a request and serves the connection from then on.
func (c *conn) park() {
	defer c.survive()
	if c.requests == 0 {
		c.waits.Store(firstRequest)
	} else {
		c.waits.Store(furtherRequest)
	}
	_ = c.rwc.SetReadDeadline(time.Now().Add(c.server.limits.IdleTimeout))
	if c.server.draining.Load() { // after the deadline is set, which would undo that of wake
		c.wake()
	}
	n, _ := c.rwc.Read(c.first[:])
	c.waits.Store(nothing)
	if n == 0 {
		c.close()
		return
	}
	c.buffer = buffers.Get().(*[bufferSize]byte)
	c.in = wire.Buffer{Room: c.buffer[:], W: 1}
	c.in.Room[0] = c.first[0]
	c.serve()
}

// serve serves requests until the connection ends or is parked.
func (c *conn) serve() {
	for {
		if c.in.Empty() && !c.hold() {
			return
		}
		req, f, err := c.readHead()
		if err != nil {
			c.refuse(err)
			return
		}
		c.requests++
		done := budget.Use(c.raw)
		if !c.exchange(&req, f) {
			return // it stays busy until it is closed, if it was hijacked
		}
		done()
	}
}

// hold waits for a while for the next request. If none comes it parks the connection, or closes it, and
// returns false.
func (c *conn) hold() bool {
	c.in = wire.Buffer{Room: c.buffer[:]}
	idle := c.server.limits.IdleTimeout
	_ = c.rwc.SetReadDeadline(time.Now().Add(min(holdFor, idle)))
	err := c.in.Fill(c.rwc)
	if err == nil {
		return true
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) || idle <= holdFor || c.server.draining.Load() {
		c.close()
		return false
	}
	c.free()
	go c.park() // this goroutine's stack has grown
	return false
}

// free gives back what a parked connection does not need.
func (c *conn) free() {
	if c.buffer != nil {
		buffers.Put(c.buffer)
		c.buffer, c.in = nil, wire.Buffer{}
	}
	c.tlsState = nil
}

// close ends the connection.
func (c *conn) close() {
	c.rwc.Close()
	c.free()
	c.server.forget(c)
}

// linger closes the connection when the client has had time to receive the response.
func (c *conn) linger() {
	finish(c.rwc, c.in.Room)
	c.close()
}

// finish ends what is sent, and gives the other end time to receive it: what that sends meanwhile is read into room, as
// a connection is reset that is closed with something unread.
func finish(nc net.Conn, room []byte) {
	if closeWrite(nc) == nil {
		_ = nc.SetReadDeadline(time.Now().Add(lingerFor))
		_, _ = io.CopyBuffer(io.Discard, io.LimitReader(nc, lingerMost), room)
	}
}

// readHead reads the head of a request. Its error is a *wire.Error, errPreface, errDone, or the
// connection's.
func (c *conn) readHead() (http.Request, framing, error) {
	lim := &c.server.limits
	timed, skipped := false, false
	section := wire.Section{}
	for {
		if !skipped && bytes.HasPrefix(c.in.Received(), []byte("\r\n")) {
			skipped = true // section 2.2: an empty line before a request
			c.in.R += 2
			section = wire.Section{} // it may have seen CR
		}
		received := c.in.Received()
		if len(received) > 0 && !wire.IsTokenOctet(received[0]) && (received[0] != '\r' || skipped) {
			return http.Request{}, framing{}, errMethod
		}
		end, err := section.Find(received)
		if err != nil {
			return http.Request{}, framing{}, err
		}
		if end > lim.Head || end == 0 && len(received) > lim.Head {
			return http.Request{}, framing{}, tooLarge(&section)
		}
		if end > 0 {
			c.in.R += end
			req, f, err := parseHead(received[:end], lim)
			if err == nil && req.URL.Scheme != "" && (req.URL.Scheme == "https") != (c.tls != nil) {
				err = errScheme
			}
			return req, f, err
		}
		if !timed { // else all of it came at once
			timed = true
			_ = c.rwc.SetReadDeadline(time.Now().Add(lim.HeadTimeout))
		}
		if err := c.in.Fill(c.rwc); errors.Is(err, io.ErrShortBuffer) {
			c.in.Grow(lim.Head + 1)
		} else if err != nil && c.in.Empty() {
			return http.Request{}, framing{}, errDone
		} else if err != nil {
			return http.Request{}, framing{}, headError(err)
		}
	}
}

// headError is the error of reading a head.
func headError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errHeadTimeout
	}
	return errDone
}

// refuse answers what is no request that the Handler may get, and closes the connection. If it is the
// preface of HTTP/2 it hands the connection over.
func (c *conn) refuse(err error) {
	if errors.Is(err, errPreface) {
		if c.server.http2 != nil && c.requests == 0 && c.tls == nil { // with TLS it is agreed on in the handshake
			c.handOver()
			return
		}
		err = errVersion
	}
	if refused, ok := errors.AsType[*wire.Error](err); ok {
		if c.server.Refused != nil {
			c.server.Refused(Refusal{c.rwc.LocalAddr(), c.remote, refused.Status, refused.Reason})
		}
		_ = c.rwc.SetWriteDeadline(time.Now().Add(lingerFor))
		_, err := c.rwc.Write(refusal(refused))
		if err == nil {
			c.linger()
			return
		}
	}
	c.close()
}

// handOver gives the connection to the server of HTTP/2.
func (c *conn) handOver() {
	_ = c.rwc.SetDeadline(time.Time{})
	c.in.R = 0 // the preface is what came first
	c.server.http2.give(&preread{Conn: c.rwc, rest: bytes.Clone(c.in.Received())})
	c.free()
	c.server.forget(c)
}

// hijack ends what the server does with the connection, and returns it.
func (c *conn) hijack(b *body) net.Conn {
	if b != nil {
		b.stop()
	}
	c.watch.stop(c)
	conn := c.rwc
	if !c.in.Empty() {
		conn = &preread{Conn: c.rwc, rest: bytes.Clone(c.in.Received())}
	}
	_ = c.rwc.SetDeadline(time.Time{})
	c.free()
	c.server.forget(c)
	return conn
}

// exchange has the Handler answer a request. It reports whether the connection can have another.
func (c *conn) exchange(head *http.Request, f framing) bool {
	ctx := &requestContext{Context: c.base}
	defer ctx.cancel()
	req := head.WithContext(ctx)
	req.RemoteAddr, req.TLS = c.remote, c.state()
	res := newResponse(c, req, ctx)
	var b *body
	if f.length == 0 {
		req.Body = http.NoBody
		c.watch.start(c, ctx)
	} else {
		b = &body{c: c, req: req, res: res, ctx: ctx, remain: max(f.length, 0), chunked: f.length < 0}
		b.waits.Store(f.expect)
		res.body, req.Body = b, b
	}
	aborted := c.handle(res, req)
	if b != nil {
		b.stop()
	}
	c.watch.stop(c)
	defer res.free()
	switch refused := b.refused(); {
	case res.isTaken():
		return false
	case aborted && refused != nil && res.discard():
		c.refuse(refused)
		return false
	case aborted || res.finish() != nil:
		c.close()
		return false
	case res.last || b != nil && !b.discard():
		c.linger()
		return false
	}
	return true
}

// handle calls the Handler, and reports whether it panicked.
func (c *conn) handle(res *response, req *http.Request) (aborted bool) {
	defer func() {
		if v := recover(); v != nil {
			aborted = true
			if v != http.ErrAbortHandler { //nolint:errorlint // a panic's value
				c.server.log.Error("handler panicked", "panic", v, "stack", string(debug.Stack()))
			}
		}
	}()
	c.server.Handler.ServeHTTP(res, req)
	return false
}

// watch looks whether the client of a request is gone, once its body was read. What it reads meanwhile are
// further requests.
type watch struct {
	started   bool
	timer     *time.Timer
	interrupt atomic.Bool
	ctx       *requestContext // of the request
	ended     bool            // the client has closed its direction
	done      chan struct{}   // has one when run ended
	grace     *time.Timer     // since the client's direction is closed; nil before
}

// start has the context of a request be canceled when the client is gone. The buffer of the connection is
// in use until stop.
func (w *watch) start(c *conn, ctx *requestContext) {
	if w.started {
		return
	}
	w.started, w.ctx = true, ctx
	w.interrupt.Store(false)
	if w.timer == nil {
		w.done = make(chan struct{}, 1)
		w.timer = time.AfterFunc(watchAfter, func() { w.run(c) })
		return
	}
	w.timer.Reset(watchAfter)
}

// stop ends what start began.
func (w *watch) stop(c *conn) {
	if !w.started {
		return
	}
	w.started = false
	if w.timer.Stop() {
		return
	}
	w.interrupt.Store(true)
	_ = c.rwc.SetReadDeadline(time.Unix(1, 0))
	<-w.done
	if w.grace != nil {
		w.grace.Stop()
	}
}

// run reads until the buffer is full, the client is gone, or stop is called.
func (w *watch) run(c *conn) {
	defer func() { w.done <- struct{}{} }()
	_ = c.rwc.SetReadDeadline(time.Time{})
	for !w.ended && !w.interrupt.Load() { // after the deadline is set, which would undo that of stop
		switch err := c.in.Fill(c.rwc); {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.ErrShortBuffer):
			return
		case errors.Is(err, io.EOF):
			w.ended = true
		default:
			w.ctx.cancel()
			return
		}
	}
	if w.ended {
		w.grace = time.AfterFunc(halfClosedFor, w.ctx.cancel)
	}
}
