package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const empty = "HTTP/1.1 200 OK\nContent-Length: 0\n\n"

// answers serves all requests with a text.
func answers(text string) func(c net.Conn, in *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		for {
			if _, err := readRequest(in); err != nil {
				return
			}
			send(c, text)
		}
	}
}

// idleConns returns how many connections are kept, and how many there are of an endpoint.
func idleConns(c *Client, s *server) (idle, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.endpoints[peer{s.Endpoint, nil}]; of != nil {
		return c.idle.n, len(of.conns)
	}
	return c.idle.n, 0
}

// open returns n responses that are not closed yet, each on a connection of its own.
func open(t *testing.T, c *Client, s *server, n int) (all []*Response) {
	t.Helper()
	for range n {
		res, err := c.Do(t.Context(), s.Endpoint, get())
		must(t, err)
		if _, err := readAll(res); err != nil {
			t.Fatal(err)
		}
		all = append(all, res)
	}
	return all
}

func closeAll(all []*Response) {
	for _, res := range all {
		res.Close()
	}
}

// TestIdleLimits bounds the connections that are kept, of an endpoint and in all. Those are closed that were not in
// use for the longest time.
func TestIdleLimits(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{IdlePerEndpoint: 3, Idle: 5})
	a, b := serve(t, answers(empty)), serve(t, answers(empty))
	closeAll(open(t, c, a, 5))
	if idle, all := idleConns(c, a); idle != 3 || all != 3 {
		t.Errorf("after 5 exchanges at once with one endpoint %d connections are kept, %d in all, want 3", idle, all)
	}
	closeAll(open(t, c, b, 4))
	idle, ofB := idleConns(c, b)
	if _, ofA := idleConns(c, a); idle != 5 || ofA != 2 || ofB != 3 {
		t.Errorf("after 4 with another one %d are kept, %d and %d, want 5, 2 and 3", idle, ofA, ofB)
	}
	for _, s := range []*server{a, b} {
		before := s.conns.Load()
		_, _, err := ask(c, s, get())
		if must(t, err); s.conns.Load() != before {
			t.Error("no connection that was kept is used")
		}
	}
}

// TestNoRoom: a connection that is kept has no buffer.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	c, s := newClient(t, Config{}), serve(t, answers("HTTP/1.1 200 OK\nContent-Length: 50000\n\n"+strings.Repeat("x", 50000)))
	_, _, err := ask(c, s, get())
	must(t, err)
	if conn := c.idle.first; conn == nil || conn.in.Room != nil {
		t.Errorf("the connection is %+v", conn)
	}
}

// TestIdleTimeout closes connections that are not in use for long, and those that the endpoint has closed.
func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{IdleTimeout: time.Millisecond})
	s := serve(t, answers(empty))
	_, _, err := ask(c, s, get())
	must(t, err)
	wait(t, "no connection is kept", func() bool { _, all := idleConns(c, s); return all == 0 })
	c = newClient(t, Config{IdleTimeout: time.Hour})
	s = serve(t, responds(empty))
	_, _, err = ask(c, s, get())
	must(t, err)
	wait(t, "no connection is kept", func() bool { _, all := idleConns(c, s); return all == 0 })
}

// TestClosedMeanwhile: a connection is not used again that the endpoint has closed, or on which it has sent anything.
func TestClosedMeanwhile(t *testing.T) {
	t.Parallel()
	for claim, before := range map[string]func(c net.Conn){
		"closed": func(net.Conn) {},
		"reset":  func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) },
		"a response that was not asked for": func(c net.Conn) {
			send(c, "HTTP/1.1 408 Request Timeout\nContent-Length: 0\n\n")
			_, _ = io.Copy(io.Discard, c)
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			goOn, done := make(chan struct{}), make(chan struct{})
			s := serve(t, func(c net.Conn, in *bufio.Reader) {
				responds(empty)(c, in)
				once.Do(func() {
					<-goOn
					if claim == "a response that was not asked for" {
						defer time.AfterFunc(10*time.Millisecond, func() { close(done) })
					}
					before(c)
					if claim != "a response that was not asked for" {
						c.Close()
						close(done)
					}
				})
			})
			c := newClient(t, Config{})
			_, _, err := ask(c, s, get())
			must(t, err)
			close(goOn)
			if claim != "a response that was not asked for" {
				<-done
			} else {
				wait(t, "the response came", func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.idle.first == nil || !c.idle.first.from.Quiet()
				})
			}
			if status, _, err := ask(c, s, post(received{strings.NewReader("abc")}, 3)); status != 200 || err != nil || s.conns.Load() != 2 {
				t.Errorf("POST = %d, %v on connection %d, want 200 on the second one", status, err, s.conns.Load())
			}
		})
	}
}

// TestStale: a connection that was kept and is closed when it gets a request is told from a new one, and others of the
// endpoint are not used.
func TestStale(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c net.Conn, in *bufio.Reader) {
		responds(empty)(c, in)
		_, _ = readRequest(in)
	})
	c := newClient(t, Config{})
	closeAll(open(t, c, s, 3))
	if _, _, err := ask(c, s, get()); failure(err) != Stale {
		t.Errorf("on a connection that was kept: %v, want it stale", err)
	}
	if idle, all := idleConns(c, s); idle != 0 || all != 0 {
		t.Errorf("%d connections are kept, %d in all", idle, all)
	}
	fresh := serve(t, func(_ net.Conn, in *bufio.Reader) { _, _ = readRequest(in) })
	if _, _, err := ask(c, fresh, get()); failure(err) != Lost {
		t.Errorf("on a new connection: %v, want it lost", err)
	}
}

// TestUnsent: nothing was sent if there is no connection.
func TestUnsent(t *testing.T) {
	t.Parallel()
	s := serve(t, answers(empty))
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s.Addr = nobody.Addr().(*net.TCPAddr).AddrPort()
	nobody.Close()
	if _, _, err := ask(newClient(t, Config{}), s, get()); failure(err) != Unsent {
		t.Errorf("error %v, want it unsent", err)
	}
}

// TestExhausted tells what this process lacks from what an endpoint does.
func TestExhausted(t *testing.T) {
	t.Parallel()
	for _, no := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ECONNREFUSED} {
		err := &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", no)}
		if got, want := exhausted(err), no != syscall.ECONNREFUSED; got != want {
			t.Errorf("exhausted(%v) = %t", err, got)
		}
	}
	c, s := newClient(t, Config{}), serve(t, answers(empty))
	if c.makeRoom() {
		t.Error("there is room to make without connections")
	}
	closeAll(open(t, c, s, 2))
	if idle, _ := idleConns(c, s); !c.makeRoom() || idle != 2 || c.idle.n != 1 {
		t.Errorf("of %d connections %d are left, want one of two", idle, c.idle.n)
	}
}

// TestRemoved: of an endpoint that is removed, the connections that are not in use are closed at once, exchanges end
// after a while, and what became another protocol's connection later.
func TestRemoved(t *testing.T) {
	t.Parallel()
	const drain, later = 200 * time.Millisecond, 600 * time.Millisecond
	c := newClient(t, Config{Drain: drain, DrainUpgraded: later})
	ended := make(chan string, 3)
	s := serve(t, func(conn net.Conn, in *bufio.Reader) {
		for {
			r, err := readRequest(in)
			if err != nil {
				ended <- "idle"
				return
			}
			switch r.URL.Path {
			case "/endless":
				send(conn, "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n")
			case "/upgrade":
				send(conn, "HTTP/1.1 101 Switching Protocols\nUpgrade: x\n\n")
			default:
				send(conn, empty)
				continue
			}
			_, _ = in.ReadByte()
			ended <- r.URL.Path
			return
		}
	})
	held := open(t, c, s, 1)
	endless, upgrade := get(), get()
	endless.Target, upgrade.Target, upgrade.Upgrade = "/endless", "/upgrade", "x"
	var open []*Response
	for _, r := range []*Request{endless, upgrade} {
		res, err := c.Do(t.Context(), s.Endpoint, r)
		must(t, err)
		defer res.Close()
		open = append(open, res)
	}
	closeAll(held)
	began := time.Now()
	s.remove()
	for _, want := range []struct {
		what  string
		after time.Duration // not before; a busy machine may be late
	}{{"idle", 0}, {"/endless", drain}, {"/upgrade", later}} {
		if got := <-ended; got != want.what || time.Since(began) < want.after {
			t.Errorf("after %v %s ended, want %s after %v", time.Since(began), got, want.what, want.after)
		}
	}
	if _, err := open[0].Next(); failure(err) != Lost {
		t.Errorf("an exchange that was ended: %v", err)
	}
	wait(t, "nothing of the endpoint is left", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.endpoints) == 0
	})
}

// TestRemovedPut: a connection is closed after its exchange if the endpoint was removed meanwhile, or the Client closed.
func TestRemovedPut(t *testing.T) {
	t.Parallel()
	for claim, do := range map[string]func(c *Client, s *server){
		"removed": func(_ *Client, s *server) { s.remove() },
		"closed":  func(c *Client, _ *server) { c.Close() },
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			closed := make(chan struct{})
			s := serve(t, func(c net.Conn, in *bufio.Reader) {
				answers(empty)(c, in)
				close(closed)
			})
			c := newClient(t, Config{})
			held := open(t, c, s, 1)
			do(c, s)
			closeAll(held)
			<-closed
			if c.idle.n != 0 {
				t.Error("a connection is kept")
			}
		})
	}
}

// TestClose: Close ends what is kept.
func TestClose(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	s := serve(t, func(c net.Conn, in *bufio.Reader) {
		answers(empty)(c, in)
		close(closed)
	})
	c := New(Config{})
	_, _, err := ask(c, s, get())
	must(t, err)
	c.Close()
	<-closed
}

// TestErrors has errors that say what was done.
func TestErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for f := Lost; f <= BadBody; f++ {
		err := &Error{f, cause}
		if text := err.Error(); !strings.HasSuffix(text, ": cause") || !errors.Is(err, cause) {
			t.Errorf("failure %d is %q", f, text)
		}
	}
	if got := fmt.Sprint(&Error{Malformed, errLengths}); got != "malformed response: more than one Content-Length" {
		t.Errorf("got %q", got)
	}
}
