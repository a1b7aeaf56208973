package wire

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Receiver reads from a connection. While it waits it holds no room, if the connection is one of the system's.
type Receiver struct {
	conn      net.Conn
	raw       syscall.RawConn       // nil if the connection has none
	try, look func(fd uintptr) bool // tryRead and peek

	// These are of the last read.
	room []byte
	n    int
	err  error

	quiet bool // nothing could be read
}

// NewReceiver returns a Receiver of a connection.
func NewReceiver(conn net.Conn) *Receiver {
	r := &Receiver{conn: conn}
	if s, ok := conn.(syscall.Conn); ok {
		r.raw, _ = s.SyscallConn() // without one it holds room
		r.try, r.look = r.tryRead, r.peek
	}
	return r
}

// Receive reads what comes next, and returns it as the begin of room from NewRoom, which the caller gives back. With an
// error there is none.
func (r *Receiver) Receive() (room []byte, n int, err error) {
	if r.raw == nil {
		r.room = NewRoom(r.n)
		r.n, r.err = r.conn.Read(r.room)
		if r.n > 0 {
			r.err = nil // it comes again
		}
	} else if err := r.raw.Read(r.try); err != nil {
		r.n, r.err = 0, err
	}
	room, r.room = r.room, nil
	if r.err != nil {
		FreeRoom(room)
		return nil, 0, r.err
	}
	return room, r.n, nil
}

// Quiet reports whether nothing can be read: neither has the other end closed the connection nor sent anything. After
// false the connection is of no use.
func (r *Receiver) Quiet() bool {
	if r.raw == nil {
		return true
	}
	r.quiet = false
	return r.raw.Read(r.look) == nil && r.quiet
}

// peek reads an octet, which is lost.
func (r *Receiver) peek(fd uintptr) bool {
	var octet [1]byte
	_, err := readSocket(fd, octet[:])
	r.quiet = errors.Is(err, syscall.EAGAIN)
	return true
}

// tryRead reads, and reports whether there was anything to read.
func (r *Receiver) tryRead(fd uintptr) bool {
	r.room = NewRoom(r.n)
	n, err := readSocket(fd, r.room)
	for errors.Is(err, syscall.EINTR) {
		n, err = readSocket(fd, r.room)
	}
	switch {
	case errors.Is(err, syscall.EAGAIN):
		FreeRoom(r.room)
		r.room = nil
		return false
	case err != nil:
		n = 0
	case n == 0:
		err = io.EOF
	}
	r.n, r.err = n, err
	return true
}
