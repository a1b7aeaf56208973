package dnsserver_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/support/testcert"
)

// webClient sends queries over one connection.
type webClient struct {
	t    *testing.T
	s    *running
	http *http.Client
	url  string
	made int // number of connections
}

// web starts a server over HTTPS. It returns a function that makes clients over HTTP/2
// or HTTP/1.1.
func web(
	t *testing.T, cfg dnsserver.Config, prepare ...func(*running),
) (dial func(http2 bool) *webClient, s *running, a *waiting) {
	t.Helper()
	cert, err := testcert.New("dns.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ListenHTTPS, cfg.HTTPSPath = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, "/dns-query"
	cfg.Certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert.TLS, nil }
	s, a = startWaiting(t, cfg, prepare...)
	return func(http2 bool) *webClient {
		c := &webClient{t: t, s: s, url: "https://" + s.HTTPSAddrs()[0].String() + "/dns-query"}
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: cert.Roots}, ForceAttemptHTTP2: http2, MaxConnsPerHost: 1,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c.made++
				var d net.Dialer
				return d.DialContext(ctx, network, addr)
			},
		}
		c.http = &http.Client{Transport: transport, Timeout: patience}
		t.Cleanup(transport.CloseIdleConnections)
		return c
	}, s, a
}

// connected checks that the client gets an answer and has used so many connections
// altogether. It waits until the connection is idle.
func (c *webClient) connected(times int) {
	c.t.Helper()
	others := c.s.WebRequests()
	err := c.ask("still there?", times)
	if err != nil { // the server closed the connection just now
		err = c.ask("still there?", times)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	for end := time.Now().Add(patience); c.s.WebRequests() > others; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%d requests, want %d", c.s.WebRequests(), others)
		}
	}
}

func (c *webClient) ask(query string, times int) error {
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(query))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/dns-message")
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK || c.made != times {
		return fmt.Errorf("%s, over connection %d, want %d", answer.Status, c.made, times)
	}
	return nil
}

// TestHTTPSEvictsTheLongestIdleConnection checks that a new connection beyond the limit
// closes the one that was idle longest, without waiting for it.
func TestHTTPSEvictsTheLongestIdleConnection(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/2": true, "HTTP/1.1": false} {
		t.Run(name, func(t *testing.T) {
			dial, _, _ := web(t, dnsserver.Config{MaxConnections: 3})
			a, b, c := dial(http2), dial(http2), dial(http2)
			for _, client := range []*webClient{a, b, c, a} {
				client.connected(1)
			}
			d := dial(http2)
			d.connected(1)
			for _, client := range []*webClient{c, a, d} {
				client.connected(1)
			}
			b.connected(2) // replaces c
			a.connected(1)
			d.connected(1)
			c.connected(2)
		})
	}
}

// TestHTTPSResetsTheOldestRequest checks that a request beyond the limit resets the one that
// has waited longest, and not its connection.
func TestHTTPSResetsTheOldestRequest(t *testing.T) {
	dial, _, slow := web(t, dnsserver.Config{MaxConnections: 2}, func(r *running) { r.SetMaxWebRequests(2) })
	client := dial(true)
	results := make(chan error, 2)
	for i := range 2 {
		go func() { results <- client.ask("later", 1) }()
		slow.begin(t, int32(i+1))
	}
	client.connected(1)
	if err := receive(t, results, "a reset"); err == nil || !strings.Contains(err.Error(), "stream") {
		t.Errorf("ask() beyond the limit = %v, want the reset of a stream", err)
	}
	close(slow.release)
	if err := receive(t, results, "an answer"); err != nil {
		t.Error(err)
	}
}

// TestClosedHTTPSConnectionIsNotCounted checks that a connection closed by its client
// does not count.
func TestClosedHTTPSConnectionIsNotCounted(t *testing.T) {
	dial, s, _ := web(t, dnsserver.Config{MaxConnections: 2})
	a, b, c := dial(true), dial(true), dial(true)
	a.connected(1)
	b.connected(1)
	b.http.CloseIdleConnections()
	for end := time.Now().Add(patience); s.WebConnections() > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections, want 1", s.WebConnections())
		}
	}
	c.connected(1)
	a.connected(1)
}

// TestHTTPSConnectionWaitingForAnswerIsNotIdle checks that a connection is not idle
// while it waits for an answer.
func TestHTTPSConnectionWaitingForAnswerIsNotIdle(t *testing.T) {
	dial, _, slow := web(t, dnsserver.Config{MaxConnections: 2})
	a, b, c := dial(true), dial(true), dial(true)
	answered := make(chan error, 1)
	go func() { answered <- a.ask("later", 1) }()
	slow.begin(t, 1)
	b.connected(1)
	c.connected(1)
	close(slow.release)
	if err := receive(t, answered, "an answer"); err != nil {
		t.Error(err)
	}
	b.connected(2)
}

// TestHTTPSConnectionWithoutHandshakeIsIdle checks that a connection without a TLS
// handshake counts as idle.
func TestHTTPSConnectionWithoutHandshakeIsIdle(t *testing.T) {
	dial, _, _ := web(t, dnsserver.Config{MaxConnections: 1})
	a := dial(true)
	a.connected(1)
	conn, err := net.Dial("tcp", a.url[len("https://"):len(a.url)-len("/dns-query")])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := dial(true)
	b.connected(1)
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("Read() = %v, want that the connection is closed", err)
	}
}
