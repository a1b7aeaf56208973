package h1_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/support/budget"
)

// TestLimits exceeds the limits of what a head may have.
func TestLimits(t *testing.T) {
	t.Parallel()
	addr := serve(t, &h1.Server{Handler: http.HandlerFunc(echo)})
	x := func(n int) string { return strings.Repeat("x", n) }
	tests := map[string]struct {
		send string
		want int
	}{
		"a head of 16 KiB":     {"GET / HTTP/1.1\nHost: a.test\nX: " + x(16<<10-37) + "\n\n", 200},
		"a larger one":         {"GET / HTTP/1.1\nHost: a.test\nX: " + x(16<<10-36) + "\n\n", 431},
		"a head without end":   {"GET / HTTP/1.1\nHost: a.test\nX: " + x(40<<10), 431},
		"a target of 8 KiB":    {"GET /" + x(8<<10-1) + " HTTP/1.1\nHost: a.test\n\n", 200},
		"a longer one":         {"GET /" + x(8<<10) + " HTTP/1.1\nHost: a.test\n\n", 414},
		"a target without end": {"GET /" + x(40<<10), 414},
		"128 fields":           {"GET / HTTP/1.1\nHost: a.test\n" + strings.Repeat("X: y\n", 127) + "\n", 200},
		"129 fields":           {"GET / HTTP/1.1\nHost: a.test\n" + strings.Repeat("X: y\n", 128) + "\n", 431},
		"trailers without end": {"POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n0\nX: " + x(40<<10), 431},
		"trailers of 129 fields": {
			"POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n0\n" + strings.Repeat("X: y\n", 129) + "\n", 431,
		},
		"trailers of 8 KiB": {"POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n0\nX: " + x(8<<10) + "\n\n", 200},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			c := dial(t, addr)
			c.send(test.send)
			if res, _ := c.response("GET"); res.StatusCode != test.want || res.Close != (test.want != http.StatusOK) {
				t.Errorf("%.40q... = %d, close %t, want %d", test.send, res.StatusCode, res.Close, test.want)
			}
		})
	}
}

// TestSlow has clients that take their time. Each that must not ends within a minute, and each that may goes on.
func TestSlow(t *testing.T) {
	t.Parallel()
	const brief, head, forever = 300 * time.Millisecond, "POST / HTTP/1.1\nHost: a.test\n", time.Hour
	slow := h1.Limits{HeadTimeout: forever, IdleTimeout: forever, Rate: 1, Grace: forever}
	with := func(change func(*h1.Limits)) h1.Limits {
		l := slow
		change(&l)
		return l
	}
	heads := with(func(l *h1.Limits) { l.HeadTimeout = brief })
	bodies := with(func(l *h1.Limits) { l.Grace, l.Rate = brief, 1<<30 })
	tests := map[string]struct {
		limits h1.Limits
		send   string // in the beginning
		each   string // from then on, every 10 ms
		want   string // the status line, or nothing
	}{
		"silent": {with(func(l *h1.Limits) { l.IdleTimeout = brief }), "", "", ""},
		"between heads": {
			with(func(l *h1.Limits) { l.IdleTimeout = brief }),
			"GET / HTTP/1.1\nHost: a.test\n\n",
			"",
			"HTTP/1.1 200 OK",
		},
		"first octet":     {heads, "G", "", "HTTP/1.1 408 Request Timeout"},
		"request line":    {heads, "GET /", "x", "HTTP/1.1 408 Request Timeout"},
		"fields":          {heads, head, "X: y\n", "HTTP/1.1 408 Request Timeout"},
		"body":            {bodies, head + "Content-Length: 1000000\n\n", "x", "HTTP/1.1 408 Request Timeout"},
		"silent body":     {bodies, head + "Content-Length: 1000000\n\n", "", "HTTP/1.1 408 Request Timeout"},
		"chunks":          {bodies, head + "Transfer-Encoding: chunked\n\n", "1\nx\n", "HTTP/1.1 408 Request Timeout"},
		"chunk extension": {bodies, head + "Transfer-Encoding: chunked\n\n1;", "x", "HTTP/1.1 40"},
		"trailers":        {bodies, head + "Transfer-Encoding: chunked\n\n0\n", "X: y\n", "HTTP/1.1 4"},
		"unread body": {
			bodies, "POST /unread HTTP/1.1\nHost: a.test\nContent-Length: 60000\n\n", "x", "HTTP/1.1 200 OK",
		},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			c := dial(
				t,
				serve(t, &h1.Server{Limits: test.limits, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/unread" {
						echo(w, r)
					}
				})}),
			)
			c.send(test.send)
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				for text := strings.ReplaceAll(test.each, "\n", "\r\n"); text != ""; time.Sleep(10 * time.Millisecond) {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := io.WriteString(c.Conn, text); err != nil {
						return
					}
				}
			}()
			got, err := io.ReadAll(c.r)
			if err, ok := errors.AsType[net.Error](err); ok && err.Timeout() {
				t.Fatalf("the connection goes on after a minute, with %q", got)
			}
			if !strings.HasPrefix(string(got), test.want) || test.want == "" && len(got) > 0 {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestSlowReader: a client that takes no response ends, and the Handler with it.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	c := dial(t, serve(t, &h1.Server{
		Limits: h1.Limits{Grace: 300 * time.Millisecond, Rate: 1 << 30},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for block := make([]byte, 1<<20); ; {
				if _, err := w.Write(block); err != nil {
					<-r.Context().Done()
					close(ended)
					return
				}
			}
		}),
	}))
	c.send("GET / HTTP/1.1\nHost: a.test\n\n")
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the Handler writes after a minute")
	}
}

// TestSlowlyTaken: what a client takes slower than its rate ends, also if it takes some of each write in time.
func TestSlowlyTaken(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	ended := make(chan struct{})
	addr := serve(t, &h1.Server{
		Limits: h1.Limits{Grace: grace, Rate: 1 << 30},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for block := make([]byte, 64<<10); ; {
				if _, err := w.Write(block); err != nil {
					close(ended)
					return
				}
			}
		}),
	})
	c := dial(t, addr)
	must(t, c.Conn.(*net.TCPConn).SetReadBuffer(4<<10))
	c.send("GET / HTTP/1.1\nHost: a.test\n\n")
	buffer := make([]byte, 128<<10)
	for range 40 {
		select {
		case <-ended:
			return
		case <-time.After(grace / 2): // a write never waits for as long as the grace
			_, _ = io.ReadFull(c.Conn, buffer)
		}
	}
	t.Errorf("the Handler writes after %s", 20*grace)
}

// TestSlowHTTP2: over HTTP/2 a client that takes no response, or sends no body, ends, and the Handler with it.
func TestSlowHTTP2(t *testing.T) {
	t.Parallel()
	errs := make(chan error, 2)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, err := io.Copy(io.Discard, r.Body)
			errs <- err
			return
		}
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				errs <- err
				return
			}
		}
	})
	h2 := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	addr := serve(t, &h1.Server{Limits: h1.Limits{Grace: 300 * time.Millisecond, Rate: 1 << 30}, Handler: handler, HTTP2: h2})
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	res, err := client.Get("http://" + addr)
	must(t, err)
	defer res.Body.Close() // and it is not read
	body, silent := io.Pipe()
	defer silent.Close()
	go func() {
		if res, err := client.Post("http://"+addr, "", body); err == nil {
			res.Body.Close()
		}
	}()
	for range 2 {
		select {
		case err := <-errs:
			if err == nil {
				t.Error("a body without end was read to its end")
			}
		case <-time.After(time.Minute):
			t.Fatal("a Handler waits after a minute")
		}
	}
}

// TestSlowHandler: what the server itself waits for counts for no limit of the client.
func TestSlowHandler(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	addr := serve(t, &h1.Server{
		Limits: h1.Limits{HeadTimeout: limit, IdleTimeout: limit, Grace: limit, Rate: 1 << 20},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(limit + limit/4)
			echo(w, r)
		}),
	})
	c := dial(t, addr)
	for range 2 {
		c.send("POST / HTTP/1.1\nHost: a.test\nContent-Length: 3\n\nabc")
		if _, body := c.response("POST"); body != "POST / a.test abc" {
			t.Errorf("got %q", body)
		}
	}
}

// TestParked: a connection is served after it had no buffers for a while, and Shutdown ends it at once.
func TestParked(t *testing.T) {
	t.Parallel()
	s := &h1.Server{Handler: http.HandlerFunc(echo)}
	addr := serve(t, s)
	c, fresh := dial(t, addr), dial(t, addr)
	for range 2 {
		c.send("GET / HTTP/1.1\nHost: a.test\n\n")
		if _, body := c.response("GET"); body != "GET / a.test" {
			t.Errorf("got %q", body)
		}
		time.Sleep(1500 * time.Millisecond) // longer than it keeps its buffers
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	c.closed()
	fresh.send("GET / HTTP/1.1\nHost: a.test\n\n") // it may have been on its way
	if res, _ := fresh.response("GET"); !res.Close {
		t.Error("no Connection: close")
	}
	fresh.closed()
	must(t, <-ended)
}

// TestConnections: with too many connections those end that wait.
func TestConnections(t *testing.T) {
	t.Parallel()
	came, goOn := make(chan struct{}), make(chan struct{})
	addr := serve(t, &h1.Server{
		Connections: budget.NewAccount("test", budget.Limits{Total: 3, PerSource: 3}),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				came <- struct{}{}
				<-goOn
			}
			echo(w, r)
		}),
	})
	busy, half, silent := dial(t, addr), dial(t, addr), dial(t, addr)
	busy.send("GET /slow HTTP/1.1\nHost: a.test\n\n")
	<-came
	half.send("GET / HTTP/1.1\nHost:") // which is no request yet
	silent.send("GET / HTTP/1.1\nHost: a.test\n\n")
	silent.response("GET")
	for i := range 5 { // each takes the place of the oldest one without a request
		c := dial(t, addr)
		c.send("GET / HTTP/1.1\nHost: a.test\n\n")
		if _, body := c.response("GET"); body != "GET / a.test" {
			t.Errorf("connection %d: %q", i, body)
		}
	}
	if rest, err := io.ReadAll(half.r); len(rest) > 0 {
		t.Errorf("half a head had %q, %v", rest, err)
	}
	close(goOn)
	if _, body := busy.response("GET"); body != "GET /slow a.test" {
		t.Errorf("the connection with a request had %q", body)
	}
}

// TestAcceptFails: the server goes on when the process has no descriptors left for a moment.
func TestAcceptFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &h1.Server{Handler: http.HandlerFunc(echo)}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(&failing{Listener: l, left: 3}) }()
	c := dial(t, l.Addr().String())
	c.send("GET / HTTP/1.1\nHost: a.test\n\n")
	if _, body := c.response("GET"); body != "GET / a.test" {
		t.Errorf("got %q", body)
	}
	must(t, s.Close())
	must(t, <-ended)
}

// failing is a listener that fails for a while.
type failing struct {
	net.Listener
	left int
}

// Accept implements net.Listener.
func (f *failing) Accept() (net.Conn, error) {
	if f.left > 0 {
		f.left--
		return nil, errors.New("accept: too many open files")
	}
	return f.Listener.Accept()
}
