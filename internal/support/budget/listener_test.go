package budget_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/budget"
)

// TestListener checks that a new connection closes the oldest one at the limit, and that
// a closed one frees its place.
func TestListener(t *testing.T) {
	below, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer below.Close()
	a := budget.NewAccount("test", budget.Limits{Total: 2, PerSource: 2})
	l := a.Listener(below)
	connect := func() (client, server net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp4", below.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	first, _ := connect()
	_, second := connect()
	connect()
	_ = first.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the first connection: %v, want it closed", err)
	}
	second.Close()
	if got := a.Stats(); got.Used != 1 || got.SourceFull != 1 {
		t.Errorf("figures %+v, want 1 in use and 1 refused", got)
	}
}
