package wire

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/support/budget"
)

// TestReceiver: a connection that waits holds no room, also if it is accounted, and passes all that comes.
func TestReceiver(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l = budget.NewAccount("test", budget.Limits{Total: 9, PerSource: 9}).Listener(l)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer client.Close()
	accepted, err := l.Accept()
	must(t, err)
	defer accepted.Close()
	r := NewReceiver(accepted)
	if r.raw == nil {
		t.Fatal("it cannot wait without room")
	}
	some := true
	must(t, r.raw.Read(func(fd uintptr) bool {
		some = r.tryRead(fd)
		return true
	}))
	if some || r.room != nil || !r.Quiet() {
		t.Errorf("before anything came: read %t, with room of %d", some, len(r.room))
	}
	want := strings.Repeat("x", 100000)
	go func() { _, _ = io.WriteString(client, want) }()
	var got strings.Builder
	largest := 0
	for got.Len() < len(want) {
		room, n, err := r.Receive()
		must(t, err)
		got.Write(room[:n])
		largest = max(largest, len(room))
		FreeRoom(room)
	}
	if got.String() != want || largest != largeRoom {
		t.Errorf("got %d octets, with room of at most %d, want %d, and large room", got.Len(), largest, len(want))
	}
	client.Close()
	if _, _, err := r.Receive(); !errors.Is(err, io.EOF) || r.Quiet() {
		t.Errorf("at the end: %v", err)
	}
}

// TestReceiverOfOthers: connections that are not the system's can be read, too.
func TestReceiverOfOthers(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	go func() {
		_, _ = io.WriteString(client, "abc")
		client.Close()
	}()
	r := NewReceiver(server)
	if room, n, err := r.Receive(); string(room[:n]) != "abc" || err != nil {
		t.Errorf("got %q, %v", room[:n], err)
	}
	if _, _, err := r.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
