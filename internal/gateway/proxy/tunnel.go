package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
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
	receiver *wire.Receiver
	passed   int64 // octets
	back     *direction

	mu    sync.Mutex
	alone bool // the other direction has ended
}

func newDirection(from, to net.Conn) *direction {
	return &direction{from: from, to: to, receiver: wire.NewReceiver(from)}
}

// pass passes on what comes. When that ends it ends what goes there; when it fails it closes both connections.
func (d *direction) pass() {
	for {
		d.extend()
		room, n, err := d.receiver.Receive()
		if err == nil {
			_, err = d.to.Write(room[:n])
			d.passed += int64(n)
			wire.FreeRoom(room)
		}
		switch half, ok := d.to.(interface{ CloseWrite() error }); {
		case err == nil:
		case errors.Is(err, io.EOF) && ok && half.CloseWrite() == nil:
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
	d.alone = true
	d.mu.Unlock()
	d.extend()
}

// extend lets the direction be silent for a while, if it is the only one that is left.
func (d *direction) extend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.alone {
		_ = d.from.SetReadDeadline(time.Now().Add(halfClosedFor))
	}
}
