package sockbuf

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// TestBounds: what a connection takes that nobody reads is bounded, in both directions, and Queued says how much it is.
func TestBounds(t *testing.T) {
	t.Parallel()
	if first, next := Size(few-1), Size(few); first <= next {
		t.Errorf("bounds of few connections: %d, of more: %d", first, next)
	}
	const most = 512 << 10 // more than both bounds, and less than the kernel holds without them
	for claim, bounds := range map[string]bool{"without": false, "with": true} {
		conns := pair(t, bounds)
		for i, from := range conns {
			if n := fill(t, from); (n <= most) != bounds {
				t.Errorf("%s bounds, direction %d: %d octets were written, want at most %d: %t", claim, i, n, most, bounds)
			}
		}
		if n := Queued(conns[0]); n == 0 {
			t.Errorf("%s bounds: nothing is queued", claim)
		}
	}
	idle := pair(t, true)
	if n := Queued(idle[0]); n != 0 {
		t.Errorf("%d octets are queued in a new connection", n)
	}
	idle[0].Close()
	if n := Queued(idle[0]); n != 0 {
		t.Errorf("%d octets are queued in a closed connection", n)
	}
}

// pair returns both ends of a connection.
func pair(t *testing.T, bounds bool) (both [2]*net.TCPConn) {
	t.Helper()
	var dialer net.Dialer
	if bounds {
		dialer.Control = Dialing(Size(few))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if bounds {
		if err := Accepted(accepted.(*net.TCPConn), Size(few)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		dialed.Close()
		accepted.Close()
	})
	return [2]*net.TCPConn{accepted.(*net.TCPConn), dialed.(*net.TCPConn)}
}

// fill writes until nothing is taken any more, and returns how much was.
func fill(t *testing.T, to *net.TCPConn) (octets int) {
	t.Helper()
	for block := make([]byte, 32<<10); ; {
		_ = to.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		n, err := to.Write(block)
		octets += n
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return octets
		case err != nil:
			t.Fatal(err)
		}
	}
}
