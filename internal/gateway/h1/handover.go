package h1

import (
	"context"
	"net"
	"net/http"
	"sync"

	"portolan.dev/portolan/internal/support/budget"
)

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
	return nil
}

// handover is a listener whose connections another server accepted.
type handover struct {
	conns chan net.Conn
	ended chan struct{}
	end   func()
}

func newHandover() *handover {
	h := &handover{conns: make(chan net.Conn), ended: make(chan struct{})}
	h.end = sync.OnceFunc(func() { close(h.ended) })
	return h
}

// connKey is the key of the connection in the contexts of its requests over HTTP/2.
type connKey struct{}

// asHTTP1 has the requests of a server of HTTP/2 have the limits that those over HTTP/1.1 have, and its connections be
// busy only while they have requests.
func asHTTP1(server *http.Server, limits *Limits) {
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(interface{ NetConn() net.Conn }); ok {
			defer budget.Use(c.NetConn())()
		}
		paced, r := paced(limits, w, r)
		defer paced.done()
		handler.ServeHTTP(paced, r)
	})
}

// give has the listener accept a connection, or closes it if the listener has ended.
func (h *handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.ended:
		c.Close()
	}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. A server that shuts down goes on to accept, so that connections which have just sent
// their first octets are served; end ends that.
func (h *handover) Close() error { return nil }

// Addr implements net.Listener.
func (h *handover) Addr() net.Addr { return &net.TCPAddr{} }
