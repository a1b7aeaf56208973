package app

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"portolan.dev/portolan/internal/support/sockbuf"
)

// tracked is the open connections of a socket, also those that became another protocol's, of which its
// server knows nothing any more.
type tracked struct {
	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
	none   chan struct{} // closed when there are none; nil while nobody waits
}

func newTracked() *tracked { return &tracked{open: make(map[*trackedConn]struct{})} }

// listener returns l, of which the connections are tracked.
func (t *tracked) listener(l net.Listener) net.Listener { return &trackedListener{l, t} }

type trackedListener struct {
	net.Listener
	by *tracked
}

// Accept implements net.Listener.
func (l *trackedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &trackedConn{conn, l.by}
	l.by.mu.Lock()
	defer l.by.mu.Unlock()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = sockbuf.Accepted(tcp, sockbuf.Size(len(l.by.open))) // if it fails, the client is gone
	}
	if l.by.closed {
		return c, conn.Close()
	}
	l.by.open[c] = struct{}{}
	return c, nil
}

type trackedConn struct {
	net.Conn
	by *tracked
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.by.mu.Lock()
	delete(c.by.open, c)
	if c.by.none != nil && len(c.by.open) == 0 {
		close(c.by.none)
		c.by.none = nil
	}
	c.by.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends what is sent.
func (c *trackedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetLinger is that of the connection, if it is one of TCP.
func (c *trackedConn) SetLinger(seconds int) error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.SetLinger(seconds)
	}
	return errors.ErrUnsupported
}

// SyscallConn is that of the connection, as those use it who wait for it without a buffer.
func (c *trackedConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// appendTo appends those that are open.
func (t *tracked) appendTo(all []net.Conn) []net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		all = append(all, c)
	}
	return all
}

// wait waits until there are none, or ctx is done.
func (t *tracked) wait(ctx context.Context) {
	t.mu.Lock()
	if len(t.open) == 0 {
		t.mu.Unlock()
		return
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// close closes all, and those that are still accepted.
func (t *tracked) close() {
	t.mu.Lock()
	t.closed = true
	var all []net.Conn
	for c := range t.open {
		all = append(all, c)
	}
	t.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}
