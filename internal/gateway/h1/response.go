package h1

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/gateway/wire"
)

// maxHeld is how many octets of a body of which the length is not known are held, so that a short one has
// a Content-Length.
const maxHeld = 2 << 10

// coding is how a client finds the end of a response (RFC 9112, section 6.3).
type coding int

const (
	undecided  coding = iota
	noContent         // HEAD, 1xx, 204 and 304
	sized             // Content-Length
	chunked           // Transfer-Encoding
	untilClose        // of HTTP/1.0
)

// response is an http.ResponseWriter. Its methods may be called while others send what goes before the
// response: 100 (Continue) when the body is read, and other 1xx.
type response struct {
	c      *conn
	req    *http.Request
	body   *body           // nil without
	ctx    *requestContext // of the request
	header http.Header
	last   bool // the connection ends with the response

	mu       sync.Mutex
	buffer   *[bufferSize]byte // from buffers; nil before the head, and when the response has ended
	out      []byte            // what is not sent yet, in the buffer
	held     []byte            // of the body
	status   int               // 0 before the head
	coding   coding
	length   int64 // of the body, if it is sized
	written  int64 // of the body
	trailers []string
	sent     bool // some of the response was sent
	pace     pace
	taken    bool // the connection was hijacked
	err      error
}

var (
	errEnded = errors.New("the response has ended")
	errShort = errors.New("the body of the response is shorter than its Content-Length")
)

func newResponse(c *conn, req *http.Request, ctx *requestContext) *response {
	return &response{c: c, req: req, ctx: ctx, header: make(http.Header), last: req.Close}
}

// free gives back the buffer.
func (w *response) free() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.buffer != nil {
		buffers.Put(w.buffer)
		w.buffer, w.out = nil, nil
	}
	w.err = errEnded
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. A status from 100 to 199, but for 101, goes before the
// response.
func (w *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("invalid status " + strconv.Itoa(status))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.writeInformational(status)
		return
	}
	w.writeHead(status)
}

// writeInformational sends a 1xx (RFC 9110, section 15.2).
func (w *response) writeInformational(status int) {
	if w.status != 0 || w.taken || w.req.ProtoMinor == 0 {
		return
	}
	if status == http.StatusContinue && (w.body == nil || !w.body.waits.Swap(false)) {
		return // the client does not wait for it
	}
	w.putStatus(status)
	w.putFields(noContent)
	w.putString("\r\n")
	w.flush()
}

// proceed sends 100 (Continue) before a body is read for the first time.
func (w *response) proceed(b *body) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.waits.Swap(false) && w.status == 0 && !w.taken {
		w.begin()
		w.putString("HTTP/1.1 100 Continue\r\n\r\n")
		w.flush()
	}
}

// writeHead begins the response.
func (w *response) writeHead(status int) {
	if w.status != 0 || w.taken {
		return
	}
	w.status = status
	w.coding = w.chooseCoding()
	if wire.HasElement(w.header.Get("Connection"), "close") || status == http.StatusSwitchingProtocols {
		w.last = true
	}
	w.putStatus(status)
	w.putFields(w.coding)
	if w.coding != undecided {
		w.endHead()
	}
}

// chooseCoding chooses the coding by the status and the header.
func (w *response) chooseCoding() coding {
	if lengths := w.header["Content-Length"]; len(lengths) > 0 {
		n, ok := wire.ParseLength(strings.Trim(lengths[0], " \t"))
		if ok && lengths[0] != "" {
			w.length = n
		} else {
			delete(w.header, "Content-Length")
		}
	}
	for _, list := range w.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if wire.IsToken(name) && !wire.ForbiddenTrailer(name) {
				w.trailers = append(w.trailers, name)
			}
		}
	}
	switch _, hasLength := w.header["Content-Length"]; {
	case w.req.Method == http.MethodHead, w.status < 200, w.status == 204, w.status == 304:
		return noContent
	case hasLength:
		return sized
	case len(w.trailers) > 0 && w.req.ProtoMinor > 0:
		return chunked
	}
	return undecided
}

// endHead writes what depends on the coding, and the end of the head.
func (w *response) endHead() {
	if w.coding == untilClose || w.c.server.draining.Load() || w.body != nil && w.body.tooMuch() {
		w.last = true
	}
	if w.last && !wire.HasElement(w.header.Get("Connection"), "close") {
		w.putString("Connection: close\r\n")
	}
	if w.coding == chunked {
		w.putString("Transfer-Encoding: chunked\r\n")
	}
	w.putString("\r\n")
}

// begin takes a buffer, unless there is one or the response has ended.
func (w *response) begin() {
	if w.buffer == nil && w.err == nil {
		w.buffer = buffers.Get().(*[bufferSize]byte)
		w.out = w.buffer[:0]
	}
}

// putStatus writes a status line (RFC 9112, section 4).
func (w *response) putStatus(status int) {
	w.begin()
	w.putString("HTTP/1.1 ")
	w.putInt(int64(status), 10)
	w.putString(" ")
	w.putString(http.StatusText(status))
	w.putString("\r\n")
}

// putFields writes the header, but for what says where the response ends.
func (w *response) putFields(as coding) {
	var room [32]string
	names := room[:0]
	for name := range w.header {
		names = append(names, name)
	}
	slices.Sort(names)
	dated := w.status == 0
	for _, name := range names {
		switch {
		case strings.EqualFold(name, "Transfer-Encoding"), strings.HasPrefix(name, http.TrailerPrefix), !wire.IsToken(name):
			continue
		case strings.EqualFold(name, "Content-Length"):
			if name != "Content-Length" {
				continue
			}
			if as == sized || as == noContent && w.status != 204 && w.status >= 200 {
				w.putString("Content-Length: ")
				w.putInt(w.length, 10)
				w.putString("\r\n")
			}
			continue
		case name == "Date":
			dated = true
		}
		for _, value := range w.header[name] {
			w.putField(name, value)
		}
	}
	if !dated { // RFC 9110, section 6.6.1
		w.putString("Date: ")
		w.putString(w.c.server.now())
		w.putString("\r\n")
	}
}

// putField writes a field. What would end its line is written as a space (RFC 9110, section 5.5).
func (w *response) putField(name, value string) {
	w.putString(name)
	w.putString(": ")
	w.putString(wire.Clean(value))
	w.putString("\r\n")
}

func (w *response) putInt(n int64, base int) {
	const digits = 20
	if cap(w.out)-len(w.out) < digits {
		w.flush()
	}
	if w.err == nil {
		w.out = strconv.AppendInt(w.out, n, base)
	}
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken {
		return 0, http.ErrHijacked
	}
	w.writeHead(http.StatusOK)
	switch {
	case w.err != nil:
		return 0, w.err
	case w.coding == noContent && w.req.Method == http.MethodHead:
		return len(p), nil
	case w.coding == noContent:
		return 0, http.ErrBodyNotAllowed
	case w.coding == sized && w.written+int64(len(p)) > w.length:
		p = p[:w.length-w.written]
		w.writeBody(p)
		return len(p), http.ErrContentLength
	case w.coding == undecided && len(w.held)+len(p) <= maxHeld:
		w.held = append(w.held, p...)
		return len(p), nil
	case w.coding == undecided:
		w.decide()
	}
	w.writeBody(p)
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// decide chooses the coding of a response that goes on, and writes what was held.
func (w *response) decide() {
	if w.coding != undecided {
		return
	}
	if w.coding = chunked; w.req.ProtoMinor == 0 {
		w.coding = untilClose
	}
	w.endHead()
	w.writeBody(w.held)
	w.held = nil
}

// writeBody writes a part of the body.
func (w *response) writeBody(p []byte) {
	if len(p) == 0 {
		return // an empty chunk would be the last one
	}
	w.written += int64(len(p))
	if w.coding != chunked {
		w.put(p)
		return
	}
	w.putInt(int64(len(p)), 16)
	w.putString("\r\n")
	w.put(p)
	w.putString("\r\n")
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken {
		return http.ErrHijacked
	}
	w.writeHead(http.StatusOK)
	w.decide()
	w.flush()
	return w.err
}

// EnableFullDuplex is for http.ResponseController: a Handler may always read the body after it has begun to
// write the response.
func (w *response) EnableFullDuplex() error { return nil }

// Hijack implements http.Hijacker. What the client sent behind the request can be read from the connection
// itself, too.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if err := w.take(); err != nil {
		return nil, nil, err
	}
	conn := w.c.hijack(w.body)
	return conn, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)), nil
}

// take ends what can be written here, as the connection is hijacked.
func (w *response) take() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.taken:
		return http.ErrHijacked
	case w.err != nil:
		return w.err
	case w.status != 0:
		return errors.New("hijack a connection after the head of the response")
	}
	w.taken = true
	if w.buffer != nil {
		buffers.Put(w.buffer)
		w.buffer, w.out = nil, nil
	}
	return nil
}

// isTaken reports whether the connection was hijacked.
func (w *response) isTaken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken
}

// discard drops a response of which nothing was sent yet, and reports whether that is so.
func (w *response) discard() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out, w.held = w.out[:0], nil
	return !w.sent
}

// finish ends the response.
func (w *response) finish() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHead(http.StatusOK)
	switch w.coding {
	case undecided:
		w.coding = sized
		w.putString("Content-Length: ")
		w.putInt(int64(len(w.held)), 10)
		w.putString("\r\n")
		w.endHead()
		w.put(w.held)
	case sized:
		if w.written < w.length {
			return errShort
		}
	case chunked:
		w.putString("0\r\n")
		w.putTrailers()
		w.putString("\r\n")
	case noContent, untilClose:
	}
	w.flush()
	return w.err
}

// putTrailers writes the trailers: fields that were announced, and those with http.TrailerPrefix.
func (w *response) putTrailers() {
	for _, name := range w.trailers {
		for _, value := range w.header[name] {
			w.putField(name, value)
		}
	}
	var others []string
	for key := range w.header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok && wire.IsToken(name) && !wire.ForbiddenTrailer(name) {
			others = append(others, key)
		}
	}
	slices.Sort(others)
	for _, key := range others {
		for _, value := range w.header[key] {
			w.putField(key[len(http.TrailerPrefix):], value)
		}
	}
}

// putString is put.
func (w *response) putString(s string) {
	for len(s) > 0 && w.err == nil {
		n := copy(w.out[len(w.out):cap(w.out)], s)
		w.out = w.out[:len(w.out)+n]
		if s = s[n:]; s != "" {
			w.flush()
		}
	}
}

// put writes to the buffer, and to the client if that is full.
func (w *response) put(p []byte) {
	for len(p) > 0 && w.err == nil {
		if len(w.out) == 0 && len(p) >= bufferSize {
			w.send(p)
			return
		}
		n := copy(w.out[len(w.out):cap(w.out)], p)
		w.out = w.out[:len(w.out)+n]
		if p = p[n:]; len(p) > 0 {
			w.flush()
		}
	}
}

// flush sends what is in the buffer.
func (w *response) flush() {
	if len(w.out) == 0 || w.err != nil {
		return
	}
	w.send(w.out)
	w.out = w.out[:0]
}

// send sends to the client, for as long as its rate allows.
func (w *response) send(p []byte) {
	w.sent = w.sent || w.status != 0
	began := time.Now()
	_ = w.c.rwc.SetWriteDeadline(began.Add(w.pace.left(&w.c.server.limits, len(p))))
	n, err := w.c.rwc.Write(p)
	w.pace.moved(began, n)
	if err != nil {
		w.err = err
		w.ctx.cancel()
	}
}
