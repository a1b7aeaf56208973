package httpserver

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// handshakeRecord is the first octet of a connection that begins with TLS (RFC 8446, section 5.1). No
// method of HTTP begins with it.
const handshakeRecord = 22

// mixed is a listener whose connections may begin with TLS or not.
type mixed struct {
	net.Listener
	config *tls.Config
	ready  chan net.Conn
	// closed is done when Accept failed for good, with err.
	closed chan struct{}
	err    error
	once   sync.Once
}

// mix returns a listener of the connections of l: those that begin with TLS are *tls.Conn. A
// connection is accepted when its client has sent something, within headerTimeout.
func mix(l net.Listener, config *tls.Config) net.Listener {
	return &mixed{Listener: l, config: config, ready: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept returns the next connection whose kind is known.
func (m *mixed) Accept() (net.Conn, error) {
	m.once.Do(func() { go m.accept() })
	select {
	case c := <-m.ready:
		return c, nil
	case <-m.closed:
		return nil, m.err
	}
}

// accept accepts connections until the listener is closed.
func (m *mixed) accept() {
	defer close(m.closed)
	for {
		c, err := m.Listener.Accept()
		if err != nil {
			if temporary, ok := err.(interface{ Temporary() bool }); ok && temporary.Temporary() {
				time.Sleep(acceptPause)
				continue
			}
			m.err = err
			return
		}
		go m.sort(c)
	}
}

// acceptPause is the time after an error, such as of too many open files, that ends by itself.
const acceptPause = 50 * time.Millisecond

// sort finds out what a connection begins with, and hands it to Accept.
func (m *mixed) sort(c net.Conn) {
	first := make([]byte, 1)
	_ = c.SetReadDeadline(time.Now().Add(headerTimeout)) // reading reports the error
	if n, err := c.Read(first); n == 0 || err != nil {
		c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	made := net.Conn(&begun{Conn: c, first: first})
	if first[0] == handshakeRecord {
		made = tls.Server(made, m.config)
	}
	select {
	case m.ready <- made:
	case <-m.closed:
		c.Close()
	}
}

// begun is a connection of which the first octets are read already.
type begun struct {
	net.Conn
	first []byte
}

// Read reads the first octets again.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}

// NetConn returns the connection itself, see budget.Use.
func (b *begun) NetConn() net.Conn { return b.Conn }

// CloseWrite is that of the connection, as net/http uses it.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
