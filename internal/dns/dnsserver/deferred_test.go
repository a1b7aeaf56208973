package dnsserver_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

// waiting answers queries that begin with "later" when release is closed, or not at all
// if they are canceled first. It answers all other queries at once.
type waiting struct {
	release chan struct{}
	begun   atomic.Int32
	givenUp atomic.Int32
}

func (a *waiting) Respond(packet []byte, _ respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	if strings.HasPrefix(string(packet), "later") {
		return nil, &late{a, string(packet)}
	}
	return append(buf, packet...), nil
}

type late struct {
	of    *waiting
	query string
}

func (l *late) Answers(ctx context.Context) iter.Seq[[]byte] { return oneOf(l.answer(ctx)) }

// oneOf returns a sequence of one message, or of none if answer is nil.
func oneOf(answer []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if answer != nil {
			yield(answer)
		}
	}
}

func (l *late) answer(ctx context.Context) []byte {
	l.of.begun.Add(1)
	select {
	case <-l.of.release:
		if l.query == "later nothing" {
			return nil
		}
		return []byte(l.query)
	case <-ctx.Done():
		l.of.givenUp.Add(1)
		return nil
	}
}

// begin waits until n deferred answers are pending.
func (a *waiting) begin(t *testing.T, n int32) {
	t.Helper()
	for end := time.Now().Add(patience); a.begun.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d answers are waited for, want %d", a.begun.Load(), n)
		}
	}
}

// startWaiting starts a server with deferred answers.
func startWaiting(t *testing.T, cfg dnsserver.Config, prepare ...func(*running)) (*running, *waiting) {
	t.Helper()
	a := &waiting{release: make(chan struct{})}
	r := listen(t, cfg, nil)
	r.SetAnswerer(a)
	for _, do := range prepare {
		do(r)
	}
	return r.run(), a
}

// TestDeferredUDP checks that a deferred answer is sent to its client, from the queried
// address, and delays no other answer.
func TestDeferredUDP(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		t.Run(listen, func(t *testing.T) {
			r, a := startWaiting(t, dnsserver.Config{Listen: []netip.AddrPort{netip.MustParseAddrPort(listen)}})
			to := r.addr()
			switch {
			case to.Addr() == netip.IPv4Unspecified():
				to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.7"), to.Port())
			case to.Addr() == netip.IPv6Unspecified():
				to = netip.AddrPortFrom(netip.IPv6Loopback(), to.Port())
			}
			one, two := dialUDP(t, to), dialUDP(t, to)
			for i, c := range []interface{ Write([]byte) (int, error) }{one, two} {
				if _, err := fmt.Fprintf(c, "later %d", i); err != nil {
					t.Fatal(err)
				}
			}
			a.begin(t, 2)
			wantEcho(t, one, "now")
			close(a.release)
			for i, c := range []interface{ Read([]byte) (int, error) }{one, two} {
				buf := make([]byte, 100)
				n, err := c.Read(buf)
				if want := fmt.Sprintf("later %d", i); err != nil || string(buf[:n]) != want {
					t.Errorf("answer %q, %v, want %q", buf[:n], err, want)
				}
			}
		})
	}
}

// TestDeferredTCP checks that deferred answers are sent as soon as they are available,
// and all of them before the connection is closed.
func TestDeferredTCP(t *testing.T) {
	r, a := startWaiting(t, dnsserver.Config{})
	c := dialTCP(t, r.addr())
	c.ask("later", "now", "later nothing")
	c.want("now")
	c.wantNothing()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	a.begin(t, 2)
	close(a.release)
	c.want("later")
	c.wantEnd()
}

// TestDeferredInFlight checks that a connection is not read while it has the maximum
// number of deferred answers.
func TestDeferredInFlight(t *testing.T) {
	r, a := startWaiting(t, dnsserver.Config{MaxInFlight: 2})
	c := dialTCP(t, r.addr())
	c.ask("later 1", "later 2", "later 3", "now")
	a.begin(t, 2)
	c.wantNothing()
	if n := a.begun.Load(); n != 2 {
		t.Errorf("%d are waited for, want 2", n)
	}
	close(a.release)
	got := map[string]bool{}
	for range 4 {
		m, err := c.answer()
		if err != nil {
			t.Fatal(err)
		}
		got[m] = true
	}
	if len(got) != 4 {
		t.Errorf("answers %v", got)
	}
}

// TestDeferredShutdown checks that at shutdown the server waits for deferred answers, up
// to a limit.
func TestDeferredShutdown(t *testing.T) {
	for name, inTime := range map[string]bool{"in time": true, "too late": false} {
		t.Run(name, func(t *testing.T) {
			a := &waiting{release: make(chan struct{})}
			r := listen(t, dnsserver.Config{}, nil)
			r.SetAnswerer(a)
			if !inTime {
				r.SetDrainTime(50 * time.Millisecond)
			}
			r.run()
			udp, tcp := dialUDP(t, r.addr()), dialTCP(t, r.addr())
			if _, err := udp.Write([]byte("later")); err != nil {
				t.Fatal(err)
			}
			tcp.ask("later")
			a.begin(t, 2)
			r.stop()
			if inTime {
				time.AfterFunc(100*time.Millisecond, func() { close(a.release) })
			}
			if err := r.end(); err != nil {
				t.Error(err)
			}
			if !inTime {
				if n := a.givenUp.Load(); n != 2 {
					t.Errorf("%d were given up, want 2", n)
				}
				return
			}
			tcp.want("later")
			buf := make([]byte, 100)
			if n, err := udp.Read(buf); err != nil || string(buf[:n]) != "later" {
				t.Errorf("answer %q, %v", buf[:n], err)
			}
		})
	}
}

type deferredFunc func(ctx context.Context) []byte

func (f deferredFunc) Answers(ctx context.Context) iter.Seq[[]byte] { return oneOf(f(ctx)) }

// blocking answers queries that begin with "block" when it receives from goAhead, and
// all others after a delay.
type blocking struct{ began, goAhead chan struct{} }

func (a blocking) Respond(packet []byte, _ respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	if strings.HasPrefix(string(packet), "block") {
		a.began <- struct{}{}
		<-a.goAhead
		return append(buf, packet...), nil
	}
	kept := string(packet)
	return nil, deferredFunc(func(ctx context.Context) []byte {
		select {
		case <-time.After(300 * time.Millisecond): // longer than quietTime
		case <-ctx.Done():
		}
		return []byte(kept)
	})
}

// TestDeferredWhileDraining checks that a query with a deferred answer is answered if
// it arrives while the server drains the socket.
func TestDeferredWhileDraining(t *testing.T) {
	a := blocking{make(chan struct{}), make(chan struct{})}
	s, err := dnsserver.Listen(t.Context(), dnsserver.Config{
		Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, MaxConnections: 10, MaxInFlight: 10, Idle: time.Hour,
		Log: slog.New(slog.DiscardHandler), NewAnswerer: func(int) dnsserver.Answerer { return a },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.KeepOneUDPSocket()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	conn := dialUDP(t, s.Addrs()[0])
	send := func(query string) {
		t.Helper()
		if _, err := conn.Write([]byte(query)); err != nil {
			t.Fatal(err)
		}
	}
	send("block")
	<-a.began
	stop()
	send("block the drain") // stays in the socket while the server answers the first
	a.goAhead <- struct{}{}
	<-a.began
	send("later")
	a.goAhead <- struct{}{}
	got := map[string]bool{}
	buf := make([]byte, 100)
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n, err := conn.Read(buf)
		if err != nil {
			t.Errorf("got %v, then %v", got, err)
			break
		}
		got[string(buf[:n])] = true
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
