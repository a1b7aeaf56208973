package load

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/mmsg"
)

// stream is a connection shared by many queries.
type stream struct {
	*wire
	carried  io.ReadWriter // the wire, or TLS over it
	outgoing []byte        // queries sent together
	received []byte        // the beginning of a message
	buffer   []byte
}

func newStream(w *wire, carried io.ReadWriter) *stream {
	const longest = 1<<16 + 2 // a message with its length
	return &stream{wire: w, carried: carried, buffer: make([]byte, 4*longest)}
}

func (g *generator) dialTCP() (*stream, error) {
	w, err := g.dialWire()
	return newStream(w, w), err
}

func (g *generator) dialTLS() (*stream, error) {
	w, err := g.dialWire()
	if err != nil {
		return nil, err
	}
	config, err := g.tlsConfig()
	if err != nil {
		return nil, err
	}
	secure := tls.Client(w, config)
	w.waits = true
	err = secure.Handshake()
	w.waits = false
	return newStream(w, secure), err
}

// send accepts all queries, or none while earlier ones are not completely sent. It also
// sends the rest of those.
func (s *stream) send(queries [][]byte) (int, error) {
	if err := s.flush(); err != nil || len(s.unsent) > 0 || len(queries) == 0 {
		return 0, err
	}
	s.outgoing = s.outgoing[:0]
	for _, q := range queries {
		s.outgoing = binary.BigEndian.AppendUint16(s.outgoing, uint16(len(q)))
		s.outgoing = append(s.outgoing, q...)
	}
	_, err := s.carried.Write(s.outgoing)
	return len(queries), err
}

// receive reads once from a plain connection, which returns all available data, and
// from TLS until there is no more, because TLS returns one record at a time.
func (s *stream) receive(each func(message []byte)) error {
	for plain := s.carried == io.ReadWriter(s.wire); ; {
		n, err := s.carried.Read(s.buffer[len(s.received):])
		s.cut(len(s.received)+n, each)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the server closed a connection")
		case err != nil || plain:
			return err
		}
	}
}

// cut splits the first n octets of the buffer into messages. An incomplete message
// stays in the buffer.
func (s *stream) cut(n int, each func(message []byte)) {
	rest := s.buffer[:n]
	for {
		message, after, ok := cutFrame(rest)
		if !ok {
			break
		}
		each(message)
		rest = after
	}
	s.received = s.buffer[:copy(s.buffer, rest)]
}

// wire is a TCP connection that does not block unless waits is set. It implements
// net.Conn for TLS; the other methods do nothing.
type wire struct {
	fd     int
	unsent []byte // what the system has not accepted yet
	waits  bool
}

func (g *generator) dialWire() (*wire, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return nil, err
	}
	return &wire{fd: fd}, g.connect(fd)
}

// Read reads the available data. Without any it returns os.ErrDeadlineExceeded, after
// which TLS can continue to read.
func (w *wire) Read(b []byte) (int, error) {
	read := mmsg.Read
	if w.waits {
		read = unix.Read
	}
	n, err := read(w.fd, b)
	switch {
	case err != nil && unlessLater(err) == nil:
		return 0, os.ErrDeadlineExceeded
	case err != nil:
		return 0, err
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write accepts all data. It stores what the system does not accept.
func (w *wire) Write(b []byte) (int, error) {
	w.unsent = append(w.unsent, b...)
	return len(b), w.flush()
}

// flush sends the stored data, as far as the system accepts it.
func (w *wire) flush() error {
	if len(w.unsent) == 0 {
		return nil
	}
	n, err := mmsg.Write(w.fd, w.unsent)
	if err != nil {
		return unlessLater(err)
	}
	w.unsent = append(w.unsent[:0], w.unsent[n:]...)
	return nil
}

// Close closes the connection.
func (w *wire) Close() error { return unix.Close(w.fd) }

// LocalAddr and the following methods implement net.Conn.
func (w *wire) LocalAddr() net.Addr { return nil }

// RemoteAddr returns nil.
func (w *wire) RemoteAddr() net.Addr { return nil }

// SetDeadline has no effect, because the connection does not block.
func (w *wire) SetDeadline(time.Time) error { return nil }

// SetReadDeadline has no effect.
func (w *wire) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline has no effect.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
