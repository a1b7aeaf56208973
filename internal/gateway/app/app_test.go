package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/datagram"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/stream"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/test/freeport"
)

// patience bounds the wait for what must happen.
const patience = 20 * time.Second

// newGateway returns a Gateway that has not begun, with an empty cluster.
func newGateway(t *testing.T, change func(*config.Config)) *Gateway {
	t.Helper()
	settings := config.Default()
	settings.Gateway.Listen = []string{loopback().String()}
	if change != nil {
		change(&settings)
	}
	g, err := New(Config{
		Settings: settings, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler), Loaded: func() {},
		AccessLog: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// loopback returns an address of the loopback interface that other tests do not have.
func loopback() netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
}

// TestStreams answers requests over HTTP/2 with 503 that there is no room for, and others again when there is.
func TestStreams(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	var lines bytes.Buffer
	g.cfg.Log = slog.New(slog.NewTextHandler(&lines, nil))
	g.streams = budget.NewAccount("gateway-http2", budget.Limits{Total: 1, PerSource: 1})
	entered, err := g.streams.TryEnter(netip.MustParseAddr("192.0.2.1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	serve := g.handler(table.Socket{Port: 80})
	status := func(major int) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.ProtoMajor = major
		response := httptest.NewRecorder()
		serve.ServeHTTP(response, r)
		return response.Code
	}
	// Without a table, what is served is 503, too, but not refused.
	refusals := func() string { return exported(t, g, `portolan_gateway_refused_total{`) }
	if status(2); !strings.Contains(refusals(), `{reason="too many requests over HTTP/2"} 1`) {
		t.Errorf("one too many over HTTP/2: refused %q", refusals())
	}
	status(1)
	entered.Leave()
	status(2)
	status(2)
	if got := refusals(); !strings.Contains(got, "} 1\n") {
		t.Errorf("refused %q, want none over HTTP/1.1, and none with room", got)
	}
	if used := g.streams.Stats().Used; used != 0 {
		t.Errorf("%d requests are accounted after all have ended", used)
	}
}

// newTestSockets returns sockets at an address, of which requests are answered by the port of the socket.
func newTestSockets(t *testing.T, offset uint16, listen ...netip.Addr) *sockets {
	t.Helper()
	s := newSockets(socketsConfig{
		TLS:    func(table.Socket) func() *tls.Config { return nil },
		Listen: listen, PortOffset: offset, Connections: budget.NewAccount("test", budget.Limits{Total: 100, PerSource: 100}),
		Handler: func(at table.Socket) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, at.Addr.String()) })
		},
		Streams:   stream.New(stream.Config{Table: func() *table.Table { return nil }}),
		Datagrams: datagram.New(datagram.Config{Table: func() *table.Table { return nil }}),
		Refused:   func(h1.Refusal) {}, BreakOff: func() {}, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(s.close)
	return s
}

// answer returns the body of a response at an address, empty if there is none.
func answer(t *testing.T, at string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Get("http://" + at + "/")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// freePort returns a port that is free at all addresses.
func freePort(t *testing.T) uint16 {
	t.Helper()
	return freeport.At(t, netip.IPv6Unspecified()).Port()
}

// TestFrameSize: a frame of HTTP/2 is refused by its head if it is longer than 16 KiB, which all may send (RFC 9113,
// section 4.2). Each connection has room for the longest one, and its requests have no window for more than 64 KiB.
func TestFrameSize(t *testing.T) {
	t.Parallel()
	addr := loopback()
	at := table.Socket{Port: freePort(t)}
	newTestSockets(t, 0, addr).update(t.Context(), []table.Socket{at})
	conn, err := net.Dial("tcp", netip.AddrPortFrom(addr, at.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	const settings, data = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x40\x01\x00\x00\x00\x00\x00\x01"
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+data); err != nil {
		t.Fatal(err)
	}
	const goAway, frameSizeError = 7, 6
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatalf("before a GOAWAY: %v", err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(conn, payload); err != nil {
			t.Fatal(err)
		}
		if head[3] == goAway {
			if payload[7] != frameSizeError {
				t.Errorf("GOAWAY with code %d, want FRAME_SIZE_ERROR", payload[7])
			}
			return
		}
	}
}

// TestSocketsOfAddresses binds an address of its own beside all addresses, in any order, and leaves the other
// one when it is removed.
func TestSocketsOfAddresses(t *testing.T) { //nolint:tparallel // the subtests bind one port
	t.Parallel()
	own := loopback()
	all, one := table.Socket{Port: freePort(t)}, table.Socket{Addr: own}
	one.Port = all.Port
	at := func(addr netip.Addr) string { return netip.AddrPortFrom(addr, all.Port).String() }
	for claim, order := range map[string][]table.Socket{"all first": {all, one}, "one first": {one, all}} {
		t.Run(claim, func(t *testing.T) {
			s := newTestSockets(t, 0, netip.Addr{})
			for n := range order {
				s.update(t.Context(), order[:n+1])
			}
			if got := s.problems(); len(got) > 0 {
				t.Fatalf("problems %q", got)
			}
			if got := answer(t, at(own)); got != own.String() {
				t.Errorf("at the address of its own: %q", got)
			}
			other := answer(t, at(loopback()))
			s.update(t.Context(), []table.Socket{all})
			if got := answer(t, at(own)); got != other || got == "" {
				t.Errorf("at the address when it has no socket of its own: %q, elsewhere %q", got, other)
			}
			s.drain(patience)
		})
	}
}

// TestSocketsOfAnotherProcess does not share a port with others, whatever their options are.
func TestSocketsOfAnotherProcess(t *testing.T) {
	t.Parallel()
	own := loopback()
	taken, err := net.Listen("tcp", netip.AddrPortFrom(own, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(taken.Addr().String()).Port()
	s := newTestSockets(t, 0, own)
	s.update(t.Context(), []table.Socket{{Port: port}})
	if got := s.problems(); len(got) != 1 || s.next().IsZero() {
		t.Fatalf("problems %q, next attempt %v, want one problem and an attempt", got, s.next())
	}
	if open, failing := s.count(); open != 1 || failing != 1 {
		t.Errorf("%d sockets, %d of them not bound, want 1 and 1", open, failing)
	}
	taken.Close()
	s.open[table.Socket{Port: port}].next = time.Now()
	s.retry(t.Context())
	if got := s.problems(); len(got) != 0 || !s.next().IsZero() {
		t.Errorf("problems %q, next attempt %v after the port is free", got, s.next())
	}
}

// TestSocketsAboveAllPorts reports a port that the offset moves above all ports.
func TestSocketsAboveAllPorts(t *testing.T) {
	t.Parallel()
	s := newTestSockets(t, 8000, loopback())
	at := table.Socket{Port: 60000}
	s.update(t.Context(), []table.Socket{at})
	if err := s.errors()[at]; err == nil || err.Error() != "listen on port 60000: with gateway.portOffset it is above 65535" {
		t.Errorf("error %v", err)
	}
}

// TestSocketReopened opens a socket again while the one before drains.
func TestSocketReopened(t *testing.T) {
	t.Parallel()
	own, port := loopback(), freePort(t)
	s := newTestSockets(t, 0, own)
	s.cfg.Drain = patience
	at := table.Socket{Port: port}
	s.update(t.Context(), []table.Socket{at})
	c, err := net.Dial("tcp", netip.AddrPortFrom(own, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.update(t.Context(), nil)
	s.update(t.Context(), []table.Socket{at})
	if got := s.problems(); len(got) > 0 {
		t.Fatalf("problems %q", got)
	}
	if answer(t, netip.AddrPortFrom(own, port).String()) == "" {
		t.Error("the socket that was opened again does not answer")
	}
}

// TestSocketRemovedBeforeTheEnd: at a shutdown also what a removed socket still has ends in time.
func TestSocketRemovedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	own, port := loopback(), freePort(t)
	s := newTestSockets(t, 0, own)
	s.cfg.Drain = time.Hour
	entered := make(chan struct{})
	s.cfg.Handler = func(table.Socket) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
		})
	}
	s.update(t.Context(), []table.Socket{{Port: port}})
	c, err := net.Dial("tcp", netip.AddrPortFrom(own, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-entered
	s.update(t.Context(), nil)
	began := time.Now()
	if s.drain(100 * time.Millisecond); time.Since(began) > patience {
		t.Errorf("the shutdown took %s", time.Since(began))
	}
}

// TestTracked waits for connections, and closes those that stay.
func TestTracked(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conns := newTracked()
	accepting := conns.listener(l)
	connect := func() (client, server net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			server, err = accepting.Accept()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client, server
	}
	_, server := connect()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if conns.wait(done); len(conns.open) != 1 {
		t.Error("wait does not end with its context")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conns.wait(t.Context())
	}()
	server.Close()
	server.Close() // a second time does nothing
	<-ended
	client, _ := connect()
	conns.close()
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("close leaves a connection open")
	}
	if client, _ := connect(); len(conns.open) != 0 {
		t.Error("a connection is accepted after close")
		client.Close()
	}
}

// TestUnusedUpstreams keeps the endpoints of an upstream that no rule refers to any more for requests that were
// given one before, and while one has a request.
func TestUnusedUpstreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, nil)
		same := new(table.Table)
		g.worker.table.Store(same)
		up := table.Upstream{Namespace: "shop", Service: "web", Port: 80}
		serve := func(addrs ...netip.AddrPort) {
			g.worker.serve(t.Context(), compile.Output{
				Table: same, Endpoints: map[table.Upstream][]netip.AddrPort{up: addrs},
			})
		}
		pass := func() *balance.Pool {
			time.Sleep(g.worker.pause())
			g.worker.removeUnused()
			return g.endpoints.Pool(up)
		}
		addr := netip.MustParseAddrPort("192.0.2.1:80")
		serve(addr)
		pool := g.endpoints.Pool(up)
		if pool == nil || pool.Len() != 1 {
			t.Fatalf("the pool of an upstream that a rule refers to: %v", pool)
		}
		serve()
		if g.worker.removeUnused(); g.endpoints.Pool(up) != pool || pool.Len() != 1 {
			t.Error("the endpoints of an upstream are removed at once when no rule refers to it")
		}
		serve(addr)
		if pass() != pool {
			t.Error("an upstream is removed that a rule refers to again")
		}
		e := pool.Pick()
		serve()
		if first, second := pass(), pass(); first != pool || second != pool {
			t.Error("an upstream is removed that has a request")
		}
		e.Done()
		if pass() != nil {
			t.Error("an upstream is not removed that has no requests any more")
		}
	})
}
