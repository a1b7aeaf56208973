package load

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/testcert"
)

// someQueries returns n queries: a header, and their number as the question.
func someQueries(n int) (queries [][]byte) {
	for i := range n {
		queries = append(queries, binary.BigEndian.AppendUint16(make([]byte, headerLen), uint16(i)))
	}
	return queries
}

func queryFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "queries")
	if err := WriteQueries(file, someQueries(2*batch)); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestQueriesComeBack(t *testing.T) {
	got, err := readQueries(queryFile(t))
	if err != nil {
		t.Fatal(err)
	}
	if want := someQueries(2 * batch); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("readQueries gives %d queries, not the %d that were written", len(got), len(want))
	}
}

func TestReadQueriesRefuses(t *testing.T) {
	for what, content := range map[string][]byte{
		"too few":   {0, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"cut off":   {0, 13, 0},
		"no header": {0, 1, 0},
	} {
		file := filepath.Join(t.TempDir(), "queries")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readQueries(file); err == nil {
			t.Errorf("readQueries accepts a file with %s", what)
		}
	}
}

// answer answers every query, and every fourth with NXDOMAIN.
func answer(message []byte) {
	message[2] |= 0x80
	if message[headerLen+1]%4 == 0 {
		message[3] |= 3
	}
}

// serveUDP answers each query after a delay.
func serveUDP(t *testing.T, after time.Duration) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for {
			buf := make([]byte, 512)
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			time.AfterFunc(after, func() {
				answer(buf[:n])
				_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
			})
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func serveTCP(t *testing.T) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveStreams(t, listener)
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

// serveTLS returns the server and a file with its root certificate.
func serveTLS(t *testing.T) (server netip.AddrPort, roots string) {
	t.Helper()
	c, err := testcert.New("dns.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	roots, _, err = c.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{c.TLS}})
	if err != nil {
		t.Fatal(err)
	}
	serveStreams(t, listener)
	return listener.Addr().(*net.TCPAddr).AddrPort(), roots
}

func serveStreams(t *testing.T, listener net.Listener) {
	t.Helper()
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveConn(conn)
		}
	}()
}

func serveConn(conn net.Conn) {
	defer conn.Close()
	const frame = 2 + headerLen + 2
	buf := make([]byte, frame)
	for {
		if _, err := io.ReadFull(conn, buf); err != nil {
			return
		}
		answer(buf[2:])
		if _, err := conn.Write(buf); err != nil {
			return
		}
	}
}

func TestRun(t *testing.T) {
	udp, tcp := serveUDP(t, 0), serveTCP(t)
	secure, roots := serveTLS(t)
	for what, c := range map[string]Config{
		"udp, one socket":              {Server: udp, Transport: UDP, Sockets: 1, Window: 8},
		"udp, more sockets than asked": {Server: udp, Transport: UDP, Sockets: 50, Window: 8},
		"udp, at a rate":               {Server: udp, Transport: UDP, Sockets: 4, Rate: 1000},
		"tcp":                          {Server: tcp, Transport: TCP, Sockets: 2, Window: 8},
		"tcp, at a rate":               {Server: tcp, Transport: TCP, Sockets: 2, Rate: 1000},
		"connections":                  {Server: tcp, Transport: Connections, Sockets: 2, Window: 2},
		"tls":                          {Server: secure, Transport: TLS, Sockets: 2, Window: 8, Roots: roots},
		"tls, at a rate":               {Server: secure, Transport: TLS, Sockets: 2, Rate: 1000, Roots: roots},
		"tls connections":              {Server: secure, Transport: TLSConnections, Sockets: 2, Window: 2, Roots: roots},
	} {
		t.Run(what, func(t *testing.T) {
			c.Warm, c.Duration = 10*time.Millisecond, 200*time.Millisecond
			c.Queries, c.Processes = queryFile(t), []int{os.Getpid()}
			r, err := Run(&c)
			if err != nil {
				t.Fatal(err)
			}
			const octets = headerLen + 2
			if r.Answered == 0 || r.Lost > 0 || r.Octets != octets*r.Answered || r.ServerTime <= 0 {
				t.Errorf("Run gives %+v", r)
			}
			// The queries are sent in order, so only those under way when the measurement
			// begins and ends shift the share.
			underWay := 2 * c.Sockets * max(c.Window, 1)
			if got, want := r.RCodes[3], r.Answered/4; max(got-want, want-got) > underWay+r.Answered/20 {
				t.Errorf("%d of %d answers are NXDOMAIN, want a quarter", r.RCodes[3], r.Answered)
			}
			if c.Rate > 0 && (r.Slices == 0 || (r.P50 > 0) != (r.Quiet > 0) || r.P99 < r.P50) {
				t.Errorf("Run gives %+v", r)
			}
		})
	}
}

// TestPatience checks that answers after the end count if they arrive before the
// timeout.
func TestPatience(t *testing.T) {
	const rate, delay, duration = 1000, 300 * time.Millisecond, 200 * time.Millisecond
	server := serveUDP(t, delay)
	for patience, answered := range map[time.Duration]bool{10 * delay: true, delay / 3: false} {
		r, err := Run(&Config{
			Server: server, Transport: UDP, Sockets: 4, Rate: rate, Duration: duration,
			Queries: queryFile(t), Patience: patience, Processes: []int{os.Getpid()},
		})
		if err != nil {
			t.Fatal(err)
		}
		all := r.Answered
		if !answered {
			all = r.Lost
		}
		if want := int(duration * rate / time.Second); all < want/2 || r.Answered+r.Lost != all {
			t.Errorf("with %s, %d are answered and %d lost, of about %d", patience, r.Answered, r.Lost, want)
		}
		if answered && r.Whole.P50 < delay {
			t.Errorf("p50 is %s, want %s at least", r.Whole.P50, delay)
		}
	}
}

func TestRunSaysThatNobodyListens(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	server := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	conn.Close()
	c := Config{Server: server, Transport: UDP, Sockets: 1, Window: 1, Duration: time.Second, Queries: queryFile(t), Processes: []int{os.Getpid()}}
	if _, err := Run(&c); err == nil {
		t.Error("Run gives no error")
	}
}

// patience is the timeout of the books below.
const patience = time.Second

func TestBook(t *testing.T) {
	b := newBook(2, patience)
	one, _, _ := b.ask(1)
	two, _, _ := b.ask(2)
	if at, ok := b.answer(two); !ok || at != 2 {
		t.Errorf("answer(%d) = %d, %t", two, at, ok)
	}
	if _, ok := b.answer(two); ok {
		t.Error("an answer counts twice")
	}
	if b.waiting != 1 {
		t.Errorf("%d wait, want 1", b.waiting)
	}
	if lost := b.expire(1 + patience); lost != 1 || b.waiting != 0 {
		t.Errorf("%d lost, %d wait; want 1 and 0", lost, b.waiting)
	}
	if _, ok := b.answer(one); ok {
		t.Error("a lost query is answered")
	}
}

// TestBookIsFull checks that no query is sent while all entries are in use, until one
// is lost.
func TestBookIsFull(t *testing.T) {
	b := newBook(1, patience)
	ids := make(map[uint16]bool)
	for range b.entries {
		id, _, ok := b.ask(0)
		if !ok || ids[id] {
			t.Fatalf("ask gives %d, %t", id, ok)
		}
		ids[id] = true
	}
	if _, _, ok := b.ask(patience - 1); ok {
		t.Error("a full book takes another query")
	}
	if _, lost, ok := b.ask(patience); !ok || lost != 1 {
		t.Errorf("%d lost, %t; want 1, true", lost, ok)
	}
}

func TestLanes(t *testing.T) {
	for what, c := range map[string]struct{ sockets, window, lanes int }{
		"one socket":                  {1, 128, 1},
		"some":                        {16, 128, 16},
		"that don't divide":           {100, 128, 100},
		"more than the window is big": {1000, 128, 128},
	} {
		all := lanes(make([]*socket, c.sockets), c.window)
		window, sockets := 0, 0
		for _, l := range all {
			window += l.window
			sockets += len(l.sockets)
		}
		if len(all) != c.lanes || window != c.window || sockets != c.sockets {
			t.Errorf("%s: %d lanes with a window of %d and %d sockets, want %+v", what, len(all), window, sockets, c)
		}
	}
}

func TestCutFrame(t *testing.T) {
	message, rest, ok := cutFrame([]byte{0, 2, 'a', 'b', 0, 1})
	if !ok || string(message) != "ab" || len(rest) != 2 {
		t.Errorf("cutFrame gives %q, %q, %t", message, rest, ok)
	}
	if _, _, ok := cutFrame(rest); ok {
		t.Error("cutFrame takes half a message")
	}
	if _, _, ok := cutFrame(nil); ok {
		t.Error("cutFrame takes nothing")
	}
}

func TestLostConnectionIsAnError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			conn.Close()
		}
	}()
	c := Config{
		Server: listener.Addr().(*net.TCPAddr).AddrPort(), Transport: TCP, Sockets: 1, Window: 1,
		Duration: time.Second, Queries: queryFile(t), Processes: []int{os.Getpid()},
	}
	if _, err := Run(&c); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Run gives %v", err)
	}
}
