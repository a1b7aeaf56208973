package h1

import (
	"errors"
	"io"
	"net/http"
	"os"
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
	made := &pacedWriter{ResponseWriter: w, control: http.NewResponseController(w), limits: limits}
	if r.Body == nil || r.Body == http.NoBody {
		return made, r
	}
	request := *r
	request.Body = &pacedBody{ReadCloser: r.Body, control: made.control, limits: limits}
	return made, &request
}

// longAgo is a deadline that is over.
var longAgo = time.Unix(1, 0)

// pacedWriter is the ResponseWriter of a request over HTTP/2. The server would wait for a window without limit.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	limits  *Limits
	timer   *time.Timer // resets the stream
	pace
}

// Unwrap returns what http.ResponseController uses.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *pacedWriter) Write(p []byte) (n int, err error) {
	began := w.wait(len(p))
	n, err = w.ResponseWriter.Write(p)
	w.end(began, n)
	return n, err
}

// FlushError flushes what was written.
func (w *pacedWriter) FlushError() error {
	began := w.wait(0)
	err := w.control.Flush()
	w.end(began, 0)
	return err
}

// Flush implements http.Flusher.
func (w *pacedWriter) Flush() { _ = w.FlushError() }

func (w *pacedWriter) wait(more int) (began time.Time) {
	left := w.left(w.limits, more)
	if w.timer == nil {
		w.timer = time.AfterFunc(left, func() { _ = w.control.SetWriteDeadline(longAgo) })
	} else {
		w.timer.Reset(left)
	}
	return time.Now()
}

func (w *pacedWriter) end(began time.Time, octets int) {
	w.timer.Stop()
	w.moved(began, octets)
}

// done limits what the server sends after the handler: the rest of what was written.
func (w *pacedWriter) done() {
	if w.octets > 0 {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.left(w.limits, 0)))
	}
}

// pacedBody is the body of a request over HTTP/2.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	limits  *Limits
	pace
}

// Read implements io.Reader. Its error is errBodyTimeout if the client is too slow.
func (b *pacedBody) Read(p []byte) (n int, err error) {
	began := time.Now()
	timer := time.AfterFunc(b.left(b.limits, 0), func() { _ = b.control.SetReadDeadline(longAgo) })
	n, err = b.ReadCloser.Read(p)
	timer.Stop()
	b.moved(began, n)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errBodyTimeout
	}
	return n, err
}
