package h1

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// pace is what a client has sent or taken of a message, and how long it was waited for.
type pace struct {
	octets int64
	waited time.Duration
}

// left returns how long the client may be waited for now, until it has moved some octets more.
func (p *pace) left(l *Limits, more int) time.Duration {
	return l.within(p.octets+int64(more)) - p.waited
}

// moved notes what came or went of a wait that began at some time.
func (p *pace) moved(since time.Time, octets int) {
	p.waited += time.Since(since)
	p.octets += int64(octets)
}

// paced has a request over HTTP/2 have the limits of bodies and responses: a client that is slower loses its stream.
func paced(limits *Limits, w http.ResponseWriter, r *http.Request) (*pacedWriter, *http.Request) {
	made := &pacedWriter{ResponseWriter: w, stream: &stream{control: http.NewResponseController(w)}, limits: limits}
	if r.Body == nil || r.Body == http.NoBody {
		return made, r
	}
	request := *r
	request.Body = &pacedBody{ReadCloser: r.Body, stream: made.stream, limits: limits}
	return made, &request
}

// longAgo is a deadline that is over.
var longAgo = time.Unix(1, 0)

// stream is that of a request over HTTP/2. Timers, and others who end requests, may come too late: the server's writer
// must not be used when the handler has ended.
type stream struct {
	control *http.ResponseController

	mu    sync.Mutex
	ended bool
}

// errStreamEnded: the handler has ended.
var errStreamEnded = errors.New("the request has ended")

// do calls a method of the server's writer, unless the handler has ended.
func (s *stream) do(set func(time.Time) error, deadline time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errStreamEnded
	}
	return set(deadline)
}

// SetReadDeadline is what http.ResponseController uses.
func (s *stream) SetReadDeadline(t time.Time) error { return s.do(s.control.SetReadDeadline, t) }

// SetWriteDeadline is what http.ResponseController uses.
func (s *stream) SetWriteDeadline(t time.Time) error { return s.do(s.control.SetWriteDeadline, t) }

// end notes that the handler has ended.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// pacedWriter is the ResponseWriter of a request over HTTP/2. The server would wait for a window without limit.
type pacedWriter struct {
	http.ResponseWriter
	*stream
	limits *Limits
	timer  *time.Timer // resets the stream
	pace
}

// Unwrap returns what http.ResponseController uses.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *pacedWriter) Write(p []byte) (n int, err error) {
	began := w.wait(len(p))
	n, err = w.ResponseWriter.Write(p)
	w.wrote(began, n)
	return n, err
}

// FlushError flushes what was written.
func (w *pacedWriter) FlushError() error {
	began := w.wait(0)
	err := w.control.Flush()
	w.wrote(began, 0)
	return err
}

// Flush implements http.Flusher.
func (w *pacedWriter) Flush() { _ = w.FlushError() }

func (w *pacedWriter) wait(more int) (began time.Time) {
	left := w.left(w.limits, more)
	if w.timer == nil {
		w.timer = time.AfterFunc(left, func() { _ = w.SetWriteDeadline(longAgo) })
	} else {
		w.timer.Reset(left)
	}
	return time.Now()
}

func (w *pacedWriter) wrote(began time.Time, octets int) {
	w.timer.Stop()
	w.moved(began, octets)
}

// done limits what the server sends after the handler: the rest of what was written.
func (w *pacedWriter) done() {
	if w.octets > 0 {
		_ = w.SetWriteDeadline(time.Now().Add(w.left(w.limits, 0)))
	}
	w.end()
}

// pacedBody is the body of a request over HTTP/2.
type pacedBody struct {
	io.ReadCloser
	*stream
	limits *Limits
	pace
}

// Read implements io.Reader. Its error is errBodyTimeout if the client is too slow.
func (b *pacedBody) Read(p []byte) (n int, err error) {
	began := time.Now()
	timer := time.AfterFunc(b.left(b.limits, 0), func() { _ = b.SetReadDeadline(longAgo) })
	n, err = b.ReadCloser.Read(p)
	timer.Stop()
	b.moved(began, n)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errBodyTimeout
	}
	return n, err
}
