// Package upstream sends requests to endpoints and reads their responses, over connections of HTTP/1.1 that it keeps
// (RFC 9112), or over HTTP/2 (RFC 9113).
//
//	Client.Do ──► pool.go:     a connection that was kept, or a new one
//	              request.go:  the head, and the body   ──► endpoint
//	              exchange.go: the head of the response ◄── endpoint
//	              body.go:     its body
//	Client.DoHTTP2 ──► http2.go: the same by net/http
//
// An exchange runs in the goroutine that called Do; only a body that had not arrived when the head was sent has one of
// its own, as the response may come before its end. A connection that is not in use has neither a goroutine nor a
// buffer.
//
// Responses are read strictly: if a recipient could find another end of one, it is refused, and its connection is
// closed. So is a connection on which anything is left to send or to read.
package upstream

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
)

// Config bounds what a Client holds. Of fields that are zero the default holds.
type Config struct {
	// IdlePerEndpoint and Idle are how many connections are kept that are not in use; the default is 128 for an
	// endpoint, and 2048 in all. If there are more those go that were not in use for the longest time.
	IdlePerEndpoint, Idle int
	// IdleTimeout is for how long they are kept. The default is 50 s, which is shorter than that of most servers.
	IdleTimeout time.Duration
	// DialTimeout is how long a connection may take to be made. The default is 3 s.
	DialTimeout time.Duration
	// Drain is how long exchanges with an endpoint may go on that was removed, and DrainUpgraded how long connections
	// may that became another protocol's. The defaults are 30 s and 1 h.
	Drain, DrainUpgraded time.Duration
}

// withDefaults returns the Config with the defaults for fields that are zero.
func (c Config) withDefaults() Config {
	return Config{
		IdlePerEndpoint: cmp.Or(c.IdlePerEndpoint, 128),
		Idle:            cmp.Or(c.Idle, 2048),
		IdleTimeout:     cmp.Or(c.IdleTimeout, 50*time.Second),
		DialTimeout:     cmp.Or(c.DialTimeout, table.DialTimeout),
		Drain:           cmp.Or(c.Drain, 30*time.Second),
		DrainUpgraded:   cmp.Or(c.DrainUpgraded, time.Hour),
	}
}

// Response is a response of which the head was read. It must be closed.
type Response struct {
	Status int
	// Length is that of the body; -1 if it is not known.
	Length int64
	stream
}

// stream is what comes behind the head of a Response.
type stream interface {
	// Next returns the next octets of the body. They are valid until it is called again. The error is io.EOF, maybe
	// together with octets, at the end of the body.
	Next() ([]byte, error)
	// NextReceived is Next without waiting for the endpoint: then it returns nothing, and no error.
	NextReceived() ([]byte, error)
	// Trailer returns the trailer section behind the body; nil if it has no fields.
	Trailer() http.Header
	// Unread reports whether some of the request's body was not read yet.
	Unread() bool
	// Upgraded returns the connection after a response with status 101, and what was received behind that. It is
	// closed by Close.
	Upgraded() (conn net.Conn, received []byte)
	// Close ends the exchange. The connection is kept if both messages are complete.
	Close()
}

// Failure is how far an exchange came that failed.
type Failure uint8

// Failures.
const (
	// Lost: there was no response, and the endpoint may have got the request.
	Lost Failure = iota
	// Unsent: nothing of the request was sent, as there was no connection.
	Unsent
	// Exhausted is Unsent because this process has no descriptors or ports left.
	Exhausted
	// Stale is Lost because a connection that had been kept was closed at the time when the request was sent.
	Stale
	// Malformed: the response is not one of HTTP, or exceeds limits.
	Malformed
	// BadBody: the body of the request could not be read.
	BadBody
)

// Error is why an exchange failed. An exchange that its context or its deadline ended has the error of the context, or
// one that is os.ErrDeadlineExceeded.
type Error struct {
	Failure Failure
	Err     error
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %v", [...]string{
		"no response", "connect", "connect", "connection was closed", "malformed response", "body of the request",
	}[e.Failure], e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
