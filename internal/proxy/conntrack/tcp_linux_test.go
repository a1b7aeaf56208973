package conntrack

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/ctnetlink"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// listen accepts connections at an address of a place, answers what it reads, and resets none.
func listen(t *testing.T, p place, f ctnetlink.Family) netip.AddrPort {
	t.Helper()
	var l net.Listener
	within(t, p, func() {
		var err error
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.addr[f], 8080)))
		must(t, err)
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// connect connects from a place and exchanges a byte.
func connect(t *testing.T, p place, to netip.AddrPort) net.Conn {
	t.Helper()
	var conn net.Conn
	within(t, p, func() {
		var err error
		conn, err = net.DialTimeout("tcp", to.String(), patience)
		must(t, err)
	})
	t.Cleanup(func() { conn.Close() })
	must(t, exchange(conn))
	return conn
}

func exchange(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return err
	}
	var buf [1]byte
	_, err := io.ReadFull(conn, buf[:])
	return err
}

// readOnly waits for data, with keep-alives each second.
func readOnly(conn net.Conn) error {
	alive := net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 9}
	err := errors.Join(conn.(*net.TCPConn).SetKeepAliveConfig(alive), conn.SetDeadline(time.Now().Add(patience)))
	if err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// TestResetTCP has clients whose endpoint is removed, and says what they see.
func TestResetTCP(t *testing.T) {
	t.Parallel()
	w := onNode(t, Config{ResetTCP: true})
	if w == nil {
		return
	}
	const loose = "net/netfilter/nf_conntrack_tcp_loose"
	for _, f := range families {
		a, b := listen(t, w.a, f), listen(t, w.b, f)
		at := frontend.Address{Addr: vips[f], Protocol: frontend.TCP, Port: 80}                      // each test has its own port
		another := Target{Address: frontend.Address{Addr: at.Addr, Protocol: frontend.UDP, Port: 9}} // has the Cleaner look
		tests := map[string]struct {
			loose  string
			change func() []Target
			does   func(net.Conn) error
			delete int   // entries
			want   error // that the client sees
		}{
			"another endpoint resets the connection": {
				loose: "1", change: func() []Target { return w.put(t, front(at, b)) }, does: exchange, delete: 1, want: syscall.ECONNRESET,
			},
			"the node resets the connection if there is no other endpoint": {
				loose: "1", change: func() []Target { return w.put(t, front(at)) }, does: exchange, delete: 1, want: syscall.ECONNRESET,
			},
			"a client that only reads notices with its next keep-alive": {
				loose: "1", change: func() []Target { return w.put(t, front(at, b)) }, does: readOnly, delete: 1, want: syscall.ECONNRESET,
			},
			"a connection to an endpoint that serves goes on": {
				loose: "1", change: func() []Target {
					return []Target{{Address: w.put(t, front(at, b))[0].Address, Endpoints: []netip.AddrPort{a, b}}}
				}, does: exchange,
			},
			"a connection to a deleted Service goes on": {
				loose: "1", change: func() []Target { return w.delete(t, at) }, does: exchange,
			},
			"a connection goes on if nobody would reset it": {
				loose: "0", change: func() []Target { return w.put(t, front(at, b)) }, does: exchange,
			},
		}
		for claim, tt := range tests {
			at.Port++
			namespacetest.SetSysctl(t, loose, tt.loose)
			w.put(t, front(at, a))
			conn := connect(t, w.client, netip.AddrPortFrom(at.Addr, at.Port))
			targets := tt.change()
			must(t, exchange(conn))
			w.cleaner.Changed(append(targets, another))
			if p := w.pass(t); p.Deleted != tt.delete {
				t.Errorf("%s: %s: first pass: %+v, want %d deleted", f, claim, p, tt.delete)
			}
			w.pass(t)
			if err := tt.does(conn); !errors.Is(err, tt.want) {
				t.Errorf("%s: %s: the client sees %v, want %v", f, claim, err, tt.want)
			}
		}
	}
}

// TestUnansweredTCP has a client begin to connect to an endpoint that is removed before it
// answers.
func TestUnansweredTCP(t *testing.T) {
	t.Parallel()
	w := onNode(t, Config{ResetTCP: true})
	if w == nil {
		return
	}
	for _, f := range families {
		b := listen(t, w.b, f)
		nobody := netip.AddrPortFrom(w.outside.addr[f].Next(), 8080)
		at := frontend.Address{Addr: vips[f], Protocol: frontend.TCP, Port: 80}
		w.put(t, front(at, nobody))
		connected := make(chan struct{})
		go func() {
			defer close(connected)
			connect(t, w.client, netip.AddrPortFrom(at.Addr, at.Port))
		}()
		until(t, "an entry", func() bool {
			return slices.ContainsFunc(tracked(t, scopeOf(at)), func(e entry) bool { return e.destination == at && e.replies == nobody })
		})
		w.cleaner.Changed(w.put(t, front(at, b)))
		select {
		case <-connected:
		case <-time.After(patience):
			t.Errorf("%s: the client is not connected to the other endpoint", f)
		}
	}
}
