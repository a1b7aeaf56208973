package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/gateway/upstream"
	"portolan.dev/portolan/internal/gateway/wire"
)

// halfClosedFor is how long one direction of a tunnel may be silent after the other one has ended.
const halfClosedFor = time.Minute

// tunnel passes on both directions of a connection that became another protocol's (RFC 9110, section 7.8), until both
// have ended or one fails.
func (p *Proxy) tunnel(w *recorder, x *exchange, res *upstream.Response) {
	endpoint, received := res.Upgraded()
	header := w.Header()
	changeResponse(header, x)
	client, both, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		p.abort(x, ClientGone)
	}
	defer client.Close()
	x.Status = http.StatusSwitchingProtocols
	_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = header.Write(both)
	_, _ = both.WriteString("\r\n")
	_, _ = both.Write(received)
	if both.Flush() != nil {
		p.abort(x, ClientGone)
	}
	if n := both.Reader.Buffered(); n > 0 {
		sent, _ := both.Peek(n)
		if _, err := endpoint.Write(sent); err != nil {
			p.abort(x, BrokenOff)
		}
	}
	there, back := newDirection(client, endpoint), newDirection(endpoint, client)
	there.back, back.back = back, there
	var ended sync.WaitGroup
	ended.Go(there.pass)
	back.pass()
	ended.Wait()
	x.Sent = back.passed + int64(len(received))
}

// direction is one of a tunnel. While nothing comes it holds no buffer.
type direction struct {
	from, to net.Conn
	raw      syscall.RawConn // of from; nil if it has none
	try      func(fd uintptr) bool
	passed   int64 // octets
	back     *direction

	mu       sync.Mutex
	backOnly bool // the other direction has ended

	// These are of the last read.
	room []byte
	n    int
	err  error
}

func newDirection(from, to net.Conn) *direction {
	d := &direction{from: from, to: to}
	if s, ok := from.(syscall.Conn); ok {
		d.raw, _ = s.SyscallConn()
		d.try = d.tryRead
	}
	return d
}

// pass passes on what comes. When that ends it ends what goes there; when it fails it closes both connections.
func (d *direction) pass() {
	for {
		d.receive()
		if d.n > 0 {
			if _, err := d.to.Write(d.room[:d.n]); err != nil {
				d.err = err
			}
			d.passed += int64(d.n)
		}
		wire.FreeRoom(d.room)
		d.room = nil
		switch half, ok := d.to.(interface{ CloseWrite() error }); {
		case d.err == nil:
		case errors.Is(d.err, io.EOF) && ok && half.CloseWrite() == nil:
			d.back.last()
			return
		default:
			d.from.Close()
			d.to.Close()
			return
		}
	}
}

// last notes that only this direction is left.
func (d *direction) last() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.backOnly = true
	_ = d.from.SetReadDeadline(time.Now().Add(halfClosedFor))
}

// receive reads what comes next.
func (d *direction) receive() {
	d.mu.Lock()
	if d.backOnly {
		_ = d.from.SetReadDeadline(time.Now().Add(halfClosedFor))
	}
	d.mu.Unlock()
	if d.raw == nil {
		d.room = wire.NewRoom(d.n)
		d.n, d.err = d.from.Read(d.room)
		return
	}
	if err := d.raw.Read(d.try); err != nil {
		d.n, d.err = 0, err
	}
}

// tryRead reads, and reports whether there was anything to read.
func (d *direction) tryRead(fd uintptr) bool {
	d.room = wire.NewRoom(d.n)
	n, err := syscall.Read(int(fd), d.room)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(int(fd), d.room)
	}
	switch {
	case errors.Is(err, syscall.EAGAIN):
		wire.FreeRoom(d.room)
		d.room = nil
		return false
	case err != nil:
		n = 0
	case n == 0:
		err = io.EOF
	}
	d.n, d.err = n, err
	return true
}
