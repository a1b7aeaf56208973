package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// misbehave adds what an endpoint can do wrong.
func misbehave(mux *http.ServeMux) {
	raw := func(path string, do func(c net.Conn)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { hijacked(w, do) })
	}
	raw("/wrong/informational", func(c net.Conn) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
		}
	})
	raw("/wrong/short", func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort") })
	raw("/wrong/long", func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhidden")
		_, _ = io.Copy(io.Discard, c)
	})
	raw("/wrong/reset", func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	raw("/wrong/half", func(c net.Conn) {
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	raw("/wrong/none", func(net.Conn) {})
	raw("/wrong/text", func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n") })
	raw("/wrong/head", func(c net.Conn) {
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for n := 0; err == nil; n++ {
			_, err = fmt.Fprintf(c, "X-Field-%d: %s\r\n", n, strings.Repeat("a", 100))
		}
	})
	raw("/early", func(c net.Conn) { // before the body has come
		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.Copy(io.Discard, c)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < 100 && r.Context().Err() == nil; i++ {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// TestGatewayEndpoints has endpoints do everything wrong, and clients go away in the middle. Clients get the response
// that they should, and afterwards neither connections nor goroutines are left.
func TestGatewayEndpoints(t *testing.T) {
	serveEndpoint(t)
	s := startGateway(t, "", "")
	tests := map[string]struct {
		send string
		want string // how what the client receives begins; empty if it goes away
	}{
		"endless informational responses": {get("/wrong/informational"), "HTTP/1.1 "},
		"body too short":                  {get("/wrong/short"), "HTTP/1.1 200 "},
		"body too long":                   {get("/wrong/long"), "HTTP/1.1 200 "},
		"reset in the body":               {get("/wrong/reset"), "HTTP/1.1 "},
		"end before the head":             {get("/wrong/half"), "HTTP/1.1 502 "},
		"no response":                     {get("/wrong/none"), "HTTP/1.1 502 "},
		"another protocol":                {get("/wrong/text"), "HTTP/1.1 502 "},
		"endless head":                    {get("/wrong/head"), "HTTP/1.1 502 "},
		"early response":                  {"POST /early HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1000000\r\n\r\nabc", "HTTP/1.1 413 "},
		"slow body, client gone":          {get("/slow"), ""},
		"large body, client gone":         {get("/large"), ""},
		"no response, client gone":        {get("/hold"), ""},
		"half a request, client gone":     {"POST /a HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1000000\r\n\r\nabc", ""},
		"WebSocket, client gone":          {upgrade, ""},
	}
	once := func(claim, send, want string) {
		c, err := net.DialTimeout("tcp", gatewayAddr, time.Second)
		if err != nil {
			t.Errorf("%s: %v", claim, err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, send)
		if want == "" {
			_ = c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
			_, _ = c.Read(make([]byte, 100))
			return
		}
		r := bufio.NewReader(c)
		line, err := r.ReadString('\n')
		for ; strings.HasPrefix(line, "HTTP/1.1 103 "); line, err = r.ReadString('\n') {
			for line != "\r\n" && err == nil {
				line, err = r.ReadString('\n')
			}
		}
		rest := make([]byte, 1000)
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, _ := io.ReadFull(r, rest)
		if !strings.HasPrefix(line, want) || strings.Contains(string(rest[:n]), "hidden") {
			t.Errorf("%s: %q, %v, and then %q, want %q", claim, line, err, rest[:n], want)
		}
	}
	if err := visit(t.Context(), visitor(false), "http://"+gatewayAddr+"/a"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	files, goroutines := s.openFiles(), s.goroutines()
	const times = 5
	s.besiege(t, func(context.Context) {
		for range times {
			for claim, test := range tests {
				once(claim, test.send, test.want)
			}
		}
	})
	const slack, patience = 12, 20 * time.Second // for connections that are kept, and those for the metrics
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		nowFiles, now := s.openFiles(), s.goroutines()
		if nowFiles <= files+slack && now <= goroutines+slack && s.metric("portolan_gateway_requests_under_way") == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d files and %d goroutines before, %d and %d after; %d requests under way",
				files, goroutines, nowFiles, now, s.metric("portolan_gateway_requests_under_way"))
		}
	}
}
