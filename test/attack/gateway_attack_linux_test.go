package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestGatewaySlow has clients from many addresses be slow in all ways, on short timeouts. Others are served meanwhile,
// and those that are too slow are refused and counted.
func TestGatewaySlow(t *testing.T) {
	serveEndpoint(t)
	const limits = "  limits: {headTimeout: 1s, idleTimeout: 1s, bodyGrace: 1s, bodyRate: 1000000}\n"
	octets := func(begin, each string) func(ctx context.Context, c net.Conn) {
		return func(ctx context.Context, c net.Conn) {
			_, err := io.WriteString(c, begin)
			for err == nil && ctx.Err() == nil {
				time.Sleep(50 * time.Millisecond)
				_, err = io.WriteString(c, each)
			}
		}
	}
	for claim, test := range map[string]struct {
		addr   string
		do     func(ctx context.Context, c net.Conn)
		reason string // of portolan_gateway_refused_total; empty if connections are just closed
	}{
		"heads":            {gatewayAddr, octets("GET / HTTP/1.1\r\nHost: shop.example\r\n", "X: y\r\n"), "the head came too slowly"},
		"bodies":           {gatewayAddr, octets("POST /a HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100000\r\n\r\n", "x"), "the body came too slowly"},
		"connections kept": {gatewayAddr, octets(get("/a"), ""), ""},
		"handshakes":       {secureGatewayAddr, octets("\x16\x03\x01", ""), ""},
		"responses taken":  {gatewayAddr, octets(get("/large"), ""), ""},
		"idle HTTP/2":      {gatewayAddr, func(ctx context.Context, c net.Conn) { preface(c); <-ctx.Done() }, ""},
		"HTTP/2 that is silent": {secureGatewayAddr, func(ctx context.Context, c net.Conn) {
			preface(secured(c, "h2"))
			<-ctx.Done()
		}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			s := startGateway(t, limits, "")
			before := s.openFiles()
			s.besiege(t, func(ctx context.Context) {
				keep := hold(ctx)
				var all sync.WaitGroup
				connect(ctx, test.addr, 300, func(c net.Conn) {
					keep(c)
					all.Go(func() { test.do(ctx, c) })
				})
				all.Wait()
			})
			if test.reason != "" && s.metric(fmt.Sprintf("portolan_gateway_refused_total{reason=%q}", test.reason)) == 0 {
				t.Errorf("no request was refused for %q:\n%s", test.reason, grep(s.metrics(), "portolan_gateway_refused_total"))
			}
			awaitFiles(t, s, before+150) // of which 128 are connections to the endpoint, kept for others
		})
	}
}

// awaitFiles waits until a process has not more than so many files open.
func awaitFiles(t *testing.T, s *server, most int) {
	t.Helper()
	const patience = 15 * time.Second
	for end := time.Now().Add(patience); s.openFiles() > most; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d files are open, want at most %d", s.openFiles(), most)
		}
	}
}

// grep returns the lines that have a text.
func grep(text []byte, what string) string {
	var found []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, what) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// TestGatewayFrames floods connections of HTTP/2 with frames, as TestFrames does.
func TestGatewayFrames(t *testing.T) {
	serveEndpoint(t)
	for claim, send := range floods(func(f *http2.Framer, stream uint32) error { return writeGet(f, stream, "/hold") }) {
		t.Run(claim, func(t *testing.T) {
			s := startGateway(t, "", "")
			s.besiege(t, func(ctx context.Context) {
				keep := hold(ctx)
				for ctx.Err() == nil { // the server closes such connections
					connect(ctx, gatewayAddr, 20, func(c net.Conn) {
						keep(c)
						go func() { _ = frames(c, send) }()
					})
					time.Sleep(200 * time.Millisecond)
				}
			})
		})
	}
}

// TestGatewayOneSource has one address take all connections. It loses its own for those of others, who lose none.
func TestGatewayOneSource(t *testing.T) {
	serveEndpoint(t)
	s := startGateway(t, "  limits: {connections: 200}\n", "")
	kept, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: victim}}).DialContext(t.Context(), "tcp", gatewayAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	_ = kept.SetDeadline(time.Now().Add(30 * time.Second))
	in := bufio.NewReader(kept)
	ask := func() {
		t.Helper()
		if _, err := io.WriteString(kept, get("/a")); err != nil {
			t.Fatalf("a connection that another client keeps: %v", err)
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("a connection that another client keeps: %v", err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
	}
	ask()
	s.besiege(t, func(ctx context.Context) {
		keep := hold(ctx)
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: addresses(1)[0]}}
		for i := range 1000 {
			c, err := dialer.DialContext(ctx, "tcp", gatewayAddr)
			if err != nil {
				continue // the gateway is busy
			}
			keep(c)
			if i%2 == 0 {
				_, _ = io.WriteString(c, get("/hold"))
			}
		}
	})
	ask()
	if !strings.Contains(s.refusals(), `account="gateway"`) {
		t.Errorf("accounts that refused: %s, want the gateway's", s.refusals())
	}
}

// TestGatewayFiles leaves the gateway few descriptors, and takes them all. It serves those that have a connection, and
// others again when there are some.
func TestGatewayFiles(t *testing.T) {
	serveEndpoint(t)
	s := startGateway(t, "", "")
	before := s.openFiles()
	setFileLimit(t, s, before+100)
	ctx, stop := context.WithCancel(t.Context())
	keep := hold(ctx)
	connect(ctx, gatewayAddr, 150, func(c net.Conn) {
		keep(c)
		_, _ = io.WriteString(c, get("/hold"))
	})
	time.Sleep(500 * time.Millisecond)
	text, err := os.ReadFile(s.log)
	if err != nil || !strings.Contains(string(text), "too many open files") {
		t.Errorf("the log does not say that there are too many open files (%v):\n%s", err, text)
	}
	if s.hasEnded() {
		t.Fatal("the gateway has ended")
	}
	stop()
	const patience, few = 10 * time.Second, 20
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := visit(t.Context(), visitor(false), "http://"+gatewayAddr+"/a")
		if err == nil && s.openFiles() <= before+few {
			break // those that are gone take none any more
		}
		if time.Now().After(end) {
			t.Fatalf("with descriptors again: %v, %d of %d files", err, s.openFiles(), before+100)
		}
	}
	s.besiege(t, func(ctx context.Context) { <-ctx.Done() })
}
