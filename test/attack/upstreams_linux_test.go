package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/support/testcert"
)

// routes are the settings of a server that forwards names below bad. to the upstream and
// all others to the one that answers.
func routes(bad string) string {
	return fmt.Sprintf("dns:\n  listen: ['%s']\n  forward: {routes: [{suffix: bad, upstreams: ['%s']}, {upstreams: [%s]}]}\n",
		serverAddr, bad, upstreamAddr)
}

// badName is a different name for each number.
func badName(n int) *dns.Msg {
	return new(dns.Msg).SetQuestion(fmt.Sprintf("n%d.bad.", n), dns.TypeA)
}

// TestBadUpstream floods a route whose upstream misbehaves in each way of badReplies, over
// UDP and over TCP.
func TestBadUpstream(t *testing.T) {
	serveUpstream(t)
	serveBadUDP(t)
	serveBadTCP(t)
	s := start(t, routes(deadAddr))
	s.attack(t, bounds{160, 10_000, 700}, []string{clusterName, fastName}, func(ctx context.Context) {
		t.Logf("%d queries", flood(ctx, t, 2000, addresses(5), badName))
	})
}

// badReplies are packets with which an upstream can reply to a query.
func badReplies() []func(query *dns.Msg) [][]byte {
	reply := func(change func(m *dns.Msg)) func(*dns.Msg) [][]byte {
		return func(query *dns.Msg) [][]byte {
			m := new(dns.Msg).SetReply(query)
			change(m)
			packet, err := m.Pack()
			if err != nil {
				return nil
			}
			return [][]byte{packet}
		}
	}
	good := reply(func(m *dns.Msg) { m.Answer = append(m.Answer, address(m.Question[0].Name)) })
	changed := func(change func(packet []byte) []byte) func(*dns.Msg) [][]byte {
		return func(query *dns.Msg) [][]byte { return [][]byte{change(good(query)[0])} }
	}
	return []func(*dns.Msg) [][]byte{
		func(*dns.Msg) [][]byte { return nil },
		func(query *dns.Msg) [][]byte { return slices.Repeat(good(query), 50) },
		func(*dns.Msg) [][]byte { return [][]byte{random(1 + rand.IntN(1500))} },
		func(*dns.Msg) [][]byte { return [][]byte{{}, {0}, random(11), random(65_000)} },
		reply(func(m *dns.Msg) { m.Truncated = true }),
		reply(func(m *dns.Msg) { m.Id++ }),
		reply(func(m *dns.Msg) { m.Response = false }),
		reply(func(m *dns.Msg) { m.Question[0].Name = "other.bad." }),
		reply(func(m *dns.Msg) { m.Question = nil }),
		reply(func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure }),
		reply(func(m *dns.Msg) { m.Rcode = dns.RcodeRefused }),
		reply(func(m *dns.Msg) { m.Rcode = rand.IntN(16) }),
		reply(func(m *dns.Msg) { m.Answer = aliases(m.Question[0].Name, 40) }),
		reply(func(m *dns.Msg) { m.Answer = append(aliases("x.bad.", 2), aliases(m.Question[0].Name, 1)...) }),
		reply(func(m *dns.Msg) { m.Answer, m.Extra = nil, slices.Repeat([]dns.RR{address(clusterName)}, 500) }),
		changed(func(p []byte) []byte { return p[:len(p)-5] }),
		changed(func(p []byte) []byte { return append(p, random(2000)...) }),
		changed(func(p []byte) []byte { binary.BigEndian.PutUint16(p[6:], 65_535); return p }),
		changed(func(p []byte) []byte { copy(p[12:], []byte{0xc0, 12}); return p }), // a name that points to itself
		changed(func(p []byte) []byte { p[rand.IntN(len(p))] ^= byte(1 + rand.IntN(255)); return p }),
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.IntN(256))
	}
	return b
}

func address(name string) dns.RR {
	return &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 66)}
}

// aliases is a chain of n aliases that begins at name; the last one leads back to it.
func aliases(name string, n int) (all []dns.RR) {
	owner := name
	for i := range n {
		target := fmt.Sprintf("a%d.bad.", i)
		if i == n-1 {
			target = name
		}
		all = append(all, &dns.CNAME{
			Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 60}, Target: target,
		})
		owner = target
	}
	return all
}

// serveBadUDP replies to queries at deadAddr in the ways of badReplies, in turn.
func serveBadUDP(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", deadAddr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	replies := badReplies()
	go func() {
		buf := make([]byte, dns.MaxMsgSize)
		for n := 0; ; n++ {
			length, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			query := new(dns.Msg)
			if query.Unpack(buf[:length]) != nil {
				continue
			}
			for _, packet := range replies[n%len(replies)](query) {
				_, _ = conn.WriteTo(packet, from) // the socket may be gone
			}
		}
	}()
}

// serveBadTCP accepts connections at deadAddr. It closes them, is silent, sends a length
// without a message, an octet at a time, or data without end, in turn.
func serveBadTCP(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", deadAddr)
	if err != nil {
		t.Fatal(err)
	}
	ways := []func(conn net.Conn){
		func(net.Conn) {},
		func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		func(conn net.Conn) {
			_, _ = conn.Write([]byte{255, 255})
			_, _ = io.Copy(io.Discard, conn)
		},
		func(conn net.Conn) {
			for range 100 {
				if _, err := conn.Write([]byte{1}); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		},
		func(conn net.Conn) { _, _ = io.CopyN(conn, endless{}, 64<<20) },
	}
	go func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				ways[n%len(ways)](conn)
			}()
		}
	}()
	t.Cleanup(func() { l.Close() })
}

// endless is a stream of random octets.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	return copy(b, bytes.Repeat(random(61), len(b)/61+1)), nil
}

// TestLateUpstream floods a route whose upstream answers each name after 1.5 s.
func TestLateUpstream(t *testing.T) {
	serveUpstream(t)
	conn, err := net.ListenPacket("udp", deadAddr)
	if err != nil {
		t.Fatal(err)
	}
	late := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		time.Sleep(1500 * time.Millisecond)
		m := new(dns.Msg).SetReply(r)
		m.Answer = append(m.Answer, address(r.Question[0].Name))
		_ = w.WriteMsg(m) // nobody may wait any more
	})}
	go func() { _ = late.ActivateAndServe() }()
	t.Cleanup(func() { _ = late.Shutdown() })
	s := start(t, routes(deadAddr))
	s.attack(t, bounds{160, 10_000, 200}, []string{clusterName, fastName}, func(ctx context.Context) {
		t.Logf("%d queries", flood(ctx, t, 3000, addresses(5), badName))
	})
}

// TestTLSUpstream floods a route whose upstream, over TLS, does not shake hands, or does and
// then answers nothing.
func TestTLSUpstream(t *testing.T) {
	certificate, err := testcert.New("dns.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	authorities, _, err := certificate.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shake := &tls.Config{Certificates: []tls.Certificate{certificate.TLS}, MinVersion: tls.VersionTLS12}
	for claim, serve := range map[string]func(net.Conn){
		"no handshake": func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"no answer":    func(conn net.Conn) { _, _ = io.Copy(io.Discard, tls.Server(conn, shake)) },
	} {
		t.Run(claim, func(t *testing.T) {
			serveUpstream(t)
			l, err := net.Listen("tcp", deadTLSAddr)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close()
						serve(conn)
					}()
				}
			}()
			s := start(t, fmt.Sprintf("dns:\n  listen: ['%s']\n  forward: {routes: ["+
				"{suffix: bad, upstreams: ['tls://%s#dns.example'], ca: %s}, {upstreams: [%s]}]}\n",
				serverAddr, deadTLSAddr, authorities, upstreamAddr))
			s.attack(t, bounds{160, 10_000, 200}, []string{clusterName, fastName}, func(ctx context.Context) {
				t.Logf("%d queries", flood(ctx, t, 3000, addresses(5), badName))
			})
		})
	}
}
