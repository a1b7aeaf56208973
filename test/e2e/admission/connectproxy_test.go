package admission_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// connectProxy stands between the API server and the cluster's Services: it
// takes the place of a proxy like konnectivity's, and of the Service's.
type connectProxy struct {
	path string // of its socket

	mu   sync.Mutex
	to   []string
	next int
	log  []string
}

func newConnectProxy(t *testing.T) *connectProxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "portolan-") //nolint:usetesting // short, because the path of a socket may have 108 octets
	if err != nil {
		t.Fatal(err)
	}
	p := &connectProxy{path: filepath.Join(dir, "proxy.sock")}
	l, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(conn) // ends with the API server
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

// config writes the API server's file that has it use the proxy.
func (p *connectProxy) config(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "egress.yaml")
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, p.path)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// lead sets where connections go, one after the other.
func (p *connectProxy) lead(to []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *connectProxy) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

// target is where the next connection goes, "" if there is nothing.
func (p *connectProxy) target(asked string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	target := ""
	if len(p.to) > 0 {
		p.next++
		target = p.to[p.next%len(p.to)]
	}
	p.log = append(p.log, fmt.Sprintf("%s %s → %s", time.Now().Format(time.RFC3339Nano), asked, target))
	return target
}

func (p *connectProxy) carry(client net.Conn) {
	defer client.Close()
	from := bufio.NewReader(client)
	request, err := http.ReadRequest(from)
	if err != nil || request.Method != http.MethodConnect {
		return
	}
	server, err := net.Dial("tcp", p.target(request.Host+" "+request.URL.Host))
	if err != nil {
		fmt.Fprint(client, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer server.Close()
	fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(server, from) // an error ends both ways, as the end does
		server.Close()
	}()
	_, _ = io.Copy(client, server)
}
