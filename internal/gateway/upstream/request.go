package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unique"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/wire"
)

// Request is a request as an endpoint gets it. It may be sent again if the exchange failed and is Unsent, or if it has
// no body; when that is decided Free must be called.
type Request struct {
	// Method, Target (RFC 9112, section 3.2) and Host are valid: see Valid.
	Method, Target, Host string
	// Fields are those of the head, but for what the other fields of Request say.
	Fields Fields
	// Upgrade are the protocols that the connection may become one of; empty for none (RFC 9110, section 7.8).
	Upgrade string
	// Trailers: the client takes trailer sections (RFC 9110, section 10.1.4).
	Trailers bool

	// TLS is how it is spoken with the endpoint, the zero Handle for not at all, and Certificate that of the gateway; nil
	// for none.
	TLS         unique.Handle[table.TLS]
	Certificate *tls.Certificate

	// Body is nil if there is none. It may be read until its own end, even after the exchange; if it has the method
	// ReadReceived, what that returns is sent with the head.
	Body io.Reader
	// Length is that of the Body; -1 if it is not known. Without a Body 0 is told to the endpoint, and -1 is not.
	Length int64
	// Trailer returns the trailer section. Of its fields those are sent that it has before the Body is read, then without
	// values: they are announced. Nil for none.
	Trailer func() http.Header
	// Expect: the client waits for 100 (Continue) before it sends the Body.
	Expect bool

	// ConnectWithin is how long a connection may take to be made over HTTP/1.1; 0 is Config.DialTimeout.
	ConnectWithin time.Duration
	// Deadline is when the exchange, to the end of the response's body, must have ended; zero for never.
	Deadline time.Time
	// Header gets the fields of each head of a response that do not concern the connection only. It must be empty.
	Header http.Header
	// Informational gets the status of each response before the last one (RFC 9110, section 15.2), but for 100
	// (Continue), when the Header has its fields. Nil for nothing.
	Informational interface{ WriteHeader(status int) }

	room    []byte   // that out is in, unless that had to grow
	out     []byte   // the head, and what was received of the body
	chunked bool     // the body is sent in chunks
	trailer []string // the names of the fields that are announced, sorted
	left    int64    // octets of the body that were not read yet, unless it is chunked
	whole   bool     // all of the body was read
}

// Field is a field of a head.
type Field struct{ Name, Value string }

// Fields are the fields of a head, in the order in which they are sent. Names are in the form of http.Header.
type Fields []Field

// Del removes the fields with a name.
func (f *Fields) Del(name string) {
	*f = slices.DeleteFunc(*f, func(field Field) bool { return field.Name == name })
}

// Add adds a field.
func (f *Fields) Add(name, value string) { *f = append(*f, Field{name, value}) }

// Set adds a field in the place of those with its name.
func (f *Fields) Set(name, value string) {
	for i := range *f {
		if (*f)[i].Name == name {
			(*f)[i].Value = value
			rest := (*f)[i+1:]
			rest.Del(name)
			*f = (*f)[:i+1+len(rest)]
			return
		}
	}
	f.Add(name, value)
}

// Has reports whether there is a field with a name.
func (f Fields) Has(name string) bool {
	return slices.ContainsFunc(f, func(field Field) bool { return field.Name == name })
}

// Valid reports whether a method, a request-target and a host can be those of a Request. They can not if they came by
// HTTP/2 and would be read in another way as octets of HTTP/1.1.
func Valid(method, target, host string) bool {
	return wire.IsToken(method) && wire.ValidTarget(target) && wire.ValidHost(host)
}

// prepare makes out, unless it is there already.
func (r *Request) prepare() error {
	if r.room != nil {
		return nil
	}
	if r.Body != nil && r.Trailer != nil {
		r.trailer = names(r.Trailer())
	}
	r.chunked = r.Body != nil && (r.Length < 0 || len(r.trailer) > 0)
	r.room = wire.NewRoom(0)
	r.out = r.appendHead(r.room[:0])
	r.left = r.Length
	if r.Body == nil {
		r.whole = true
		return nil
	}
	body, ok := r.Body.(interface{ ReadReceived(p []byte) (int, error) })
	if !ok || r.Expect {
		return nil
	}
	var err error
	if r.out, err = r.appendBody(r.out, body.ReadReceived); err != nil {
		return &Error{BadBody, err}
	}
	return nil
}

// Free gives back what the Request holds.
func (r *Request) Free() {
	wire.FreeRoom(r.room)
	r.room, r.out = nil, nil
}

// Again returns a Request like r, which may be sent whatever became of r; its body, of the same length, is read anew.
func (r *Request) Again(body io.Reader) *Request {
	return &Request{
		Method: r.Method, Target: r.Target, Host: r.Host, Fields: r.Fields, Upgrade: r.Upgrade, Trailers: r.Trailers,
		Body: body, Length: r.Length, Trailer: r.Trailer, Expect: r.Expect,
		ConnectWithin: r.ConnectWithin, Deadline: r.Deadline, Header: r.Header,
		Informational: r.Informational, TLS: r.TLS, Certificate: r.Certificate,
	}
}

// appendHead appends the head (RFC 9112, sections 3 and 5).
func (r *Request) appendHead(b []byte) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, r.Target...)
	b = append(b, " HTTP/1.1\r\n"...)
	b = appendField(b, "Host", r.Host)
	for i := range r.Fields {
		b = appendField(b, r.Fields[i].Name, wire.Clean(r.Fields[i].Value))
	}
	switch {
	case r.Upgrade != "":
		b = append(b, "Connection: Upgrade\r\n"...)
		b = appendField(b, "Upgrade", r.Upgrade)
	case r.Trailers:
		b = append(b, "Connection: TE\r\nTE: trailers\r\n"...)
	}
	switch {
	case r.chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		for _, name := range r.trailer {
			b = appendField(b, "Trailer", name)
		}
	case r.Body != nil, r.Length == 0:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, r.Length, 10)
		b = append(b, "\r\n"...)
	}
	if r.Expect && r.Body != nil {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	return append(b, "\r\n"...)
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// names returns the names of a header, sorted, but for those that no trailer section may have.
func names(h http.Header) []string {
	var all []string
	for name := range h {
		if wire.IsToken(name) && !wire.ForbiddenTrailer(name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

const (
	// chunkRoom is what the line before a chunk takes, and chunkEnd what the rest does: the end of this chunk, and a
	// last one without trailers. maxChunk is the largest chunk that is sent.
	chunkRoom = len("8000\r\n")
	chunkEnd  = len("\r\n0\r\n\r\n")
	maxChunk  = 0x8000
)

// appendBody appends a part of the body, as much as fits b's array, and notes when the body is whole. It reads by a
// function, which may return nothing.
func (r *Request) appendBody(b []byte, read func(p []byte) (int, error)) ([]byte, error) {
	if !r.chunked {
		n, err := read(b[len(b):int(min(int64(cap(b)), int64(len(b))+r.left))])
		r.left -= int64(n)
		r.whole = r.left == 0
		if err != nil && (!errors.Is(err, io.EOF) || !r.whole) {
			return nil, incomplete(err)
		}
		return b[:len(b)+n], nil
	}
	begin := len(b) + chunkRoom
	if begin+chunkEnd >= cap(b) {
		return b, nil
	}
	n, err := read(b[begin:min(cap(b)-chunkEnd, begin+maxChunk)])
	if n > 0 {
		data := b[begin : begin+n]
		b = strconv.AppendInt(b, int64(n), 16)
		b = append(b, "\r\n"...)
		b = append(b, data...) // no further than where they are
		b = append(b, "\r\n"...)
	}
	if err == nil {
		return b, nil
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	r.whole = true
	b = append(b, "0\r\n"...)
	for _, name := range r.trailer {
		for _, value := range r.Trailer()[name] {
			b = appendField(b, name, wire.Clean(value))
		}
	}
	return append(b, "\r\n"...), nil
}

// incomplete is the error of a body that ended before its length.
func incomplete(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// lastFor is how long an endpoint may take to receive the end of a body after its response is complete.
const lastFor = time.Second

// respondFor is how long it may take to respond after it refused the rest of a body.
const respondFor = time.Second

// sending sends the rest of a body.
type sending struct {
	request *Request
	conn    *conn
	last    atomic.Bool           // the end of the body was read
	failed  atomic.Pointer[error] // of reading the body
	done    chan struct{}         // closed when nothing more is sent
	err     error                 // if it is done
}

// run sends what comes until the body ends, the connection is closed, or the endpoint takes no more.
func (s *sending) run() {
	defer close(s.done)
	defer func() {
		if v := recover(); v != nil { // of the body: it must end no other exchange
			s.fail(fmt.Errorf("reading panicked: %v", v))
		}
	}()
	room := wire.NewRoom(0)
	defer func() { wire.FreeRoom(room) }()
	for !s.request.whole {
		var n int
		out, err := s.request.appendBody(room[:0], func(p []byte) (int, error) {
			var err error
			n, err = s.request.Body.Read(p)
			return n, err
		})
		if err != nil {
			s.fail(err)
			return
		}
		s.last.Store(s.request.whole)
		if _, err := s.conn.Write(out); err != nil {
			s.err = err
			_ = s.conn.SetReadDeadline(earlier(s.request.Deadline, time.Now().Add(respondFor))) // it may have responded
			return
		}
		if n >= cap(room)-chunkRoom-chunkEnd {
			n = cap(room)
		}
		room = wire.FitRoom(room, n)
	}
}

// fail closes the connection, so that the endpoint does not take this for the end of the body.
func (s *sending) fail(err error) {
	s.err = err
	s.failed.Store(&err)
	s.conn.Close()
}

// earlier returns the earlier one of two times, of which the first may be zero for none.
func earlier(t, than time.Time) time.Time {
	if t.IsZero() || than.Before(t) {
		return than
	}
	return t
}

// sent reports whether all of the body was sent, of which the end was read. It waits until that was sent.
func (s *sending) sent() bool {
	if s == nil {
		return true
	}
	select {
	case <-s.done:
	default:
		_ = s.conn.SetWriteDeadline(time.Now().Add(lastFor))
		<-s.done
		_ = s.conn.SetWriteDeadline(time.Time{})
	}
	return s.err == nil
}
