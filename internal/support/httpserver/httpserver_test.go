package httpserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/httpserver"
)

// patience bounds the wait for what must happen.
const patience = 20 * time.Second

// start runs a server with room for two connections until the test ends.
func start(t *testing.T, handler http.Handler, timeout time.Duration) (addr string, stop func() error) {
	t.Helper()
	s, err := httpserver.Listen(t.Context(), httpserver.Config{
		Name: "test", Listen: netip.MustParseAddrPort("127.0.0.1:0"), Handler: handler, Timeout: timeout,
		Connections: budget.NewAccount("test", budget.Limits{Total: 2, PerSource: 2}),
		Log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(cancel)
	return s.Addr(), func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.New("Run does not end")
		}
	}
}

// dial connects and sends the beginning of a request.
func dial(t *testing.T, addr, request string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSlowClients verifies that a client that does not complete its request loses its
// connection.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	reads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			fmt.Fprint(w, "the whole body")
		}
	})
	addr, stop := start(t, reads, 50*time.Millisecond)
	for claim, request := range map[string]string{
		"without a header":    "",
		"with half a header":  "POST / HTTP/1.1\r\nHost: localhost\r\n",
		"with half of a body": "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf",
	} {
		got, err := io.ReadAll(dial(t, addr, request))
		if err != nil || strings.Contains(string(got), "the whole body") {
			t.Errorf("a client %s reads %q, %v, want the end of its connection", claim, got, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestBusyConnections verifies that a connection with a request in progress outlives one
// without when there are too many, and the end of the server.
func TestBusyConnections(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}, 2), make(chan struct{})
	waits := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-goOn
		fmt.Fprint(w, "done")
	})
	addr, stop := start(t, waits, patience)
	const request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	busy := dial(t, addr, request)
	<-begun
	idle := dial(t, addr, "")
	dial(t, addr, request)
	<-begun // the third connection has been accepted
	if got, err := io.ReadAll(idle); err != nil || len(got) > 0 {
		t.Errorf("the idle connection: %q, %v, want its end", got, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	for begin := time.Now(); ; { // wait until the listener is closed
		l, err := net.Listen("tcp", addr)
		if err == nil {
			l.Close()
			break
		}
		if time.Since(begin) > patience {
			t.Fatal("the address is not free while requests complete")
		}
	}
	close(goOn)
	if got, err := io.ReadAll(busy); err != nil || !strings.HasSuffix(string(got), "done") {
		t.Errorf("the request in progress: %q, %v, want its response", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
