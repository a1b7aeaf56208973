package h1_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/testcert"
)

// secure returns configurations of servers and clients for a.test. The client asks for these protocols.
func secure(t *testing.T, protocols ...string) (server func() *tls.Config, client *tls.Config) {
	t.Helper()
	certificate, err := testcert.New("a.test", time.Now().Add(time.Hour))
	must(t, err)
	config := &tls.Config{
		Certificates: []tls.Certificate{certificate.TLS}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	}
	return func() *tls.Config { return config },
		&tls.Config{RootCAs: certificate.Roots, ServerName: "a.test", NextProtos: protocols, MinVersion: tls.VersionTLS12}
}

// dialTLS connects with a handshake.
func dialTLS(t *testing.T, addr string, config *tls.Config) *client {
	t.Helper()
	c := dial(t, addr)
	conn := tls.Client(c.Conn, config)
	must(t, conn.Handshake())
	return &client{t, conn, bufio.NewReader(conn)}
}

// over returns a server of HTTP/2.
func over(handler http.Handler) *http.Server {
	s := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.Protocols.SetHTTP2(true)
	return s
}

// TestTLS sends requests through TLS connections. What the Handler sees is as with net/http.
func TestTLS(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if r.TLS == nil || !r.TLS.HandshakeComplete || local == nil {
			t.Errorf("TLS %v, local address %v", r.TLS, local)
			return
		}
		_, _ = io.WriteString(w, r.Proto+" "+r.TLS.ServerName+" "+r.RemoteAddr)
	})
	config, client := secure(t)
	addr := serve(t, &h1.Server{Handler: handler, TLS: config, HTTP2: over(handler)})
	for proto, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		var local atomic.Value
		transport := &http.Transport{TLSClientConfig: client.Clone(), Protocols: new(http.Protocols)}
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				local.Store(conn.LocalAddr().String())
			}
			return conn, err
		}
		transport.Protocols.SetHTTP1(!h2)
		transport.Protocols.SetHTTP2(h2)
		defer transport.CloseIdleConnections()
		for range 3 {
			res, err := (&http.Client{Transport: transport}).Get("https://" + addr)
			must(t, err)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			must(t, err)
			if want := proto + " a.test " + local.Load().(string); string(body) != want {
				t.Errorf("the Handler got %q, want %q", body, want)
			}
		}
	}
}

// TestTLSConnections: what is done with connections works through TLS, too.
func TestTLSConnections(t *testing.T) {
	t.Parallel()
	config, plain := secure(t)
	gone := make(chan struct{})
	addr := serve(t, &h1.Server{TLS: config, Limits: h1.Limits{}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/upgrade":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.CopyN(conn, rw, 8)
		case "/wait":
			<-r.Context().Done()
			close(gone)
		default:
			echo(w, r)
		}
	})})
	t.Run("requests one behind the other", func(t *testing.T) {
		t.Parallel()
		c := dialTLS(t, addr, plain)
		c.send(strings.Repeat("POST /a HTTP/1.1\nHost: a.test\nContent-Length: 20000\n\n"+strings.Repeat("x", 20000), 3))
		for range 3 {
			if _, body := c.response("POST"); len(body) < 20000 {
				t.Errorf("the response is %q", body)
			}
		}
	})
	t.Run("a request that is refused", func(t *testing.T) {
		t.Parallel()
		c := dialTLS(t, addr, plain)
		c.send("GET / HTTP/1.1\nHost: a.test\nHost: b.test\n\n")
		if res, _ := c.response("GET"); res.StatusCode != http.StatusBadRequest {
			t.Errorf("the response is %s", res.Status)
		}
		c.closed()
	})
	t.Run("the preface of HTTP/2, on which nobody agreed", func(t *testing.T) {
		t.Parallel()
		c := dialTLS(t, addr, plain)
		c.send("PRI * HTTP/2.0\n\nSM\n\n")
		if res, _ := c.response("GET"); res.StatusCode != http.StatusHTTPVersionNotSupported {
			t.Errorf("the response is %s", res.Status)
		}
	})
	t.Run("upgrade", func(t *testing.T) {
		t.Parallel()
		c := dialTLS(t, addr, plain)
		c.send("GET /upgrade HTTP/1.1\nHost: a.test\nConnection: upgrade\nUpgrade: echo\n\npart")
		if res, _ := c.response("GET"); res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("the response is %s", res.Status)
		}
		c.send("rest")
		if rest, err := io.ReadAll(c.r); string(rest) != "partrest" || err != nil {
			t.Errorf("the echo is %q, %v", rest, err)
		}
	})
	t.Run("the client is gone", func(t *testing.T) {
		t.Parallel()
		c := dialTLS(t, addr, plain)
		c.send("GET /wait HTTP/1.1\nHost: a.test\n\n")
		must(t, c.Close())
		<-gone
	})
}

// TestTLSParked: a connection that waits, without its buffers, serves further requests.
func TestTLSParked(t *testing.T) {
	t.Parallel()
	config, plain := secure(t)
	c := dialTLS(t, serve(t, &h1.Server{TLS: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			t.Error("a request without TLS")
		}
		echo(w, r)
	})}), plain)
	for range 2 {
		c.send("POST / HTTP/1.1\nHost: a.test\nContent-Length: 3\n\nabc")
		if _, body := c.response("POST"); body != "POST / a.test abc" {
			t.Fatalf("the response is %q", body)
		}
		time.Sleep(1200 * time.Millisecond) // it is parked after a second
	}
}

// TestHandshakes has clients that do not complete theirs. None holds its connection for long, and no other
// client notices.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	config, plain := secure(t)
	refusals := make(chan h1.Refusal, 10)
	addr := serve(t, &h1.Server{
		Handler: http.HandlerFunc(echo), TLS: config, Limits: h1.Limits{HandshakeTimeout: 300 * time.Millisecond, IdleTimeout: time.Hour},
		Refused: func(r h1.Refusal) { refusals <- r },
	})
	hello := func() string { // a part of a ClientHello
		ours, theirs := net.Pipe()
		defer ours.Close()
		go func() { _ = tls.Client(theirs, plain).Handshake() }()
		part := make([]byte, 100)
		_, err := io.ReadFull(ours, part)
		must(t, err)
		return string(part)
	}()
	for claim, tt := range map[string]struct{ send, want string }{
		"nothing comes":              {"", "TLS handshake took too long"},
		"the handshake breaks off":   {hello, "TLS handshake took too long"},
		"what comes is no handshake": {"SSH-2.0-x\r\n", "TLS handshake failed"},
	} {
		c := dial(t, addr)
		_, err := io.WriteString(c.Conn, tt.send)
		must(t, err)
		if _, err := io.Copy(io.Discard, c.Conn); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the connection stays open", claim)
		}
		if got := <-refusals; got.Reason != tt.want || got.Status != 0 || got.Remote != c.LocalAddr().String() {
			t.Errorf("%s: refused for %+v, want %s", claim, got, tt.want)
		}
	}
	c := dial(t, addr) // closes without a word, as those that look whether a port is open
	must(t, c.Close())
	c = dial(t, addr)
	c.send("GET / HTTP/1.1\nHost: a.test\n\n")
	if res, body := c.response("GET"); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "TLS") {
		t.Errorf("HTTP without TLS: %s %q, want 400", res.Status, body)
	}
	if got := <-refusals; got.Status != http.StatusBadRequest {
		t.Errorf("HTTP without TLS is refused with %+v", got)
	}
	c = dialTLS(t, addr, plain)
	time.Sleep(400 * time.Millisecond) // longer than a handshake may take
	c.send("GET / HTTP/1.1\nHost: a.test\n\n")
	if res, _ := c.response("GET"); res.StatusCode != http.StatusOK {
		t.Errorf("after a handshake: %s", res.Status)
	}
}

// TestHandshakesAreAccounted: connections in their handshake count as others do, and give way first to those
// with requests, over HTTP/2, too. One of HTTP/2 without a request gives way as well.
func TestHandshakesAreAccounted(t *testing.T) {
	t.Parallel()
	config, plain := secure(t)
	account := budget.NewAccount("test", budget.Limits{Total: 4, PerSource: 4})
	came, answer := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			came <- struct{}{}
			<-answer
		}
		echo(w, r)
	})
	addr := serve(t, &h1.Server{TLS: config, Connections: account, HTTP2: over(handler), Handler: handler})
	busy := dialTLS(t, addr, plain)
	busy.send("GET /wait HTTP/1.1\nHost: a.test\n\n")
	<-came
	idle, busy2 := dialHTTP2(t, addr, plain), dialHTTP2(t, addr, plain)
	must(t, idle.get("/"))
	answered := make(chan error)
	go func() { answered <- busy2.get("/wait") }()
	<-came
	var waiting []*client
	for range 4 {
		waiting = append(waiting, dial(t, addr))
	}
	for i, c := range waiting[:2] {
		if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("connection %d in its handshake: %d octets, %v, want it closed", i, n, err)
		}
	}
	if got := account.Stats(); got.Used != 4 || got.SourceFull != 3 {
		t.Errorf("the account has %+v, want 4 in use and 3 refused", got)
	}
	close(answer)
	if res, _ := busy.response("GET"); res.StatusCode != http.StatusOK {
		t.Errorf("the connection with a request: %s", res.Status)
	}
	if err := <-answered; err != nil || busy2.dials.Load() != 1 {
		t.Errorf("the connection of HTTP/2 with a request: %v, %d connections", err, busy2.dials.Load())
	}
	if must(t, idle.get("/")); idle.dials.Load() != 2 {
		t.Errorf("the connection of HTTP/2 without a request was not closed")
	}
}

// client2 is a client of HTTP/2, which has one connection at a time.
type client2 struct {
	*http.Client
	url   string
	dials atomic.Int32
}

func dialHTTP2(t *testing.T, addr string, config *tls.Config) *client2 {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config.Clone(), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	c := &client2{Client: &http.Client{Transport: transport}, url: "https://" + addr}
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c.dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return c
}

func (c *client2) get(path string) error {
	res, err := c.Get(c.url + path)
	if err == nil {
		res.Body.Close()
	}
	return err
}

// TestAbsoluteFormOverTLS: the scheme of a target in absolute-form is that of the connection (RFC 9112, section 3.2.2).
func TestAbsoluteFormOverTLS(t *testing.T) {
	t.Parallel()
	config, plain := secure(t)
	addr := serve(t, &h1.Server{Handler: http.HandlerFunc(echo), TLS: config})
	for target, want := range map[string]int{
		"https://a.test/": http.StatusOK, "http://a.test/": http.StatusMisdirectedRequest, "ftp://a.test/": http.StatusMisdirectedRequest,
	} {
		c := dialTLS(t, addr, plain)
		c.send("GET " + target + " HTTP/1.1\nHost: a.test\n\n")
		if res, body := c.response("GET"); res.StatusCode != want {
			t.Errorf("%s: %s %q, want %d", target, res.Status, body, want)
		}
	}
}

// TestTLSShutdown: Shutdown waits neither for handshakes nor for connections that wait.
func TestTLSShutdown(t *testing.T) {
	t.Parallel()
	config, plain := secure(t)
	s := &h1.Server{
		Handler: http.HandlerFunc(echo), TLS: config, Limits: h1.Limits{HandshakeTimeout: time.Hour, IdleTimeout: time.Hour},
		Refused: func(r h1.Refusal) { t.Errorf("%+v was refused", r) },
	}
	addr := serve(t, s)
	dial(t, addr)
	dialTLS(t, addr, plain).send("GET / HTTP/1.1\nHost: a.test\n\n")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, s.Shutdown(ctx))
}

// TestTLSForSome: each connection has what holds when it is accepted.
func TestTLSForSome(t *testing.T) {
	t.Parallel()
	config, plain := secure(t)
	var without atomic.Bool
	addr := serve(t, &h1.Server{Handler: http.HandlerFunc(echo), TLS: func() *tls.Config {
		if without.Load() {
			return nil
		}
		return config()
	}})
	first := dialTLS(t, addr, plain)
	without.Store(true)
	for _, c := range []*client{first, dial(t, addr)} {
		c.send("GET / HTTP/1.1\nHost: a.test\n\n")
		if res, _ := c.response("GET"); res.StatusCode != http.StatusOK {
			t.Errorf("the response is %s", res.Status)
		}
	}
}
