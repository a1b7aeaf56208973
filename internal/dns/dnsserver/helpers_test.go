package dnsserver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

// patience is the time after which a test fails.
const patience = 20 * time.Second

// answerFunc is a stateless Answerer.
type answerFunc func(packet []byte, client respond.Client, buf []byte) []byte

func (f answerFunc) Respond(packet []byte, client respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	return f(packet, client, buf), nil
}

// echo answers with the query.
func echo(packet []byte, _ respond.Client, buf []byte) []byte { return append(buf, packet...) }

// big is the query for which echoOrBig returns the longest possible answer.
const big = "big"

// smallBuffer is a receive buffer for less than two of the longest answers.
const smallBuffer = 32 << 10

var longest = strings.Repeat("x", 65535)

func echoOrBig(packet []byte, _ respond.Client, buf []byte) []byte {
	if string(packet) == big {
		return append(buf, longest...)
	}
	return append(buf, packet...)
}

// running is a server that runs until the test ends or earlier.
type running struct {
	*dnsserver.Server
	t     *testing.T
	stop  context.CancelFunc
	ended chan error
	awake bool // the end of Run was not received yet
}

// listen binds a server on 127.0.0.1 or on cfg's addresses. Limits that cfg leaves out
// are high.
func listen(t *testing.T, cfg dnsserver.Config, answer answerFunc) *running {
	t.Helper()
	if cfg.Listen == nil {
		cfg.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 1000
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = 100
	}
	if cfg.Idle == 0 {
		cfg.Idle = time.Hour
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.NewAnswerer = func(int) dnsserver.Answerer { return answer }
	s, err := dnsserver.Listen(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Listen(%v): %v", cfg.Listen, err)
	}
	return &running{Server: s, t: t, ended: make(chan error, 1)}
}

// run runs the server. It must stop without an error and leave no goroutine when the
// test ends.
func (r *running) run() *running {
	ctx, stop := context.WithCancel(r.t.Context())
	r.stop, r.awake = stop, true
	go func() { r.ended <- r.Run(ctx) }()
	r.t.Cleanup(func() {
		if !r.awake {
			return
		}
		if err := r.end(); err != nil {
			r.t.Errorf("Run() = %v, want nil", err)
		}
	})
	return r
}

// end waits for the end of Run and of all goroutines that it started.
func (r *running) end() error {
	r.t.Helper()
	r.awake = false
	err := receive(r.t, r.ended, "the end of Run")
	stacks := make([]byte, 1<<20)
	for deadline := time.Now().Add(patience); ; runtime.Gosched() {
		n := runtime.Stack(stacks, true)
		if !bytes.Contains(stacks[:n], []byte("/dnsserver.(*")) {
			return err
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("after Run there are goroutines left:\n%s", stacks[:n])
		}
	}
}

func (r *running) addr() netip.AddrPort { return r.Addrs()[0] }

func start(t *testing.T, cfg dnsserver.Config, answer answerFunc) *running {
	t.Helper()
	return listen(t, cfg, answer).run()
}

// receive receives from ch. The test fails if nothing arrives in time.
func receive[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %s for %s", patience, what)
		panic("unreachable")
	}
}

// client is a TCP client.
type client struct {
	*net.TCPConn
	t *testing.T
}

func dialTCP(t *testing.T, addr netip.AddrPort) *client {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{TCPConn: conn.(*net.TCPConn), t: t}
}

// framed returns the messages with the length before each.
func framed(messages ...string) []byte {
	var b []byte
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
		b = append(b, m...)
	}
	return b
}

// ask sends messages in one write.
func (c *client) ask(messages ...string) {
	c.t.Helper()
	if _, err := c.Write(framed(messages...)); err != nil {
		c.t.Fatalf("asking: %v", err)
	}
}

// answer returns the next message.
func (c *client) answer() (string, error) {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return "", err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(c, message)
	return string(message), err
}

// want checks that the next answers are these, in this order.
func (c *client) want(answers ...string) {
	c.t.Helper()
	for i, want := range answers {
		got, err := c.answer()
		if err != nil || got != want {
			c.t.Fatalf("answer %d = %s, %v, want %s", i, brief(got), err, brief(want))
		}
	}
}

// brief returns s, shortened for printing.
func brief(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return "\"" + s + "\""
}

// wantNothing checks that no answer is available.
func (c *client) wantNothing() {
	c.t.Helper()
	const moment = 20 * time.Millisecond
	if err := c.SetReadDeadline(time.Now().Add(moment)); err != nil {
		c.t.Fatal(err)
	}
	if got, err := c.answer(); !isTimeout(err) {
		c.t.Fatalf("answer %s, %v, want none yet", brief(got), err)
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
}

// wantEnd checks that the server ends the connection in an orderly way.
func (c *client) wantEnd() {
	c.t.Helper()
	if got, err := c.answer(); !errors.Is(err, io.EOF) {
		c.t.Fatalf("after the last answer: %s, %v, want %v", brief(got), err, io.EOF)
	}
}

// wantCut checks that the server has closed the connection in any way.
func (c *client) wantCut() {
	c.t.Helper()
	if n, err := io.Copy(io.Discard, c); isTimeout(err) {
		c.t.Fatalf("read %d octets, then %v, want the end of the connection", n, err)
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// pour writes b repeatedly until that fails, and sends the error.
func (c *client) pour(b []byte) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := c.Write(b); err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}

func dialUDP(t *testing.T, addr netip.AddrPort) *net.UDPConn {
	t.Helper()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// exchange sends a query over UDP and returns the next packet.
func exchange(conn *net.UDPConn, query string) (string, error) {
	if _, err := conn.Write([]byte(query)); err != nil {
		return "", err
	}
	buf := make([]byte, 65535)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

// wantEcho checks that the answer is the query.
func wantEcho(t *testing.T, conn *net.UDPConn, query string) {
	t.Helper()
	if got, err := exchange(conn, query); err != nil || got != query {
		t.Fatalf("answer to %s = %s, %v, want the same", brief(query), brief(got), err)
	}
}

// logLines is a log writer that sends its lines over a channel. It drops them if the
// channel is full.
type logLines chan string

func (l logLines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func (l logLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
