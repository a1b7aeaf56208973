package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
)

// tcpProxy stands between a client and a server, and does its work badly when
// it is told to.
type tcpProxy struct {
	listener net.Listener
	target   string
	// cutAfter is how many octets of the server a new connection carries until
	// it is cut; 0 is no limit.
	cutAfter atomic.Int64
	// refusing closes new connections at once.
	refusing atomic.Bool

	mu    sync.Mutex
	links map[*link]struct{}
	cuts  int
}

// link is one connection, on both sides of the proxy.
type link struct {
	client, server net.Conn
	stalled        atomic.Bool // what comes is thrown away
}

func newTCPProxy(t *testing.T, target string) *tcpProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newTCPProxyOn(t, l, target)
}

func newTCPProxyOn(t *testing.T, l net.Listener, target string) *tcpProxy {
	t.Helper()
	p := &tcpProxy{listener: l, target: target, links: make(map[*link]struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.carry(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.closeAll()
		running.Wait()
	})
	return p
}

func (p *tcpProxy) addr() string { return p.listener.Addr().String() }

// carry carries one connection until either side ends it.
func (p *tcpProxy) carry(client net.Conn) {
	defer client.Close()
	if p.refusing.Load() {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	l := &link{client: client, server: server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	go func() {
		l.copy(server, client)
		l.close()
	}()
	if limit := p.cutAfter.Load(); limit > 0 {
		l.copy(client, io.LimitReader(server, limit))
		p.mu.Lock()
		p.cuts++
		p.mu.Unlock()
	} else {
		l.copy(client, server)
	}
	l.close()
}

func (l *link) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.stalled.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

// stall makes all present connections half open: they stay, and carry nothing.
func (p *tcpProxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.stalled.Store(true)
	}
}

// closeAll ends all present connections.
func (p *tcpProxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

func (p *tcpProxy) cutSoFar() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// httpProxy passes requests on to an API server, or answers them itself.
type httpProxy struct {
	server *httptest.Server
	status atomic.Int32 // of its own responses; 0 if it passes requests on
	// refused counts the requests that got that status.
	refused atomic.Int32
}

func newHTTPProxy(t *testing.T, c *controlplane.ControlPlane) *httpProxy {
	t.Helper()
	cert, err := c.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.RESTConfig().CAData)
	next := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: c.Address()})
	next.FlushInterval = -1 // events are passed on one by one
	next.ErrorLog = log.New(io.Discard, "", 0)
	next.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	p := new(httpProxy)
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := int(p.status.Load()); status != 0 {
			p.refused.Add(1)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not now", status)
			return
		}
		next.ServeHTTP(w, r)
	}))
	p.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

func (p *httpProxy) addr() string { return p.server.Listener.Addr().String() }

// answer makes the proxy answer all requests with a status, and ends those that
// are under way.
func (p *httpProxy) answer(status int) {
	p.refused.Store(0)
	p.status.Store(int32(status))
	p.server.CloseClientConnections()
}

// awaitRefused waits until n requests were refused since the last call of answer.
func (p *httpProxy) awaitRefused(t *testing.T, n int32) {
	t.Helper()
	await.NoError(t, func() error {
		if refused := p.refused.Load(); refused < n {
			return fmt.Errorf("%d requests were refused, want %d", refused, n)
		}
		return nil
	})
}

// recover makes the proxy pass requests on again.
func (p *httpProxy) recover() { p.status.Store(0) }
