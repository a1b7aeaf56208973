package h1_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

// A smuggling case is a file of testdata/smuggling/*.txtar. Its first line names the rule, the second one what
// must become of the octets, which follow: each further line is Go's syntax for a string without quotes, and
// all are joined. What becomes of them is a list, separated by ", ", of
//
//	METHOD TARGET [BODY]  a request that the backend gets
//	STATUS                the answer to what is refused; then the connection ends, and nothing more is served
//	none                  no answer
//
// After it, " close" says that the connection ends with the last answer, and " eof" that the client closes its
// direction. Otherwise the request GET /end comes behind, and is served if nothing was refused.
type smuggling struct {
	name, rule  string
	octets      string
	requests    []string // that the backend gets
	status      int      // 0 if nothing is refused
	close, half bool
}

// cases reads the cases.
func cases(t *testing.T) []smuggling {
	t.Helper()
	files, err := filepath.Glob("testdata/smuggling/*.txtar")
	must(t, err)
	var all []smuggling
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		must(t, err)
		for _, f := range archive.Files {
			lines := strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n")
			c := smuggling{name: f.Name, rule: strings.TrimPrefix(lines[0], "# "), octets: unquote(t, strings.Join(lines[2:], ""))}
			if !strings.HasPrefix(c.rule, "RFC ") {
				t.Fatalf("%s: %s: no rule", file, f.Name)
			}
			want := strings.TrimPrefix(lines[1], "# ")
			want, c.half = strings.CutSuffix(want, " eof")
			want, c.close = strings.CutSuffix(want, " close")
			for one := range strings.SplitSeq(want, ", ") {
				if status, err := strconv.Atoi(one); err == nil {
					c.status = status
				} else if one != "none" {
					c.requests = append(c.requests, unquote(t, one))
				}
			}
			if !c.half {
				c.octets += "GET /end HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
				if c.status == 0 && !c.close {
					c.requests = append(c.requests, "GET /end")
				}
			}
			all = append(all, c)
		}
	}
	return all
}

func unquote(t *testing.T, s string) string {
	t.Helper()
	text, err := strconv.Unquote(`"` + s + `"`)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return text
}

// recorder is a backend that records requests, and reads only what the grammar has.
type recorder struct {
	mu       sync.Mutex
	requests []string
	invalid  []string
}

func (r *recorder) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for in := bufio.NewReader(conn); ; {
				request, err := readStrictly(in)
				r.mu.Lock()
				switch {
				case err == nil:
					r.requests = append(r.requests, request)
				case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
					r.invalid = append(r.invalid, err.Error())
				}
				r.mu.Unlock()
				if err != nil {
					return
				}
				if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
					return
				}
			}
		}()
	}
}

// readLine reads a line that ends with CRLF and has no other control characters but tabs.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return "", fmt.Errorf("line %q", line)
	}
	return text, nil
}

// readStrictly reads a request: METHOD TARGET [BODY].
func readStrictly(in *bufio.Reader) (string, error) {
	line, err := readLine(in)
	if err != nil {
		return "", err
	}
	parts := strings.Split(line, " ")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] != "HTTP/1.1" {
		return "", fmt.Errorf("request line %q", line)
	}
	fields := make(map[string][]string)
	for {
		line, err := readLine(in)
		if err != nil {
			return "", err
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t\"(),/:;<=>?@[\\]{}") {
			return "", fmt.Errorf("field %q", line)
		}
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		fields[name] = append(fields[name], strings.TrimSpace(value))
	}
	lengths, codings := fields["content-length"], fields["transfer-encoding"]
	upgrade := strings.ToLower(strings.Join(fields["upgrade"], ","))
	if len(fields["host"]) != 1 || len(lengths)+len(codings) > 1 || upgrade != "" && upgrade != "websocket" ||
		len(fields["expect"]) > 0 && !strings.EqualFold(fields["expect"][0], "100-continue") {
		return "", fmt.Errorf("fields %v", fields)
	}
	var body string
	switch {
	case len(lengths) > 0:
		n, err := strconv.ParseUint(lengths[0], 10, 31)
		if err != nil {
			return "", fmt.Errorf("length %q", lengths[0])
		}
		body, err = readN(in, int(n))
		if err != nil {
			return "", err
		}
	case len(codings) > 0:
		if codings[0] != "chunked" {
			return "", fmt.Errorf("coding %q", codings[0])
		}
		if body, err = readChunks(in); err != nil {
			return "", err
		}
	}
	return strings.TrimSuffix(parts[0]+" "+parts[1]+" "+body, " "), nil
}

func readN(in io.Reader, n int) (string, error) {
	body := make([]byte, n)
	_, err := io.ReadFull(in, body)
	return string(body), err
}

func readChunks(in *bufio.Reader) (string, error) {
	var body strings.Builder
	for {
		line, err := readLine(in)
		if err != nil {
			return "", err
		}
		n, err := strconv.ParseUint(line, 16, 31)
		if err != nil {
			return "", fmt.Errorf("chunk size %q", line)
		}
		chunk, err := readN(in, int(n))
		if err != nil {
			return "", err
		}
		body.WriteString(chunk)
		if line, err := readLine(in); err != nil || line != "" { // without trailers
			return "", cmp.Or(err, fmt.Errorf("line %q after a chunk", line))
		}
		if n == 0 {
			return body.String(), nil
		}
	}
}

// shell serves a handler at a listener until the function that it returns is called.
type shell func(l net.Listener, h http.Handler) (stop func() error)

func ownShell(l net.Listener, h http.Handler) func() error {
	s := &h1.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	return s.Close
}

func netHTTP(l net.Listener, h http.Handler) func() error {
	s := &http.Server{Handler: h, MaxHeaderBytes: 12 << 10}
	go func() { _ = s.Serve(l) }()
	return s.Close
}

// outcome is what became of a case.
type outcome struct {
	requests, invalid []string // that the backend got
	statuses          []int
	end               error // of the connection; nil if the server closed it
}

// run sends the octets of a case through a shell and a Proxy to a backend.
func (c *smuggling) run(t *testing.T, s shell, patience time.Duration) outcome {
	t.Helper()
	var backend recorder
	listen := func() (net.Listener, netip.AddrPort) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { l.Close() })
		return l, netip.MustParseAddrPort(l.Addr().String())
	}
	behind, backendAddr := listen()
	go backend.serve(behind)
	front, addr := listen()
	web := table.Upstream{Namespace: "shop", Service: "web", Port: 80}
	pools := new(balance.Set[table.Upstream])
	pools.Update(map[table.Upstream][]netip.AddrPort{web: {backendAddr}})
	p := proxy.New(proxy.Config{Endpoints: pools})
	defer p.Close()
	all := table.NewHost([]table.Route{{
		Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: &table.Rule{Backends: []table.Backend{{Upstream: web, Weight: 1}}},
	}})
	listener := table.NewListener("all", "").WithHosts(map[string]*table.Host{"": all})
	at := table.Socket{Port: addr.Port()}
	p.SetTable(table.New(map[table.Socket]*table.Port{at: table.NewPort([]*table.Listener{listener}, nil)}))
	stop := s(front, p.At(at))
	defer func() { _ = stop() }()

	conn, err := net.Dial("tcp", addr.String())
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, _ = io.WriteString(conn, c.octets) // the server may have closed already
	if c.half {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	var o outcome
	for in := bufio.NewReader(conn); ; {
		method := "GET"
		if n := len(o.statuses); n < len(c.requests) {
			method, _, _ = strings.Cut(c.requests[n], " ")
		}
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				o.end = err
			}
			break
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != http.StatusContinue {
			o.statuses = append(o.statuses, res.StatusCode)
		}
	}
	backend.mu.Lock()
	defer backend.mu.Unlock()
	o.requests, o.invalid = backend.requests, backend.invalid
	return o
}

// statuses are those of the answers to a case.
func (c *smuggling) statuses() []int {
	all := slices.Repeat([]int{http.StatusOK}, len(c.requests))
	if c.status != 0 {
		all = append(all, c.status)
	}
	return all
}

// TestSmuggling sends all cases through the server and a Proxy: nothing that must be refused reaches the
// backend, and no request that is hidden in another is served.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	all := cases(t)
	if len(all) < 120 {
		t.Errorf("%d cases", len(all))
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := c.run(t, ownShell, time.Minute)
			if !slices.Equal(o.requests, c.requests) || len(o.invalid) > 0 || !slices.Equal(o.statuses, c.statuses()) || o.end != nil {
				t.Errorf("%s\n%q\ngave the backend %q, invalid %q, and the client %v, end %v\nwant %q and %v", c.rule,
					c.octets, o.requests, o.invalid, o.statuses, o.end, c.requests, c.statuses())
			}
		})
	}
}

// TestNetHTTP says why this package exists: with http.Server in its place some cases reach the backend. When none
// does any more, http.Server can take its place.
func TestNetHTTP(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	found := make(map[string]string)
	t.Cleanup(func() { // after the cases
		for _, name := range slices.Sorted(maps.Keys(found)) {
			t.Logf("%s: %s", name, found[name])
		}
		if len(found) == 0 {
			t.Error("http.Server has none of the faults")
		}
	})
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fault := c.fault(c.run(t, netHTTP, 3*time.Second))
			mu.Lock()
			defer mu.Unlock()
			if fault != "" {
				found[c.name] = fault
			}
		})
	}
}

// fault says what is wrong with what became of a case; nothing if it is empty.
func (c *smuggling) fault(o outcome) string {
	switch {
	case slices.ContainsFunc(o.requests, func(r string) bool { return strings.HasPrefix(r, "GET /hidden") }):
		return "a hidden request is served"
	case len(o.invalid) > 0:
		return "the backend gets what is invalid"
	case c.status != 0 && slices.Contains(o.requests, "GET /end"):
		return "must be refused, is forwarded, and the connection stays"
	case c.status != 0 && len(o.requests) > len(c.requests):
		return "must be refused, is forwarded"
	case !slices.Equal(o.requests, c.requests):
		return "other requests are served"
	case c.status != 0 && o.end != nil:
		return "the connection stays"
	}
	return ""
}
