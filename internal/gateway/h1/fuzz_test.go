package h1

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// memory is a connection whose client has sent all it will.
type memory struct {
	net.Conn
	in   *bytes.Reader
	step int // how much a Read returns at most
}

func (m *memory) Read(p []byte) (int, error)       { return m.in.Read(p[:min(len(p), m.step)]) }
func (m *memory) Write(p []byte) (int, error)      { return len(p), nil }
func (m *memory) Close() error                     { return nil }
func (m *memory) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (m *memory) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (m *memory) SetReadDeadline(time.Time) error  { return nil }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }

// reading is a request as one reader of octets sees it.
type reading struct {
	Method, Target, Host, Body string
	Header                     http.Header
	Length                     int64
	forward                    []byte // as a proxy sends it
}

// read returns the requests in octets that the server gives its Handler, with complete bodies. The octets come in
// steps.
func read(octets []byte, step int) []reading {
	var got []reading
	s := &Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		one := reading{r.Method, r.RequestURI, r.Host, string(body), r.Header.Clone(), r.ContentLength, nil}
		var forward bytes.Buffer
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Host != "" && r.Write(&forward) == nil {
			one.forward = forward.Bytes()
		}
		got = append(got, one)
	})}
	s.begin.Do(s.start)
	c := newConn(s, &memory{in: bytes.NewReader(octets), step: step})
	c.park()
	return got
}

// FuzzServe: whatever the octets are, the server reads the requests that it accepts as net/http does, however
// they come, and there is one reading of what a proxy makes of them.
func FuzzServe(f *testing.F) {
	files, err := filepath.Glob("testdata/smuggling/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, one := range archive.Files {
			lines := strings.Split(string(one.Data), "\n")
			octets, err := strconv.Unquote(`"` + strings.Join(lines[2:], "") + `"`)
			if err != nil {
				f.Fatal(err)
			}
			f.Add([]byte(octets), uint8(7))
		}
	}
	f.Fuzz(func(t *testing.T, octets []byte, step uint8) {
		in := bufio.NewReader(bytes.NewReader(octets))
		agree := true
		all := read(octets, len(octets)+1)
		if stepwise := read(octets, max(1, int(step))); !reflect.DeepEqual(stepwise, all) {
			t.Errorf("%q\nis read as\n%+v\nin steps of %d octets, and else as\n%+v", octets, stepwise, step, all)
		}
		for _, ours := range all {
			agree = agree && agrees(t, in, ours)
			if ours.forward == nil {
				continue
			}
			again := read(ours.forward, len(ours.forward))
			if len(again) != 1 || again[0].Method != ours.Method || again[0].Body != ours.Body ||
				!strings.EqualFold(strings.TrimSuffix(again[0].Host, ":"), strings.TrimSuffix(ours.Host, ":")) {
				t.Errorf("%q\nforwarded as\n%q\nis read as\n%+v", octets, ours.forward, again)
			}
		}
	})
}

// agrees compares a request with what net/http reads, and reports whether it can read on.
func agrees(t *testing.T, in *bufio.Reader, ours reading) bool {
	t.Helper()
	if empty, _ := in.Peek(2); string(empty) == "\r\n" {
		_, _ = in.Discard(2)
	}
	r, err := http.ReadRequest(in)
	if err != nil {
		return false // it refuses the request
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	host := r.Host
	if r.URL.Host != "" {
		host = ours.Host // of absolute-form
	}
	if r.Method != ours.Method || r.RequestURI != ours.Target || host != ours.Host || string(body) != ours.Body ||
		r.ContentLength != ours.Length {
		t.Errorf("net/http reads %s %s %s %d %q,\nthe server %+v", r.Method, r.RequestURI, r.Host, r.ContentLength, body, ours)
	}
	for name, values := range ours.Header {
		if strings.Join(values, "\n") != strings.Join(r.Header[name], "\n") {
			t.Errorf("%s: net/http reads %q, the server %q", name, r.Header[name], values)
		}
	}
	return true
}
