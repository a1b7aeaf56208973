package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
)

// server is an endpoint that a function serves the connections of.
type server struct {
	*balance.Endpoint
	pool  *balance.Pool
	conns atomic.Int64
}

// serve starts an endpoint. The function is called for each connection, which is closed when it returns.
func serve(t *testing.T, handle func(c net.Conn, in *bufio.Reader)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	s := &server{pool: balance.NewPool()}
	s.pool.Update([]netip.AddrPort{netip.MustParseAddrPort(l.Addr().String())})
	s.Endpoint = s.pool.Pick()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				handle(c, bufio.NewReader(c))
			}()
		}
	}()
	return s
}

// remove removes the endpoint.
func (s *server) remove() { s.pool.Update(nil) }

// responds serves a request with a text, in which "\n" stands for CRLF.
func responds(text string) func(c net.Conn, in *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		if _, err := readRequest(in); err == nil {
			send(c, text)
		}
	}
}

// send sends a text in which "\n" stands for CRLF.
func send(c net.Conn, text string) { _, _ = io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n")) }

// readRequest reads a request and its body.
func readRequest(in *bufio.Reader) (*http.Request, error) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return r, nil
}

// newClient returns a Client that is closed when the test ends.
func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

// get is a request without a body.
func get() *Request {
	return &Request{Method: "GET", Target: "/", Host: "a.test", Length: -1, Header: make(http.Header)}
}

// post is a request with a body.
func post(body io.Reader, length int64) *Request {
	return &Request{Method: "POST", Target: "/", Host: "a.test", Body: body, Length: length, Header: make(http.Header)}
}

// received is a body that has arrived as a whole.
type received struct{ *strings.Reader }

func (r received) ReadReceived(p []byte) (int, error) { return r.Read(p) }

// ask sends a request and returns the whole response.
func ask(c *Client, s *server, r *Request) (status int, body string, err error) {
	defer r.Free()
	res, err := c.Do(context.Background(), s.Endpoint, r)
	if err != nil {
		return 0, "", err
	}
	defer res.Close()
	body, err = readAll(res)
	return res.Status, body, err
}

func readAll(res *Response) (string, error) {
	var all strings.Builder
	for {
		part, err := res.Next()
		all.Write(part)
		if errors.Is(err, io.EOF) {
			return all.String(), nil
		}
		if err != nil {
			return all.String(), err
		}
	}
}

// failure returns that of an error; 99 if it is another error.
func failure(err error) Failure {
	if failed, ok := errors.AsType[*Error](err); ok {
		return failed.Failure
	}
	return 99
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wait waits for a condition.
func wait(t *testing.T, claim string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute it is not so that %s", claim)
		}
	}
}

// TestResponses reads responses of all kinds, and keeps the connections that can be used again.
func TestResponses(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\n"
	tests := map[string]struct {
		method, response string
		status           int
		body             string
		kept             bool
	}{
		"Content-Length":           {"GET", ok + "Content-Length: 3\n\nabc", 200, "abc", true},
		"leading zeros":            {"GET", ok + "Content-Length: 003\n\nabc", 200, "abc", true},
		"empty":                    {"GET", ok + "Content-Length: 0\n\n", 200, "", true},
		"chunks":                   {"GET", ok + "Transfer-Encoding: chunked\n\n1\na\n2;x=y\nbc\n0\n\n", 200, "abc", true},
		"Chunked":                  {"GET", ok + "Transfer-Encoding: Chunked\n\n0\n\n", 200, "", true},
		"trailers":                 {"GET", ok + "Transfer-Encoding: chunked\n\n3\nabc\n0\nA: b\n\n", 200, "abc", true},
		"until the end":            {"GET", ok + "\nabc", 200, "abc", false},
		"Connection: close":        {"GET", ok + "Content-Length: 3\nConnection: close\n\nabc", 200, "abc", false},
		"close among others":       {"GET", ok + "Content-Length: 3\nConnection: x, Close\n\nabc", 200, "abc", false},
		"keep-alive":               {"GET", ok + "Content-Length: 3\nConnection: keep-alive\n\nabc", 200, "abc", true},
		"HTTP/1.0":                 {"GET", "HTTP/1.0 200 OK\nContent-Length: 3\nConnection: keep-alive\n\nabc", 200, "abc", false},
		"HTTP/1.0 until the end":   {"GET", "HTTP/1.0 200 OK\n\nabc", 200, "abc", false},
		"HEAD":                     {"HEAD", ok + "Content-Length: 3\n\n", 200, "", true},
		"HEAD of chunks":           {"HEAD", ok + "Transfer-Encoding: chunked\n\n", 200, "", true},
		"204":                      {"GET", "HTTP/1.1 204 No Content\n\n", 204, "", true},
		"204 with a length":        {"GET", "HTTP/1.1 204 No Content\nContent-Length: 3\n\n", 204, "", false},
		"204 with chunks":          {"GET", "HTTP/1.1 204 No Content\nTransfer-Encoding: chunked\n\n", 204, "", false},
		"304":                      {"GET", "HTTP/1.1 304 Not Modified\nContent-Length: 3\n\n", 304, "", true},
		"no reason":                {"GET", "HTTP/1.1 200\nContent-Length: 3\n\nabc", 200, "abc", true},
		"more than the body":       {"GET", ok + "Content-Length: 3\n\nabcd", 200, "abc", false},
		"a second response":        {"GET", ok + "Content-Length: 3\n\nabc" + ok + "Content-Length: 0\n\n", 200, "abc", false},
		"more than the last chunk": {"GET", ok + "Transfer-Encoding: chunked\n\n3\nabc\n0\n\n0\n\n", 200, "abc", false},
		"a body for HEAD":          {"HEAD", ok + "Content-Length: 3\n\nabc", 200, "", false},
		"a body for 304":           {"GET", "HTTP/1.1 304 Not Modified\n\nabc", 304, "", false},
		"a status of later":        {"GET", "HTTP/1.1 999 X\nContent-Length: 3\n\nabc", 999, "abc", true},
		"large": {
			"GET", ok + "Content-Length: 200000\n\n" + strings.Repeat("x", 200000), 200, strings.Repeat("x", 200000), true,
		},
		"large chunks": {
			"GET", ok + "Transfer-Encoding: chunked\n\n186a0\n" + strings.Repeat("x", 100000) + "\n186a0\n" + strings.Repeat("x", 100000) + "\n0\n\n",
			200, strings.Repeat("x", 200000), true,
		},
		"a large head": {"GET", ok + "X: " + strings.Repeat("x", 60000) + "\nContent-Length: 3\n\nabc", 200, "abc", true},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c net.Conn, in *bufio.Reader) {
				for {
					if _, err := readRequest(in); err != nil {
						return
					}
					if send(c, test.response); strings.Contains(claim, "until the end") {
						return
					}
				}
			})
			c := newClient(t, Config{})
			for range 2 {
				r := get()
				r.Method = test.method
				if status, body, err := ask(c, s, r); status != test.status || body != test.body || err != nil {
					t.Fatalf("%s = %d %.40q, %v, want %d %.40q", test.method, status, body, err, test.status, test.body)
				}
			}
			if kept := s.conns.Load() == 1; kept != test.kept {
				t.Errorf("%q: the connection was kept: %t, want %t", test.response, kept, test.kept)
			}
		})
	}
}

// TestHead passes the fields that do not concern the connection.
func TestHead(t *testing.T) {
	t.Parallel()
	s := serve(t, responds("HTTP/1.1 200 OK\nA: 1\na: 2\nB:\nConnection: X-Own, keep-alive, Content-Length\nx-own: 1\nKeep-Alive: 1\n"+
		"Upgrade: h2c\nProxy-Authenticate: x\nTE: x\nTrailer: T\nContent-Length: 0\n\n"))
	r := get()
	_, _, err := ask(newClient(t, Config{}), s, r)
	must(t, err)
	var got strings.Builder
	_ = r.Header.Write(&got)
	if want := "A: 1\r\nA: 2\r\nB: \r\nContent-Length: 0\r\n"; got.String() != want {
		t.Errorf("the fields are %q, want %q", got.String(), want)
	}
}

// TestMalformed has responses that are refused, and their connections closed.
func TestMalformed(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\n"
	for claim, response := range map[string]string{
		"a bare LF":                        "HTTP/1.1 200 OK\r\nA: b\nContent-Length: 0\r\n\r\n",
		"a bare LF at the end":             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\n",
		"a bare LF in the first line":      "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
		"a bare CR":                        "HTTP/1.1 200 OK\r\nA: b\rContent-Length: 0\r\n\r\n",
		"a bare CR in the reason":          "HTTP/1.1 200 O\rK\r\nContent-Length: 0\r\n\r\n",
		"NUL":                              "HTTP/1.1 200 OK\r\nA: \x00\r\nContent-Length: 0\r\n\r\n",
		"a folded field":                   ok + "A: b\n c\nContent-Length: 0\n\n",
		"a folded first field":             ok + " A: b\nContent-Length: 0\n\n",
		"a space before the colon":         ok + "A : b\nContent-Length: 0\n\n",
		"no colon":                         ok + "A\nContent-Length: 0\n\n",
		"no name":                          ok + ": b\nContent-Length: 0\n\n",
		"both framings":                    ok + "Content-Length: 5\nTransfer-Encoding: chunked\n\n0\n\n",
		"both framings the other way":      ok + "Transfer-Encoding: chunked\nContent-Length: 5\n\n0\n\n",
		"two lengths":                      ok + "Content-Length: 3\nContent-Length: 0\n\nabc",
		"two equal lengths":                ok + "Content-Length: 3\nContent-Length: 3\n\nabc",
		"a list of lengths":                ok + "Content-Length: 3, 3\n\nabc",
		"a signed length":                  ok + "Content-Length: +3\n\nabc",
		"a negative length":                ok + "Content-Length: -1\n\n",
		"a hexadecimal length":             ok + "Content-Length: 0x3\n\nabc",
		"no digits":                        ok + "Content-Length:\n\n",
		"a length beyond 64 bits":          ok + "Content-Length: 99999999999999999999\n\n",
		"Content_Length":                   ok + "Content_Length: 3\n\nabc",
		"Transfer_Encoding":                ok + "Transfer_Encoding: chunked\nContent-Length: 0\n\n",
		"another coding":                   ok + "Transfer-Encoding: gzip\n\n",
		"gzip, chunked":                    ok + "Transfer-Encoding: gzip, chunked\n\n0\n\n",
		"chunked, identity":                ok + "Transfer-Encoding: chunked, identity\n\n0\n\n",
		"two codings":                      ok + "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n0\n\n",
		"a vertical tab before the coding": ok + "Transfer-Encoding: \vchunked\n\n0\n\n",
		"a quoted coding":                  ok + "Transfer-Encoding: \"chunked\"\n\n0\n\n",
		"chunks in HTTP/1.0":               "HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n0\n\n",
		"HTTP/2":                           "HTTP/2.0 200 OK\nContent-Length: 0\n\n",
		"HTTP/0.9":                         "abc\n\n",
		"another protocol":                 "SSH-2.0-x\n\n",
		"two digits":                       "HTTP/1.1 20 OK\nContent-Length: 0\n\n",
		"four digits":                      "HTTP/1.1 2000 OK\nContent-Length: 0\n\n",
		"a status below 100":               "HTTP/1.1 099 OK\nContent-Length: 0\n\n",
		"no status":                        "HTTP/1.1\nContent-Length: 0\n\n",
		"two spaces":                       "HTTP/1.1  200 OK\nContent-Length: 0\n\n",
		"lower case":                       "http/1.1 200 OK\nContent-Length: 0\n\n",
		"an empty line first":              "\nHTTP/1.1 200 OK\nContent-Length: 0\n\n",
		"a head that is too large":         ok + "X: " + strings.Repeat("x", 70000) + "\nContent-Length: 0\n\n",
		"a head without end":               ok + "X: " + strings.Repeat("x", 70000),
		"too many fields":                  ok + strings.Repeat("X: y\n", 257) + "Content-Length: 0\n\n",
		"an upgrade that was not asked":    "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: x\n\n",
		"a storm of 1xx":                   strings.Repeat("HTTP/1.1 103 Early Hints\nLink: x\n\n", 40) + ok + "Content-Length: 0\n\n",
		"a storm of 100":                   strings.Repeat("HTTP/1.1 100 Continue\n\n", 40) + ok + "Content-Length: 0\n\n",
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			closed := make(chan error, 1)
			s := serve(t, func(c net.Conn, in *bufio.Reader) {
				if _, err := readRequest(in); err != nil {
					return
				}
				if strings.Contains(response, "\r") {
					_, _ = io.WriteString(c, response)
				} else {
					send(c, response)
				}
				_, err := in.ReadByte()
				closed <- err
			})
			if status, body, err := ask(newClient(t, Config{}), s, get()); failure(err) != Malformed {
				t.Errorf("%.200q = %d %q, %v, want it malformed", response, status, body, err)
			}
			if err := <-closed; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection is open: %v", err)
			}
		})
	}
}

// TestBrokenBody has bodies that are not complete or malformed: each is an error, and not an end.
func TestBrokenBody(t *testing.T) {
	t.Parallel()
	const sized, chunked = "HTTP/1.1 200 OK\nContent-Length: 9\n\n", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n"
	for claim, test := range map[string]struct {
		response string
		want     Failure
	}{
		"a short body":                 {sized + "abc", Lost},
		"no body":                      {sized, Lost},
		"no chunks":                    {chunked, Lost},
		"a chunk that is short":        {chunked + "5\nabc", Lost},
		"no end of a chunk":            {chunked + "3\nabc", Lost},
		"no last chunk":                {chunked + "3\nabc\n", Lost},
		"half a last chunk":            {chunked + "3\nabc\n0", Lost},
		"no trailers":                  {chunked + "3\nabc\n0\n", Lost},
		"half a trailer":               {chunked + "3\nabc\n0\nA: b", Lost},
		"a trailer without end":        {chunked + "3\nabc\n0\nA: b\n", Lost},
		"no size":                      {chunked + "\nabc\n0\n\n", Malformed},
		"no hexadecimal size":          {chunked + "x\nabc\n0\n\n", Malformed},
		"a signed size":                {chunked + "+3\nabc\n0\n\n", Malformed},
		"0x3":                          {chunked + "0x3\nabc\n0\n\n", Malformed},
		"a space before the size":      {chunked + " 3\nabc\n0\n\n", Malformed},
		"a size of 17 digits":          {chunked + "10000000000000003\nabc\n0\n\n", Malformed},
		"a chunk that is too long":     {chunked + "3\nabcd\n0\n\n", Malformed},
		"text for an extension":        {chunked + "3 x\nabc\n0\n\n", Malformed},
		"extensions of 300 octets":     {chunked + "3;" + strings.Repeat("x", 300) + "\nabc\n0\n\n", Malformed},
		"many extensions":              {chunked + strings.Repeat("1;"+strings.Repeat("x", 200)+"\na\n", 30) + "0\n\n", Malformed},
		"a framing field as a trailer": {chunked + "3\nabc\n0\nContent-Length: 3\n\n", Malformed},
		"a folded trailer":             {chunked + "3\nabc\n0\nA: b\n c\n\n", Malformed},
		"large trailers":               {chunked + "3\nabc\n0\nA: " + strings.Repeat("x", 70000) + "\n\n", Malformed},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{})
			s := serve(t, responds(test.response))
			status, body, err := ask(c, s, get())
			if failure(err) != test.want || status != 200 {
				t.Errorf("%.99q = %d %q, %v, want failure %d", test.response, status, body, err, test.want)
			}
			if len(c.endpoints[peer{s.Endpoint, nil}].conns) > 0 {
				t.Error("the connection is kept")
			}
		})
	}
}

// TestRequests sends requests of all kinds.
func TestRequests(t *testing.T) {
	t.Parallel()
	trailer := http.Header{"A": nil}
	tests := map[string]struct {
		request *Request
		want    string // the octets, with "\n" for CRLF
	}{
		"GET":           {get(), "GET / HTTP/1.1\nHost: a.test\n\n"},
		"an empty body": {post(nil, 0), "POST / HTTP/1.1\nHost: a.test\nContent-Length: 0\n\n"},
		"fields": {
			&Request{Method: "GET", Target: "/?a", Host: "b", Length: -1, Fields: Fields{{"B", "1"}, {"A", "x\r\nC: \x00y"}, {"B", "2"}}},
			"GET /?a HTTP/1.1\nHost: b\nB: 1\nA: x  C:  y\nB: 2\n\n",
		},
		"Te":         {&Request{Method: "GET", Target: "/", Host: "b", Length: -1, Trailers: true}, "GET / HTTP/1.1\nHost: b\nConnection: TE\nTE: trailers\n\n"},
		"a body":     {post(strings.NewReader("abc"), 3), "POST / HTTP/1.1\nHost: a.test\nContent-Length: 3\n\nabc"},
		"a received": {post(received{strings.NewReader("abc")}, 3), "POST / HTTP/1.1\nHost: a.test\nContent-Length: 3\n\nabc"},
		"a large body": {
			post(strings.NewReader(strings.Repeat("x", 100000)), 100000),
			"POST / HTTP/1.1\nHost: a.test\nContent-Length: 100000\n\n" + strings.Repeat("x", 100000),
		},
		"chunks":   {post(strings.NewReader("abc"), -1), "POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n"},
		"received": {post(received{strings.NewReader("abc")}, -1), "POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n"},
		"no chunk": {post(received{strings.NewReader("")}, -1), "POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n0\n\n"},
		"a trailer": {
			&Request{
				Method: "POST", Target: "/", Host: "a.test", Length: 3, Trailer: func() http.Header { return trailer },
				Body: io.MultiReader(strings.NewReader("abc"), effect(func() { trailer["A"], trailer["B"] = []string{"1", "2\n"}, []string{"3"} })),
			},
			"POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\nTrailer: A\n\n3\nabc\n0\nA: 1\nA: 2 \n\n",
		},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			test.request.Header = make(http.Header)
			var got strings.Builder
			s := serve(t, func(c net.Conn, _ *bufio.Reader) {
				want := strings.ReplaceAll(test.want, "\n", "\r\n")
				_, _ = io.CopyN(&got, c, int64(len(want)))
				send(c, "HTTP/1.1 200 OK\nContent-Length: 0\n\n")
			})
			if _, _, err := ask(newClient(t, Config{}), s, test.request); err != nil || strings.ReplaceAll(got.String(), "\r\n", "\n") != test.want {
				t.Errorf("the endpoint got %.200q, %v, want %.200q", got.String(), err, test.want)
			}
		})
	}
}

// effect has something be done at the end of a body.
type effect func()

func (e effect) Read([]byte) (int, error) {
	e()
	return 0, io.EOF
}

// TestBadBody has bodies of requests that break off: the endpoint gets no end of them.
func TestBadBody(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fails := readerFunc(func([]byte) (int, error) { return 0, broken })
	for claim, r := range map[string]*Request{
		"sized":           post(io.MultiReader(strings.NewReader("abc"), fails), 9),
		"chunked":         post(io.MultiReader(strings.NewReader("abc"), fails), -1),
		"panic":           post(io.MultiReader(strings.NewReader("abc"), readerFunc(func([]byte) (int, error) { panic("text") })), -1),
		"short":           post(strings.NewReader("abc"), 9),
		"short, received": post(received{strings.NewReader("abc")}, 9),
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			whole := make(chan error, 1)
			s := serve(t, func(_ net.Conn, in *bufio.Reader) {
				_, err := readRequest(in)
				whole <- err
			})
			_, _, err := ask(newClient(t, Config{}), s, r)
			if failure(err) != BadBody {
				t.Errorf("error %v, want BadBody", err)
			}
			if err := <-whole; err == nil {
				t.Error("the endpoint got a whole request")
			}
		})
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// headers is a function that gets the status of a response.
type headers func(status int)

// WriteHeader is that of http.ResponseWriter.
func (f headers) WriteHeader(status int) { f(status) }

// TestInformational passes on responses before the last one.
func TestInformational(t *testing.T) {
	t.Parallel()
	s := serve(t, responds("HTTP/1.1 103 Early Hints\nLink: x\n\nHTTP/1.1 100 Continue\n\nHTTP/1.1 102 Processing\n\nHTTP/1.1 200 OK\nA: b\nContent-Length: 0\n\n"))
	r := get()
	var got []string
	r.Informational = headers(func(status int) { got = append(got, fmt.Sprint(status, r.Header)) })
	if _, _, err := ask(newClient(t, Config{}), s, r); err != nil || fmt.Sprint(got) != "[103 map[Link:[x]] 102 map[]]" || r.Header.Get("Link") != "" {
		t.Errorf("got %v, then %v, %v", got, r.Header, err)
	}
}

// TestExpect sends a body when the endpoint asks for it, when it does not know how to, and never if it refuses.
func TestExpect(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		handle func(c net.Conn, in *bufio.Reader)
		status int
		read   bool // the body
	}{
		"100": {func(c net.Conn, in *bufio.Reader) {
			r, _ := http.ReadRequest(in)
			send(c, "HTTP/1.1 100 Continue\n\n")
			_, _ = io.ReadAll(r.Body)
			send(c, "HTTP/1.1 200 OK\nContent-Length: 0\n\n")
		}, 200, true},
		"silence": {responds("HTTP/1.1 200 OK\nContent-Length: 0\n\n"), 200, true},
		"417": {func(c net.Conn, in *bufio.Reader) {
			_, _ = http.ReadRequest(in)
			send(c, "HTTP/1.1 417 Expectation Failed\nContent-Length: 0\n\n")
			_, _ = in.ReadByte()
		}, 417, false},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			read := false
			r := post(readerFunc(func(p []byte) (int, error) {
				read = true
				return copy(p, "abc"), io.EOF
			}), 3)
			r.Expect = true
			c, s := newClient(t, Config{}), serve(t, test.handle)
			status, _, err := ask(c, s, r)
			if status != test.status || err != nil || read != test.read {
				t.Errorf("status %d, %v, the body was read: %t; want %d, %t", status, err, read, test.status, test.read)
			}
			if kept := len(c.endpoints[peer{s.Endpoint, nil}].conns) > 0; kept != test.read {
				t.Errorf("the connection is kept: %t, want %t", kept, test.read)
			}
		})
	}
}

// TestEarly has a response before the end of the request's body: it is passed on at once, and both go on.
func TestEarly(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		send(c, "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n")
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			fmt.Fprintf(c, "%x\r\n%s\r\n", len(line), line)
		}
		send(c, "0\n\n")
	})
	c := newClient(t, Config{})
	body, to := io.Pipe()
	r := post(body, -1)
	res, err := c.Do(t.Context(), s.Endpoint, r)
	must(t, err)
	defer res.Close()
	for i := range 3 {
		if part, err := res.NextReceived(); len(part) > 0 || err != nil {
			t.Fatalf("received %q, %v before anything was sent", part, err)
		}
		text := fmt.Sprintf("line %d\n", i)
		_, err := io.WriteString(to, text)
		must(t, err)
		if part, err := res.Next(); string(part) != text || err != nil {
			t.Fatalf("got %q, %v, want %q", part, err, text)
		}
	}
	if !res.Unread() {
		t.Error("the body is read to its end")
	}
	to.Close()
	if part, err := res.Next(); len(part) > 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("got %q, %v, want the end", part, err)
	}
	res.Close()
	if len(c.endpoints[peer{s.Endpoint, nil}].idle) != 1 {
		t.Error("the connection is not kept")
	}
}

// TestEarlyEnd has a whole response before the end of the request's body, of which the endpoint takes no more: the
// connection is not used again.
func TestEarlyEnd(t *testing.T) {
	t.Parallel()
	for claim, closes := range map[string]bool{"open": false, "closed": true} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			s := serve(t, func(c net.Conn, in *bufio.Reader) {
				_, _ = http.ReadRequest(in)
				send(c, "HTTP/1.1 413 Content Too Large\nContent-Length: 0\n\n")
				if !closes {
					<-ended
				}
			})
			c := newClient(t, Config{})
			endless := readerFunc(func(p []byte) (int, error) { return len(p), nil })
			status, _, err := ask(c, s, post(endless, -1))
			if status != 413 || err != nil {
				t.Errorf("status %d, %v, want 413", status, err)
			}
			close(ended)
			if len(c.endpoints[peer{s.Endpoint, nil}].conns) > 0 {
				t.Error("the connection is kept")
			}
		})
	}
}

// TestTrailer reads trailer sections.
func TestTrailer(t *testing.T) {
	t.Parallel()
	s := serve(t, responds("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: A\n\n0\nA: 1\nB: 2\n\n"))
	c := newClient(t, Config{})
	r := get()
	res, err := c.Do(t.Context(), s.Endpoint, r)
	must(t, err)
	defer res.Close()
	if _, err := readAll(res); err != nil || fmt.Sprint(res.Trailer(), r.Header) != "map[A:[1] B:[2]] map[Trailer:[A]]" {
		t.Errorf("got %v, %v, %v", res.Trailer(), r.Header, err)
	}
}

// TestUpgraded passes both directions of a connection that became another protocol's.
func TestUpgraded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c net.Conn, in *bufio.Reader) {
		if r, err := readRequest(in); err != nil || r.Header.Get("Upgrade") != "x, y" || r.Header.Get("Connection") != "Upgrade" {
			return
		}
		send(c, "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: Y\n\nfirst ")
		_, _ = io.Copy(c, in)
	})
	r := get()
	r.Upgrade = "x, y"
	res, err := newClient(t, Config{}).Do(t.Context(), s.Endpoint, r)
	must(t, err)
	defer res.Close()
	conn, first := res.Upgraded()
	_, err = io.WriteString(conn, "then")
	must(t, err)
	must(t, conn.(*net.TCPConn).CloseWrite())
	rest, err := io.ReadAll(conn)
	if got := string(first) + string(rest); got != "first then" || err != nil || res.Status != 101 || r.Header.Get("Upgrade") != "Y" {
		t.Errorf("got %d %v %q, %v", res.Status, r.Header, got, err)
	}
}

// TestDeadline ends exchanges in time, whatever they wait for.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		request  *Request
		response string
	}{
		"the head":         {get(), ""},
		"half a head":      {get(), "HTTP/1.1 200 OK\nA"},
		"the body":         {get(), "HTTP/1.1 200 OK\nContent-Length: 9\n\nabc"},
		"chunks":           {get(), "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nabc\n"},
		"the request":      {post(readerFunc(func(p []byte) (int, error) { return len(p), nil }), -1), ""},
		"a request's body": {post(readerFunc(func([]byte) (int, error) { select {} }), -1), ""},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			defer close(ended)
			s := serve(t, func(c net.Conn, in *bufio.Reader) {
				_, _ = http.ReadRequest(in)
				send(c, test.response)
				<-ended
			})
			test.request.Deadline = time.Now().Add(50 * time.Millisecond)
			c := newClient(t, Config{})
			if _, _, err := ask(c, s, test.request); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("error %v, want that of the deadline", err)
			}
			if len(c.endpoints[peer{s.Endpoint, nil}].conns) > 0 {
				t.Error("the connection is kept")
			}
		})
	}
	t.Run("reused", func(t *testing.T) {
		t.Parallel()
		c, s := newClient(t, Config{}), serve(t, func(c net.Conn, in *bufio.Reader) {
			for {
				if _, err := readRequest(in); err != nil {
					return
				}
				send(c, "HTTP/1.1 200 OK\nContent-Length: 0\n\n")
			}
		})
		r := get()
		r.Deadline = time.Now().Add(time.Second)
		_, _, err := ask(c, s, r)
		must(t, err)
		time.Sleep(time.Until(r.Deadline))
		if _, _, err := ask(c, s, get()); err != nil || s.conns.Load() != 1 {
			t.Errorf("an exchange without a deadline: %v, on connection %d", err, s.conns.Load())
		}
	})
}

// TestCanceled ends exchanges with their contexts, and closes the connections.
func TestCanceled(t *testing.T) {
	t.Parallel()
	for claim, response := range map[string]string{"head": "", "body": "HTTP/1.1 200 OK\nContent-Length: 9\n\n"} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			var once sync.Once
			gone := make(chan struct{})
			s := serve(t, func(c net.Conn, in *bufio.Reader) {
				_, _ = readRequest(in)
				if ctx.Err() != nil {
					send(c, "HTTP/1.1 200 OK\nContent-Length: 0\n\n")
					return
				}
				send(c, response)
				time.AfterFunc(10*time.Millisecond, cancel)
				_, _ = in.ReadByte()
				once.Do(func() { close(gone) })
			})
			c := newClient(t, Config{})
			res, err := c.Do(ctx, s.Endpoint, get())
			if err == nil {
				_, err = readAll(res)
				res.Close()
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want that of the context", err)
			}
			<-gone
			if _, _, err := ask(c, s, get()); s.conns.Load() != 2 {
				t.Errorf("connection %d, %v", s.conns.Load(), err)
			}
		})
	}
}

// TestValid has what came by HTTP/2 and would be read in another way in HTTP/1.1.
func TestValid(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		method, target, host string
		want                 bool
	}{
		"valid":             {"GET", "/a?b", "a.test:80", true},
		"a method's space":  {"GET /x HTTP/1.1\r\nA:", "/", "a.test", false},
		"a target's space":  {"GET", "/a?b HTTP/1.1", "a.test", false},
		"a target's CRLF":   {"GET", "/\r\nA: b", "a.test", false},
		"a fragment":        {"GET", "/#", "a.test", false},
		"a host's CRLF":     {"GET", "/", "a.test\r\nA: b", false},
		"a host's slash":    {"GET", "/", "a.test/b", false},
		"a user":            {"GET", "/", "a@b.test", false},
		"no host":           {"GET", "/", "", false},
		"an octet above 7F": {"GET", "/\xc3\xa4", "a.test", false},
	} {
		if got := Valid(test.method, test.target, test.host); got != test.want {
			t.Errorf("%s: Valid(%q, %q, %q) = %t", claim, test.method, test.target, test.host, got)
		}
	}
}

// TestFields changes fields.
func TestFields(t *testing.T) {
	t.Parallel()
	f := Fields{{"A", "1"}, {"B", "2"}, {"A", "3"}, {"C", "4"}, {"A", "5"}}
	f.Set("A", "6")
	f.Del("B")
	f.Set("D", "7")
	f.Add("C", "8")
	if got := fmt.Sprint(f); got != "[{A 6} {C 4} {D 7} {C 8}]" || !f.Has("D") || f.Has("B") {
		t.Errorf("got %s", got)
	}
}

// TestConcurrent has many exchanges at once; the race detector looks on.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c net.Conn, in *bufio.Reader) {
		for {
			r, err := readRequest(in)
			if err != nil {
				return
			}
			body, _ := io.ReadAll(r.Body)
			send(c, fmt.Sprintf("HTTP/1.1 200 OK\nContent-Length: %d\n\n%s", len(body), body))
		}
	})
	c := newClient(t, Config{IdlePerEndpoint: 2})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 100 {
				text := fmt.Sprint(i, " ", n)
				var body io.Reader = strings.NewReader(text)
				if n%2 == 0 {
					body = received{strings.NewReader(text)}
				}
				if status, got, err := ask(c, s, post(body, int64(len(text))-int64(n%3/2*1000))); got != text || err != nil || status != 200 {
					t.Errorf("got %d %q, %v, want %q", status, got, err, text)
					return
				}
			}
		})
	}
	all.Wait()
	if n := len(c.endpoints[peer{s.Endpoint, nil}].idle); n > 2 {
		t.Errorf("%d connections are kept, want at most 2", n)
	}
}
