package h1_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/h1"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve starts a server, and returns its address.
func serve(t *testing.T, s *h1.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// client is a connection of which the test reads responses.
type client struct {
	*testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return &client{t, conn, bufio.NewReader(conn)}
}

// send sends text with LF as CRLF.
func (c *client) send(text string) {
	c.Helper()
	_, err := io.WriteString(c.Conn, strings.ReplaceAll(text, "\n", "\r\n"))
	must(c.T, err)
}

// response reads a response to a request of a method.
func (c *client) response(method string) (*http.Response, string) {
	c.Helper()
	res, err := http.ReadResponse(c.r, &http.Request{Method: method})
	must(c.T, err)
	body, err := io.ReadAll(res.Body)
	must(c.T, err)
	return res, string(body)
}

// closed checks that nothing more comes.
func (c *client) closed() {
	c.Helper()
	rest, err := io.ReadAll(c.r)
	if len(rest) > 0 || err != nil {
		c.Errorf("the connection has %q, %v, want its end", rest, err)
	}
}

// echo answers with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, r.Host)
	if len(body) > 0 {
		fmt.Fprintf(w, " %s", body)
	}
	if len(r.Trailer) > 0 {
		fmt.Fprintf(w, " %v", r.Trailer)
	}
}

// TestRequests sends requests on one connection, one behind the other, and then at once.
func TestRequests(t *testing.T) {
	t.Parallel()
	requests := []struct{ send, want string }{
		{"GET /a HTTP/1.1\nHost: a.test\n\n", "GET /a a.test"},
		{"POST /b HTTP/1.1\nHost: a.test\nContent-Length: 3\n\nabc", "POST /b a.test abc"},
		{
			"POST /c HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\nTrailer: X\n\n3\nabc\nA;x=\"y\"\n0123456789\n0\nX: y\n\n",
			"POST /c a.test abc0123456789 map[X:[y]]",
		},
		{"\nGET /d HTTP/1.1\nHost: a.test:80\n\n", "GET /d a.test:80"},
		{"GET http://a.test/e HTTP/1.1\nHost: A.test\n\n", "GET http://a.test/e A.test"},
		{"OPTIONS * HTTP/1.1\nHost: a.test\n\n", "OPTIONS * a.test"},
		{"GET /f HTTP/1.1\nHost: [2001:db8::1]:8080\nX: " + strings.Repeat("x", 9000) + "\n\n", "GET /f [2001:db8::1]:8080"},
		{"GET /g HTTP/1.0\n\n", "GET /g "},
	}
	addr := serve(t, &h1.Server{Handler: http.HandlerFunc(echo)})
	one, all := dial(t, addr), dial(t, addr)
	var together strings.Builder
	for _, r := range requests {
		together.WriteString(r.send)
	}
	all.send(together.String())
	for _, r := range requests {
		one.send(r.send)
		for _, c := range []*client{one, all} {
			if res, body := c.response("GET"); body != r.want || res.StatusCode != http.StatusOK || res.ContentLength != int64(len(body)) ||
				res.Header.Get("Date") == "" {
				t.Errorf("%q = %d %q, %v, want %q", r.send, res.StatusCode, body, res.Header, r.want)
			}
		}
	}
	one.closed() // after HTTP/1.0
	all.closed()
}

// TestResponses are what Handlers write, as octets.
func TestResponses(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nDate: now\r\n"
	header := func(w http.ResponseWriter, fields ...string) {
		w.Header().Set("Date", "now")
		for i := 0; i < len(fields); i += 2 {
			w.Header().Add(fields[i], fields[i+1])
		}
	}
	long := strings.Repeat("x", 3000)
	tests := map[string]struct {
		request string // "GET HTTP/1.1" if empty
		handle  func(w http.ResponseWriter, r *http.Request)
		want    string
	}{
		"nothing": {"", func(w http.ResponseWriter, _ *http.Request) { header(w) }, head + "Content-Length: 0\r\n\r\n"},
		"a short body": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w)
			_, _ = io.WriteString(w, "ab")
			_, _ = io.WriteString(w, "c")
		}, head + "Content-Length: 3\r\n\r\nabc"},
		"a long body": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w)
			_, _ = io.WriteString(w, long)
		}, head + "Transfer-Encoding: chunked\r\n\r\nbb8\r\n" + long + "\r\n0\r\n\r\n"},
		"a length": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Length", "3000")
			_, _ = io.WriteString(w, long)
		}, "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\nDate: now\r\n\r\n" + long},
		"flushes": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w)
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "abc")
			must(t, http.NewResponseController(w).Flush())
			_, _ = io.WriteString(w, "d")
		}, head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"},
		"HTTP/1.0": {"GET HTTP/1.0", func(w http.ResponseWriter, _ *http.Request) {
			header(w)
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "abc")
		}, head + "Connection: close\r\n\r\nabc"},
		"HEAD": {"HEAD HTTP/1.1", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Length", "3")
			_, _ = io.WriteString(w, "abc")
		}, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: now\r\n\r\n"},
		"204": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Length", "3")
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "abc"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("Write for 204: %v", err)
			}
		}, "HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n"},
		"304": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Length", "3", "Etag", "x")
			w.WriteHeader(http.StatusNotModified)
		}, "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\nDate: now\r\nEtag: x\r\n\r\n"},
		"1xx": {"", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "x")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusContinue) // the client does not wait for it
			header(w)
			w.Header().Del("Link")
			w.WriteHeader(http.StatusOK)
			w.WriteHeader(http.StatusInternalServerError)
		}, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + head + "Content-Length: 0\r\n\r\n"},
		"1xx for HTTP/1.0": {"GET HTTP/1.0", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			header(w)
		}, head + "Content-Length: 0\r\nConnection: close\r\n\r\n"},
		"trailers": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Trailer", "A, B, Content-Length")
			_, _ = io.WriteString(w, "abc")
			header(w, "B", "2", "A", "1", http.TrailerPrefix+"C", "3", "Content-Length", "9")
		}, "HTTP/1.1 200 OK\r\nDate: now\r\nTrailer: A, B, Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"3\r\nabc\r\n0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n"},
		"fields that would be several": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "A", "x\r\nB: y\x00", "C\r\nD", "e", "Transfer-Encoding", "gzip", "Content-Length", "x")
			w.Header()["content-length"], w.Header()["transfer-encoding"] = []string{"5"}, []string{"chunked"}
		}, "HTTP/1.1 200 OK\r\nA: x  B: y \r\nDate: now\r\nContent-Length: 0\r\n\r\n"},
		"the Handler closes": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Connection", "close")
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nDate: now\r\nContent-Length: 0\r\n\r\n"},
		"too much": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Length", "2")
			if n, err := io.WriteString(w, "abc"); n != 2 || !errors.Is(err, http.ErrContentLength) {
				t.Errorf("Write beyond Content-Length: %d, %v", n, err)
			}
		}, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: now\r\n\r\nab"},
		"too little": {"", func(w http.ResponseWriter, _ *http.Request) {
			header(w, "Content-Length", "4")
			_, _ = io.WriteString(w, "abc")
			w.(http.Flusher).Flush()
		}, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nDate: now\r\n\r\nabc"},
		"a panic": {"", func(http.ResponseWriter, *http.Request) { panic("text") }, ""},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			c := dial(t, serve(t, &h1.Server{Handler: http.HandlerFunc(test.handle)}))
			method, version, found := strings.Cut(test.request, " ")
			if !found {
				method, version = "GET", "HTTP/1.1"
			}
			c.send(method + " / " + version + "\nHost: a.test\n\n")
			must(t, c.Conn.(*net.TCPConn).CloseWrite())
			got, err := io.ReadAll(c.r)
			if string(got) != test.want || err != nil {
				t.Errorf("%s %s =\n%q, %v, want\n%q", method, version, got, err, test.want)
			}
		})
	}
}

// TestContinue: the server asks for the body when the Handler reads it (RFC 9110, section 10.1.1).
func TestContinue(t *testing.T) {
	t.Parallel()
	addr := serve(t, &h1.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		echo(w, r)
	})})
	const head = " HTTP/1.1\nHost: a.test\nExpect: 100-continue\nContent-Length: 3\n\n"
	c := dial(t, addr)
	c.send("POST /read" + head)
	if line, err := c.r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("got %q, %v, want 100", line, err)
	}
	_, _ = c.r.ReadString('\n')
	c.send("abc")
	if _, body := c.response("POST"); body != "POST /read a.test abc" {
		t.Errorf("got %q", body)
	}
	c.send("POST /sent" + head + "abc")
	_, _ = c.r.ReadString('\n')
	_, _ = c.r.ReadString('\n')
	if _, body := c.response("POST"); body != "POST /sent a.test abc" {
		t.Errorf("got %q", body)
	}
	c.send("POST /refused" + head)
	if res, _ := c.response("POST"); res.StatusCode != http.StatusRequestEntityTooLarge || !res.Close {
		t.Errorf("got %d, close %t, want 413 and close", res.StatusCode, res.Close)
	}
	c.closed()
}

// TestReadReceived reads bodies as they come, without waiting for the client.
func TestReadReceived(t *testing.T) {
	t.Parallel()
	const sized, chunked = "POST / HTTP/1.1\nHost: a.test\nContent-Length: 6\n\n", "POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n"
	tests := map[string]struct {
		first, rest string
		received    string // of the first part
		whole       error
	}{
		"all":                   {sized + "abcdef", "", "abcdef", io.EOF},
		"a part":                {sized + "abc", "def", "abc", nil},
		"nothing":               {sized, "abcdef", "", nil},
		"all chunks":            {chunked + "3\nabc\n3\ndef\n0\n\n", "", "abcdef", io.EOF},
		"chunks without end":    {chunked + "3\nabc\n3\ndef\n", "0\n\n", "abcdef", nil},
		"a part of a size":      {chunked + "3\nabc\n3", "\ndef\n0\n\n", "abc", nil},
		"a part of a chunk":     {chunked + "3\nabc\n3\nd", "ef\n0\n\n", "abcd", nil},
		"a part of the trailer": {chunked + "6\nabcdef\n0\nA:", " b\n\n", "abcdef", nil},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			first := make(chan struct{})
			addr := serve(t, &h1.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var room [100]byte
				n, err := r.Body.(interface{ ReadReceived([]byte) (int, error) }).ReadReceived(room[:])
				if string(room[:n]) != test.received || !errors.Is(err, test.whole) {
					t.Errorf("ReadReceived = %q, %v, want %q, %v", room[:n], err, test.received, test.whole)
				}
				close(first)
				rest, err := io.ReadAll(r.Body)
				if got := string(room[:n]) + string(rest); got != "abcdef" || err != nil {
					t.Errorf("the body is %q, %v", got, err)
				}
				_, _ = io.WriteString(w, r.Trailer.Get("A"))
			})})
			c := dial(t, addr)
			c.send(test.first)
			<-first
			c.send(test.rest)
			if _, body := c.response("POST"); (body == "b") != strings.Contains(test.rest, "b\n") {
				t.Errorf("the trailer is %q", body)
			}
		})
	}
}

// TestRefused reports what is refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	refusals := make(chan h1.Refusal, 9)
	addr := serve(t, &h1.Server{
		Handler: http.HandlerFunc(echo),
		Refused: func(r h1.Refusal) { refusals <- r },
	})
	for send, want := range map[string]string{
		"GET / HTTP/1.1\n\n": "no Host",
		"POST / HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\nx\n": "invalid size of a chunk",
	} {
		c := dial(t, addr)
		c.send(send)
		res, body := c.response("GET")
		got := <-refusals
		if got.Reason != want || got.Status != http.StatusBadRequest || got.Remote != c.LocalAddr().String() ||
			got.Local.String() != addr || res.StatusCode != got.Status || body != want+"\n" {
			t.Errorf("%q = %d %q, %+v, want %s", send, res.StatusCode, body, got, want)
		}
	}
}

// TestUnread: a body that the Handler does not read is no request.
func TestUnread(t *testing.T) {
	t.Parallel()
	addr := serve(t, &h1.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path)
	})})
	inner := "GET /hidden HTTP/1.1\nHost: a.test\n\n"
	c := dial(t, addr)
	c.send(fmt.Sprintf("POST /a HTTP/1.1\nHost: a.test\nContent-Length: %d\n\n%s", len(inner)+3, inner))
	c.send(fmt.Sprintf("POST /b HTTP/1.1\nHost: a.test\nTransfer-Encoding: chunked\n\n%x\n%s\n0\n\n", len(inner)+3, inner))
	c.send("POST /c HTTP/1.1\nHost: a.test\nContent-Length: 1000000\n\n" + inner)
	for _, want := range []string{"/a", "/b", "/c"} {
		if res, body := c.response("POST"); body != want || res.Close != (want == "/c") {
			t.Errorf("got %q, close %t, want %q", body, res.Close, want)
		}
	}
	c.closed()
}

// TestGone: the context of a request ends when the client is gone, but not for requests behind it.
func TestGone(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		send   string
		canned bool
		leave  func(c *net.TCPConn) error
	}{
		"closed":               {"GET / HTTP/1.1\nHost: a.test\n\n", true, (*net.TCPConn).Close},
		"half closed":          {"GET / HTTP/1.1\nHost: a.test\n\n", true, (*net.TCPConn).CloseWrite},
		"reset":                {"GET / HTTP/1.1\nHost: a.test\n\n", true, func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() }},
		"after a body":         {"POST / HTTP/1.1\nHost: a.test\nContent-Length: 1\n\nx", true, (*net.TCPConn).Close},
		"within a body":        {"POST / HTTP/1.1\nHost: a.test\nContent-Length: 9\n\nx", true, (*net.TCPConn).Close},
		"with requests behind": {"GET / HTTP/1.1\nHost: a.test\n\nGET /2 HTTP/1.1\nHost: a.test\n\n", true, (*net.TCPConn).Close},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			came, gone := make(chan struct{}, 9), make(chan struct{}, 9)
			addr := serve(t, &h1.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				came <- struct{}{}
				_, _ = io.ReadAll(r.Body)
				<-r.Context().Done()
				gone <- struct{}{}
			})})
			c := dial(t, addr)
			c.send(test.send)
			<-came
			must(t, test.leave(c.Conn.(*net.TCPConn)))
			select {
			case <-gone:
			case <-time.After(time.Minute):
				t.Fatal("the request goes on a minute after the client went")
			}
		})
	}
}

// TestPipelined: what comes behind a request while its Handler runs is served, too, and a client that has
// closed its direction gets all responses.
func TestPipelined(t *testing.T) {
	t.Parallel()
	var s *client
	addr := serve(t, &h1.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/0" {
			for i := 1; i < 100; i++ {
				s.send(fmt.Sprintf("GET /%d HTTP/1.1\nHost: a.test\n\n", i))
			}
			must(t, s.Conn.(*net.TCPConn).CloseWrite())
			time.Sleep(50 * time.Millisecond) // so that the server looks for the client
		}
		if r.Context().Err() == nil {
			_, _ = io.WriteString(w, r.URL.Path)
		}
	})})
	s = dial(t, addr)
	s.send("GET /0 HTTP/1.1\nHost: a.test\n\n")
	for i := range 100 {
		if _, body := s.response("GET"); body != fmt.Sprintf("/%d", i) {
			t.Fatalf("response %d is %q", i, body)
		}
	}
	s.closed()
}

// TestHijack gives the connection to the Handler, with what came behind the request.
func TestHijack(t *testing.T) {
	t.Parallel()
	addr := serve(t, &h1.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
		_ = both.Flush()
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("Write after Hijack: %v", err)
		}
		_, _ = io.Copy(conn, conn)
	})})
	c := dial(t, addr)
	c.send("GET / HTTP/1.1\nHost: a.test\nConnection: Upgrade\nUpgrade: x\n\nbehind ")
	time.Sleep(20 * time.Millisecond)
	c.send("later")
	must(t, c.Conn.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(c.r)
	if want := "HTTP/1.1 101 Switching Protocols\r\n\r\nbehind later"; string(got) != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestShutdown: requests end, with Connection: close.
func TestShutdown(t *testing.T) {
	t.Parallel()
	came, goOn := make(chan struct{}), make(chan struct{})
	s := &h1.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(came)
			<-goOn
		}
		echo(w, r)
	})}
	addr := serve(t, s)
	idle, slow := dial(t, addr), dial(t, addr)
	idle.send("GET / HTTP/1.1\nHost: a.test\n\n")
	idle.response("GET")
	slow.send("GET /slow HTTP/1.1\nHost: a.test\n\n")
	<-came
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Shutdown with a request: %v", err)
	}
	idle.closed()
	close(goOn)
	if res, _ := slow.response("GET"); !res.Close {
		t.Error("no Connection: close")
	}
	slow.closed()
	must(t, s.Shutdown(t.Context()))
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("it accepts connections after Shutdown")
	}
}

// TestHTTP2 hands connections over.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	over := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	over.Protocols.SetUnencryptedHTTP2(true)
	addr := serve(t, &h1.Server{Handler: handler, HTTP2: over})
	for _, h2 := range []bool{false, true} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(!h2)
		transport.Protocols.SetUnencryptedHTTP2(h2)
		defer transport.CloseIdleConnections()
		res, err := (&http.Client{Transport: transport}).Get("http://" + addr)
		must(t, err)
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		must(t, err)
		if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2]; string(body) != want {
			t.Errorf("got %s, want %s", body, want)
		}
	}
}
