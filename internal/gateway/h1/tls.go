package h1

import (
	"crypto/tls"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"portolan.dev/portolan/internal/gateway/wire"
)

// errPlain refuses a client that speaks HTTP where a TLS handshake should come.
var errPlain = wire.NewError(400, "HTTP instead of a TLS handshake")

// shakeHands has a connection begin with its TLS handshake, and serves it from then on: itself, or by the
// server of HTTP/2 if client and server agree on that (RFC 9113, section 3.2).
func (c *conn) shakeHands() {
	defer c.survive()
	c.waits.Store(firstRequest)
	_ = c.rwc.SetDeadline(time.Now().Add(c.server.limits.HandshakeTimeout))
	if c.server.draining.Load() { // after the deadline is set, which would undo that of wake
		c.wake()
	}
	err := c.tls.HandshakeContext(c.base)
	c.waits.Store(nothing)
	if err != nil {
		c.failHandshake(err)
		return
	}
	_ = c.rwc.SetDeadline(time.Time{})
	if c.server.http2 != nil && c.state().NegotiatedProtocol == "h2" {
		c.server.http2.give(c.tls)
		c.server.forget(c)
		return
	}
	c.buffer = buffers.Get().(*[bufferSize]byte)
	c.serve() // most clients send a request at once
}

// failHandshake ends a connection whose handshake failed. The client was told why by an alert, and has time to receive
// it: with TLS 1.3 it may have sent a request already.
func (c *conn) failHandshake(err error) {
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok && header.Conn != nil && isHTTP(header.RecordHeader) {
		c.rwc = c.raw
		c.refuse(errPlain)
		return
	}
	reason := "TLS handshake failed"
	if errors.Is(err, os.ErrDeadlineExceeded) {
		reason = "TLS handshake took too long"
	}
	silent := errors.Is(err, io.EOF) || c.server.draining.Load() // nothing was sent, or it was cut short
	if c.server.Refused != nil && !silent {
		c.server.Refused(Refusal{Local: c.raw.LocalAddr(), Remote: c.remote, Reason: reason})
	}
	c.server.log.Debug("TLS handshake failed", "client", c.remote, "err", err)
	if !silent && !errors.Is(err, os.ErrDeadlineExceeded) {
		finish(c.raw, make([]byte, 512))
	}
	c.close()
}

// isHTTP reports whether the octets that came in the place of a record's header are those of a request.
func isHTTP(header [5]byte) bool {
	begins := []string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO", "TRACE", "CONNE", "PRI *"}
	return slices.Contains(begins, string(header[:]))
}

// state returns what requests have in the field TLS; nil without TLS.
func (c *conn) state() *tls.ConnectionState {
	if c.tls != nil && c.tlsState == nil {
		c.tlsState = new(c.tls.ConnectionState())
	}
	return c.tlsState
}
