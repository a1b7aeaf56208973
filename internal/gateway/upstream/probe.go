package upstream

import (
	"errors"
	"net"
	"syscall"
)

// probe looks at a connection that is not in use.
type probe struct {
	raw   syscall.RawConn // nil if the connection has none
	read  func(fd uintptr) bool
	empty bool // nothing could be read
}

func (p *probe) init(c net.Conn) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	p.raw, _ = s.SyscallConn()
	p.read = func(fd uintptr) bool {
		var octet [1]byte
		_, err := syscall.Read(int(fd), octet[:])
		p.empty = errors.Is(err, syscall.EAGAIN)
		return true
	}
}

// quiet reports whether the endpoint has neither closed the connection nor sent anything on it: that would be taken
// for a response to the next request. After false the connection is of no use.
func (p *probe) quiet() bool {
	if p.raw == nil {
		return true
	}
	p.empty = false
	return p.raw.Read(p.read) == nil && p.empty
}
