package h1

import (
	"net"
	"sync"
)

// preread is a connection of which some octets were read already.
type preread struct {
	net.Conn
	rest []byte
}

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
	return nil
}

// handover is a listener whose connections another server accepted.
type handover struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newHandover() *handover {
	h := &handover{conns: make(chan net.Conn), closed: make(chan struct{})}
	h.close = sync.OnceFunc(func() { close(h.closed) })
	return h
}

// give has the listener accept a connection, or closes it if the listener is closed.
func (h *handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		c.Close()
	}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handover) Close() error {
	h.close()
	return nil
}

// Addr implements net.Listener.
func (h *handover) Addr() net.Addr { return &net.TCPAddr{} }
