package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/wire"
)

// both passes on both directions, until both have ended, one has failed or nothing comes for too long. It closes both
// connections.
func (s *Server) both(client, endpoint net.Conn, r *Record) table.Reason {
	defer client.Close()
	defer endpoint.Close()
	if p, ok := client.(*preread); ok {
		n, err := endpoint.Write(p.rest)
		if r.Received = int64(n); err != nil {
			abort(client)
			return BrokenOff
		}
		p.rest = nil
	}
	f := &flow{idle: s.cfg.Idle, began: time.Now()}
	there := &direction{flow: f, from: client, to: endpoint, move: s.mover(client, endpoint)}
	back := &direction{flow: f, from: endpoint, to: client, move: s.mover(endpoint, client)}
	var ended sync.WaitGroup
	ended.Go(there.pass)
	back.pass()
	ended.Wait()
	r.Received += there.passed
	r.Sent = back.passed
	reason := f.reason.Load()
	if reason == nil {
		return ""
	}
	return *reason
}

// flow is what both directions of a connection share.
type flow struct {
	idle   time.Duration
	began  time.Time
	last   atomic.Int64 // when something was passed on, since began
	reason atomic.Pointer[table.Reason]
}

// direction is one of a connection.
type direction struct {
	*flow
	from, to net.Conn
	// move waits for octets and passes them on. At the end of what comes it returns io.EOF.
	move   func() (n int64, err error)
	passed int64
}

// pass passes on what comes. When that ends it ends what goes there; when it fails it ends both directions.
func (d *direction) pass() {
	for {
		last := time.Duration(d.last.Load())
		_ = d.from.SetReadDeadline(d.began.Add(last + d.idle))
		_ = d.to.SetWriteDeadline(time.Now().Add(d.idle))
		n, err := d.move()
		d.passed += n
		switch {
		case err == nil:
			d.last.Store(int64(time.Since(d.began)))
		case errors.Is(err, io.EOF):
			d.last.Store(int64(time.Since(d.began)))
			_ = closeWrite(d.to) // if it fails, the other direction sees why
			return
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Duration(d.last.Load()) > last:
			// the other direction is in use
		case errors.Is(err, os.ErrDeadlineExceeded):
			d.fail(Idle)
			return
		default:
			d.fail(BrokenOff)
			return
		}
	}
}

// fail ends both directions, so that both ends see that it was not the other one that ended it.
func (d *direction) fail(why table.Reason) {
	if d.reason.CompareAndSwap(nil, &why) && why == BrokenOff {
		abort(d.from)
		abort(d.to)
		return
	}
	d.from.Close()
	d.to.Close()
}

// copier returns what moves octets by a buffer, which it holds only while something comes, if it can.
func copier(from, to net.Conn) func() (int64, error) {
	receiver := wire.NewReceiver(from)
	return func() (int64, error) {
		room, n, err := receiver.Receive()
		if err != nil {
			return 0, err
		}
		defer wire.FreeRoom(room)
		n, err = to.Write(room[:n])
		return int64(n), err
	}
}
