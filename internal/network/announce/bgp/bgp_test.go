package bgp

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func octets(tb testing.TB, text string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

const mark = "ffffffffffffffffffffffffffffffff"

var (
	vip4 = netip.MustParseAddr("192.0.2.1")
	vip6 = netip.MustParseAddr("2001:db8::1")
	hop4 = netip.MustParseAddr("198.51.100.1")
	hop6 = netip.MustParseAddr("2001:db8:1::1")
)

// TestEncode: messages, octet by octet as their RFCs have them.
func TestEncode(t *testing.T) {
	t.Parallel()
	external := route{nextHop: hop4, asn: 65001, asn4: true, communities: []uint32{65001<<16 | 1}}
	internal := route{nextHop: hop6, asn: 65001, asn4: true, internal: true, preference: 200}
	old := route{nextHop: hop4, asn: 65001}
	tests := map[string]struct {
		got  message
		want string
	}{
		"keepalive": {message{kind: typeKeepalive}, mark + "0013 04"},
		"open": {
			(&open{
				asn: 4200000000, holdTime: 90 * time.Second, routerID: hop4, families: []family{familyIPv4, familyIPv6},
				graceful: 120 * time.Second, restarted: true,
			}).encode(),
			mark + "003f 01 04 5ba0 005a c6336401 22 02 20" +
				"01 04 0001 00 01  01 04 0002 00 01  02 00  41 04 fa56ea00  40 0a 8078 0001 01 80 0002 01 80",
		},
		"external, IPv4": {
			external.announce([]netip.Addr{vip4})[0],
			mark + "0037 02 0000 001b" +
				"40 01 01 00  40 02 06 02 01 0000fde9  40 03 04 c6336401  c0 08 04 fde90001" + "20 c0000201",
		},
		"external, to a router with numbers of two octets": {
			old.announce([]netip.Addr{vip4})[0],
			mark + "002e 02 0000 0012" + "40 01 01 00  40 02 04 02 01 fde9  40 03 04 c6336401" + "20 c0000201",
		},
		"internal, IPv6": {
			internal.announce([]netip.Addr{vip6})[0],
			mark + "004e 02 0000 0037" +
				"40 01 01 00  40 02 00  40 05 04 000000c8" +
				"80 0e 26 0002 01 10 20010db8000100000000000000000001 00 80 20010db8000000000000000000000001",
		},
		"withdraw IPv4": {withdraw(familyIPv4, []netip.Addr{vip4})[0], mark + "001c 02 0005 20 c0000201 0000"},
		"withdraw IPv6": {
			withdraw(familyIPv6, []netip.Addr{vip6})[0],
			mark + "002e 02 0000 0017 80 0f 14 0002 01 80 20010db8000000000000000000000001",
		},
		"end of IPv4": {endOfRIB(familyIPv4), mark + "0017 02 0000 0000"},
		"end of IPv6": {endOfRIB(familyIPv6), mark + "001d 02 0000 0006 80 0f 03 0002 01"},
	}
	for claim, test := range tests {
		want := octets(t, test.want)
		if got := test.got.encode(); !bytes.Equal(got, want) {
			t.Errorf("%s:\n%x, want\n%x", claim, got, want)
		}
		if m, err := readMessage(bytes.NewReader(want)); err != nil || m.kind != test.got.kind {
			t.Errorf("%s: readMessage = %+v, %v", claim, m, err)
		}
	}
	var many []netip.Addr
	for a := vip6; len(many) < 1000; a = a.Next() {
		many = append(many, a)
	}
	internal.communities = make([]uint32, 64)
	for _, m := range internal.announce(many) {
		if n := len(m.encode()); n > maxMessage {
			t.Errorf("a message has %d octets", n)
		}
	}
}

// TestBroken: each fault has its notification (RFC 4271, section 6).
func TestBroken(t *testing.T) {
	t.Parallel()
	valid := func() []byte {
		return (&open{asn: 65001, holdTime: 90 * time.Second, routerID: hop4}).encode().encode()
	}
	for claim, test := range map[string]struct {
		at            int
		value         byte
		code, subcode uint8
	}{
		"the marker":            {3, 0, 1, 1},
		"a length too small":    {17, 20, 1, 2},
		"a length too large":    {16, 0x10, 1, 2},
		"an unknown type":       {18, 9, 1, 3},
		"another version":       {19, 3, 2, 1},
		"parameters too long":   {28, 200, 2, 0},
		"a capability too long": {32, 200, 2, 0},
	} {
		b := valid()
		b[test.at] = test.value
		m, err := readMessage(bytes.NewReader(b))
		if err == nil {
			_, err = parseOpen(m.body)
		}
		var told *NotificationError
		if !errors.As(err, &told) || told.Code != test.code || told.Subcode != test.subcode {
			t.Errorf("%s: %v, want code %d, subcode %d", claim, err, test.code, test.subcode)
		}
	}
	for claim, test := range map[string]struct {
		open
		subcode uint8
	}{
		"no ID":            {open{asn: 1, routerID: netip.IPv4Unspecified()}, 3},
		"a hold time of 1": {open{asn: 1, routerID: hop4, holdTime: time.Second}, 6},
	} {
		_, err := parseOpen(test.encode().body)
		var told *NotificationError
		if !errors.As(err, &told) || told.Code != 2 || told.Subcode != test.subcode {
			t.Errorf("%s: %v, want code 2, subcode %d", claim, err, test.subcode)
		}
	}
}

// FuzzRead: whatever a router sends, nothing panics, and what is read is bounded.
func FuzzRead(f *testing.F) {
	f.Add((&open{asn: 1, holdTime: time.Minute, routerID: hop4, families: []family{familyIPv6}, graceful: time.Minute}).encode().encode())
	f.Add(message{kind: typeKeepalive}.encode())
	f.Add(endOfRIB(familyIPv6).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readMessage(bytes.NewReader(b))
		if err != nil {
			return
		}
		if len(m.body) > maxMessage || m.kind == typeNotification && len(m.body) < 2 {
			t.Errorf("readMessage(%x) = %+v", b, m)
		}
		if m.kind == typeOpen {
			_, _ = parseOpen(m.body)
		}
	})
}

// router is the other end of a session, in memory.
type router struct {
	conn net.Conn
	in   chan message
}

// connectRouter returns a router that waits for the session of a peer. changed and state are those of the session.
func connectRouter(t *testing.T, peer *Peer, state func() State) (r *router, changed chan struct{}, ended chan error, stop func()) {
	t.Helper()
	ours, theirs := net.Pipe()
	s := &session{
		cfg: &Config{ASN: 65001, HoldTime: DefaultHoldTime}, peer: peer, conn: ours, up: func() {},
		ours: open{asn: 65001, holdTime: DefaultHoldTime, routerID: hop4, families: []family{familyIPv4, familyIPv6}, graceful: peer.GracefulRestart},
	}
	r = &router{theirs, make(chan message, 1000)}
	go func() {
		defer close(r.in)
		for {
			m, err := readMessage(theirs)
			if err != nil {
				return
			}
			r.in <- m
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	changed, ended = make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- s.run(ctx, changed, state) }()
	return r, changed, ended, cancel
}

func (r *router) send(t *testing.T, m message) {
	t.Helper()
	if _, err := r.conn.Write(m.encode()); err != nil {
		t.Errorf("write: %v", err)
	}
}

// expect checks the next message.
func (r *router) expect(t *testing.T, want message) {
	t.Helper()
	select {
	case got := <-r.in:
		if got.kind != want.kind || !bytes.Equal(got.body, want.body) {
			t.Errorf("the router received type %d, %x, want type %d, %x", got.kind, got.body, want.kind, want.body)
		}
	case <-time.After(time.Hour):
		t.Errorf("the router received nothing, want type %d, %x", want.kind, want.body)
	}
}

// establish answers OPEN with these families, and returns once the session is established.
func (r *router) establish(t *testing.T, asn uint32, hold time.Duration, families ...family) {
	t.Helper()
	if m := <-r.in; m.kind != typeOpen {
		t.Errorf("the first message has type %d", m.kind)
	}
	r.send(t, (&open{asn: asn, holdTime: hold, routerID: netip.MustParseAddr("192.0.2.250"), families: families}).encode())
	r.expect(t, message{kind: typeKeepalive})
	r.send(t, message{kind: typeKeepalive})
}

// TestSession: the router learns of addresses and of changes, of the families that it takes.
func TestSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		state := State{Addrs: []netip.Addr{vip4, vip6}, NextHops: []netip.Addr{hop4, hop6}}
		r, changed, ended, stop := connectRouter(t, &Peer{ASN: 65002}, func() State { return state })
		r.establish(t, 65002, 30*time.Second, familyIPv4)
		of := route{nextHop: hop4, asn: 65001, asn4: true}
		r.expect(t, of.announce([]netip.Addr{vip4})[0])
		synctest.Wait()
		state.Addrs = []netip.Addr{vip4.Next(), vip6}
		changed <- struct{}{}
		r.expect(t, withdraw(familyIPv4, []netip.Addr{vip4})[0])
		r.expect(t, of.announce([]netip.Addr{vip4.Next()})[0])
		r.send(t, message{typeRefresh, []byte{0, 1, 0, 1}})
		r.expect(t, of.announce([]netip.Addr{vip4.Next()})[0])
		begin := time.Now()
		r.expect(t, message{kind: typeKeepalive})
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("a keepalive after %s, want a third of the hold time, 10s", took)
		}
		stop()
		r.expect(t, message{typeNotification, []byte{6, 2}})
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
	})
}

// TestGraceful: with graceful restart, the router hears where the routes end, and not that the process does.
func TestGraceful(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		state := State{Addrs: []netip.Addr{vip6}, NextHops: []netip.Addr{hop4, hop6}}
		peer := &Peer{ASN: 65001, LocalPreference: 300, Communities: []uint32{1}, GracefulRestart: time.Minute}
		r, _, ended, stop := connectRouter(t, peer, func() State { return state })
		r.establish(t, 65001, 0, familyIPv4, familyIPv6)
		of := route{nextHop: hop6, asn: 65001, asn4: true, internal: true, preference: 300, communities: []uint32{1}}
		r.expect(t, of.announce([]netip.Addr{vip6})[0])
		r.expect(t, endOfRIB(familyIPv4))
		r.expect(t, endOfRIB(familyIPv6))
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
		if m, more := <-r.in; more {
			t.Errorf("at the end the router received type %d, %x", m.kind, m.body)
		}
	})
}

// TestSessionEnds: what ends a session, and what the router is told.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	const hold = 9 * time.Second
	theirs := open{asn: 65002, holdTime: hold, routerID: netip.MustParseAddr("192.0.2.250")}
	foreign := theirs
	foreign.asn = 65003
	keepalive := message{kind: typeKeepalive}
	begin := [][]byte{theirs.encode().encode(), keepalive.encode()}
	tests := map[string]struct {
		sent [][]byte
		want []byte // the notification; nil if the router sent one
		text string
	}{
		"silence":                    {begin, []byte{4, 0}, "hold timer expired"},
		"a second OPEN":              {append(begin[:2:2], begin[0]), []byte{5, 3}, "finite state machine"},
		"octets that are no message": {append(begin[:2:2], make([]byte, headerLen)), []byte{1, 1}, "message header"},
		"another AS":                 {[][]byte{foreign.encode().encode()}, []byte{2, 2}, "AS number 65003"},
		"no OPEN":                    {[][]byte{keepalive.encode()}, []byte{5, 1}, "finite state machine"},
		"nothing at all":             {nil, []byte{4, 0}, "hold timer"},
		"a notification": {
			append(begin[:2:2], message{typeNotification, []byte{6, 4}}.encode()), nil, "the router ended the session: cease",
		},
	}
	for claim, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			r, _, ended, stop := connectRouter(t, &Peer{ASN: 65002}, func() State { return State{} })
			defer stop()
			for _, b := range test.sent {
				_, _ = r.conn.Write(b) // or the session has ended
			}
			err := <-ended
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: the session ends with %v, want %q", claim, err, test.text)
			}
			var last message
			for m := range r.in {
				last = m
			}
			if told := last.kind == typeNotification; told != (test.want != nil) || told && !bytes.Equal(last.body, test.want) {
				t.Errorf("%s: the last message has type %d, %x, want a notification %x", claim, last.kind, last.body, test.want)
			}
		})
	}
}

// TestStuckRouter: a router that reads nothing does not hold up the end of the process, although there is much to send.
func TestStuckRouter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		state := State{NextHops: []netip.Addr{hop4}}
		for a := netip.MustParseAddr("203.0.113.0"); len(state.Addrs) < 100*maxRoutes; a = a.Next() {
			state.Addrs = append(state.Addrs, a)
		}
		ours, theirs := net.Pipe()
		s := &session{cfg: &Config{ASN: 65001}, peer: &Peer{ASN: 65002}, conn: ours, up: func() {}, ours: open{
			asn: 65001, holdTime: DefaultHoldTime, routerID: hop4,
		}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx, nil, func() State { return state }) }()
		for _, m := range []message{
			(&open{asn: 65002, holdTime: time.Minute, routerID: netip.MustParseAddr("192.0.2.250")}).encode(), {kind: typeKeepalive},
		} {
			if _, err := readMessage(theirs); err != nil {
				t.Fatal(err)
			}
			if _, err := theirs.Write(m.encode()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // an UPDATE message is on its way
		begin := time.Now()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
		if took := time.Since(begin); took > 2*endTime {
			t.Errorf("the session ended after %s, want %s at most", took, 2*endTime)
		}
	})
}

// TestSpeaker: a node connects to the routers that its labels select, again after a connection ended, and a change of
// labels ends a connection.
func TestSpeaker(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	at := listener.Addr().(*net.TCPAddr).AddrPort()
	s := New(Config{ASN: 65001, Log: slog.New(slog.DiscardHandler), Peers: []Peer{{
		Address: at.Addr(), Port: at.Port(), ASN: 65002, NodeSelector: map[string]string{"edge": "yes"},
	}}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.Update(State{Addrs: []netip.Addr{vip4}, NextHops: []netip.Addr{hop4}})
	s.Update(State{Addrs: []netip.Addr{vip4}, NextHops: []netip.Addr{hop4}, Labels: map[string]string{"edge": "yes"}})
	accept := func() *router {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		r := &router{conn, make(chan message, 100)}
		go func() {
			defer close(r.in)
			for {
				m, err := readMessage(conn)
				if err != nil {
					return
				}
				r.in <- m
			}
		}()
		r.establish(t, 65002, time.Minute)
		of := route{nextHop: at.Addr(), asn: 65001, asn4: true}
		r.expect(t, of.announce([]netip.Addr{vip4})[0])
		return r
	}
	accept().conn.Close()
	r := accept()
	if got := s.Stats(); !slices.Equal(got, []PeerStats{{at.Addr(), true, 2}}) {
		t.Errorf("Stats() = %+v", got)
	}
	s.Update(State{Addrs: []netip.Addr{vip4}, NextHops: []netip.Addr{hop4}})
	r.expect(t, message{typeNotification, []byte{6, 3}})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
}
