package traffic

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/test/await"
)

// start starts a server.
func start(t *testing.T, s Server) (addr string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	return l.Addr().String(), func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(await.Patience):
			t.Error("the server does not end")
		}
	}
}

// replace has a client connect to a server that is replaced by another one at once: the first one
// is told to end, and new connections go to the second one after a delay.
func replace(t *testing.T, grace, delay time.Duration) Figures {
	t.Helper()
	first, end := start(t, Server{Name: "first", Grace: grace})
	second, endSecond := start(t, Server{Name: "second", Grace: 1})
	to := make(chan string, 1)
	to <- first
	c := &Client{Target: func() (string, error) {
		addr := <-to
		to <- addr
		return addr, nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := c.Await(ctx); err != nil {
		t.Fatal(err)
	}
	ran := make(chan struct{})
	go func() {
		c.Run(ctx)
		close(ran)
	}()
	awaitAnswer(t, c, "first")
	time.AfterFunc(delay, func() {
		<-to
		to <- second
	})
	end()
	awaitAnswer(t, c, "second")
	stop()
	<-ran
	endSecond()
	return c.Figures()
}

func awaitAnswer(t *testing.T, c *Client, from string) {
	t.Helper()
	await.NoError(t, func() error {
		f := c.Figures()
		if len(f.Answered[from]) > newClients && f.Lasting.Opened >= lastingClients {
			return nil
		}
		return fmt.Errorf("%d answers of the %s server, %d lasting connections", len(f.Answered[from]), from, f.Lasting.Opened)
	})
}

// TestReplace replaces a server that goes on for longer than clients connect to it, and one that
// ends at once.
func TestReplace(t *testing.T) {
	t.Parallel()
	f := replace(t, 2*time.Second, 0)
	if f.New.Failed > 0 || f.Lasting.Failed > 0 || f.Lasting.Ended != lastingClients {
		t.Errorf("replaced in time: %+v, want %d lasting connections ended, and no failure", f, lastingClients)
	}
	f = replace(t, 0, time.Second)
	lost := func(failure string) bool { // reset is what waits to be accepted when the listener closes
		return strings.Contains(failure, "refused") || strings.Contains(failure, "reset")
	}
	if f.New.Failed == 0 || len(f.New.Failures) == 0 || !lost(f.New.Failures[0]) {
		t.Errorf("replaced too late: %+v, want refused or reset connections", f.New)
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	one := Figures{
		New: Count{Opened: 1, Failed: 1, Failures: []string{"a"}}, Lasting: Count{Opened: 2, Ended: 1}, Repeated: 1,
		Answered: map[string][]time.Time{"x": {now}},
	}
	var sum Figures
	sum.Add(one)
	sum.Add(one)
	if got, want := fmt.Sprint(sum.New, sum.Lasting, sum.Repeated, len(sum.Answered["x"])), "{2 2 0 [a a]} {4 0 2 []} 2 2"; got != want {
		t.Errorf("the sum is %s, want %s", got, want)
	}
}
