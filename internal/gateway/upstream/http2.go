package upstream

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"sync"
	"sync/atomic"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/wire"
	"portolan.dev/portolan/internal/support/sockbuf"
)

// http2Exchange is an exchange over HTTP/2. It implements stream.
type http2Exchange struct {
	client *Client
	of     *endpoint
	ctx    context.Context // of DoHTTP2, whose caller closes the exchange
	inner  context.Context // of this exchange
	cancel context.CancelFunc
	body   *requestBody   // nil without
	res    *http.Response // nil before
	room   []byte
	last   int // how much the last read brought
	err    error
}

// DoHTTP2 is Do for an endpoint that speaks HTTP/2: with TLS, or without it and with prior knowledge (RFC 9113,
// sections 3.2 and 3.3).
func (c *Client) DoHTTP2(ctx context.Context, e *balance.Endpoint, r *Request) (*Response, error) {
	of, err := c.of(e, r)
	if err != nil {
		return nil, err
	}
	x := &http2Exchange{client: c, of: of, ctx: ctx}
	if r.Deadline.IsZero() {
		x.inner, x.cancel = context.WithCancel(ctx)
	} else {
		x.inner, x.cancel = context.WithDeadline(ctx, r.Deadline)
	}
	transport := c.open(x)
	out, err := x.request(e.Addr.String(), r)
	if err != nil {
		x.Close()
		return nil, &Error{Unsent, err}
	}
	early := &informational{request: r}
	out = out.WithContext(httptrace.WithClientTrace(x.inner, early.trace()))
	res, err := transport.RoundTrip(out) //nolint:bodyclose // Close closes it
	if exceeded := early.end(); exceeded && err != nil {
		err = &Error{Malformed, errInformational}
	} else if err != nil {
		err = x.failed(err)
	}
	if err != nil {
		x.Close()
		return nil, err
	}
	x.res = res
	maps.Copy(r.Header, res.Header)
	for _, name := range connectionFields {
		delete(r.Header, name)
	}
	if announced := names(res.Trailer); len(announced) > 0 { // net/http has taken them from the head
		r.Header["Trailer"] = announced
	}
	return &Response{Status: res.StatusCode, Length: res.ContentLength, stream: x}, nil
}

// connectionFields are those that no message of HTTP/2 may have (RFC 9113, section 8.2.2).
var connectionFields = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding", "Upgrade", "Proxy-Authenticate",
	"Proxy-Authorization",
}

// streamWindow is how much of a response may wait until the client takes it.
const streamWindow = 64 << 10

// open notes an exchange, and returns the connections over which it goes.
func (c *Client) open(x *http2Exchange) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := x.of
	if of.http2 == nil {
		dialer := net.Dialer{Timeout: c.cfg.DialTimeout, Control: sockbuf.Dialing(sockbuf.Size(0))}
		of.http2 = &http.Transport{
			DialContext:           dialer.DialContext,
			IdleConnTimeout:       c.cfg.IdleTimeout,
			ExpectContinueTimeout: continueWithin, MaxResponseHeaderBytes: maxHead,
			DisableCompression: true, // so that bodies pass as they are
			Protocols:          new(http.Protocols),
			HTTP2:              &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow},
		}
		of.http2.Protocols.SetUnencryptedHTTP2(of.tls == nil)
		of.http2.Protocols.SetHTTP2(of.tls != nil)
		of.http2.TLSClientConfig, of.http2.TLSHandshakeTimeout = of.tls, c.cfg.DialTimeout
	}
	if of.drained {
		x.cancel()
	}
	of.streams[x] = struct{}{}
	return of.http2
}

// request returns a request as net/http has it.
func (x *http2Exchange) request(addr string, r *Request) (*http.Request, error) {
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return nil, err
	}
	u.Scheme, u.Host = "http", addr
	if x.of.tls != nil {
		u.Scheme = "https"
	}
	out := &http.Request{
		Method: r.Method, URL: u, Host: r.Host, Header: make(http.Header, len(r.Fields)+1), ContentLength: max(r.Length, 0),
	}
	for _, f := range r.Fields {
		out.Header[f.Name] = append(out.Header[f.Name], f.Value)
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // so that the transport adds none
	}
	if r.Trailers {
		out.Header["Te"] = []string{"trailers"}
	}
	if r.Body != nil {
		out.ContentLength = r.Length
		x.body = &requestBody{Reader: r.Body}
		out.Body = x.body
		if r.Expect {
			out.Header["Expect"] = []string{"100-continue"}
		}
		if r.Trailer != nil {
			x.body.copyTrailer(out, r.Trailer)
		}
	}
	return out, nil
}

// informational passes on the responses before the last one.
type informational struct {
	request *Request

	mu    sync.Mutex
	n     int
	ended bool
}

// trace has pass be called.
func (i *informational) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{Got1xxResponse: i.pass}
}

// pass passes on a response. The transport may call it after RoundTrip has returned.
func (i *informational) pass(status int, fields textproto.MIMEHeader) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.n++; i.n > maxInformational {
		return errInformational
	}
	r := i.request
	if i.ended || status == http.StatusContinue || r.Informational == nil {
		return nil
	}
	maps.Copy(r.Header, http.Header(fields))
	for _, name := range connectionFields {
		delete(r.Header, name)
	}
	r.Informational.WriteHeader(status)
	clear(r.Header)
	return nil
}

// end has no more be passed on, and reports whether there were too many.
func (i *informational) end() (exceeded bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	return i.n > maxInformational
}

// requestBody is the body of a request as the transport reads it.
type requestBody struct {
	io.Reader
	whole  atomic.Bool           // it was read
	failed atomic.Pointer[error] // of Read, but for io.EOF
	ended  func()                // nil for nothing
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.whole.Store(true)
		if b.ended != nil {
			b.ended()
		}
	default:
		b.failed.Store(&err)
	}
	return n, err
}

// Close implements io.Closer. The body is its owner's.
func (b *requestBody) Close() error { return nil }

// copyTrailer announces the names of a trailer section, and copies the section when the body has been read.
func (b *requestBody) copyTrailer(to *http.Request, from func() http.Header) {
	announced := names(from())
	if len(announced) == 0 {
		return
	}
	to.Trailer = make(http.Header, len(announced))
	for _, name := range announced {
		to.Trailer[name] = nil
	}
	b.ended = func() {
		trailer := from()
		for _, name := range announced {
			to.Trailer[name] = trailer[name]
		}
	}
}

// failed returns the error of an exchange: what ended it here, else what became of it.
func (x *http2Exchange) failed(err error) error {
	dial, _ := errors.AsType[*net.OpError](err)
	switch {
	case x.body != nil && x.body.failed.Load() != nil:
		return &Error{BadBody, *x.body.failed.Load()}
	case x.ctx.Err() != nil:
		return x.ctx.Err()
	case errors.Is(x.inner.Err(), context.DeadlineExceeded):
		return os.ErrDeadlineExceeded
	case dial != nil && dial.Op == "dial" && exhausted(err):
		return &Error{Exhausted, err}
	case dial != nil && dial.Op == "dial":
		return &Error{Unsent, err}
	}
	return &Error{Lost, err}
}

// Next implements stream.
func (x *http2Exchange) Next() ([]byte, error) {
	if x.err != nil {
		return nil, x.err
	}
	x.room = wire.FitRoom(x.room, x.last)
	x.last, x.err = x.res.Body.Read(x.room)
	if x.err != nil && !errors.Is(x.err, io.EOF) {
		x.err = x.failed(x.err)
	}
	return x.room[:x.last], x.err
}

// NextReceived implements stream. Package net/http does not say what it has received. Where there is no body it has the
// end, which the client must get together with the head: responses of gRPC without messages have their status in the
// head of a stream that has ended ("Trailers-Only" in gRPC over HTTP/2, "Responses").
func (x *http2Exchange) NextReceived() ([]byte, error) {
	if x.err == nil && (x.res.ContentLength == 0 || x.res.Request.Method == http.MethodHead) {
		return x.Next()
	}
	return nil, x.err
}

// Trailer implements stream.
func (x *http2Exchange) Trailer() http.Header { return x.res.Trailer }

// Unread implements stream.
func (x *http2Exchange) Unread() bool { return x.body != nil && !x.body.whole.Load() }

// Upgraded implements stream: HTTP/2 has no upgrade.
func (x *http2Exchange) Upgraded() (conn net.Conn, received []byte) { return nil, nil }

// Close implements stream.
func (x *http2Exchange) Close() {
	x.cancel()
	if x.res != nil {
		x.res.Body.Close()
	}
	wire.FreeRoom(x.room)
	x.room = nil
	c, of := x.client, x.of
	c.mu.Lock()
	delete(of.streams, x)
	unused := len(of.streams) == 0 && (of.removed || c.closed)
	c.mu.Unlock()
	if unused {
		of.http2.CloseIdleConnections()
	}
}
