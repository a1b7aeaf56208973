package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// maxHello is how many octets are read for a ClientHello. Those with keys for post-quantum exchanges have about 2 KiB.
const maxHello = 64 << 10

// errNoTLS: the connection does not begin with a record of TLS.
var errNoTLS = errors.New("no TLS")

// errHello ends the handshake that reads a ClientHello.
var errHello = errors.New("the ClientHello is read")

// hello reads the ClientHello of a connection, and returns the connection with nothing read, and the server name in
// lower case. With Encrypted ClientHello it is the one that is not encrypted (RFC 9849, section 6.1).
func hello(c net.Conn, within time.Duration) (_ net.Conn, name string, err error) {
	reader := &recorder{Conn: c}
	_ = c.SetReadDeadline(time.Now().Add(within))
	err = tls.Server(reader, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = strings.TrimSuffix(strings.ToLower(hello.ServerName), ".")
			return nil, errHello
		},
	}).HandshakeContext(context.Background())
	_ = c.SetReadDeadline(time.Time{})
	made := &preread{c, reader.read}
	switch _, noTLS := errors.AsType[tls.RecordHeaderError](err); {
	case errors.Is(err, errHello):
		return made, name, nil
	case noTLS:
		return made, "", errNoTLS
	}
	return made, "", err
}

// recorder keeps what is read, and sends nothing.
type recorder struct {
	net.Conn
	read []byte
}

// Read implements net.Conn.
func (r *recorder) Read(b []byte) (int, error) {
	room := maxHello - len(r.read)
	if room == 0 {
		return 0, io.ErrShortBuffer
	}
	n, err := r.Conn.Read(b[:min(len(b), room)])
	r.read = append(r.read, b[:n]...)
	return n, err
}

// Write implements net.Conn.
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }

// SetWriteDeadline implements net.Conn.
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

// Close implements net.Conn.
func (r *recorder) Close() error { return nil }

// preread is a connection of which some octets were read already.
type preread struct {
	net.Conn
	rest []byte
}

// NetConn returns the connection below, as tls.Conn does.
func (p *preread) NetConn() net.Conn { return p.Conn }

// Read implements net.Conn.
func (p *preread) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.rest)
	if p.rest = p.rest[n:]; len(p.rest) == 0 {
		p.rest = nil
	}
	return n, nil
}

// CloseWrite ends what is sent, if the connection can do that.
func (p *preread) CloseWrite() error { return closeWrite(p.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// abort closes a connection by a reset, so that the other end does not take what it got for all. With TLS there is no
// close_notify either.
func abort(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if raw := rawConn(c); raw != nil {
		_ = raw.Control(func(fd uintptr) { reset(fd) }) // if it fails, the connection is closed
	}
	c.Close()
}

// rawConn returns the connection of the system below others that add nothing to what is sent; nil if there is none.
func rawConn(c net.Conn) syscall.RawConn {
	if p, ok := c.(*preread); ok {
		c = p.Conn
	}
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}
