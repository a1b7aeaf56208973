package handover

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// offer offers sockets until the test ends.
func offer(t *testing.T, path string, sockets ...Socket) *Offer {
	t.Helper()
	o, err := NewOffer(path, func() []Socket { return sockets })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { o.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return o
}

func take(t *testing.T, path string) map[string]*net.TCPListener {
	t.Helper()
	return takeAll(t, path).Listeners
}

func takeAll(t *testing.T, path string) Taken {
	t.Helper()
	all, err := Take(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		all.Close()
	})
	return all
}

// TestQueuedConnection: a connection that waits in the queue of a socket is accepted by the next process
// although the first one closed its own.
func TestQueuedConnection(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run", "socket")
	l := listen(t)
	offer(t, path, Socket{Name: "http", Listener: l})
	taken := take(t, path)
	if len(taken) != 1 || taken["http"] == nil {
		t.Fatalf("took %v, want http", taken)
	}
	client, err := net.Dial("tcp", l.Addr().String()) // nobody accepts it
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l.Close()
	server, err := taken["http"].Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if _, err := net.Dial("tcp", l.Addr().String()); err != nil {
		t.Errorf("dial after the first process closed its socket: %v", err)
	}
}

// TestStaysNonblocking: a listener that was passed on can be closed while it accepts.
func TestStaysNonblocking(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	l := listen(t)
	offer(t, path, Socket{Name: "http", Listener: l})
	take(t, path)
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("flags %#o, %v, want O_NONBLOCK", flags, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestManySockets: more sockets than a message can have are passed on, without those that are closed.
func TestManySockets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	var sockets []Socket
	for i := range 2*batch + 3 {
		sockets = append(sockets, Socket{Name: strconv.Itoa(i), Listener: listen(t)})
	}
	sockets[7].Listener.Close()
	offer(t, path, sockets...)
	taken := take(t, path)
	if len(taken) != len(sockets)-1 || taken["7"] != nil {
		t.Fatalf("took %d of %d sockets, of which one is closed", len(taken), len(sockets))
	}
	for i, s := range sockets {
		if i != 7 && taken[s.Name].Addr().String() != s.Listener.Addr().String() {
			t.Errorf("socket %s is at %s, want %s", s.Name, taken[s.Name].Addr(), s.Listener.Addr())
		}
	}
}

// TestTakeNothing: without a process that offers, or with one that has ended, there is nothing to take.
func TestTakeNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	if all := take(t, path); len(all) > 0 {
		t.Errorf("took %v where nothing is", all)
	}
	o, err := NewOffer(path, func() []Socket { return nil })
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	if all := take(t, path); len(all) > 0 {
		t.Errorf("took %v of a process that has ended", all)
	}
}

// TestTakeOver: the name is the last process' that offers, and the end of a former one does not take it away.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	first := offer(t, path, Socket{Name: "first", Listener: listen(t)})
	offer(t, path, Socket{Name: "second", Listener: listen(t)})
	first.Close()
	if all := take(t, path); len(all) != 1 || all["second"] == nil {
		t.Errorf("took %v, want second", all)
	}
}

// TestNoSocket: what is at the path and no socket stays, and is an error.
func TestNoSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewOffer(path, func() []Socket { return nil }); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want an error that names %s", err, path)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// TestTakeBroken: a process that passes something else is an error, in one line, and leaves nothing open.
func TestTakeBroken(t *testing.T) {
	t.Parallel()
	for claim, message := range map[string]string{"no JSON": "{", "a name without a socket": `["a"]`, "nothing": ""} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "socket")
			l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, message)
				conn.Close()
			}()
			if all, err := Take(context.Background(), path); err == nil {
				t.Errorf("Take = %v, want an error", all)
			}
		})
	}
}

// TestDatagrams: a datagram that waits in the queue of a socket is received by the next process.
func TestDatagrams(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run", "socket")
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	offer(t, path, Socket{Name: "http", Listener: listen(t)}, Socket{Name: "dns", Packets: c})
	taken := takeAll(t, path)
	if taken.Len() != 2 || taken.Listeners["http"] == nil || taken.Packets["dns"] == nil {
		t.Fatalf("took %v, want http and dns", taken)
	}
	client, err := net.Dial("udp", c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	room := make([]byte, 8)
	if n, _, err := taken.Packets["dns"].ReadFrom(room); err != nil || string(room[:n]) != "q" {
		t.Errorf("received %q, %v; want q", room[:n], err)
	}
}
