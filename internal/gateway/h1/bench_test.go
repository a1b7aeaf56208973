package h1_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shells are what is compared.
var shells = []struct {
	name  string
	serve shell
}{{"h1", ownShell}, {"nethttp", netHTTP}}

// kibibyte answers with 1 KiB.
func kibibyte(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Length"] = []string{"1024"}
	w.Header()["Content-Type"] = []string{"text/plain"}
	_, _ = w.Write(text)
}

var (
	text = bytes.Repeat([]byte("x"), 1024)
	// request has the fields that a client library sends.
	request = []byte("GET /shop/cart?item=42 HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n" +
		"Accept: text/html,application/xhtml+xml\r\nAccept-Encoding: gzip, deflate\r\nCookie: session=0123456789abcdef\r\n" +
		"Cache-Control: no-cache\r\n\r\n")
)

// BenchmarkServe sends requests on connections that are kept, and reports the processor's time of the process, of which
// the client's part is small.
func BenchmarkServe(b *testing.B) {
	for _, s := range shells {
		b.Run(s.name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			stop := s.serve(l, http.HandlerFunc(kibibyte))
			defer func() { _ = stop() }()
			b.ReportAllocs()
			before := cpu(b)
			b.RunParallel(func(pb *testing.PB) {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					b.Error(err)
					return
				}
				defer conn.Close()
				in := bufio.NewReader(conn)
				for pb.Next() {
					if _, err := conn.Write(request); err != nil {
						b.Error(err)
						return
					}
					for { // the head
						line, err := in.ReadSlice('\n')
						if err != nil {
							b.Error(err)
							return
						}
						if len(line) == len("\r\n") {
							break
						}
					}
					if _, err := in.Discard(len(text)); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdle measures the resident memory of connections that had a request and wait for another. The clients are
// bare sockets.
func BenchmarkIdle(b *testing.B) {
	const connections = 9000
	for _, s := range shells {
		b.Run(s.name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			stop := s.serve(l, http.HandlerFunc(kibibyte))
			defer func() { _ = stop() }()
			at := syscall.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
			var sockets []int
			defer func() {
				for _, s := range sockets {
					_ = syscall.Close(s)
				}
			}()
			for b.Loop() {
				before := resident(b)
				response := make([]byte, 4096)
				for range connections {
					s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
					if err != nil {
						b.Fatal(err)
					}
					sockets = append(sockets, s)
					if err := syscall.Connect(s, &at); err != nil {
						b.Fatal(err)
					}
					if _, err := syscall.Write(s, request); err != nil {
						b.Fatal(err)
					}
					for got := 0; got < len(text); {
						n, err := syscall.Read(s, response)
						if n <= 0 || err != nil {
							b.Fatal(n, err, io.ErrUnexpectedEOF)
						}
						got += n
					}
				}
				time.Sleep(3 * time.Second) // until the connections are parked
				b.ReportMetric(float64(resident(b)-before)/connections, "B/connection")
			}
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
