package datagram

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/budget"
)

// patience bounds the wait for what must happen.
const patience = 20 * time.Second

var (
	at = table.Socket{Port: 1, Transport: table.UDP}
	up = table.Upstream{Namespace: "a", Service: "s", Port: 1, Protocol: table.RawUDP}
)

// front is a Server with one socket.
type front struct {
	*testing.T
	*Server
	socket    *Socket
	addr      netip.AddrPort
	endpoints *balance.Set[table.Upstream]
	records   chan Record
}

func newFront(t *testing.T, listen string, change func(*Config)) *front {
	t.Helper()
	rule := &table.Rule{Object: "udproute a/r", Backends: []table.Backend{{Upstream: up, Weight: 1}}}
	h := table.NewHost([]table.Route{{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: rule}})
	l := table.NewListener("l", "").WithMode(table.Stream).WithHosts(map[string]*table.Host{"": h})
	all := table.New(map[table.Socket]*table.Port{at: table.NewStreamPort(l)})
	f := &front{T: t, endpoints: new(balance.Set[table.Upstream]), records: make(chan Record, 100)}
	cfg := Config{
		Table: func() *table.Table { return all }, Endpoints: f.endpoints,
		Sessions: budget.NewAccount("test", budget.Limits{Total: 100, PerSource: 100}),
		Done: func(r *Record) {
			select {
			case f.records <- *r:
			default:
			}
		},
	}
	if change != nil {
		change(&cfg)
	}
	f.Server = New(cfg)
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", listen)
	if err != nil {
		t.Fatal(err)
	}
	f.addr = netip.MustParseAddrPort(conn.LocalAddr().String())
	if f.socket, err = f.Open(at, conn.(*net.UDPConn)); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(f.socket.Serve)
	t.Cleanup(func() {
		f.socket.Close()
		serving.Wait()
		f.eventually("no session is left", func() bool { return f.Sessions() == 0 })
	})
	return f
}

func (f *front) eventually(claim string, is func() bool) {
	f.Helper()
	for end := time.Now().Add(patience); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			f.Fatalf("it does not happen that %s", claim)
		}
	}
}

// backend answers datagrams with its name and what came, until the test ends.
func backend(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		room := make([]byte, maxDatagram)
		for {
			n, from, err := c.ReadFrom(room)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(fmt.Appendf(nil, "%s %s", name, room[:n]), from)
		}
	})
	t.Cleanup(func() {
		c.Close()
		serving.Wait()
	})
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

func (f *front) at(addrs ...netip.AddrPort) {
	f.endpoints.Update(map[table.Upstream][]netip.AddrPort{up: addrs})
}

func (f *front) client(to string) net.Conn {
	f.Helper()
	c, err := net.Dial("udp", to)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	return c
}

// ask returns the answer to a datagram; empty if none comes soon.
func ask(c net.Conn, text string, within time.Duration) string {
	_, _ = c.Write([]byte(text))
	room := make([]byte, maxDatagram)
	_ = c.SetReadDeadline(time.Now().Add(within))
	n, err := c.Read(room)
	if err != nil {
		return ""
	}
	return string(room[:n])
}

// TestSession: what a client sends goes to one endpoint, also large datagrams and empty ones, and to another one when that
// is removed.
func TestSession(t *testing.T) {
	t.Parallel()
	f := newFront(t, "127.0.0.1:0", nil)
	one := backend(t, "one")
	f.at(one)
	c := f.client(f.addr.String())
	large := string(make([]byte, 60_000))
	for _, text := range []string{"a", large, "", "b"} {
		if got := ask(c, text, patience); got != "one "+text {
			t.Fatalf("answer of %d octets, want %d", len(got), len(text)+4)
		}
	}
	if n := f.Sessions(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	f.at(backend(t, "two"))
	if r := <-f.records; r.Reason != Removed || r.Endpoint != one || r.Received != 60_002 {
		t.Errorf("record %+v", r)
	}
	if got := ask(c, "c", patience); got != "two c" {
		t.Errorf("answer %q, want that of the other endpoint", got)
	}
}

// TestRefused: a client whose endpoint has closed its port gets to another one by what it sends again.
func TestRefused(t *testing.T) {
	t.Parallel()
	f := newFront(t, "127.0.0.1:0", nil)
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := netip.MustParseAddrPort(c.LocalAddr().String())
	c.Close()
	f.at(gone, backend(t, "alive"))
	client := f.client(f.addr.String())
	f.eventually("the client gets to the endpoint that is alive", func() bool {
		return ask(client, "a", 100*time.Millisecond) == "alive a"
	})
	f.at()
	f.eventually("nothing is answered without endpoints", func() bool {
		return ask(client, "a", 50*time.Millisecond) == "" && f.Sessions() == 0
	})
}

// TestReplySource: replies come from the address that was asked, also if the socket has all.
func TestReplySource(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"0.0.0.0:0", ":0"} {
		f := newFront(t, listen, nil)
		f.at(backend(t, "b"))
		for _, to := range []string{"127.0.0.1", "127.7.7.7", "127.0.0.9"} {
			c := f.client(netip.AddrPortFrom(netip.MustParseAddr(to), f.addr.Port()).String()) // connected: takes no others
			if got := ask(c, to, patience); got != "b "+to {
				t.Errorf("%s asked at %s: %q, want an answer from there", listen, to, got)
			}
		}
	}
}

// TestIdle: a session without datagrams ends, and its socket drains when endpoints are silent.
func TestIdle(t *testing.T) {
	t.Parallel()
	f := newFront(t, "127.0.0.1:0", func(c *Config) { c.Idle = 200 * time.Millisecond })
	f.at(backend(t, "b"))
	ask(f.client(f.addr.String()), "a", patience)
	if r := <-f.records; r.Reason != "" || r.Sent != 3 || r.Received != 1 {
		t.Errorf("record %+v", r)
	}
	f = newFront(t, "127.0.0.1:0", nil)
	f.at(backend(t, "b"))
	ask(f.client(f.addr.String()), "a", patience)
	began := time.Now()
	f.socket.Drain(context.Background())
	if took := time.Since(began); took > patience || f.Sessions() != 0 {
		t.Errorf("it drained within %v, with %d sessions left", took, f.Sessions())
	}
}

// TestFlood: datagrams of many clients end no session of one that was answered and has sent more, and there are never
// more sessions than accounted.
func TestFlood(t *testing.T) {
	t.Parallel()
	const most = 100
	f := newFront(t, "127.0.0.1:0", nil)
	f.at(backend(t, "b"))
	known := f.client(f.addr.String())
	for range 2 {
		if got := ask(known, "a", patience); got != "b a" {
			t.Fatalf("answer %q", got)
		}
	}
	port := known.LocalAddr().String()
	for range 5 * most {
		c := f.client(f.addr.String())
		_, _ = c.Write([]byte("x"))
		c.Close()
		if n := f.cfg.Sessions.Stats().Used; n > most {
			t.Fatalf("%d sessions, want at most %d", n, most)
		}
	}
	f.eventually("sessions end", func() bool { return f.Sessions() <= most })
	f.socket.mu.Lock()
	_, has := f.socket.sessions[flow{client: netip.MustParseAddrPort(port)}]
	f.socket.mu.Unlock()
	if !has {
		t.Error("the session of the client that is known has ended")
	}
}
