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

// TestUseOfNestedListeners checks that a connection that is in use stays in both accounts.
func TestUseOfNestedListeners(t *testing.T) {
	for claim, limits := range map[string][2]int{"the lower account is full": {2, 9}, "the upper account is full": {9, 2}} {
		below, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer below.Close()
		lower := budget.NewAccount("lower", budget.Limits{Total: limits[0], PerSource: 9})
		upper := budget.NewAccount("upper", budget.Limits{Total: limits[1], PerSource: 9})
		l := upper.Listener(lower.Listener(below))
		var clients, servers [3]net.Conn
		var done func()
		for i := range clients {
			if clients[i], err = net.Dial("tcp4", below.Addr().String()); err != nil {
				t.Fatal(err)
			}
			defer clients[i].Close()
			if servers[i], err = l.Accept(); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				done = budget.Use(servers[0])
			}
		}
		_ = clients[1].SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := clients[1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the idle connection: %v, want it closed", claim, err)
		}
		if _, err := servers[0].Write([]byte("x")); err != nil {
			t.Errorf("%s: the connection in use: %v", claim, err)
		}
		done()
		for _, c := range servers {
			c.Close()
		}
		if lower.Stats().Used != 0 || upper.Stats().Used != 0 {
			t.Errorf("%s: %+v and %+v, want none in use", claim, lower.Stats(), upper.Stats())
		}
	}
}
