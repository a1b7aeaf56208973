package gateway

import (
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/bench/gateway/calls"
	"portolan.dev/portolan/bench/rig"
)

// TestCalls checks what the caller measures, and that the backend and the library's proxy answer it.
func TestCalls(t *testing.T) {
	b := &bench{settings: &settings{connections: 4, rate: 200, duration: 200 * time.Millisecond}, dir: t.TempDir()}
	workshop, err := rig.NewWorkshop(t.Context(), nil, b.dir)
	if err != nil {
		t.Fatal(err)
	}
	var stop func()
	if b.backend, stop, err = startBackend(t.Context(), workshop, "backend"); err != nil {
		t.Fatal(err)
	}
	defer stop()
	server := startReverse(t, b, workshop, b.plain())
	processes, err := server.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]netip.AddrPort{"backend": netip.MustParseAddrPort(b.backend), "proxy": server.DNS} {
		config := calls.Config{
			Target: to, Request: request(smallSize), Connections: b.connections, Rate: b.rate,
			Warm: 50 * time.Millisecond, Duration: b.duration, Processes: processes,
		}
		r, err := calls.Run(&config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := int(b.duration.Seconds() * float64(b.rate)); r.Answered > 2*want || r.Answered < want/2 {
			t.Errorf("%s: %d requests at a fixed rate, want about %d", name, r.Answered, want)
		}
		if r.P50 <= 0 || r.P99 < r.P50 || (name == "proxy") != (r.ServerTime > time.Millisecond) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	bad := calls.Config{
		Target: server.DNS, Request: calls.Request(host, "/nothing"), Connections: 1, Duration: b.duration, Processes: processes,
	}
	if _, err := calls.Run(&bad); err == nil || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("a path without a size: %v, want status 404", err)
	}
}

// startReverse starts the library's proxy as a group has it.
func startReverse(t *testing.T, b *bench, w *rig.Workshop, g *group) *rig.Server {
	t.Helper()
	e, err := b.entrant(t.Context(), w, g, reverse)
	if err != nil {
		t.Fatal(err)
	}
	server, err := b.start(t.Context(), g, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

// TestRPC checks that calls and messages of a stream pass the library's proxy and are measured.
func TestRPC(t *testing.T) {
	b := &bench{settings: &settings{clients: 10, duration: 2 * time.Second}, dir: t.TempDir()}
	workshop, err := rig.NewWorkshop(t.Context(), nil, b.dir)
	if err != nil {
		t.Fatal(err)
	}
	var stop func()
	if b.rpcBackend, stop, err = startBackend(t.Context(), workshop, "rpcbackend"); err != nil {
		t.Fatal(err)
	}
	defer stop()
	g := b.rpc()
	server := startReverse(t, b, workshop, g)
	for name, load := range map[string]calls.Config{"unary": g.small, "stream": g.large} {
		load.Target, load.Duration = server.DNS, b.duration
		if load.Processes, err = server.Processes(); err != nil {
			t.Fatal(err)
		}
		r, err := calls.Run(&load)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Answered < load.Connections || r.ServerTime <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestMarkdown checks a table of known figures.
func TestMarkdown(t *testing.T) {
	result := func(micros int) *calls.Result {
		return &calls.Result{
			Answered: 100, Elapsed: time.Second, ServerTime: time.Duration(100*micros) * time.Microsecond,
			P50: time.Millisecond, P99: time.Duration(micros) * time.Millisecond,
		}
	}
	of := func(micros int) []*sample {
		return []*sample{{small: result(micros), large: result(micros), steady: result(micros), memory: 40, idle: float64(micros)}}
	}
	b := &bench{
		settings: &settings{rounds: 1, duration: time.Second, rate: 100, routes: 5000},
		few:      []*changed{{holds: holds{30, 10}, took: []time.Duration{time.Millisecond}}},
		many:     []*changed{{holds: holds{61, 30}, took: []time.Duration{2 * time.Millisecond, 3 * time.Millisecond}}},
	}
	b.fewHosts = []*secured{{holds: holds{30, 10}, ready: time.Second}}
	b.manyHosts = []*secured{{holds: holds{80, 50}, ready: 3 * time.Second}}
	b.groups = []*group{b.plain(), b.secure(), b.rpc(), b.tcp()}
	b.groups[0].entrants = []*entrant{{name: portolan, version: "1"}, {name: reverse}, {name: nginx, version: "2"}}
	b.groups[0].samples = map[string][]*sample{portolan: of(20), reverse: of(50), nginx: of(9)}
	b.groups[1].entrants = []*entrant{{name: portolan}, {name: haproxy}}
	b.groups[1].samples = map[string][]*sample{portolan: of(500), haproxy: of(1000)}
	b.groups[2].entrants = []*entrant{{name: portolan}, {name: reverse}}
	b.groups[2].samples = map[string][]*sample{portolan: of(50), reverse: of(100)}
	b.groups[3].entrants = []*entrant{{name: portolan}}
	b.groups[3].samples = map[string][]*sample{portolan: {{large: result(500)}}}
	text := b.markdown()
	for _, want := range []string{
		"| requests per CPU-second, divided by ReverseProxy's | 2.50 (2.50 to 2.50) | ≥ 2.40 | met |\n",
		"| by nginx' | 0.45 (0.45 to 0.45) | ≥ 0.50 | missed |\n",
		"| p99 at a fixed rate, divided by nginx' | 2.22 (2.22 to 2.22) | ≤ 2.00 | missed |\n",
		"| resident memory with 5000 routes, MiB | 61.0 (61.0 to 61.0) | ≤ 60.0 | missed |\n",
		"| calls of gRPC per CPU-second, divided by ReverseProxy's | 2.00 (2.00 to 2.00) | ≥ 1.70 | met |\n",
		"| portolan | 2000 (2000 to 2000) |  | 0.10 ",
		"| haproxy | 1000 (1000 to 1000) | 0.50 (0.50 to 0.50) | 1000 ",
		"| from start until ready, s | 1.0 (1.0 to 1.0) | 3.0 (3.0 to 3.0) |\n",
		"| p99, ms | 1.0 (1.0 to 1.0) | 3.0 (3.0 to 3.0) |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "Caddy") {
		t.Error("the table compares with what was not measured")
	}
}

// TestSecureCalls checks that each request over TLS has a full handshake.
func TestSecureCalls(t *testing.T) {
	c, err := newCertificate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(c.file, c.file)
	if err != nil {
		t.Fatal(err)
	}
	var full, resumed atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "0")
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, VerifyConnection: func(s tls.ConnectionState) error {
		if s.DidResume {
			resumed.Add(1)
		} else {
			full.Add(1)
		}
		return nil
	}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	config := calls.Config{
		Target: netip.MustParseAddrPort(server.Listener.Addr().String()), Request: request(smallSize), Connections: 2,
		Secure: c.secure, Fresh: true, Duration: 100 * time.Millisecond, Processes: []int{os.Getpid()},
	}
	r, err := calls.Run(&config)
	if err != nil {
		t.Fatal(err)
	}
	if n := int(full.Load()); r.Answered == 0 || n < r.Answered || n > r.Answered+config.Connections || resumed.Load() > 0 {
		t.Errorf("%d requests with %d full handshakes and %d resumptions, want as many full ones", r.Answered, n, resumed.Load())
	}
	config.Secure = &calls.Secure{Host: "other.example", Roots: c.secure.Roots}
	if err := config.Once(); err == nil {
		t.Error("a certificate of another host is accepted")
	}
}

// TestGroups checks that the gateway passes the requests of each group.
func TestGroups(t *testing.T) {
	const clients = 2
	b := &bench{
		settings: &settings{
			connections: clients, rate: 100, secured: clients, clients: clients, streams: clients,
			duration: 100 * time.Millisecond,
		},
		log: slog.New(slog.DiscardHandler), dir: t.TempDir(),
	}
	workshop, err := rig.NewWorkshop(t.Context(), b.log, b.dir)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := b.prepare(t.Context(), workshop)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, g := range b.groups {
		b.fill(t.Context(), workshop, g, []string{portolan})
		if err := b.measureGroup(t.Context(), g, 0); err != nil {
			t.Error(err)
		}
		if n := len(g.samples[portolan]); n != 1 {
			t.Errorf("%s: %d samples, want 1", g.name, n)
		}
	}
}

// TestCertificates checks that the gateway has the last of its certificates when it is ready.
func TestCertificates(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	workshop, err := rig.NewWorkshop(t.Context(), nil, b.dir)
	if err != nil {
		t.Fatal(err)
	}
	if b.portolan, err = workshop.Program(t.Context(), portolan); err != nil {
		t.Fatal(err)
	}
	const certificates = 70 // two ListenerSets
	s, err := b.secureHosts(t.Context(), certificates)
	if err != nil {
		t.Fatal(err)
	}
	if s.ready <= 0 || s.own <= 0 || s.resident <= s.own {
		t.Errorf("secureHosts(%d) = %+v", certificates, s)
	}
}
