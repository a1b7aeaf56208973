package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portolan.dev/portolan/internal/support/testcert"
)

// connect opens n connections to an address, from the addresses of attackers in turn, and
// hands each to use. It stops when ctx is done.
func connect(ctx context.Context, address string, n int, use func(net.Conn)) {
	sources := addresses(50)
	for i := range n {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: sources[i%len(sources)]}, Timeout: time.Second}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			continue // the server is busy
		}
		use(conn)
	}
}

// hold keeps connections open until ctx is done.
func hold(ctx context.Context) (keep func(net.Conn)) {
	return func(conn net.Conn) { context.AfterFunc(ctx, func() { conn.Close() }) }
}

// TestIdleAdminConnections opens connections to the admin server and sends nothing, or a
// request and nothing more.
func TestIdleAdminConnections(t *testing.T) {
	s := start(t, fmt.Sprintf("dns: {listen: ['%s']}\n", serverAddr))
	s.attack(t, bounds{100, 1500, 400}, []string{clusterName}, func(ctx context.Context) {
		keep := hold(ctx)
		connect(ctx, adminAddr, 12_500, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
			keep(conn)
		})
	})
}

// TestIdleConnections opens connections for DNS over TCP from one address. They do not close
// the connection of another client that asks over it now and then.
func TestIdleConnections(t *testing.T) {
	s := start(t, fmt.Sprintf("dns: {listen: ['%s']}\n", serverAddr))
	other, err := dns.DialTimeout("tcp", serverAddr, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s.attack(t, bounds{140, 2000, 1200}, []string{clusterName}, func(ctx context.Context) {
		go func() {
			keep := hold(ctx)
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: addresses(1)[0]}}
			for range 10_000 {
				if conn, err := dialer.DialContext(ctx, "tcp", serverAddr); err == nil {
					keep(conn)
				}
			}
		}()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			if err := other.WriteMsg(new(dns.Msg).SetQuestion(clusterName, dns.TypeA)); err != nil {
				t.Errorf("a connection of another client was closed: %v", err)
				return
			}
			_ = other.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := other.ReadMsg(); err != nil {
				t.Errorf("a connection of another client was closed: %v", err)
				return
			}
		}
	})
}

// secure are the settings of a server with DNS over TLS and HTTPS.
func secure(t *testing.T) (settings string) {
	t.Helper()
	cert, err := testcert.New("dns.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	file, key, err := cert.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("dns:\n  listen: ['%s']\n  tls: {listen: ['%s'], certificate: %s, key: %s}\n  https: {listen: ['%s']}\n",
		serverAddr, tlsAddr, file, key, httpsAddr)
}

// TestUnreadAnswers asks over HTTP/2 with a flow-control window of 0, so that no answer can
// be sent.
func TestUnreadAnswers(t *testing.T) {
	s := start(t, secure(t))
	question := packed(t)
	s.attack(t, bounds{200, 12_000, 1200}, []string{clusterName}, func(ctx context.Context) {
		keep := hold(ctx)
		connect(ctx, httpsAddr, 1000, func(conn net.Conn) {
			keep(conn)
			go func() { _ = askUnread(conn, question) }() // the server may close it
		})
		<-ctx.Done()
	})
	response, err := webClient().Get("https://" + httpsAddr + "/dns-query?dns=" + base64.RawURLEncoding.EncodeToString(question))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}

func packed(t *testing.T) []byte {
	t.Helper()
	packet, err := new(dns.Msg).SetQuestion(clusterName, dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

func webClient() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
	}}
}

// askUnread sends as many requests as the server takes at once.
func askUnread(conn net.Conn, question []byte) error {
	const streams = 100
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	framer := http2.NewFramer(secure, secure)
	if _, err := io.WriteString(secure, http2.ClientPreface); err != nil {
		return err
	}
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		return err
	}
	for i := range streams {
		if err := writeRequest(framer, uint32(2*i+1), question); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, secure)
	return err
}

// writeRequest writes the request of a query.
func writeRequest(f *http2.Framer, stream uint32, question []byte) error {
	return writeGet(f, stream, "/dns-query?dns="+base64.RawURLEncoding.EncodeToString(question))
}

// writeGet writes a request for a path.
func writeGet(f *http2.Framer, stream uint32, path string) error {
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "shop.example"},
		{Name: ":path", Value: path},
	} {
		// Never indexed, so that each request can be read alone.
		if err := encoder.WriteField(hpack.HeaderField{Name: field.Name, Value: field.Value, Sensitive: true}); err != nil {
			return err
		}
	}
	return f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: headers.Bytes(), EndStream: true, EndHeaders: true,
	})
}

// TestEndlessRequests posts queries that do not end.
func TestEndlessRequests(t *testing.T) {
	s := start(t, secure(t))
	s.attack(t, bounds{200, 8000, 1200}, []string{clusterName}, func(ctx context.Context) {
		keep := hold(ctx)
		connect(ctx, httpsAddr, 1000, func(conn net.Conn) {
			keep(conn)
			go func() {
				secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
				head := "POST /dns-query HTTP/1.1\r\nHost: a\r\nContent-Type: application/dns-message\r\nTransfer-Encoding: chunked\r\n\r\n"
				_, err := io.WriteString(secure, head)
				for chunk := "400\r\n" + strings.Repeat("x", 1024) + "\r\n"; err == nil; {
					_, err = io.WriteString(secure, chunk)
					time.Sleep(10 * time.Millisecond)
				}
			}()
		})
		<-ctx.Done()
	})
}

// TestHandshakes opens TLS connections again and again without a word.
func TestHandshakes(t *testing.T) {
	s := start(t, secure(t))
	s.attack(t, bounds{200, 4000, 1200}, []string{clusterName}, func(ctx context.Context) {
		connect(ctx, tlsAddr, 5000, hold(ctx))
		<-ctx.Done()
	})
}
