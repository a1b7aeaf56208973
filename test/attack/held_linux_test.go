package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/http2"
)

// TestMalformedPackets floods the server with queries of which some octets are changed, cut
// or appended.
func TestMalformedPackets(t *testing.T) {
	serveUpstream(t)
	s := start(t, forwarding(upstreamAddr))
	s.attack(t, bounds{100, 2000, 200}, []string{clusterName, fastName}, func(ctx context.Context) {
		conn, err := net.Dial("udp", serverAddr)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = conn.Write(mutated(t, n)) // the server's buffer may be full
			if n%10 == 9 {
				time.Sleep(time.Millisecond)
			}
		}
	})
}

// mutated returns a query with faults; the same one for the same number.
func mutated(t *testing.T, n int) []byte {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(n), 0))
	m := new(dns.Msg).SetQuestion(clusterName, uint16(random.IntN(300)))
	m.SetEdns0(uint16(random.IntN(5000)), random.IntN(2) == 0)
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for range 1 + random.IntN(8) {
		packet[random.IntN(len(packet))] = byte(random.Uint32())
	}
	switch random.IntN(3) {
	case 0:
		packet = packet[:random.IntN(len(packet))]
	case 1:
		packet = append(packet, make([]byte, random.IntN(2000))...)
	}
	return packet
}

// TestManyNames asks for names that fill the cache many times.
func TestManyNames(t *testing.T) {
	serveUpstream(t)
	s := start(t, forwarding(upstreamAddr))
	s.attack(t, bounds{160, 10_000, 200}, nil, func(ctx context.Context) {
		flood(ctx, t, 10_000, addresses(20), func(n int) *dns.Msg {
			return new(dns.Msg).SetQuestion(fmt.Sprintf("a-name-that-is-rather-long-so-that-it-fills-the-cache-%d.example.", n), dns.TypeA)
		})
	})
}

// TestSlowWriters sends messages over TCP, TLS and HTTPS an octet a time.
func TestSlowWriters(t *testing.T) {
	s := start(t, secure(t))
	s.attack(t, bounds{160, 6000, 1600}, []string{clusterName}, func(ctx context.Context) {
		keep := hold(ctx)
		for _, address := range []string{serverAddr, tlsAddr, httpsAddr} {
			connect(ctx, address, 500, func(conn net.Conn) {
				keep(conn)
				go func() {
					for octet := byte(0); ; octet++ {
						if _, err := conn.Write([]byte{octet}); err != nil {
							return
						}
						time.Sleep(100 * time.Millisecond)
					}
				}()
			})
		}
		<-ctx.Done()
	})
}

// TestFrames floods connections of HTTP/2 with frames: streams that are reset at once
// (CVE-2023-44487), settings, pings, and headers that never end (CVE-2024-27316).
func TestFrames(t *testing.T) {
	question := packed(t)
	for claim, send := range floods(func(f *http2.Framer, stream uint32) error { return writeRequest(f, stream, question) }) {
		t.Run(claim, func(t *testing.T) {
			s := start(t, secure(t))
			s.attack(t, bounds{160, 6000, 400}, []string{clusterName}, func(ctx context.Context) {
				keep := hold(ctx)
				for ctx.Err() == nil { // the server closes such connections
					connect(ctx, httpsAddr, 20, func(conn net.Conn) {
						keep(conn)
						secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
						go func() { _ = frames(secure, send) }()
					})
					time.Sleep(200 * time.Millisecond)
				}
			})
		})
	}
}

// sendFrames sends the next frames of a flood; the number is that of a stream that was not used.
type sendFrames = func(f *http2.Framer, stream uint32) error

// floods are floods of frames of HTTP/2, with one that sends a request.
func floods(request sendFrames) map[string]sendFrames {
	return map[string]sendFrames{
		"resets": func(f *http2.Framer, stream uint32) error {
			if err := request(f, stream); err != nil {
				return err
			}
			return f.WriteRSTStream(stream, http2.ErrCodeCancel)
		},
		"settings": func(f *http2.Framer, _ uint32) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
		},
		"pings":               func(f *http2.Framer, _ uint32) error { return f.WritePing(false, [8]byte{1}) },
		"headers":             endlessHead(make([]byte, 1000)), // fields without a name
		"fields":              endlessHead(bytes.Repeat([]byte("\x00\x01a\x01b"), 200)),
		"empty continuations": endlessHead(nil),
	}
}

// endlessHead begins a request, of which it sends a fragment of the head again and again, in frames of CONTINUATION.
func endlessHead(fragment []byte) sendFrames {
	return func(f *http2.Framer, stream uint32) error {
		if stream > 1 {
			return f.WriteContinuation(1, false, fragment)
		}
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
	}
}

// frames sends frames as fast as the server takes them.
func frames(conn net.Conn, send sendFrames) error {
	framer := preface(conn)
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
	for stream := uint32(1); ; stream += 2 {
		if err := send(framer, stream); err != nil {
			return err
		}
	}
}
