package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

// rawEndpoint starts an endpoint that a function serves the connections of. Each is closed when it returns.
func rawEndpoint(t *testing.T, handle func(c net.Conn, in *bufio.Reader)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				in := bufio.NewReader(c)
				handle(c, in)
				// What is left unread when a connection is closed has it reset, with what it had yet to deliver.
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, in)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// lines sends a text in which "\n" stands for CRLF.
func lines(c net.Conn, text string) { _, _ = io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n")) }

// readRequest reads a request with its body.
func readRequest(in *bufio.Reader) (*http.Request, string, error) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(r.Body)
	return r, string(body), err
}

// client is a connection to a gateway.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (g *gateway) dial() *client {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr.String())
	must(g.t, err)
	g.t.Cleanup(func() { c.Close() })
	must(g.t, c.SetDeadline(time.Now().Add(time.Minute)))
	return &client{c, bufio.NewReader(c)}
}

// response reads the head of a response.
func (c *client) response(t *testing.T, method string) *http.Response {
	t.Helper()
	res, err := http.ReadResponse(c.in, &http.Request{Method: method})
	must(t, err)
	return res
}

// newWeb starts a gateway with a route to one endpoint for all paths.
func newWeb(t *testing.T, addr netip.AddrPort) *gateway {
	t.Helper()
	g := newGateway(t, nil)
	g.web(addr)
	g.serve(to("/", table.Actions{}))
	return g
}

// TestInvalidResponse: a response that could be read in another way is answered with 502, and what is hidden in it is
// no response to anybody. The client's connection stays.
func TestInvalidResponse(t *testing.T) {
	t.Parallel()
	const hidden = "HTTP/1.1 200 OK\nContent-Length: 6\n\nhidden"
	const ok = "HTTP/1.1 200 OK\n"
	for claim, response := range map[string]string{
		"both framings":            ok + "Content-Length: 100\nTransfer-Encoding: chunked\n\n0\n\n" + hidden,
		"the framings in 1.0":      "HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n0\n\n" + hidden,
		"two lengths":              ok + "Content-Length: 0\nContent-Length: 100\n\n" + hidden,
		"two equal lengths":        ok + "Content-Length: 0\nContent-Length: 0\n\n" + hidden,
		"a list of lengths":        ok + "Content-Length: 0, 100\n\n" + hidden,
		"a signed length":          ok + "Content-Length: +0\n\n" + hidden,
		"a hidden length":          ok + "Content_Length: 100\n\n" + hidden,
		"another coding":           ok + "Transfer-Encoding: xchunked\n\n0\n\n" + hidden,
		"two codings":              ok + "Transfer-Encoding: chunked\nTransfer-Encoding: identity\n\n0\n\n" + hidden,
		"a list of codings":        ok + "Transfer-Encoding: identity, chunked\n\n0\n\n" + hidden,
		"a folded coding":          ok + "Transfer-Encoding:\n chunked\n\n0\n\n" + hidden,
		"a folded length":          ok + "A: b\n Content-Length: 100\nContent-Length: 0\n\n" + hidden,
		"a space before the colon": ok + "Content-Length : 0\n\n" + hidden,
		"NUL":                      ok + "A: \x00\nContent-Length: 0\n\n" + hidden,
		"bare CR":                  "HTTP/1.1 200 OK\r\nA: b\rContent-Length: 100\r\nContent-Length: 0\r\n\r\n",
		"bare LF":                  "HTTP/1.1 200 OK\r\nA: b\nContent-Length: 100\r\nContent-Length: 0\r\n\r\n",
		"no length's digits":       ok + "Content-Length: 0x0\n\n" + hidden,
		"an empty line first":      "\n" + ok + "Content-Length: 0\n\n" + hidden,
		"another version":          "HTTP/2.0 200 OK\nContent-Length: 0\n\n" + hidden,
		"no HTTP":                  "hello\n\n",
		"a large head":             ok + "X: " + strings.Repeat("x", 70000) + "\n\n",
		"an upgrade nobody wants":  "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: h2c\n\n" + hidden,
		"a storm of 103":           strings.Repeat("HTTP/1.1 103 Early Hints\n\n", 100) + ok + "Content-Length: 0\n\n" + hidden,
		"a chunk without a size":   ok + "Transfer-Encoding: chunked\n\nx\n" + hidden,
		"no body":                  ok + "Content-Length: 5\n\n",
		"nothing":                  "",
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
				for {
					r, _, err := readRequest(in)
					if err != nil {
						return
					}
					if r.URL.Path == "/next" {
						lines(c, "HTTP/1.1 200 OK\nContent-Length: 4\n\nnext")
						continue
					}
					if strings.Contains(response, "\r") {
						_, _ = io.WriteString(c, response)
					} else {
						lines(c, response)
					}
					if claim == "no body" || claim == "nothing" {
						return
					}
				}
			}))
			c := g.dial()
			for _, path := range []string{"/first", "/next"} {
				lines(c, "POST "+path+" HTTP/1.1\nHost: a.test\nContent-Length: 0\n\n")
				res := c.response(t, "POST")
				for res.StatusCode < 200 {
					res = c.response(t, "POST")
				}
				body, err := io.ReadAll(res.Body)
				must(t, err)
				reason := g.last().Reason
				if path == "/first" && (res.StatusCode != http.StatusBadGateway || reason != proxy.Invalid && reason != proxy.Unreachable) {
					t.Fatalf("%.99q = %d %q (%s), want 502", response, res.StatusCode, body, reason)
				}
				if path == "/next" && string(body) != "next" {
					t.Fatalf("after %.99q = %d %q", response, res.StatusCode, body)
				}
			}
		})
	}
}

// TestBrokenOff: a response that breaks off is broken off for the client, too; it gets no end of it.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct{ first, then string }{
		"short":           {"HTTP/1.1 200 OK\nContent-Length: 9\n\nabc", ""},
		"no last chunk":   {"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nabc\n", ""},
		"an invalid size": {"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nabc\n", "x\n"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{})
			g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
				if _, _, err := readRequest(in); err == nil {
					lines(c, test.first)
					<-goOn
					lines(c, test.then)
				}
			}))
			c := g.dial()
			lines(c, "GET / HTTP/1.1\nHost: a.test\n\n")
			res := c.response(t, "GET")
			close(goOn)
			if body, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %q, %v, want it to break off", body, err)
			}
			if r := g.last(); r.Reason != proxy.BrokenOff || r.Status != 200 || r.Sent != 3 {
				t.Errorf("the record has %q, %d, %d octets", r.Reason, r.Status, r.Sent)
			}
		})
	}
}

// TestStream passes each part of a body on when it comes, both ways, and the head before there is a body.
func TestStream(t *testing.T) {
	t.Parallel()
	for claim, head := range map[string]string{
		"chunks":        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Type: text/event-stream\n\n",
		"until the end": "HTTP/1.1 200 OK\nContent-Type: text/event-stream\n\n",
		"a length":      "HTTP/1.1 200 OK\nContent-Length: 15\n\n",
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{})
			g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				if lines(c, head); claim != "a length" {
					<-goOn
				}
				for range 3 {
					var part [5]byte
					if _, err := io.ReadFull(r.Body, part[:]); err != nil {
						return
					}
					if claim == "chunks" {
						fmt.Fprintf(c, "5\r\n%s\r\n", part[:])
					} else {
						_, _ = c.Write(part[:])
					}
				}
				if claim == "chunks" {
					lines(c, "0\n\n")
				}
			}))
			c := g.dial()
			lines(c, "POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n")
			var res *http.Response
			if claim != "a length" { // which may wait for the body
				res = c.response(t, "POST")
				close(goOn)
			}
			for i := range 3 {
				want := fmt.Sprintf("part%d", i)
				lines(c, "5\n"+want+"\n")
				if res == nil {
					res = c.response(t, "POST")
				}
				var got [5]byte
				if _, err := io.ReadFull(res.Body, got[:]); err != nil || string(got[:]) != want {
					t.Fatalf("got %q, %v, want %q", got, err, want)
				}
			}
			lines(c, "0\n\n")
			if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
				t.Errorf("got %q, %v, want the end", rest, err)
			}
		})
	}
}

// TestTrailers passes trailer sections on, both ways.
func TestTrailers(t *testing.T) {
	t.Parallel()
	g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
		r, _, err := readRequest(in)
		if err != nil {
			return
		}
		lines(c, fmt.Sprintf("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: A\n\n0\nA: %s\nB: %s\n\n",
			r.Trailer.Get("Sum"), r.Trailer.Get("Not-Announced")))
	}))
	c := g.dial()
	lines(c, "POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\nTrailer: Sum\n\n3\nabc\n")
	lines(c, "0\nSum: 6\nNot-Announced: 7\n\n")
	res := c.response(t, "POST")
	if body, err := io.ReadAll(res.Body); len(body) > 0 || err != nil {
		t.Fatalf("got %q, %v", body, err)
	}
	if got := fmt.Sprint(res.Trailer); got != "map[A:[6] B:[]]" {
		t.Errorf("the trailers are %s", got)
	}
}

// TestInformational passes on responses before the last one, and to no client of HTTP/1.0.
func TestInformational(t *testing.T) {
	t.Parallel()
	g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
		if _, _, err := readRequest(in); err == nil {
			lines(c, "HTTP/1.1 100 Continue\n\nHTTP/1.1 103 Early Hints\nLink: x\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok")
		}
	}))
	for version, want := range map[string][]int{"1.1": {103, 200}, "1.0": {200}} {
		c := g.dial()
		lines(c, "GET / HTTP/"+version+"\nHost: a.test\n\n")
		for _, status := range want {
			res := c.response(t, "GET")
			if res.StatusCode != status || (res.Header.Get("Link") == "x") != (status == 103) {
				t.Errorf("HTTP/%s: status %d, %v, want %d", version, res.StatusCode, res.Header, status)
			}
		}
	}
}

// TestExpect has the endpoint decide whether a client sends a body.
func TestExpect(t *testing.T) {
	t.Parallel()
	g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
		for { // a connection that is closed may be used at that time
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if r.Header.Get("Expect") != "100-continue" || r.URL.Path == "/refused" {
				lines(c, "HTTP/1.1 417 Expectation Failed\nContent-Length: 0\n\n")
				_, _ = in.ReadByte()
				return
			}
			lines(c, "HTTP/1.1 100 Continue\n\n")
			body, _ := io.ReadAll(r.Body)
			lines(c, fmt.Sprintf("HTTP/1.1 200 OK\nContent-Length: %d\n\n%s", len(body), body))
		}
	}))
	c := g.dial()
	lines(c, "POST /taken HTTP/1.1\nHost: a.test\nExpect: 100-continue\nContent-Length: 3\n\n")
	if res := c.response(t, "POST"); res.StatusCode != http.StatusContinue {
		t.Fatalf("status %d, want 100", res.StatusCode)
	}
	lines(c, "abc")
	res := c.response(t, "POST")
	if body, err := io.ReadAll(res.Body); string(body) != "abc" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
	lines(c, "POST /refused HTTP/1.1\nHost: a.test\nExpect: 100-continue\nContent-Length: 3\n\n")
	if res := c.response(t, "POST"); res.StatusCode != http.StatusExpectationFailed || !res.Close {
		t.Errorf("status %d, close %t, want 417, close", res.StatusCode, res.Close)
	}
}

// TestEarlyResponse: a response before the end of the request's body is passed on, and the connection is not used for
// another request.
func TestEarlyResponse(t *testing.T) {
	t.Parallel()
	g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err == nil {
			lines(c, "HTTP/1.1 403 Forbidden\nContent-Length: 2\n\nno")
		}
	}))
	c := g.dial()
	lines(c, "POST / HTTP/1.1\nHost: a.test\nContent-Length: 1000000\n\nabc")
	res := c.response(t, "POST")
	if body, err := io.ReadAll(res.Body); res.StatusCode != http.StatusForbidden || string(body) != "no" || err != nil || !res.Close {
		t.Errorf("got %d %q, %v, close %t", res.StatusCode, body, err, res.Close)
	}
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}

// TestInvalidBody: a request whose body is malformed or breaks off is no request of the endpoint's, and is refused if
// that is still possible.
func TestInvalidBody(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		send []string
		want string
	}{
		"at once":       {[]string{"x\n"}, "HTTP/1.1 400"},
		"later":         {[]string{"3\nabc\n", "x\n"}, "HTTP/1.1 400"},
		"a long body":   {[]string{"10000\n" + strings.Repeat("x", 0x10000) + "\n", "x\n"}, "HTTP/1.1 400"},
		"after an end":  {[]string{"3\nabcd\n0\n\n"}, "HTTP/1.1 400"},
		"a bad trailer": {[]string{"3\nabc\n", "0\nHost: b\n\n"}, "HTTP/1.1 400"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			whole := atomic.Bool{}
			g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
				if _, _, err := readRequest(in); err == nil {
					whole.Store(true)
					lines(c, "HTTP/1.1 200 OK\nContent-Length: 0\n\n")
				}
			}))
			c := g.dial()
			lines(c, "POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n")
			for _, part := range test.send {
				lines(c, part)
			}
			got, err := io.ReadAll(c.in)
			if !strings.HasPrefix(string(got), test.want) || strings.Count(string(got), "HTTP/1.1") != 1 || err != nil {
				t.Errorf("got %q, %v, want %s", got, err, test.want)
			}
			// The context ends with the body, which may be seen first.
			if r := g.last(); r.Reason != proxy.BadRequest && r.Reason != proxy.ClientGone || whole.Load() {
				t.Errorf("the record has %q, the endpoint got a whole request: %t", r.Reason, whole.Load())
			}
		})
	}
}

// TestGoneWithin: if the client goes, or its body breaks off, so does the endpoint's request, whatever comes at the time.
func TestGoneWithin(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct{ request, response string }{
		"the request": {"POST / HTTP/1.1\nHost: a.test\nContent-Length: 9\n\nabc", ""},
		"chunks":      {"POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n3\nabc\n", ""},
		"the wait":    {"GET / HTTP/1.1\nHost: a.test\n\n", ""},
		"the response": {
			"GET / HTTP/1.1\nHost: a.test\n\n", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nabc\n",
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			came, gone := make(chan struct{}), make(chan error, 1)
			g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				lines(c, test.response)
				close(came)
				_, err = io.ReadAll(r.Body)
				if err == nil {
					_, err = in.ReadByte()
				}
				gone <- err
			}))
			c := g.dial()
			lines(c, test.request)
			<-came
			if test.response != "" {
				c.response(t, "GET")
			}
			c.Close()
			if err := <-gone; err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("the endpoint's request ended with %v", err)
			}
			if r := g.last(); r.Reason != proxy.ClientGone && r.Reason != proxy.BadRequest {
				t.Errorf("the record has %q", r.Reason)
			}
		})
	}
}

// TestHalfClosed: each direction of a tunnel ends by itself.
func TestHalfClosed(t *testing.T) {
	t.Parallel()
	g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
		if _, _, err := readRequest(in); err != nil {
			return
		}
		lines(c, "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: x\n\nfirst ")
		all, _ := io.ReadAll(in)
		_, _ = io.WriteString(c, strings.ToUpper(string(all)))
	}))
	c := g.dial()
	lines(c, "GET / HTTP/1.1\nHost: a.test\nConnection: Upgrade\nUpgrade: x\n\nbehind ")
	res := c.response(t, "GET")
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "x" || res.Header.Get("Connection") != "Upgrade" {
		t.Fatalf("status %d, %v", res.StatusCode, res.Header)
	}
	_, _ = io.WriteString(c, "later")
	must(t, c.Conn.(*net.TCPConn).CloseWrite())
	if got, err := io.ReadAll(c.in); string(got) != "first BEHIND LATER" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if r := g.last(); r.Status != 101 || r.Sent != int64(len("first BEHIND LATER")) || r.Reason != "" {
		t.Errorf("the record has %d, %d octets, %q", r.Status, r.Sent, r.Reason)
	}
}

// TestTunnelGone: a tunnel ends if one of its ends is gone.
func TestTunnelGone(t *testing.T) {
	t.Parallel()
	for claim, client := range map[string]bool{"the client": true, "the endpoint": false} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			came, gone := make(chan net.Conn, 1), make(chan struct{})
			g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
				if _, _, err := readRequest(in); err != nil {
					return
				}
				lines(c, "HTTP/1.1 101 Switching Protocols\nUpgrade: x\n\n")
				came <- c
				_, _ = io.Copy(io.Discard, in)
				close(gone)
			}))
			c := g.dial()
			lines(c, "GET / HTTP/1.1\nHost: a.test\nConnection: Upgrade\nUpgrade: x\n\n")
			c.response(t, "GET")
			reset := (<-came).(*net.TCPConn)
			if client {
				reset = c.Conn.(*net.TCPConn)
			}
			must(t, reset.SetLinger(0))
			reset.Close()
			<-gone
			_, _ = io.ReadAll(c.in)
			if r := g.last(); r.Status != 101 {
				t.Errorf("the record has %d", r.Status)
			}
		})
	}
}

// TestDrain: requests at an endpoint that was removed end after a while, and tunnels later.
func TestDrain(t *testing.T) {
	t.Parallel()
	const drain, later = 100 * time.Millisecond, 400 * time.Millisecond
	g := newGateway(t, func(c *proxy.Config) { c.Drain, c.DrainUpgraded = drain, later })
	came := make(chan struct{}, 2)
	g.web(rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
		r, _, err := readRequest(in)
		if err != nil {
			return
		}
		if r.Header.Get("Upgrade") != "" {
			lines(c, "HTTP/1.1 101 Switching Protocols\nUpgrade: x\n\n")
		}
		came <- struct{}{}
		_, _ = in.ReadByte()
	}))
	g.serve(to("/", table.Actions{}))
	waits, tunnel := g.dial(), g.dial()
	lines(waits, "POST / HTTP/1.1\nHost: a.test\nContent-Length: 0\n\n")
	lines(tunnel, "GET / HTTP/1.1\nHost: a.test\nConnection: Upgrade\nUpgrade: x\n\n")
	<-came
	<-came
	tunnel.response(t, "GET")
	began := time.Now()
	g.web()
	if res := waits.response(t, "POST"); res.StatusCode != http.StatusBadGateway || time.Since(began) < drain {
		t.Errorf("a request ended with %d after %v, want 502 after %v", res.StatusCode, time.Since(began), drain)
	}
	if _, err := io.ReadAll(tunnel.in); time.Since(began) < later {
		t.Errorf("a tunnel ended after %v, want %v: %v", time.Since(began), later, err)
	}
}

// TestOneAttempt: a request is not sent twice to an endpoint that does not answer in time.
func TestOneAttempt(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.web(endpoint(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	route := to("/", table.Actions{})
	route.Rule.BackendRequest = 100 * time.Millisecond
	g.serve(route)
	if res, body := g.ask("GET", "/", ""); res.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%s %s, want 504", res.Status, body)
	}
	if r := g.last(); r.Attempts != 1 || r.Reason != proxy.TimedOut {
		t.Errorf("%d attempts, reason %s, want 1 and %s", r.Attempts, r.Reason, proxy.TimedOut)
	}
}

// TestStale: requests are sent again if a connection that was kept is closed at that time, and they may be.
func TestStale(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method           string
		status, attempts int
	}{{"GET", 200, 2}, {"PUT", 200, 2}, {"POST", 502, 1}} {
		var n atomic.Int64
		g := newWeb(t, rawEndpoint(t, func(c net.Conn, in *bufio.Reader) {
			for first := n.Add(1) == 1; ; {
				r, _, err := readRequest(in)
				if err != nil || r.URL.Path != "/first" && first {
					return
				}
				lines(c, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok")
			}
		}))
		g.ask("GET", "/first", "")
		res, _ := g.ask(test.method, "/", "")
		if r := g.last(); res.StatusCode != test.status || r.Attempts != test.attempts {
			t.Errorf("%s = %d after %d attempts, want %d after %d", test.method, res.StatusCode, r.Attempts, test.status, test.attempts)
		}
	}
}

// TestHTTP2Requests: what came by HTTP/2 and would be another request in HTTP/1.1 is refused.
func TestHTTP2Requests(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	var got atomic.Int64
	g.web(endpoint(t, func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	g.serve(to("/", table.Actions{}))
	handler := g.proxy.At(table.Socket{Port: g.addr.Port()})
	for claim, change := range map[string]func(r *http.Request){
		"a method": func(r *http.Request) { r.Method = "GET /hidden HTTP/1.1\r\nA:" },
		"a query":  func(r *http.Request) { r.URL = &url.URL{Path: "/", RawQuery: "a HTTP/1.1\r\nA: b"} },
		"a space":  func(r *http.Request) { r.URL = &url.URL{Path: "/", RawQuery: "a b"} },
		"a host":   func(r *http.Request) { r.Host = "a.test\r\nA: b" },
		"a user":   func(r *http.Request) { r.Host = "b@a.test" },
		"a length": func(r *http.Request) { r.Header["Content_length"] = []string{"5"} },
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.ProtoMajor, r.ProtoMinor = 2, 0
		change(r)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != 400 || got.Load() > 0 {
			t.Errorf("%s: status %d, and the endpoint got %d requests; want 400 and none", claim, w.Code, got.Load())
		}
	}
}
