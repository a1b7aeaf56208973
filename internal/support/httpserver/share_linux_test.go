package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/budget"
)

func configOf(name, at string) Config {
	return Config{
		Name: "test", Listen: netip.MustParseAddrPort(at), Program: name, Handler: http.NotFoundHandler(), Timeout: time.Minute,
		Connections: budget.NewAccount("test", budget.Limits{Total: 8, PerSource: 8}), Log: slog.New(slog.DiscardHandler),
	}
}

// listen binds the socket of a server until the test ends.
func listen(t *testing.T, name, at string) *Server {
	t.Helper()
	s, err := Listen(t.Context(), configOf(name, at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// program starts a server of a program at an address until the test ends, or until stop is called.
func program(t *testing.T, name, at string) (s *Server, stop func(), err error) {
	t.Helper()
	if s, err = Listen(t.Context(), configOf(name, at)); err != nil {
		return nil, nil, err
	}
	return s, runServer(t, s), nil
}

// runServer runs a server until the test ends, or until stop is called.
func runServer(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() { end(); <-ended }
	t.Cleanup(stop)
	return stop
}

// TestShare: an address is shared by processes of one program, in turn, and with no other one.
func TestShare(t *testing.T) {
	t.Parallel()
	for claim, at := range map[string]string{"loopback": "127.0.0.1:0", "all addresses": "0.0.0.0:0", "IPv6": "[::]:0"} {
		first, stop, err := program(t, "portolan proxy", at)
		if err != nil {
			t.Fatalf("%s: %v", claim, err)
		}
		_, port, _ := net.SplitHostPort(first.Addr())
		at = strings.TrimSuffix(at, "0") + port
		refused := func(when, name, want string) {
			t.Helper()
			_, _, err := program(t, name, at)
			if !errors.Is(err, syscall.EADDRINUSE) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s, %s: Listen for %q = %v, want an error that ends with %q", claim, when, name, err, want)
			}
		}
		refused("beside a proxy", "portolan node", "in use by portolan proxy")
		refused("beside a proxy", "", "in use")
		if _, _, err = program(t, "portolan proxy", at); err != nil {
			t.Fatalf("%s: the second proxy: %v", claim, err)
		}
		refused("beside two proxies", "portolan node", "in use by portolan proxy")
		stop()
		refused("beside the second proxy", "portolan node", "in use by portolan proxy")
		if _, _, err = program(t, "portolan proxy", at); err != nil {
			t.Errorf("%s: the third proxy: %v", claim, err)
		}
	}
}

// TestShareLoopbacks: an address in use is shared even if its server does not answer at ::1, which a
// host without IPv6 does not have.
func TestShareLoopbacks(t *testing.T) {
	t.Parallel()
	first, _, err := program(t, "portolan proxy", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(first.Addr())
	if _, _, err := program(t, "portolan proxy", "[::]:"+port); err != nil {
		t.Errorf("Listen for all addresses beside a server of IPv4 = %v, want no error", err)
	}
}

// TestShareLate: an address is shared with a server that closes a connection, and serves later.
func TestShareLate(t *testing.T) {
	t.Parallel()
	first := listen(t, "portolan proxy", "127.0.0.1:0")
	second := make(chan error)
	go func() {
		s, err := Listen(t.Context(), configOf("portolan proxy", first.Addr()))
		if err == nil {
			s.Close()
		}
		second <- err
	}()
	c, err := first.listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	select {
	case err := <-second:
		t.Fatalf("Listen = %v before the other server answers", err)
	case <-time.After(2 * askPause):
	}
	runServer(t, first)
	if err := <-second; err != nil {
		t.Errorf("Listen = %v, want no error", err)
	}
}

// TestShareWithOthers: an address of a program that shares with all, or that does not answer as a
// Portolan process, is in use.
func TestShareWithOthers(t *testing.T) {
	t.Parallel()
	closes, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closes.Close()
	go func() {
		for {
			c, err := closes.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	unnamed, _, err := program(t, "", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const want = "in use by a process that does not answer as a Portolan process"
	for claim, tt := range map[string]struct {
		at       string
		patience time.Duration
	}{
		"it closes connections":  {closes.Addr().String(), 3 * askPause},
		"it does not answer":     {listen(t, "portolan proxy", "127.0.0.1:0").Addr(), 3 * askPause},
		"it is of another maker": {unnamed.Addr(), time.Hour},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
		_, err := Listen(ctx, configOf("portolan proxy", tt.at))
		cancel()
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: Listen = %v, want an error that ends with %q", claim, err, want)
		}
	}
}
