package querylog_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	dnstap "github.com/dnstap/golang-dnstap"
	framestream "github.com/farsightsec/golang-framestream"
	"google.golang.org/protobuf/proto"

	"portolan.dev/portolan/internal/dns/querylog"
	"portolan.dev/portolan/internal/dns/respond"
)

// patience is the time after which a test fails.
const patience = 20 * time.Second

// run runs a Log until the test ends.
func run(t *testing.T, cfg querylog.Config) *querylog.Log {
	t.Helper()
	l := querylog.New(cfg)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
	})
	return l
}

// collector returns the listener of a collector and a Config that names it.
func collector(t *testing.T) (net.Listener, querylog.Config) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "tap")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, querylog.Config{Tap: querylog.Tap{Network: "unix", Address: socket}}
}

func observe(l *querylog.Log, query string) {
	l.Observe(&respond.Observation{Client: respond.Client{Addr: netip.MustParseAddr("192.0.2.1")}, Query: []byte(query)})
}

// collect returns the queries received over one connection. The channel closes with the
// connection.
func collect(t *testing.T, l net.Listener) <-chan string {
	t.Helper()
	told := make(chan string, 100)
	go func() {
		defer close(told)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r, err := framestream.NewReader(conn, &framestream.ReaderOptions{ContentTypes: [][]byte{dnstap.FSContentType}, Bidirectional: true})
		frame := make([]byte, 1<<16)
		for err == nil {
			var n int
			if n, err = r.ReadFrame(frame); err == nil {
				var m dnstap.Dnstap
				_ = proto.Unmarshal(frame[:n], &m) // an empty query does not match
				told <- string(m.GetMessage().GetQueryMessage())
			}
		}
	}()
	return told
}

func want(t *testing.T, told <-chan string, query string) {
	t.Helper()
	select {
	case got := <-told:
		if got != query {
			t.Errorf("told is %q, want %q", got, query)
		}
	case <-time.After(patience):
		t.Errorf("nothing is told, want %q", query)
	}
}

// TestChangedCollector checks that each collector receives the messages of the time in
// which it was configured, and that one that hangs delays nothing.
func TestChangedCollector(t *testing.T) {
	silent, hangs := collector(t)
	at, works := collector(t)
	l := run(t, hangs)
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	observe(l, "for the first")
	l.Set(works)
	observe(l, "for the second")
	told := collect(t, at)
	want(t, told, "for the second")
	l.Set(querylog.Config{})
	observe(l, "for nobody")
	for query := range told { // until the connection closes
		t.Errorf("told is %q, too", query)
	}
	for end := time.Now().Add(patience); l.Dropped() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d are dropped, want that for the first", l.Dropped())
		}
	}
}

// TestReloadKeepsConnection checks that a change of other settings does not affect the
// connection.
func TestReloadKeepsConnection(t *testing.T) {
	at, cfg := collector(t)
	l := run(t, cfg)
	told := collect(t, at) // from one connection
	for _, query := range []string{"one", "two", "three"} {
		observe(l, query)
		want(t, told, query)
		cfg.OneIn++
		l.Set(cfg)
	}
}
