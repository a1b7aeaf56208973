package stream

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/testcert"
)

// patience bounds the wait for what must happen.
const patience = 20 * time.Second

// front is a Server with one socket.
type front struct {
	*testing.T
	addr      string
	endpoints *balance.Set[table.Upstream]
	requests  chan net.Conn
	records   chan Record
	server    *Server
	listener  net.Listener
	ended     chan struct{} // closed when Accept has failed
}

var (
	at = table.Socket{Port: 1}
	up = table.Upstream{Namespace: "a", Service: "s", Port: 1, Protocol: table.RawTCP}
)

// leads returns a listener whose connections go to up.
func leads(hostname string, mode table.Mode) *table.Listener {
	rule := &table.Rule{Object: "tcproute a/r", Backends: []table.Backend{{Upstream: up, Weight: 1}}}
	h := table.NewHost([]table.Route{{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: rule}})
	return table.NewListener("l", hostname).WithMode(mode).WithHosts(map[string]*table.Host{hostname: h})
}

func newFront(t *testing.T, port *table.Port, change func(*Config)) *front {
	t.Helper()
	f := &front{
		T: t, endpoints: new(balance.Set[table.Upstream]), requests: make(chan net.Conn, 1), records: make(chan Record, 10),
		ended: make(chan struct{}),
	}
	all := table.New(map[table.Socket]*table.Port{at: port})
	cfg := Config{
		Table: func() *table.Table { return all }, Endpoints: f.endpoints, Done: func(r *Record) { f.records <- *r },
	}
	if change != nil {
		change(&cfg)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	f.server = New(cfg)
	f.listener = f.server.Listener(at, l, func(c net.Conn) { f.requests <- c })
	go func() {
		defer close(f.ended)
		for {
			c, err := f.listener.Accept()
			if err != nil {
				return
			}
			f.requests <- c
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-f.ended
	})
	return f
}

// backend serves connections until the test ends, and returns its address.
func backend(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

// echo answers what comes, after the end of it.
func echo(c *net.TCPConn) {
	all, _ := io.ReadAll(c)
	_, _ = c.Write(all)
}

func (f *front) at(addrs ...netip.AddrPort) {
	f.endpoints.Update(map[table.Upstream][]netip.AddrPort{up: addrs})
}

func (f *front) dial() *net.TCPConn {
	f.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func (f *front) record() Record {
	f.Helper()
	select {
	case r := <-f.records:
		return r
	case <-time.After(patience):
		f.Fatal("the connection has no record")
		return Record{}
	}
}

// TestHalfClose: each direction ends by itself, and the octets are the same, more of them than any buffer holds.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	f := newFront(t, table.NewStreamPort(leads("", table.Stream)), nil)
	f.at(backend(t, echo))
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	c := f.dial()
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d octets came back, %v; want %d", len(got), err, len(sent))
	}
	r := f.record()
	if r.Reason != "" || r.Sent != int64(len(sent)) || r.Received != int64(len(sent)) || r.Attempts != 1 {
		t.Errorf("record %+v", r)
	}
}

// TestEndpoints: a connection goes to another endpoint if one does not accept it, and is reset if none does.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := netip.MustParseAddrPort(closed.Addr().String())
	closed.Close()
	alive := backend(t, echo)
	for claim, tt := range map[string]struct {
		addrs []netip.AddrPort
		want  table.Reason
	}{
		"one of two accepts": {[]netip.AddrPort{gone, alive}, ""},
		"none accepts":       {[]netip.AddrPort{gone}, Unreachable},
		"there is none":      {[]netip.AddrPort{}, NoEndpoint},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			f := newFront(t, table.NewStreamPort(leads("", table.Stream)), nil)
			f.at(tt.addrs...)
			for range 5 {
				var got []byte
				c, err := net.Dial("tcp", f.addr) // which may be reset already
				if err == nil {
					_, writing := c.Write([]byte("q")) // the first operation after a reset tells of it, and no other
					closing := closeWrite(c)
					if got, err = io.ReadAll(c); tt.want != "" {
						err = errors.Join(writing, closing, err)
					}
					c.Close()
				}
				r := f.record()
				if r.Reason != tt.want {
					t.Fatalf("reason %q, want %q", r.Reason, tt.want)
				}
				if tt.want == "" && (err != nil || string(got) != "q") {
					t.Errorf("answer %q, %v", got, err)
				}
				if tt.want != "" && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the connection ended with %v, want a reset", err)
				}
			}
		})
	}
}

// TestReset: when one end breaks off, the other one sees a reset, and no end of what was sent.
func TestReset(t *testing.T) {
	t.Parallel()
	f := newFront(t, table.NewStreamPort(leads("", table.Stream)), nil)
	f.at(backend(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	}))
	c := f.dial()
	_, _ = c.Write([]byte("q"))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
	if r := f.record(); r.Reason != BrokenOff {
		t.Errorf("reason %q, want %q", r.Reason, BrokenOff)
	}
}

// TestIdle: a connection ends that is silent in both directions, and none that is not in one.
func TestIdle(t *testing.T) {
	t.Parallel()
	const idle = time.Second
	f := newFront(t, table.NewStreamPort(leads("", table.Stream)), func(c *Config) { c.Idle = idle })
	f.at(backend(t, func(c *net.TCPConn) {
		for range 10 {
			if _, err := c.Write([]byte("a")); err != nil {
				return
			}
			time.Sleep(idle / 5)
		}
		_, _ = c.Read(make([]byte, 1))
	}))
	c := f.dial()
	got, _ := io.ReadAll(c)
	if r := f.record(); r.Reason != Idle || len(got) != 10 {
		t.Errorf("%d octets, reason %q; want 10, and %q", len(got), r.Reason, Idle)
	}
}

// TestRemoved: connections at an endpoint that was removed end after some time.
func TestRemoved(t *testing.T) {
	t.Parallel()
	f := newFront(t, table.NewStreamPort(leads("", table.Stream)), func(c *Config) { c.Drain = time.Millisecond })
	f.at(backend(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("a"))
		_, _ = c.Read(make([]byte, 1))
	}))
	c := f.dial()
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if n := len(f.server.InUse()); n != 1 {
		t.Errorf("%d connections to endpoints, want 1", n)
	}
	f.at()
	if _, err := io.ReadAll(c); err == nil || errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
	f.record()
	if n := len(f.server.InUse()); n != 0 {
		t.Errorf("%d connections to endpoints, want none", n)
	}
}

// certificate returns a certificate for a name, and its own configuration of clients.
func certificate(t *testing.T, name string) (*tls.Certificate, *tls.Config) {
	t.Helper()
	made, err := testcert.New(name, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cert, key := made.PEM()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &pair, &tls.Config{ServerName: name, InsecureSkipVerify: true}
}

// TestServerNames: at a port with listeners of all kinds the server name says what is done: the endpoint, this process or
// the server of requests shakes hands, and with a name that nobody has the connection is reset.
func TestServerNames(t *testing.T) {
	t.Parallel()
	ofEndpoint, _ := certificate(t, "endpoint")
	own, _ := certificate(t, "own")
	port := table.NewTLSPort([]*table.Listener{
		leads("*.pass.test", table.Passthrough), leads("end.test", table.Stream), table.NewListener("web", "web.test"),
		table.NewListener("empty", "empty.test").WithMode(table.Passthrough),
	}, nil)
	f := newFront(t, port, func(c *Config) {
		c.TLS = func(table.Socket) func() *tls.Config {
			return func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{*own}} }
		}
	})
	f.at(backend(t, func(c *net.TCPConn) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c, first); err != nil {
			return
		}
		if first[0] != 22 { // not a handshake
			_, _ = fmt.Fprintf(c, "plain %s", first)
			return
		}
		s := tls.Server(&preread{c, first}, &tls.Config{Certificates: []tls.Certificate{*ofEndpoint}})
		_, _ = s.Read(first)
		_, _ = fmt.Fprintf(s, "TLS %s", first)
		s.Close()
	}))
	for name, want := range map[string]string{
		"a.b.pass.test": "endpoint: TLS q", "END.test": "own: plain q", "empty.test": "reset", "none.test": "reset",
		"pass.test": "reset", "": "reset",
	} {
		c := tls.Client(f.dial(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		got := func() string {
			if err := c.Handshake(); err != nil {
				if errors.Is(err, syscall.ECONNRESET) {
					return "reset"
				}
				return err.Error()
			}
			_, _ = c.Write([]byte("q"))
			text, err := io.ReadAll(c)
			if err != nil {
				return err.Error()
			}
			return c.ConnectionState().PeerCertificates[0].DNSNames[0] + ": " + string(text)
		}()
		c.Close()
		if r := f.record(); got != want {
			t.Errorf("%q: %s (%s), want %s", name, got, r.Reason, want)
		}
	}
	client := f.dial()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: "web.test", InsecureSkipVerify: true}).Handshake()
	}()
	select {
	case c := <-f.requests:
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*own}})
		if err := s.Handshake(); err != nil || s.ConnectionState().ServerName != "web.test" {
			t.Errorf("the server of requests: %v, server name %q", err, s.ConnectionState().ServerName)
		}
		s.Close()
	case <-time.After(patience):
		t.Error("a connection of requests was not given to their server")
	}
}

// TestClosedDuringHello: who waits for the last connection of a listener that is closed waits for those, too, whose
// ClientHello is not read.
func TestClosedDuringHello(t *testing.T) {
	t.Parallel()
	f := newFront(t, table.NewTLSPort([]*table.Listener{
		leads("a.test", table.Passthrough), table.NewListener("web", "web.test"),
	}, nil), nil)
	first, second := f.dial(), f.dial()
	_, _ = second.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	<-f.requests // so that the first one is accepted
	f.listener.Close()
	select {
	case <-f.ended:
		t.Error("Accept failed before")
	case <-time.After(50 * time.Millisecond):
	}
	_, _ = first.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	select {
	case <-f.ended:
	case <-time.After(patience):
		t.Error("Accept does not fail")
	}
	if len(f.requests) == 0 {
		t.Error("the connection was not given to requests")
	}
}

// TestHello: a ClientHello may come in pieces, and one that does not come, or is no handshake, holds nothing for long.
func TestHello(t *testing.T) {
	t.Parallel()
	f := newFront(t, table.NewTLSPort([]*table.Listener{leads("a.test", table.Passthrough)}, nil), func(c *Config) {
		c.Handshake = 500 * time.Millisecond
	})
	came := make(chan []byte, 1)
	f.at(backend(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		came <- all
	}))
	c := f.dial() // silent
	if r := f.record(); r.Reason != NoHello {
		t.Errorf("silent: reason %q, want %q", r.Reason, NoHello)
	}
	c.Close()
	c = f.dial()
	_, _ = c.Write([]byte{22, 3, 1, 255, 255}) // a record that is too long
	select {
	case <-f.records:
	case <-f.requests: // whose server refuses it
	case <-time.After(patience):
		t.Fatal("a record that is too long is waited for")
	}
	c.Close()
	pieces, hello := net.Pipe()
	go func() { _ = tls.Client(hello, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true}).Handshake() }()
	c = f.dial()
	room := make([]byte, 4<<10)
	n, err := pieces.Read(room)
	if err != nil {
		t.Fatal(err)
	}
	pieces.Close()
	for i := range n {
		if _, err := c.Write(room[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if r := f.record(); r.ServerName != "a.test" || r.Received != int64(n) {
		t.Errorf("in pieces: %+v, want %d octets for a.test", r, n)
	}
	if !bytes.Equal(<-came, room[:n]) {
		t.Error("the endpoint got other octets")
	}
}
