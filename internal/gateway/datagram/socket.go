package datagram

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
)

// lastReplies is how long an endpoint may be silent at the end of a socket, which takes nothing any more then.
const lastReplies = 2 * time.Second

// Socket is a socket at which a Server takes datagrams.
type Socket struct {
	server *Server
	at     table.Socket
	conn   *net.UDPConn
	any    bool // it is bound to all addresses

	mu       sync.Mutex
	sessions map[flow]*session
	draining bool
	none     chan struct{} // closed when there are no sessions; nil while nobody waits
}

// flow is a client, and the address of ours that it sends to, which is none if the socket has only one.
type flow struct {
	client netip.AddrPort
	local  netip.Addr
}

// Open returns the Socket of a connection that is bound. The Socket closes it.
func (s *Server) Open(at table.Socket, conn *net.UDPConn) (*Socket, error) {
	made := &Socket{server: s, at: at, conn: conn, sessions: make(map[flow]*session)}
	bound, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return nil, err
	}
	if made.any = bound.Addr().IsUnspecified(); made.any {
		if err := receiveDestinations(conn); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// Addr returns the address that the Socket is bound to.
func (k *Socket) Addr() net.Addr { return k.conn.LocalAddr() }

// Serve takes datagrams until Drain or Close is called.
func (k *Socket) Serve() {
	room, control := make([]byte, maxDatagram), make([]byte, controlSize)
	for {
		n, c, _, from, err := k.conn.ReadMsgUDPAddrPort(room, control)
		switch {
		case err == nil:
			of := flow{client: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
			var source []byte
			if k.any {
				of.local, source = destination(control[:c])
			}
			k.receive(of, source, room[:n])
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return
		default: // an error of ICMP, or no memory is left
			k.server.cfg.Log.Debug("a datagram is not received", "err", err)
		}
	}
}

// receive passes on a datagram of a client.
func (k *Socket) receive(of flow, source, octets []byte) {
	k.mu.Lock()
	one := k.sessions[of]
	k.mu.Unlock()
	if one == nil {
		if one = k.begin(of, source); one == nil {
			return
		}
	}
	one.there(octets)
}

// begin begins a session; nil if there is nowhere to send to.
func (k *Socket) begin(of flow, source []byte) *session {
	one := &session{
		Record: Record{Client: of.client, Began: time.Now()}, socket: k, of: of, source: append([]byte(nil), source...),
	}
	if reason := one.connect(); reason != "" {
		one.Reason = reason
		k.server.cfg.Done(&one.Record)
		return nil
	}
	k.mu.Lock()
	if k.draining {
		k.mu.Unlock()
		one.conn.Close()
		one.endpoint.Done()
		return nil
	}
	k.sessions[of] = one
	k.mu.Unlock()
	k.server.count.Add(1)
	k.server.join(one)
	entry := k.server.cfg.Sessions.Enter(of.client.Addr(), func(error) { one.end(NoRoom) })
	one.entry = entry
	go one.run()
	return one
}

// forget removes a session that has ended.
func (k *Socket) forget(one *session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sessions, one.of)
	if k.none != nil && len(k.sessions) == 0 {
		close(k.none)
		k.none = nil
	}
}

// all returns the sessions.
func (k *Socket) all() (made []*session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.sessions {
		made = append(made, one)
	}
	return made
}

// Drain takes no more datagrams, and lets endpoints answer until they are silent, or ctx is done.
func (k *Socket) Drain(ctx context.Context) {
	none := make(chan struct{})
	k.mu.Lock()
	k.draining = true
	if len(k.sessions) == 0 {
		close(none)
	} else {
		k.none = none
	}
	k.mu.Unlock()
	_ = k.conn.SetReadDeadline(time.Unix(1, 0))
	for _, one := range k.all() {
		one.wake()
	}
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// Close ends all sessions.
func (k *Socket) Close() {
	k.mu.Lock()
	k.draining = true
	k.mu.Unlock()
	k.conn.Close()
	for _, one := range k.all() {
		one.end(Stopped)
	}
}

// idle returns after how long sessions end.
func (k *Socket) idle() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.draining {
		return min(lastReplies, k.server.cfg.Idle)
	}
	return k.server.cfg.Idle
}
