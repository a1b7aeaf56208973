package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// chunk is how many octets are moved at once: as many as a pipe has room for.
	chunk = 64 << 10
	// keptPipes is how many pipes are kept for further use.
	keptPipes = 64
)

// pipes are those that are not in use.
type pipes struct{ free chan *pipe }

func newPipes() *pipes { return &pipes{make(chan *pipe, keptPipes)} }

// pipe is one of the kernel's (pipe(7)).
type pipe struct{ r, w int }

// get returns an empty pipe.
func (p *pipes) get() (*pipe, error) {
	select {
	case made := <-p.free:
		return made, nil
	default:
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	return &pipe{fds[0], fds[1]}, nil
}

// put gives back an empty pipe.
func (p *pipes) put(was *pipe) {
	select {
	case p.free <- was:
	default:
		was.close()
	}
}

func (p *pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

// mover returns what moves octets from one connection to another.
func (s *Server) mover(from, to net.Conn) func() (int64, error) {
	m := &splicer{pipes: s.pipes, from: rawConn(from), to: rawConn(to)}
	if m.from == nil || m.to == nil {
		return copier(from, to)
	}
	m.fill, m.drain = m.tryFill, m.tryDrain
	return m.move
}

// splicer moves octets between sockets, by a pipe that it has only while there are some (splice(2)).
type splicer struct {
	pipes       *pipes
	from, to    syscall.RawConn
	fill, drain func(fd uintptr) bool

	// These are of the move that goes on.
	pipe *pipe
	n    int64 // octets that came
	left int64 // those of them that are in the pipe
	err  error
}

// move waits for octets and moves them.
func (m *splicer) move() (int64, error) {
	m.n, m.left, m.err = 0, 0, nil
	if err := m.from.Read(m.fill); err != nil {
		return 0, err
	}
	if m.err == nil && m.n == 0 {
		m.err = io.EOF
	}
	if m.err == nil {
		if err := m.to.Write(m.drain); err != nil {
			m.err = err
		}
	}
	if m.pipe != nil {
		if m.left == 0 {
			m.pipes.put(m.pipe)
		} else {
			m.pipe.close()
		}
		m.pipe = nil
	}
	return m.n - m.left, m.err
}

// tryFill reads, and reports whether there was anything to read.
func (m *splicer) tryFill(fd uintptr) bool {
	if m.pipe, m.err = m.pipes.get(); m.err != nil {
		return true
	}
	m.n, m.err = splice(int(fd), m.pipe.w, chunk)
	if errors.Is(m.err, unix.EAGAIN) {
		m.pipes.put(m.pipe)
		m.pipe, m.n, m.err = nil, 0, nil
		return false
	}
	m.left = m.n
	return true
}

// tryDrain writes, and reports whether all is written.
func (m *splicer) tryDrain(fd uintptr) bool {
	for m.left > 0 {
		n, err := splice(m.pipe.r, int(fd), int(m.left))
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
			m.err = err
			return true
		}
		m.left -= n
	}
	return true
}

// splice moves at most so many octets.
func splice(from, to, most int) (int64, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if !errors.Is(err, unix.EINTR) {
			return max(0, n), os.NewSyscallError("splice", err)
		}
	}
}

// reset has the connection be closed by a reset, what was sent aside (socket(7), SO_LINGER).
func reset(fd uintptr) {
	_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}
