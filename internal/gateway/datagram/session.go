package datagram

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/budget"
)

// session is what goes both ways between a client and an endpoint.
type session struct {
	Record // the goroutine of run completes it
	socket *Socket
	of     flow
	source []byte // the control message that has replies come from the address that was asked; nil without one
	entry  *budget.Entry

	pool     *balance.Pool
	endpoint *balance.Endpoint
	conn     *net.UDPConn

	why      atomic.Pointer[table.Reason] // it was ended
	last     atomic.Int64                 // when something came, since Began
	received atomic.Int64
	answered atomic.Bool
	known    bool // the client has sent something after a reply: it is not another in its name. Of the socket's goroutine.
}

// connect chooses an endpoint, and connects a socket to it. It returns why there is none; else nothing.
func (o *session) connect() table.Reason {
	s := o.socket.server
	t := s.cfg.Table()
	if t == nil {
		return NoTable
	}
	p := t.Port(o.socket.at)
	if p == nil {
		return NoRoute
	}
	l, rule := p.Stream("")
	if l != nil {
		o.Listener = l.Name
	}
	if rule == nil {
		return NoRoute
	}
	o.Rule = rule
	backend := table.ChooseBackend(rule.Backends)
	switch {
	case backend == nil:
		return NoBackend
	case backend.Upstream == (table.Upstream{}):
		return backend.Reason
	}
	o.Upstream = backend.Upstream
	if o.pool = s.cfg.Endpoints.Pool(o.Upstream); o.pool == nil {
		return NoEndpoint
	}
	if o.endpoint = o.pool.Pick(); o.endpoint == nil {
		return NoEndpoint
	}
	o.Endpoint = o.endpoint.Addr
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(o.Endpoint))
	if err != nil {
		o.endpoint.Done()
		s.cfg.Log.Debug("no socket for an endpoint", "endpoint", o.Endpoint, "err", err)
		return Unreachable
	}
	o.conn = conn
	return ""
}

// there sends a datagram to the endpoint.
func (o *session) there(octets []byte) {
	if !o.known && o.answered.Load() {
		o.known = true
		o.entry.Use()
	}
	_, err := o.conn.Write(octets)
	if err != nil { // an error of ICMP comes with the next datagram, which is not sent then
		_, err = o.conn.Write(octets)
	}
	if err == nil {
		o.touch()
		o.received.Add(int64(len(octets)))
		o.socket.server.sent[0].Add(1)
	}
}

// touch notes that something came.
func (o *session) touch() {
	const seldom = int64(time.Second) // the account has a lock
	now := int64(time.Since(o.Began))
	if was := o.last.Swap(now); now-was > seldom {
		o.entry.Touch()
	}
}

// run passes on what the endpoint sends, until the session ends.
func (o *session) run() {
	s := o.socket.server
	reason := o.back()
	if why := o.why.Load(); why != nil {
		reason = *why
	}
	s.leave(o)
	o.conn.Close()
	o.entry.Leave()
	o.endpoint.Done()
	s.count.Add(-1)
	o.socket.forget(o)
	o.Reason, o.Received, o.Duration = reason, o.received.Load(), time.Since(o.Began)
	s.cfg.Done(&o.Record)
}

// back passes on what the endpoint sends, and returns why nothing comes any more.
func (o *session) back() table.Reason {
	s := o.socket.server
	raw, err := o.conn.SyscallConn()
	if err != nil {
		return Stopped
	}
	for {
		idle := o.socket.idle()
		last := o.last.Load()
		_ = o.conn.SetReadDeadline(o.Began.Add(time.Duration(last) + idle))
		if o.socket.idle() != idle { // the deadline undid that of wake
			continue
		}
		room, n, err := s.read(raw)
		switch {
		case err == nil:
			o.pool.Report(o.endpoint, true)
			o.send(room[:n])
			s.rooms.Put(room)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if time.Since(o.Began) >= time.Duration(o.last.Load())+o.socket.idle() {
				return ""
			}
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
			o.pool.Report(o.endpoint, false)
			return Unreachable // what the client sends next goes to another endpoint
		default:
			return Stopped
		}
	}
}

// send sends a datagram to the client.
func (o *session) send(octets []byte) {
	o.touch()
	if _, _, err := o.socket.conn.WriteMsgUDPAddrPort(octets, o.source, o.of.client); err == nil {
		o.answered.Store(true)
		o.Sent += int64(len(octets))
		o.socket.server.sent[1].Add(1)
	}
}

// read waits for a datagram, and reads it into room that the caller gives back. While it waits it has none.
func (s *Server) read(raw syscall.RawConn) (room *[maxDatagram]byte, n int, err error) {
	waitErr := raw.Read(func(fd uintptr) bool {
		room = s.rooms.Get().(*[maxDatagram]byte)
		for n, err = readSocket(fd, room[:]); errors.Is(err, syscall.EINTR); {
			n, err = readSocket(fd, room[:])
		}
		if err == nil {
			return true
		}
		s.rooms.Put(room)
		room = nil
		return !errors.Is(err, syscall.EAGAIN)
	})
	if waitErr != nil {
		return nil, 0, waitErr
	}
	return room, n, err
}

// end ends the session. It does not wait.
func (o *session) end(why table.Reason) {
	if o.why.CompareAndSwap(nil, &why) {
		o.conn.Close()
	}
}

// wake has the session look again how long it may be idle.
func (o *session) wake() { _ = o.conn.SetReadDeadline(time.Unix(1, 0)) }

// join has a session end when its endpoint is removed: what the client sends next goes to another one.
func (s *Server) join(one *session) {
	s.mu.Lock()
	of, known := s.groups[one.endpoint]
	if !known {
		of = make(map[*session]struct{})
		s.groups[one.endpoint] = of
	}
	of[one] = struct{}{}
	s.mu.Unlock()
	if !known {
		one.endpoint.OnRemoval(func() { s.remove(one.endpoint) })
	}
}

// leave is the end of join.
func (s *Server) leave(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups[one.endpoint], one)
}

// remove ends the sessions of an endpoint that was removed.
func (s *Server) remove(e *balance.Endpoint) {
	s.mu.Lock()
	of := s.groups[e]
	delete(s.groups, e)
	s.mu.Unlock()
	for one := range of {
		one.end(Removed)
	}
}
