package app

import (
	"io"
	"log/slog"
	"maps"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unread returns a connection of a socket, on which octets were written of which the other end takes nothing.
func unread(t *testing.T, octets int) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 2<<10) })
	}}
	there, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, err := newConnections(1).Listener(newTracked().listener(l)).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		here.Close()
		there.Close()
	})
	if _, err := here.(syscall.Conn).SyscallConn(); err != nil {
		t.Errorf("a connection of a socket cannot be waited for without a buffer: %v", err)
	}
	_ = here.SetWriteDeadline(time.Now().Add(patience))
	if _, err := here.Write(make([]byte, octets)); err != nil {
		t.Fatal(err)
	}
	return here
}

// TestPressure: when memory is nearly used up connections are closed of which the other ends take nothing, the fullest
// first, and those to endpoints if that does not suffice.
func TestPressure(t *testing.T) {
	t.Parallel()
	const limit = 200_000
	for claim, test := range map[string]struct {
		used int64 // in percent of the limit
		want map[string]bool
	}{
		"enough is left": {71, map[string]bool{}},
		"nearly used":    {73, map[string]bool{"fullest": true}},
		"all used":       {99, map[string]bool{"fullest": true, "full": true, "endpoint": true}},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			conns := make(map[string]net.Conn)
			for name, octets := range map[string]int{"idle": 0, "little": 4000, "full": 20_000, "fullest": 30_000, "endpoint": 30_000, "unused": 0} {
				conns[name] = unread(t, octets)
			}
			closed := 0
			p := &pressure{pressureConfig: pressureConfig{
				limit: limit, high: limit * 72 / 100, used: func() int64 { return limit * test.used / 100 },
				clients:   func() []net.Conn { return []net.Conn{conns["full"], conns["idle"], conns["little"], conns["fullest"]} },
				endpoints: func() []net.Conn { return []net.Conn{conns["unused"], conns["endpoint"]} },
				closed:    func(n int) { closed += n }, log: slog.New(slog.DiscardHandler),
			}}
			p.look()
			got := make(map[string]bool)
			for name, c := range conns {
				if _, err := io.WriteString(c, "x"); err != nil {
					got[name] = true
				}
			}
			if !maps.Equal(got, test.want) || closed != len(test.want) {
				t.Errorf("with %d %% of the limit %v were closed, and %d counted, want %v", test.used, got, closed, test.want)
			}
		})
	}
}

// TestPressureGrowth: what memory has grown by of late counts twice, and what it has not grown by does not.
func TestPressureGrowth(t *testing.T) {
	t.Parallel()
	p, now := new(pressure), time.Now()
	for i, step := range []struct {
		after      time.Duration
		used, want int64
	}{
		{time.Hour, 100, 100}, {50 * time.Millisecond, 130, 160}, {60 * time.Millisecond, 150, 200},
		{60 * time.Millisecond, 150, 200}, {50 * time.Millisecond, 150, 150 + 50}, {150 * time.Millisecond, 150, 150},
		{time.Second, 300, 300}, {150 * time.Millisecond, 200, 200},
	} {
		now = now.Add(step.after)
		if got := p.soon(step.used, now); got != step.want {
			t.Errorf("step %d: %d is used, %d soon, want %d", i, step.used, got, step.want)
		}
	}
}
