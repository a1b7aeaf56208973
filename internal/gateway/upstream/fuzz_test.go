package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
)

// memory is a connection whose other end has sent all it will.
type memory struct {
	net.Conn
	in     *bytes.Reader
	step   int // how much a Read returns at most
	closed bool
}

func (m *memory) Read(p []byte) (int, error)       { return m.in.Read(p[:min(len(p), m.step)]) }
func (m *memory) Write(p []byte) (int, error)      { return len(p), nil }
func (m *memory) SetDeadline(time.Time) error      { return nil }
func (m *memory) SetReadDeadline(time.Time) error  { return nil }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }

func (m *memory) Close() error {
	m.closed = true
	return nil
}

// reading is a response as it is read from octets.
type reading struct {
	status int
	header http.Header
	body   string
	err    error
	kept   bool
	rest   int // octets that were not read
}

// read reads a response, which comes in steps.
func read(method string, octets []byte, step int) reading {
	c := New(Config{})
	defer c.Close()
	e := new(balance.Endpoint)
	of, _ := c.of(e, new(Request)) // without TLS it cannot fail
	in := &memory{in: bytes.NewReader(octets), step: step}
	made := newConn(c, of, in)
	of.conns[made] = struct{}{}
	of.idle = append(of.idle, made)
	c.idle.pushFront(made)
	r := &Request{Method: method, Target: "/", Host: "a.test", Length: -1, Upgrade: "x", Header: make(http.Header)}
	res, err := c.Do(context.Background(), e, r)
	if err != nil {
		return reading{err: err}
	}
	body, err := readAll(res)
	buffered := made.in.W - made.in.R
	res.Close()
	return reading{res.Status, r.Header, body, err, !in.closed, in.in.Len() + buffered}
}

// FuzzResponse: whatever the octets are, a response that is accepted is one that net/http reads, too, as the same
// body and with the same end, however the octets come; and its connection is kept only if nothing is left on it.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"200 OK\nContent-Length: 3\n\nabc", "200 OK\nTransfer-Encoding: chunked\n\n3\nabc\n0\nA: b\n\n", "200 OK\n\nabc",
		"204 No Content\n\n", "304 Not Modified\nContent-Length: 3\n\n", "100 Continue\n\nHTTP/1.1 200 OK\nContent-Length: 0\n\n",
		"101 Switching Protocols\nConnection: Upgrade\nUpgrade: x\n\nabc", "200 OK\nConnection: close\nContent-Length: 1\n\nabc",
		"200 OK\nContent-Length: 3\nTransfer-Encoding: chunked\n\n0\n\n", "200 OK\nContent-Length: 3, 3\n\nabc",
		"200 OK\nTransfer-Encoding: gzip, chunked\n\n0\n\n", "200 OK\nA: b\n c\nContent-Length: 0\n\n", "\n\n", "200\n\n",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			f.Add(method == "HEAD", []byte("HTTP/1.1 "+strings.ReplaceAll(seed, "\n", "\r\n")), uint8(7))
			f.Add(method == "HEAD", []byte("HTTP/1.0 "+strings.ReplaceAll(seed, "\n", "\r\n")), uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, head bool, octets []byte, step uint8) {
		method := map[bool]string{false: "GET", true: "HEAD"}[head]
		ours := read(method, octets, len(octets)+1)
		steps := read(method, octets, max(1, int(step)))
		if ours.status != steps.status || ours.body != steps.body || (ours.err == nil) != (steps.err == nil) || ours.rest == 0 && ours.kept != steps.kept {
			t.Errorf("%q\nis read as\n%+v\nin steps of %d octets, and else as\n%+v", octets, steps, step, ours)
		}
		if ours.kept && ours.rest > 0 {
			t.Errorf("%q\nleaves %d octets, and the connection is kept", octets, ours.rest)
		}
		if ours.err != nil {
			if ours.kept {
				t.Errorf("%q\nfails with %v, and the connection is kept", octets, ours.err)
			}
			return
		}
		in := bufio.NewReader(bytes.NewReader(octets))
		for {
			res, err := http.ReadResponse(in, &http.Request{Method: method})
			if err != nil {
				t.Fatalf("%q\nis accepted as\n%+v\nand net/http says: %v", octets, ours, err)
			}
			if res.StatusCode >= 100 && res.StatusCode < 200 && res.StatusCode != http.StatusSwitchingProtocols {
				continue
			}
			compare(t, octets, ours, res)
			return
		}
	})
}

// compare compares a response with what net/http reads.
func compare(t *testing.T, octets []byte, ours reading, res *http.Response) {
	t.Helper()
	var body []byte
	if res.StatusCode != http.StatusSwitchingProtocols {
		var err error
		if body, err = io.ReadAll(res.Body); err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%q\nis accepted as\n%+v\nand net/http says of the body: %v", octets, ours, err)
		}
	}
	if res.StatusCode != ours.status || string(body) != ours.body {
		t.Errorf("%q\nis read as\n%+v\nand by net/http as %d %q", octets, ours, res.StatusCode, body)
	}
	if ours.kept && res.Close {
		t.Errorf("%q\nis kept, and net/http closes it", octets)
	}
	for name, values := range ours.header {
		if name == "Connection" || name == "Upgrade" || name == "Trailer" || name == "Content-Length" {
			continue
		}
		if strings.Join(values, "\n") != strings.Join(res.Header[name], "\n") {
			t.Errorf("%q\n%s is %q, and of net/http %q", octets, name, values, res.Header[name])
		}
	}
}
