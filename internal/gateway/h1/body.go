package h1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxChunkLine is how many octets the line before a chunk may have, with extensions.
	maxChunkLine = 256
	// maxExtensions is how many octets all extensions of a body may have.
	maxExtensions = 4 << 10
	// maxChunkDigits keeps the size of a chunk within an int64.
	maxChunkDigits = 15
)

// body is the body of a request (RFC 9112, sections 6 and 7). Other goroutines than the Handler's may read
// it, even after the Handler has returned.
type body struct {
	c      *conn
	req    *http.Request
	res    *response
	cancel context.CancelFunc

	waits     atomic.Bool // the client waits for 100 (Continue)
	interrupt atomic.Bool // a Read that waits for the client must end
	invalid   atomic.Pointer[refusal]

	mu         sync.Mutex
	closed     bool
	chunked    bool
	remain     int64 // octets of the body, or of the present chunk
	inChunk    bool  // the end of a chunk is still to be read
	extensions int   // octets
	received   int64 // octets
	waited     time.Duration
	err        error // io.EOF when all was read
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
	n, err := b.read(p)
	if err == io.EOF { //nolint:errorlint // it is that of read
		b.c.watch.start(b.c, b.cancel)
	}
	return n, err
}

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
func (b *body) refused() *refusal {
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
		n, err := b.read(scratch[:])
		if err != nil {
			return err == io.EOF //nolint:errorlint // it is that of read
		}
		left -= int64(n)
	}
	return false
}

// read is Read without a look at who reads.
func (b *body) read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.chunked && b.remain == 0 {
		if b.err = b.nextChunk(); b.err != nil {
			return 0, b.fail()
		}
	}
	n, err := b.receive(p[:min(int64(len(p)), b.remain)])
	b.remain -= int64(n)
	switch {
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
	if b.err == io.EOF { //nolint:errorlint // it is that of nextChunk
		return io.EOF
	}
	if refused, ok := errors.AsType[*refusal](b.err); ok {
		b.invalid.Store(refused)
	}
	b.cancel()
	return b.err
}

// receive reads what was received already, or what comes next.
func (b *body) receive(p []byte) (int, error) {
	c := b.c
	if c.r == c.w && len(p) >= bufferSize/2 {
		return b.wait(func() (int, error) { return c.rwc.Read(p) })
	}
	if c.r == c.w {
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in[c.r:c.w])
	c.r += n
	return n, nil
}

// fill receives more into the buffer of the connection.
func (b *body) fill() error {
	_, err := b.wait(func() (int, error) {
		before := b.c.w - b.c.r
		err := b.c.fill()
		return b.c.w - b.c.r - before, err
	})
	return err
}

// wait reads from the client by a function, for as long as its rate allows.
func (b *body) wait(read func() (int, error)) (int, error) {
	began := time.Now()
	_ = b.c.rwc.SetReadDeadline(began.Add(b.c.server.limits.within(b.received) - b.waited))
	if b.interrupt.Load() { // after the deadline is set, which would undo that of stop
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := read()
	b.waited += time.Since(began)
	b.received += int64(n)
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

// nextChunk reads up to the data of the next chunk. After the last one it reads the trailers, and returns
// io.EOF.
func (b *body) nextChunk() error {
	if b.inChunk {
		line, err := b.line(len("\r\n"))
		if err != nil || len(line) > 0 {
			return errorOr(err, errChunkEnd)
		}
		b.inChunk = false
	}
	line, err := b.line(maxChunkLine)
	if err != nil {
		return err
	}
	size, extension, err := parseChunk(line)
	if err != nil {
		return err
	}
	if b.extensions += extension; b.extensions > maxExtensions {
		return errChunkLine
	}
	if size > 0 {
		b.remain, b.inChunk = size, true
		return nil
	}
	if err := b.trailers(); err != nil {
		return err
	}
	return io.EOF
}

// errorOr returns err, or if that is nil, or says that a line is too long, another one.
func errorOr(err, other error) error {
	if err == nil || errors.Is(err, errChunkLine) {
		return other
	}
	return err
}

// line reads a line of at most so many octets, and returns it without its CRLF. It is valid until more is
// read.
func (b *body) line(limit int) ([]byte, error) {
	c := b.c
	for {
		received := c.in[c.r:c.w]
		i := bytes.IndexByte(received, '\n')
		switch {
		case i >= limit || i < 0 && len(received) >= limit:
			return nil, errChunkLine
		case i >= 0 && (i == 0 || received[i-1] != '\r'):
			return nil, errLineEnd
		case i > 0:
			c.r += i + 1
			return received[:i-1], nil
		}
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
}

// parseChunk parses the line before a chunk (RFC 9112, section 7.1), and returns the size of the chunk and
// of the line's extensions.
func parseChunk(line []byte) (size int64, extension int, err error) {
	digits := 0
	for digits < len(line) {
		value := hexValue(line[digits])
		if value < 0 {
			break
		}
		size = size<<4 | int64(value)
		if digits++; digits > maxChunkDigits {
			return 0, 0, errChunkSize
		}
	}
	if digits == 0 {
		return 0, 0, errChunkSize
	}
	rest := line[digits:]
	for _, c := range rest {
		if c < ' ' && c != '\t' || c == 0x7f {
			return 0, 0, errChunkSize
		}
	}
	name := rest
	for len(name) > 0 && isSpace(name[0]) {
		name = name[1:]
	}
	if len(rest) > 0 && (len(name) == 0 || name[0] != ';') {
		return 0, 0, errChunkSize
	}
	return size, len(rest), nil
}

func hexValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// trailers reads the trailer section (RFC 9112, section 7.1.2).
func (b *body) trailers() error {
	c, lim := b.c, &b.c.server.limits
	section := section{}
	for {
		end, err := section.find(c.in[c.r:c.w])
		if err != nil {
			return err
		}
		if end > lim.Head || c.w-c.r > lim.Head && end == 0 {
			return errHeadSize
		}
		if end > 0 {
			found := c.in[c.r : c.r+end]
			c.r += end
			return b.setTrailers(found)
		}
		if c.r == 0 && c.w == len(c.in) {
			c.grow(lim.Head + 1)
		}
		if err := b.fill(); err != nil {
			return err
		}
	}
}

// setTrailers gives the request its trailers.
func (b *body) setTrailers(found []byte) error {
	var room [8]field
	fields, err := splitFields(found, 0, room[:0], &b.c.server.limits)
	if err != nil || len(fields) == 0 {
		return err
	}
	text := string(found)
	if b.req.Trailer == nil {
		b.req.Trailer = make(http.Header)
	}
	for _, at := range fields {
		name := text[at.name:at.nameEnd]
		if forbiddenTrailers[name] {
			return errTrailerField
		}
		b.req.Trailer[name] = append(b.req.Trailer[name], text[at.value:at.valueEnd])
	}
	return nil
}
