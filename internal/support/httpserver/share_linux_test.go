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

// program starts a server of a program at an address until the test ends, or until stop is called.
func program(t *testing.T, name, at string) (s *Server, stop func(), err error) {
	t.Helper()
	s, err = Listen(t.Context(), Config{
		Name: "test", Listen: netip.MustParseAddrPort(at), Program: name, Handler: http.NotFoundHandler(), Timeout: time.Minute,
		Connections: budget.NewAccount("test", budget.Limits{Total: 8, PerSource: 8}), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, nil, err
	}
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
	return s, stop, nil
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

// TestShareWithOthers: an address of a program that shares with all, or that is no HTTP server, is
// in use.
func TestShareWithOthers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	if _, _, err := program(t, "portolan proxy", l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen = %v, want %v", err, syscall.EADDRINUSE)
	}
}
