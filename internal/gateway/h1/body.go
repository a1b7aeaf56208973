package h1

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/wire"
)

// body is the body of a request (RFC 9112, sections 6 and 7). Other goroutines than the Handler's may read
// it, even after the Handler has returned.
type body struct {
	c   *conn
	req *http.Request
	res *response
	ctx *requestContext

	waits     atomic.Bool // the client waits for 100 (Continue)
	interrupt atomic.Bool // a Read that waits for the client must end
	invalid   atomic.Pointer[wire.Error]

	mu      sync.Mutex
	closed  bool
	chunked bool
	remain  int64 // octets of the body, or of the present chunk
	chunks  wire.Chunks
	pace    pace
	err     error // io.EOF when all was read
}

// Read implements io.Reader. If it fails the context of the request ends.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.waits.Load() {
		b.res.proceed(b)
	}
	n, err := b.read(p, (*client)(b))
	if err == io.EOF { //nolint:errorlint // it is that of read
		b.c.watch.start(b.c, b.ctx)
	}
	return n, err
}

// ReadReceived reads what was received already. It does not wait for the client: without anything it returns 0 and
// no error.
func (b *body) ReadReceived(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	for n < len(p) && err == nil {
		var more int
		more, err = b.read(p[n:], nobody{})
		n += more
	}
	switch {
	case errors.Is(err, errNotReceived):
		err = nil
	case errors.Is(err, io.EOF):
		b.c.watch.start(b.c, b.ctx)
	}
	return n, err
}

// nobody is read in place of the client by those who must not wait for it.
type nobody struct{}

// errNotReceived: the client would have to be waited for.
var errNotReceived = errors.New("not received")

// Read implements io.Reader.
func (nobody) Read([]byte) (int, error) { return 0, errNotReceived }

// Close implements io.Closer. The server itself reads what is left.
func (b *body) Close() error { return nil }

// stop ends what the Handler, and what it left running, can read.
func (b *body) stop() {
	b.interrupt.Store(true)
	if !b.mu.TryLock() {
		_ = b.c.rwc.SetReadDeadline(time.Unix(1, 0))
		b.mu.Lock()
	}
	b.closed = true
	b.mu.Unlock()
}

// refused returns why the body is invalid, nil if it is not.
func (b *body) refused() *wire.Error {
	if b == nil {
		return nil
	}
	return b.invalid.Load()
}

// tooMuch reports whether so much is left to read that the connection will be closed after the response.
func (b *body) tooMuch() bool {
	if !b.mu.TryLock() { // somebody reads it
		return false
	}
	defer b.mu.Unlock()
	return b.err == nil && (b.waits.Load() || !b.chunked && b.remain > b.c.server.limits.Discard) ||
		b.err != nil && b.err != io.EOF //nolint:errorlint // it is that of read
}

// discard reads what is left after stop, and reports whether the connection can be used for another request.
func (b *body) discard() bool {
	if b.tooMuch() {
		return false
	}
	b.interrupt.Store(false)
	scratch := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(scratch)
	b.mu.Lock()
	defer b.mu.Unlock()
	for left := b.c.server.limits.Discard; left >= 0; {
		n, err := b.read(scratch[:], (*client)(b))
		if err != nil {
			return err == io.EOF //nolint:errorlint // it is that of read
		}
		left -= int64(n)
	}
	return false
}

// read is Read without a look at who reads. What was not received yet it reads from the client, or from nobody.
func (b *body) read(p []byte, from io.Reader) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	var err error
	if b.chunked && b.remain == 0 {
		b.remain, err = b.chunks.Next(&b.c.in, from, b.c.server.limits.fields())
		if b.remain == 0 && err == nil {
			err = io.EOF
		}
	}
	n := 0
	if err == nil {
		n, err = b.receive(p[:min(int64(len(p)), b.remain)], from)
		b.remain -= int64(n)
	}
	switch {
	case err == errNotReceived: //nolint:errorlint // it is nobody's
		return n, err
	case err != nil:
		b.err = err
		return n, b.fail()
	case b.remain == 0 && !b.chunked:
		b.err = io.EOF
	}
	return n, b.err
}

// fail ends the request if the body is not complete.
func (b *body) fail() error {
	if b.err == io.EOF { //nolint:errorlint // it is that of read
		b.setTrailers()
		return io.EOF
	}
	if refused, ok := errors.AsType[*wire.Error](b.err); ok {
		b.invalid.Store(refused)
	}
	b.ctx.cancel()
	return b.err
}

// setTrailers gives the request its trailers.
func (b *body) setTrailers() {
	if b.req.Trailer == nil {
		b.req.Trailer = b.chunks.Trailer
		return
	}
	maps.Copy(b.req.Trailer, b.chunks.Trailer)
}

// receive reads what was received already, or what comes next.
func (b *body) receive(p []byte, from io.Reader) (int, error) {
	c := b.c
	if c.in.Empty() && len(p) >= bufferSize/2 {
		return from.Read(p)
	}
	if c.in.Empty() {
		if err := c.in.Fill(from); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in.Received())
	c.in.R += n
	return n, nil
}

// client is the client of a body: what is read is what it sends.
type client body

// Read waits for the client as long as its rate allows.
func (b *client) Read(p []byte) (int, error) {
	began := time.Now()
	_ = b.c.rwc.SetReadDeadline(began.Add(b.pace.left(&b.c.server.limits, 0)))
	if b.interrupt.Load() { // after the deadline is set, which would undo that of stop
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.c.rwc.Read(p)
	b.pace.moved(began, n)
	switch {
	case n > 0:
		return n, nil
	case b.interrupt.Load():
		return 0, http.ErrBodyReadAfterClose
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, errBodyTimeout
	case errors.Is(err, io.EOF):
		return 0, errIncomplete
	}
	return 0, err
}
