package budget

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// Listener returns l with its connections as entries of the account. A new connection
// may close an old one.
func (a *Account) Listener(l net.Listener) net.Listener { return listener{l, a} }

type listener struct {
	net.Listener
	account *Account
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	var addr netip.Addr // none for a Unix socket
	if remote, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		addr = remote.Addr()
	}
	return accounted{conn, l.account.Enter(addr, func(error) { conn.Close() })}, nil
}

// accounted is a connection that is an entry.
type accounted struct {
	net.Conn
	entry *Entry
}

// Close implements net.Conn.
func (c accounted) Close() error {
	c.entry.Leave()
	return c.Conn.Close()
}

// CloseWrite is that of the connection, as net/http uses it.
func (c accounted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn is that of the connection, as those use it who wait for it without a buffer.
func (c accounted) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Use makes a connection that a Listener has accepted busy until done is called, see
// Entry.Use. With a Listener below another, it is busy in both accounts. The connection may be below others that have a
// method NetConn, as tls.Conn does.
func Use(conn net.Conn) (done func()) {
	c, ok := conn.(accounted)
	if !ok {
		if above, ok := conn.(interface{ NetConn() net.Conn }); ok {
			return Use(above.NetConn())
		}
		return func() {}
	}
	c.entry.Use()
	if below, ok := c.Conn.(accounted); ok {
		done := Use(below)
		return func() {
			done()
			c.entry.Done()
		}
	}
	return c.entry.Done
}
