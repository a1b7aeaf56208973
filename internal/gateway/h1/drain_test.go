package h1_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/h1"
)

// slowListener has an accepted connection wait before Accept returns it.
type slowListener struct {
	net.Listener
	accepted chan struct{}
	goOn     chan struct{}
}

func (l *slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
		<-l.goOn
	}
	return conn, err
}

// TestShutdownWhileAccepting: a connection that Accept returns after Shutdown was called is served.
func TestShutdownWhileAccepting(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	slow := &slowListener{l, make(chan struct{}), make(chan struct{})}
	s := &h1.Server{Handler: http.HandlerFunc(echo)}
	served := make(chan error, 1)
	go func() { served <- s.Serve(slow) }()
	c := dial(t, l.Addr().String())
	c.send("GET / HTTP/1.1\nHost: a.test\n\n")
	<-slow.accepted
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(short); err == nil {
		t.Error("Shutdown returned while a connection was accepted")
	}
	close(slow.goOn)
	must(t, s.Shutdown(t.Context()))
	if res, body := c.response("GET"); body != "GET / a.test" || !res.Close {
		t.Errorf("got %q, Close %t", body, res.Close)
	}
	must(t, <-served)
}

// TestShutdownHTTP2: a connection whose first octets come while the server is draining is served over HTTP/2, too, and
// one without a request does not hold the server up.
func TestShutdownHTTP2(t *testing.T) {
	t.Parallel()
	config, _ := secure(t)
	for scheme, tlsOf := range map[string]func() *tls.Config{"http": nil, "https": config} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
			s := &h1.Server{Handler: handler, TLS: tlsOf, HTTP2: over(handler), Limits: h1.Limits{IdleTimeout: time.Hour}}
			addr := serve(t, s)
			conn, silent := dial(t, addr), dial(t, addr)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(ctx) }()
			awaitRefusal(t, addr)
			if tlsOf == nil {
				silent.send("PRI * HTTP/2.0\n\nSM\n\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // with SETTINGS
			}
			res, err := http2Over(conn, tlsOf != nil).Get(scheme + "://" + addr)
			must(t, err)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if string(body) != "HTTP/2.0" || err != nil {
				t.Errorf("got %q, %v", body, err)
			}
			must(t, <-ended)
		})
	}
}

// awaitRefusal waits until a server accepts no connections.
func awaitRefusal(t *testing.T, addr string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
	}
	t.Fatal("it accepts connections still")
}

// http2Over returns a client of HTTP/2 with one connection.
func http2Over(conn net.Conn, secured bool) *http.Client {
	transport := &http.Transport{
		Protocols:       new(http.Protocols),
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a test's own server
	}
	transport.Protocols.SetHTTP2(secured)
	transport.Protocols.SetUnencryptedHTTP2(!secured)
	return &http.Client{Transport: transport}
}
