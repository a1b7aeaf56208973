package proxy

import (
	"io"
	"net"
	"testing"

	"portolan.dev/portolan/internal/support/budget"
)

// TestTunnelRoom: a tunnel that waits holds no buffer, also of a connection that is accounted.
func TestTunnelRoom(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = budget.NewAccount("test", budget.Limits{Total: 9, PerSource: 9}).Listener(l)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	d := newDirection(accepted, nil)
	if d.raw == nil {
		t.Fatal("it cannot wait without a buffer")
	}
	read := func() (some bool) {
		if err := d.raw.Read(func(fd uintptr) bool {
			some = d.tryRead(fd)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return some
	}
	if some := read(); some || d.room != nil {
		t.Errorf("before anything came: read %t, with a buffer of %d", some, len(d.room))
	}
	if _, err := io.WriteString(client, "abc"); err != nil {
		t.Fatal(err)
	}
	if d.receive(); string(d.room[:d.n]) != "abc" || d.err != nil {
		t.Errorf("got %q, %v", d.room[:d.n], d.err)
	}
	client.Close()
	if d.receive(); d.n != 0 || d.err != io.EOF { //nolint:errorlint // it is that of tryRead
		t.Errorf("at the end: %d, %v", d.n, d.err)
	}
}
