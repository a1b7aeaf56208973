package bgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"
)

// openTime is how long a router may take to send its OPEN message (RFC 4271, section 8.2.2).
const openTime = 4 * time.Minute

// ErrASN4 is the error of a connection to a router that does not know AS numbers of four octets, where the nodes' has
// four.
var ErrASN4 = errors.New("the router knows AS numbers of two octets only")

// errDeselected is the error of a connection of a node whose labels are others now: the peer is de-configured (RFC
// 4486).
var errDeselected = &NotificationError{Code: 6, Subcode: 3}

// session is a connection to a router.
type session struct {
	cfg    *Config
	peer   *Peer
	conn   net.Conn
	ours   open
	theirs open
	hold   time.Duration             // 0 is for ever
	sent   map[netip.Addr]netip.Addr // the next hops of what the router has
	in     chan message
	failed chan error
	ending <-chan struct{} // closed when the process ends
	up     func()          // called once the session is established
}

// run exchanges messages until ctx is done or the connection ends. changed receives a token when state has another
// result.
func (s *session) run(ctx context.Context, changed <-chan struct{}, state func() State) (err error) {
	reading, stop := context.WithCancel(ctx)
	s.in, s.failed, s.ending = make(chan message), make(chan error, 1), ctx.Done()
	defer context.AfterFunc(ctx, func() { _ = s.conn.SetWriteDeadline(time.Now().Add(endTime)) })()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.read(reading)
	}()
	defer func() {
		s.end(err)
		stop()
		<-done
	}()
	if err := s.establish(ctx); err != nil {
		return err
	}
	s.up()
	if err := s.established(ctx, changed, state); ctx.Err() == nil {
		return err
	}
	return nil // what was not sent any more is nothing to tell
}

// read passes messages on until the connection ends.
func (s *session) read(ctx context.Context) {
	for {
		m, err := readMessage(s.conn)
		if err != nil {
			s.failed <- err
			return
		}
		select {
		case s.in <- m:
		case <-ctx.Done():
			return
		}
	}
}

// end tells the router why the connection ends, and ends it. With graceful restart, the end of the process is not told,
// so that the router keeps the routes.
func (s *session) end(err error) {
	var told *NotificationError
	switch {
	case errors.As(err, &told) && !told.Received:
	case err == nil && s.peer.GracefulRestart == 0:
		told = &NotificationError{Code: 6, Subcode: 2} // administrative shutdown, RFC 4486
	default:
		told = nil
	}
	if told != nil {
		_ = s.send(message{typeNotification, []byte{told.Code, told.Subcode}}) // or it has ended
	}
	s.conn.Close()
}

// sendTime is how long a message may take to be sent, and endTime how long when the process ends.
const (
	sendTime = 10 * time.Second
	endTime  = time.Second
)

// send sends messages. When the process ends, only a notification is still sent.
func (s *session) send(all ...message) error {
	for _, m := range all {
		if err := s.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
			return err
		}
		select {
		case <-s.ending:
			if m.kind != typeNotification {
				return context.Canceled
			}
			if err := s.conn.SetWriteDeadline(time.Now().Add(endTime)); err != nil {
				return err
			}
		default:
		}
		if _, err := s.conn.Write(m.encode()); err != nil {
			return err
		}
	}
	return nil
}

// next returns the next message.
func (s *session) next(ctx context.Context, wait time.Duration) (message, error) {
	select {
	case <-ctx.Done():
		return message{}, ctx.Err()
	case m := <-s.in:
		if m.kind == typeNotification {
			return m, &NotificationError{Code: m.body[0], Subcode: m.body[1], Received: true}
		}
		return m, nil
	case err := <-s.failed:
		return message{}, err
	case <-time.After(wait):
		return message{}, &NotificationError{Code: 4}
	}
}

// establish exchanges OPEN messages: the states OpenSent and OpenConfirm.
func (s *session) establish(ctx context.Context) error {
	if err := s.send(s.ours.encode()); err != nil {
		return err
	}
	m, err := s.next(ctx, openTime)
	if err != nil {
		return err
	}
	if m.kind != typeOpen {
		return &NotificationError{Code: 5, Subcode: 1}
	}
	if s.theirs, err = parseOpen(m.body); err != nil {
		return err
	}
	switch {
	case s.theirs.asn != s.peer.ASN:
		return fmt.Errorf("the router has the AS number %d: %w", s.theirs.asn, &NotificationError{Code: 2, Subcode: 2})
	case s.theirs.routerID == s.ours.routerID && s.peer.ASN == s.cfg.ASN:
		return fmt.Errorf("the router has the node's ID: %w", &NotificationError{Code: 2, Subcode: 3})
	case s.cfg.ASN >= 1<<16 && !s.theirs.asn4:
		return ErrASN4
	}
	s.hold = min(s.ours.holdTime, s.theirs.holdTime)
	if err := s.send(message{kind: typeKeepalive}); err != nil {
		return err
	}
	wait := s.hold
	if wait == 0 {
		wait = openTime
	}
	if m, err = s.next(ctx, wait); err != nil {
		return err
	}
	if m.kind != typeKeepalive {
		return &NotificationError{Code: 5, Subcode: 2}
	}
	return nil
}

// established keeps the router up to date: the state Established.
func (s *session) established(ctx context.Context, changed <-chan struct{}, state func() State) error {
	s.sent = make(map[netip.Addr]netip.Addr)
	if err := s.update(state()); err != nil {
		return err
	}
	if s.peer.GracefulRestart > 0 {
		for _, f := range []family{familyIPv4, familyIPv6} {
			if s.theirs.accepts(f) {
				if err := s.send(endOfRIB(f)); err != nil {
					return err
				}
			}
		}
	}
	var keepalive, expired <-chan time.Time
	hold := time.NewTimer(openTime)
	defer hold.Stop()
	if s.hold > 0 {
		tick := time.NewTicker(s.hold / 3)
		defer tick.Stop()
		hold.Reset(s.hold)
		keepalive, expired = tick.C, hold.C
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case err = <-s.failed:
		case <-expired:
			err = &NotificationError{Code: 4}
		case <-keepalive:
			err = s.send(message{kind: typeKeepalive})
		case <-changed:
			if now := state(); s.peer.selects(now.Labels) {
				err = s.update(now)
			} else {
				err = errDeselected
			}
		case m := <-s.in:
			if s.hold > 0 {
				hold.Reset(s.hold)
			}
			err = s.receive(m, state)
		}
		if err != nil {
			return err
		}
	}
}

// receive takes a message of a router. Its routes are ignored.
func (s *session) receive(m message, state func() State) error {
	switch m.kind {
	case typeNotification:
		return &NotificationError{Code: m.body[0], Subcode: m.body[1], Received: true}
	case typeOpen:
		return &NotificationError{Code: 5, Subcode: 3}
	case typeRefresh:
		clear(s.sent)
		return s.update(state())
	}
	return nil
}

// update sends what changed since the last call.
func (s *session) update(state State) error {
	now := make(map[netip.Addr]netip.Addr)
	for _, a := range state.Addrs {
		if hop := s.nextHop(a, state.NextHops); hop.IsValid() && s.theirs.accepts(familyOf(a)) {
			now[a] = hop
		}
	}
	for _, f := range []family{familyIPv4, familyIPv6} {
		gone := slices.SortedFunc(maps.Keys(s.sent), netip.Addr.Compare)
		gone = slices.DeleteFunc(gone, func(a netip.Addr) bool { return now[a].IsValid() || familyOf(a) != f })
		if err := s.send(withdraw(f, gone)...); err != nil {
			return err
		}
		fresh := slices.SortedFunc(maps.Keys(now), netip.Addr.Compare)
		fresh = slices.DeleteFunc(fresh, func(a netip.Addr) bool { return s.sent[a] == now[a] || familyOf(a) != f })
		if len(fresh) == 0 {
			continue
		}
		r := s.route(now[fresh[0]]) // the next hop of all
		if err := s.send(r.announce(fresh)...); err != nil {
			return err
		}
	}
	s.sent = now
	return nil
}

// route returns what all routes with a next hop have in common.
func (s *session) route(hop netip.Addr) *route {
	r := &route{
		nextHop: hop, asn: s.cfg.ASN, asn4: s.theirs.asn4, internal: s.peer.ASN == s.cfg.ASN,
		preference: s.peer.LocalPreference, communities: s.peer.Communities,
	}
	if r.preference == 0 {
		r.preference = 100
	}
	return r
}

// nextHop returns where packets to an address go: the node's end of the connection, if it is of the same family, or one
// of the node's addresses. It is invalid if there is none.
func (s *session) nextHop(a netip.Addr, own []netip.Addr) netip.Addr {
	candidates := own
	if local, err := netip.ParseAddrPort(s.conn.LocalAddr().String()); err == nil {
		candidates = append([]netip.Addr{local.Addr().Unmap().WithZone("")}, own...)
	}
	for _, c := range candidates {
		if c.Is4() == a.Is4() && !c.IsLinkLocalUnicast() {
			return c
		}
	}
	return netip.Addr{}
}
