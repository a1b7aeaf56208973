package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
)

// serveHTTP2 starts an endpoint that speaks HTTP/2 without TLS.
func serveHTTP2(t *testing.T, handle http.HandlerFunc) *server {
	t.Helper()
	hs := httptest.NewUnstartedServer(handle)
	hs.Config.Protocols = new(http.Protocols)
	hs.Config.Protocols.SetUnencryptedHTTP2(true)
	s := &server{pool: balance.NewPool()}
	hs.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.conns.Add(1)
		case http.StateClosed:
			s.conns.Add(-1)
		}
	}
	hs.Start()
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	s.pool.Update([]netip.AddrPort{netip.MustParseAddrPort(hs.Listener.Addr().String())})
	s.Endpoint = s.pool.Pick()
	return s
}

// TestHTTP2 sends a request with all that one can have, and gets a response with all that one can have.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	s := serveHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Link", "x")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.Header().Set("Trailer", "After")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, r.Method, " ", r.RequestURI, " ", r.Host, " ", r.Proto, " ", r.Header["A"], r.Header["User-Agent"], r.Header["Te"], " ",
			string(body), r.Trailer)
		w.Header().Set("After", "all")
	})
	trailer := http.Header{"T": nil}
	r := &Request{
		Method: "PUT", Target: "/a%2Fb?c=%20d", Host: "a.test", Fields: Fields{{"A", "1"}, {"A", "2"}}, Trailers: true,
		Body:   io.MultiReader(strings.NewReader("abc"), effect(func() { trailer["T"] = []string{"t"} })),
		Length: -1, Trailer: func() http.Header { return trailer }, Header: make(http.Header),
	}
	informational := ""
	r.Informational = headers(func(status int) { informational = fmt.Sprint(status, r.Header) })
	c := newClient(t, Config{})
	res, err := c.DoHTTP2(t.Context(), s.Endpoint, r)
	must(t, err)
	defer res.Close()
	body, err := readAll(res)
	if want := "PUT /a%2Fb?c=%20d a.test HTTP/2.0 [1 2] [] [trailers] abcmap[T:[t]]"; body != want || err != nil || res.Status != 201 {
		t.Errorf("got %d %q, %v, want %q", res.Status, body, err, want)
	}
	if got := fmt.Sprint(informational, r.Header["Trailer"], r.Header["Link"], res.Trailer()); got != "103 map[Link:[x]][After] [] map[After:[all]]" {
		t.Errorf("got %s", got)
	}
	if res.Unread() {
		t.Error("the body is not read")
	}
}

// TestHTTP2Fails has exchanges that fail, each with its reason.
func TestHTTP2Fails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	stuck := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for claim, test := range map[string]struct {
		handle  http.HandlerFunc
		change  func(r *Request)
		is      error
		failure Failure
	}{
		"a deadline": {stuck, func(r *Request) { r.Deadline = time.Now().Add(50 * time.Millisecond) }, os.ErrDeadlineExceeded, 99},
		"a deadline in the body": {func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, func(r *Request) { r.Deadline = time.Now().Add(50 * time.Millisecond) }, os.ErrDeadlineExceeded, 99},
		"a body that breaks": {stuck, func(r *Request) {
			r.Method, r.Length = "POST", 9
			r.Body = readerFunc(func([]byte) (int, error) { return 0, broken })
		}, broken, BadBody},
		"a response that is broken off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, nil, Lost},
		"a body that is broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, nil, nil, Lost},
		"a storm of 1xx": {func(w http.ResponseWriter, _ *http.Request) {
			for range 2 * maxInformational {
				w.WriteHeader(http.StatusEarlyHints)
			}
		}, nil, errInformational, Malformed},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			s, r := serveHTTP2(t, test.handle), get()
			if test.change != nil {
				test.change(r)
			}
			c := newClient(t, Config{})
			res, err := c.DoHTTP2(t.Context(), s.Endpoint, r)
			if err == nil {
				_, err = readAll(res)
				res.Close()
			}
			if failure(err) != test.failure || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v (failure %d), want %v, %d", err, failure(err), test.is, test.failure)
			}
		})
	}
	t.Run("no connection", func(t *testing.T) {
		t.Parallel()
		s := serveHTTP2(t, stuck)
		nobody, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		s.Addr = nobody.Addr().(*net.TCPAddr).AddrPort()
		nobody.Close()
		if _, err := newClient(t, Config{}).DoHTTP2(t.Context(), s.Endpoint, get()); failure(err) != Unsent {
			t.Errorf("error %v, want it unsent", err)
		}
	})
	t.Run("a context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		s := serveHTTP2(t, func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		if _, err := newClient(t, Config{}).DoHTTP2(ctx, s.Endpoint, get()); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
	})
}

// TestHTTP2End: the end of a response without a body is known with its head, as it is to the client of a response of
// gRPC that has no messages ("Trailers-Only").
func TestHTTP2End(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		method string
		handle http.HandlerFunc
		want   error
	}{
		"no body":           {"POST", func(http.ResponseWriter, *http.Request) {}, io.EOF},
		"no length, either": {"POST", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, io.EOF},
		"HEAD": {"HEAD", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "7")
		}, io.EOF},
		"a body that may come": {"POST", func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			s, r := serveHTTP2(t, test.handle), get()
			r.Method = test.method
			res, err := newClient(t, Config{}).DoHTTP2(t.Context(), s.Endpoint, r)
			must(t, err)
			defer res.Close()
			if part, err := res.NextReceived(); len(part) > 0 || !errors.Is(err, test.want) {
				t.Errorf("NextReceived() = %q, %v, want nothing and %v", part, err, test.want)
			}
		})
	}
}

// TestHTTP2Removed: exchanges end a while after the endpoint was removed, and the connection with them.
func TestHTTP2Removed(t *testing.T) {
	t.Parallel()
	s := serveHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c := newClient(t, Config{Drain: 100 * time.Millisecond})
	res, err := c.DoHTTP2(t.Context(), s.Endpoint, get())
	must(t, err)
	defer res.Close()
	s.remove()
	if _, err := res.Next(); failure(err) != Lost {
		t.Errorf("the exchange ended with %v, want it lost", err)
	}
	res.Close()
	wait(t, "the endpoint has no connection", func() bool { return s.conns.Load() == 0 })
}
