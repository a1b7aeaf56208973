package forward_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/support/budget"
)

// patience is how long a test waits for a condition before it fails.
const patience = 10 * time.Second

// asked is a query that a server received.
type asked struct {
	packet []byte
	from   netip.AddrPort
	tcp    bool
	conn   int // number of the connection, from 1
}

func (q asked) id() uint16 { return binary.BigEndian.Uint16(q.packet) }

// question returns name, type and class as received.
func (q asked) question() []byte {
	var parsed dnswire.Query
	if parsed.ParseHeader(q.packet) != nil || parsed.ParseBody(q.packet) != nil {
		return nil
	}
	return parsed.Question
}

func (q asked) edns() bool { return binary.BigEndian.Uint16(q.packet[10:]) == 1 }

// reply builds a reply with A records, or with a response code only.
func (q asked) reply(rcode dnswire.RCode, ttl uint32, addrs ...string) []byte {
	flags := uint16(1<<15 | 1<<8 | 1<<7)
	b := binary.BigEndian.AppendUint16(nil, q.id())
	b = binary.BigEndian.AppendUint16(b, flags|uint16(rcode))
	b = append(b, 0, 1, 0, byte(len(addrs)), 0, 0, 0, 0)
	b = append(b, q.question()...)
	for _, a := range addrs {
		addr := netip.MustParseAddr(a)
		t := dnswire.TypeA
		if addr.Is6() {
			t = dnswire.TypeAAAA
		}
		b = append(b, 0xc0, 12)
		b = binary.BigEndian.AppendUint16(b, uint16(t))
		b = append(b, 0, 1)
		b = binary.BigEndian.AppendUint32(b, ttl)
		b = append(b, 0, byte(len(addr.AsSlice())))
		b = append(b, addr.AsSlice()...)
	}
	if q.edns() {
		b[11] = 1
		b = append(b, 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0)
	}
	return b
}

// server is an upstream controlled by a handler.
type server struct {
	t      *testing.T
	addr   netip.AddrPort
	handle func(asked) [][]byte

	mu    sync.Mutex
	got   []asked
	conns int
}

// serve starts a server over UDP and TCP. Its handler returns the messages to
// send; it is called concurrently.
func serve(t *testing.T, handle func(asked) [][]byte) *server {
	t.Helper()
	l, u := listen(t)
	s := &server{t: t, addr: l.Addr().(*net.TCPAddr).AddrPort(), handle: handle}
	var wg sync.WaitGroup
	wg.Go(func() { s.serveUDP(&wg, u) })
	wg.Go(func() { s.serveTCP(&wg, l) })
	t.Cleanup(func() {
		l.Close()
		u.Close()
		wg.Wait()
	})
	return s
}

// listen finds a port that is free for TCP and UDP.
func listen(t *testing.T) (net.Listener, *net.UDPConn) {
	t.Helper()
	const tries = 10
	for range tries {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		u, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(l.Addr().(*net.TCPAddr).AddrPort()))
		if err == nil {
			return l, u
		}
		l.Close()
	}
	t.Fatal("no port is free for TCP and UDP")
	return nil, nil
}

func (s *server) take(q asked) [][]byte {
	s.mu.Lock()
	s.got = append(s.got, q)
	s.mu.Unlock()
	return s.handle(q)
}

// queries returns the queries received so far, without loop probes.
func (s *server) queries() (all []asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.got {
		if !bytes.Contains(q.packet, []byte("portolan-loop")) {
			all = append(all, q)
		}
	}
	return all
}

func (s *server) serveUDP(wg *sync.WaitGroup, u *net.UDPConn) {
	for {
		buf := make([]byte, 4096)
		n, from, err := u.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		wg.Go(func() {
			for _, m := range s.take(asked{packet: buf[:n], from: from}) {
				_, _ = u.WriteToUDPAddrPort(m, from)
			}
		})
	}
}

// closing, as a message over TCP, closes the connection within a message.
var closing = []byte("close")

func (s *server) serveTCP(wg *sync.WaitGroup, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns++
		number := s.conns
		s.mu.Unlock()
		s.t.Cleanup(func() { conn.Close() })
		wg.Go(func() { s.serveConn(conn, number) })
	}
}

func (s *server) serveConn(conn net.Conn, number int) {
	defer conn.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		packet := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, packet); err != nil {
			return
		}
		wg.Go(func() {
			for _, m := range s.take(asked{packet: packet, tcp: true, conn: number}) {
				mu.Lock()
				if bytes.Equal(m, closing) {
					_, _ = conn.Write([]byte{0, 100, 1, 2, 3})
					conn.Close()
				} else {
					_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
				}
				mu.Unlock()
			}
		})
	}
}

// one returns the reply of one message.
func one(m []byte) [][]byte { return [][]byte{m} }

// works answers every query with an address.
func works(q asked) [][]byte { return one(q.reply(dnswire.NoError, 60, "192.0.2.1")) }

func silent(asked) [][]byte { return nil }

// settings returns a configuration with one route for all names.
func settings(t *testing.T, route forward.Route) forward.Config {
	t.Helper()
	c, err := cache.New(cache.Config{Size: 1 << 20, MaxTTL: 86400, MaxNegativeTTL: 3600, Stale: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if route.Timeout == 0 {
		route.Timeout = 2 * time.Second
	}
	if route.Policy == "" {
		route.Policy = forward.Sequential
	}
	return forward.Config{Routes: []forward.Route{route}, Cache: c, Limits: budget.Limits{Total: 1000, PerSource: 1000}, StaleAfter: 200 * time.Millisecond}
}

func newForwarder(t *testing.T, cfg forward.Config) *forward.Forwarder {
	t.Helper()
	f, err := forward.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// to returns a Forwarder for the servers, in their order.
func to(t *testing.T, servers ...*server) *forward.Forwarder {
	t.Helper()
	var route forward.Route
	for _, s := range servers {
		route.Upstreams = append(route.Upstreams, forward.Upstream{Addr: s.addr})
	}
	return newForwarder(t, settings(t, route))
}

// run runs f until the test ends.
func run(t *testing.T, f *forward.Forwarder) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Run(ctx, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { stop(); <-done })
}

var client = netip.MustParseAddr("192.0.2.100")

func dnsnameOf(name string) dnsname.Name { return dnsname.MustParse(name) }

func questionOf(name string) cache.Key {
	return cache.Key{Name: []byte(dnsname.MustParse(name).WireLabels()), Type: dnswire.TypeA}
}

// ask resolves the address of name and returns the address or the failure.
func ask(t *testing.T, f *forward.Forwarder, name string) string {
	t.Helper()
	return said(f.Reserve(client, questionOf(name)).Resolve(t.Context()))
}

// said formats a cache entry.
func said(e *cache.Entry, at time.Time) string {
	reply, _, stale := e.Answer(at)
	if reply == nil {
		return e.Failure.Text
	}
	text := reply.RCode.String()
	for rec := range reply.Records {
		if addr, ok := netip.AddrFromSlice(rec.RData()); ok && rec.Section == dnswire.Answer {
			text = addr.String()
		}
	}
	if stale {
		text += " (stale)"
	}
	return text
}

// await waits for a condition.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	end, tick := time.After(patience), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
