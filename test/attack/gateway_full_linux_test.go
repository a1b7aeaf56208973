package attack

import (
	"context"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// costs are what a connection can do that costs the gateway much.
var costs = map[string]struct {
	addr string
	n    int // of connections
	use  func(c net.Conn)
}{
	"idle": {gatewayAddr, 6000, func(net.Conn) {}},
	"idle after a request": {gatewayAddr, 6000, func(c net.Conn) {
		_, _ = io.WriteString(c, get("/"))
		_, _ = c.Read(make([]byte, 1000))
	}},
	"idle with TLS": {secureGatewayAddr, 5500, func(c net.Conn) { _ = secured(c, "http/1.1").Handshake() }},
	"idle with HTTP2": {secureGatewayAddr, 5500, func(c net.Conn) {
		s := secured(c, "h2")
		preface(s)
		_, _ = s.Read(make([]byte, 1000))
	}},
	"requests without an answer": {gatewayAddr, 5000, func(c net.Conn) { _, _ = io.WriteString(c, get("/hold")) }},
	"idle WebSockets": {gatewayAddr, 5000, func(c net.Conn) {
		_, _ = io.WriteString(c, upgrade)
		_, _ = c.Read(make([]byte, 1000))
	}},
	"unread responses": {gatewayAddr, 6000, func(c net.Conn) { _, _ = io.WriteString(c, get("/large")) }},
	"unread responses with TLS": {secureGatewayAddr, 5500, func(c net.Conn) {
		_, _ = io.WriteString(secured(c, "http/1.1"), get("/large"))
	}},
	"unread responses of HTTP2": {gatewayAddr, 40, func(c net.Conn) { go unreadStreams(c, "/large") }},
	"unread frames of HTTP2": {gatewayAddr, 5000, func(c net.Conn) {
		go func() {
			preface(c)
			// DATA of 1 MiB, but for the last octet, on a stream that the client has not opened
			_, err := io.WriteString(c, "\x10\x00\x00\x00\x00\x00\x00\x00\x01")
			for n, block := 0, make([]byte, 4<<10-1); n < 256 && err == nil; n++ {
				_, err = c.Write(block)
			}
			_, _ = io.Copy(io.Discard, c)
		}()
	}},
	"unread bodies": {gatewayAddr, 6000, func(c net.Conn) {
		go func() {
			_, err := io.WriteString(c, "POST /unread HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1000000000\r\n\r\n")
			for block := make([]byte, 4<<10); err == nil; {
				_, err = c.Write(block)
			}
		}()
	}},
}

// upgrade asks for a WebSocket.
var upgrade = strings.Replace(get("/chat"), "\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n", 1)

// TestGatewayFull has as many connections as the gateway takes, and more, do what costs it the most. Clients that do not
// attack are served, and its memory stays within the limit, with that of its sockets, which counts in control groups of
// version 2. A short pass has idle connections of all kinds at once, and a part of those that are not read.
func TestGatewayFull(t *testing.T) {
	serveEndpoint(t)
	const long = 8 * time.Second
	cases := costs
	if *duration < long {
		cases = maps.Clone(costs)
		idle := slices.DeleteFunc(slices.Sorted(maps.Keys(costs)), func(claim string) bool {
			return !strings.HasPrefix(claim, "idle") || costs[claim].addr != gatewayAddr
		})
		for claim, c := range costs {
			if c.n /= 2; strings.HasPrefix(claim, "unread") {
				cases[claim] = c
			} else {
				delete(cases, claim)
			}
		}
		var n atomic.Int32
		mixed := costs["idle"]
		mixed.use = func(c net.Conn) { costs[idle[int(n.Add(1))%len(idle)]].use(c) }
		cases["idle, of several kinds"] = mixed
	}
	for claim, test := range cases {
		t.Run(claim, func(t *testing.T) {
			s := startGateway(t, "", "")
			s.besiege(t, func(ctx context.Context) {
				keep := hold(ctx)
				connectSmall(ctx, test.addr, test.n, func(c net.Conn) {
					keep(c)
					test.use(c)
				})
			})
		})
	}
}

// unreadStreams asks for as many responses over HTTP/2 as the server takes at once, with a flow-control window of 0.
func unreadStreams(c net.Conn, path string) {
	const streams = 100
	framer := preface(c, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range streams {
		_ = writeGet(framer, uint32(2*i+1), path)
	}
	_, _ = io.Copy(io.Discard, c)
}
