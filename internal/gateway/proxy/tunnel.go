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
	passed   int64           // octets
	back     *direction

	mu       sync.Mutex
	backOnly bool // the other direction has ended

	// These are of the read that goes on.
	room *[tunnelRoom]byte
	n    int
	err  error
}

// tunnelRoom is how much is passed on at once.
const tunnelRoom = 16 << 10

var tunnelRooms = sync.Pool{New: func() any { return new([tunnelRoom]byte) }}

func newDirection(from, to net.Conn) *direction {
	d := &direction{from: from, to: to}
	if s, ok := from.(syscall.Conn); ok {
		d.raw, _ = s.SyscallConn()
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
		if d.room != nil {
			tunnelRooms.Put(d.room)
			d.room = nil
		}
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
	d.n, d.err = 0, nil
	if d.raw == nil {
		d.room = tunnelRooms.Get().(*[tunnelRoom]byte)
		d.n, d.err = d.from.Read(d.room[:])
		return
	}
	if err := d.raw.Read(d.tryRead); err != nil {
		d.err = err
	}
}

// tryRead reads if anything has come.
func (d *direction) tryRead(fd uintptr) bool {
	d.room = tunnelRooms.Get().(*[tunnelRoom]byte)
	for {
		d.n, d.err = syscall.Read(int(fd), d.room[:])
		switch {
		case errors.Is(d.err, syscall.EINTR):
			continue
		case errors.Is(d.err, syscall.EAGAIN):
			tunnelRooms.Put(d.room)
			d.room, d.n, d.err = nil, 0, nil
			return false
		case d.err != nil:
			d.n = 0
		case d.n == 0:
			d.err = io.EOF
		}
		return true
	}
}
