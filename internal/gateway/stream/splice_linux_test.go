package stream

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/budget"
)

// TestSplice: the kernel moves the octets, also below the account of connections, and a connection that is silent has no
// pipe: it is there for others.
func TestSplice(t *testing.T) {
	t.Parallel()
	f := newFront(t, table.NewStreamPort(leads("", table.Stream)), nil)
	account := budget.NewAccount("test", budget.Limits{Total: 10, PerSource: 10})
	f.at(backend(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wrapped := f.server.Listener(at, account.Listener(l), func(net.Conn) {})
	go func() { _, _ = wrapped.Accept() }() // ends with the listener
	defer l.Close()
	f.addr = l.Addr().String()
	c := f.dial()
	for range 3 {
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); len(f.server.pipes.free) == 0; runtime.Gosched() { // the last one may be on its way
		if time.Now().After(end) {
			t.Fatal("no pipe was used, or none is given back")
		}
	}
	if n := account.Stats().Used; n != 1 {
		t.Errorf("%d connections are accounted, want 1", n)
	}
}
