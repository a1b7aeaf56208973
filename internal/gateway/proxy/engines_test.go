package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

// engines are ways to pass requests on to one endpoint.
var engines = []struct {
	name  string
	serve func(l net.Listener, endpoint netip.AddrPort) (stop func() error)
}{
	{"reverseproxy", func(l net.Listener, to netip.AddrPort) func() error { return reverseProxy(l, to, nil) }},
	{"bufferpool", func(l net.Listener, to netip.AddrPort) func() error { return reverseProxy(l, to, new(bufferPool)) }},
	{"own", ownEngine},
}

// reverseProxy serves with net/http alone.
func reverseProxy(l net.Listener, to netip.AddrPort, pool httputil.BufferPool) func() error {
	s := &http.Server{Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: to.String()})
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}, BufferPool: pool,
		ErrorLog: log.New(io.Discard, "", 0),
	}}
	go func() { _ = s.Serve(l) }()
	return s.Close
}

// bufferPool is a httputil.BufferPool.
type bufferPool struct{ sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.Pool.Get().(*[32 << 10]byte); ok {
		return b[:]
	}
	return make([]byte, 32<<10)
}

func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[32 << 10]byte)(b)) }

// ownEngine serves as the gateway does, by a table of one rule.
func ownEngine(l net.Listener, to netip.AddrPort) func() error {
	pools := new(balance.Set[table.Upstream])
	pools.Update(map[table.Upstream][]netip.AddrPort{web: {to}})
	p := proxy.New(proxy.Config{Endpoints: pools})
	at := table.Socket{Port: netip.MustParseAddrPort(l.Addr().String()).Port()}
	route := table.Route{
		Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: &table.Rule{Backends: []table.Backend{{Upstream: web, Weight: 1}}},
	}
	all := table.NewListener("all", "").WithHosts(map[string]*table.Host{"": table.NewHost([]table.Route{route})})
	p.SetTable(table.New(map[table.Socket]*table.Port{at: table.NewPort([]*table.Listener{all}, nil)}))
	s := &h1.Server{Handler: p.At(at)}
	go func() { _ = s.Serve(l) }()
	return func() error {
		p.Close()
		return s.Close()
	}
}

var (
	// loadRequest has the fields that browsers send.
	loadRequest = "GET /%d?item=42 HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n" +
		"Accept: text/html,application/xhtml+xml\r\nAccept-Encoding: gzip, deflate\r\nCookie: session=0123456789abcdef\r\n" +
		"Cache-Control: no-cache\r\n\r\n"
	loadResponse = "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: text/html; charset=utf-8\r\n" +
		"Date: Wed, 25 Nov 2026 12:00:00 GMT\r\nCache-Control: private\r\nServer: test\r\n\r\n%s"
	loadSizes = []int{1 << 10, 1 << 20} // of bodies, in octets
)

// BenchmarkEngines reports the processor's time of a process that passes on requests, each engine in turn. Clients and
// the endpoint are another process. The connections of all are kept.
func BenchmarkEngines(b *testing.B) {
	load := newLoad(b)
	for _, size := range loadSizes {
		for _, e := range engines {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, e.name), func(b *testing.B) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				stop := e.serve(l, load.endpoint)
				defer func() { _ = stop() }()
				load.send(b, l.Addr().String(), size, 100) // which makes the connections
				b.ReportAllocs()
				before := cpuTime(b)
				b.ResetTimer()
				load.send(b, l.Addr().String(), size, b.N)
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkWaiting reports the resident memory that a request takes for which no response has come yet, with both its
// connections.
func BenchmarkWaiting(b *testing.B) {
	const requests = 4000
	load := newLoad(b)
	for _, e := range engines {
		b.Run(e.name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			stop := e.serve(l, load.endpoint)
			defer func() { _ = stop() }()
			for b.Loop() {
				before := resident(b)
				load.send(b, l.Addr().String(), waiting, requests)
				b.ReportMetric(float64(resident(b)-before)/requests, "B/request")
			}
			load.send(b, l.Addr().String(), loadSizes[0], 1) // which ends those
		})
	}
}

// resident returns the resident memory of the process in octets, without what the collector can free.
func resident(b *testing.B) int {
	b.Helper()
	for range 6 { // stacks shrink by half at a time
		runtime.GC()
	}
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// load is the process of the clients and the endpoint.
type load struct {
	endpoint netip.AddrPort
	to       io.Writer
	from     *bufio.Reader
}

// loadEnv has TestLoad be that process.
const loadEnv = "PORTOLAN_TEST_LOAD"

func newLoad(b *testing.B) *load {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestLoad$") //nolint:gosec // it is this program
	cmd.Env = append(os.Environ(), loadEnv+"=1")
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = to.(io.Closer).Close()
		_ = cmd.Wait()
	})
	l := &load{to: to, from: bufio.NewReader(from)}
	line, err := l.from.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	l.endpoint = netip.MustParseAddrPort(strings.TrimSpace(line))
	return l
}

// waiting is the size of bodies that do not come.
const waiting = -1

// send has n requests be sent, and answered with bodies of a size. If that is waiting, it returns when the endpoint has
// got them.
func (l *load) send(b *testing.B, addr string, size, n int) {
	b.Helper()
	fmt.Fprintf(l.to, "%s %d %d\n", addr, size, n)
	if line, err := l.from.ReadString('\n'); err != nil || line != "done\n" {
		b.Fatalf("%q, %v", line, err)
	}
}

// TestLoad is the process of BenchmarkEngines' clients and endpoint, until its standard input ends.
func TestLoad(t *testing.T) {
	if os.Getenv(loadEnv) == "" {
		t.Skip("it is for BenchmarkEngines")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	got := make(chan struct{}, 1000)
	go serveLoad(l, got)
	fmt.Println(l.Addr())
	var addr string
	var held []net.Conn
	for {
		var size, n int
		if _, err := fmt.Scanln(&addr, &size, &n); err != nil {
			return
		}
		for _, conn := range held {
			conn.Close()
		}
		if held = nil; size == waiting {
			for range n {
				conn, err := net.Dial("tcp", addr)
				must(t, err)
				held = append(held, conn)
				fmt.Fprintf(conn, loadRequest, size)
				<-got
			}
			fmt.Println("done")
			continue
		}
		var clients sync.WaitGroup
		const connections = 16
		for i := range connections {
			clients.Go(func() { sendLoad(t, addr, size, (n+i)/connections) })
		}
		clients.Wait()
		fmt.Println("done")
	}
}

// serveLoad answers each request with loadResponse, of the size that it has as its path. If that is waiting it says only
// that it got it.
func serveLoad(l net.Listener, got chan<- struct{}) {
	responses := make(map[string][]byte)
	for _, size := range loadSizes {
		responses[strconv.Itoa(size)] = fmt.Appendf(nil, loadResponse, size, strings.Repeat("x", size))
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			room := make([]byte, 4096)
			for n := 0; ; {
				more, err := conn.Read(room[n:])
				if n += more; err != nil {
					return
				}
				if bytes.HasSuffix(room[:n], []byte("\r\n\r\n")) {
					size, _, _ := strings.Cut(strings.TrimPrefix(string(room[:n]), "GET /"), "?")
					if n = 0; responses[size] == nil {
						got <- struct{}{}
						continue
					}
					if _, err := conn.Write(responses[size]); err != nil {
						return
					}
				}
			}
		}()
	}
}

// sendLoad sends n requests for bodies of a size on one connection.
func sendLoad(t *testing.T, addr string, size, n int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	in, request := bufio.NewReader(conn), fmt.Appendf(nil, loadRequest, size)
	for range n {
		if _, err := conn.Write(request); err != nil {
			t.Error(err)
			return
		}
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				t.Error(err)
				return
			}
			if len(line) == len("\r\n") {
				break
			}
		}
		if _, err := in.Discard(size); err != nil {
			t.Error(err)
			return
		}
	}
}
