package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/budget"
)

// settings returns a Config with all dumps.
func settings() Config {
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	return Config{
		Listen:      netip.MustParseAddrPort("127.0.0.1:0"),
		Connections: budget.NewAccount("admin", budget.Limits{Total: 2, PerSource: 2}),
		Ready:       func() (missing, remarks []string) { return nil, nil },
		Metrics:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") }),
		Dumps: []Dump{
			{"/debug/zone", "text/dns; charset=utf-8", text("zone")}, {"/debug/model", "application/json", text("model")},
		},
		DebugPages: map[string]http.Handler{
			"/debug/lines": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.RawQuery) }),
		},
		Actions: []Action{{"/cache/flush", func(q url.Values) (string, error) {
			if q.Get("name") == "" {
				return "", errors.New("the parameter name is missing")
			}
			return "removed " + q.Get("name"), nil
		}}},
		Log: slog.New(slog.DiscardHandler),
	}
}

// request sends a request from a client address.
func request(cfg Config, client, method, path string) (status int, body string) {
	s := &HTTPServer{dumping: make(chan struct{}, 1)}
	r := httptest.NewRequest(method, path, nil)
	r.Host = "localhost"
	r.RemoteAddr = client
	w := httptest.NewRecorder()
	s.routes(&cfg).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	const near, mapped, far = "127.0.0.1:1", "[::ffff:127.0.0.1]:1", "192.0.2.1:1"
	waits := func(c *Config) {
		c.Ready = func() (missing, remarks []string) { return []string{"Pods are not loaded", "stopping"}, nil }
	}
	stale := func(c *Config) {
		c.Ready = func() (missing, remarks []string) { return nil, []string{"Pods are stale"} }
	}
	profiles, dumps := func(c *Config) { c.PProf = true }, func(c *Config) { c.Debug = true }
	probes := func(c *Config) { c.ProbesOnly = true }
	probesWait := func(c *Config) { probes(c); waits(c) }
	views := func(c *Config) { c.Views = map[string]http.Handler{"/api/v1/overview": c.Metrics} }
	for claim, test := range map[string]struct {
		change       func(*Config)
		client       string
		method, path string
		status       int
		words        string
	}{
		"a view":                         {views, near, "GET", "/api/v1/overview", 200, "metrics"},
		"a view that is not there":       {views, near, "GET", "/api/v1/top", 404, `{"absent":true,"error":"this process has no \"/api/v1/top\"; GET / lists the paths that it has"}`},
		"a view that is not there, far":  {views, far, "GET", "/api/v1/top", 403, ""},
		"alive":                          {nil, far, "GET", "/healthz", 200, "ok\n"},
		"alive while it is not ready":    {waits, far, "GET", "/healthz", 200, "ok\n"},
		"ready":                          {nil, far, "GET", "/readyz", 200, "ok\n"},
		"the list of paths":              {nil, far, "GET", "/", 200, "/debug/zone\n"},
		"an unknown path":                {nil, far, "GET", "/other", 404, ""},
		"ready, but stale":               {stale, far, "GET", "/readyz", 200, "ok\nPods are stale\n"},
		"not ready, in words":            {waits, far, "GET", "/readyz", 503, "Pods are not loaded\nstopping\n"},
		"metrics":                        {nil, far, "GET", "/metrics", 200, "metrics"},
		"alive, as CoreDNS is":           {probes, far, "GET", "/health", 200, "ok\n"},
		"ready, as CoreDNS is":           {probes, far, "GET", "/ready", 200, "ok\n"},
		"not ready, as CoreDNS is not":   {probesWait, far, "GET", "/ready", 503, "Pods are not loaded\nstopping\n"},
		"metrics beside probes":          {probes, far, "GET", "/metrics", 200, "metrics"},
		"no records beside probes":       {probes, near, "GET", "/debug/zone", 404, ""},
		"no profiles beside probes":      {probes, near, "GET", "/debug/pprof/cmdline", 404, ""},
		"the records":                    {nil, near, "GET", "/debug/zone", 200, "zone"},
		"the objects":                    {nil, near, "GET", "/debug/model", 200, "model"},
		"the records, far":               {nil, far, "GET", "/debug/zone", 403, "admin.debug"},
		"the records, far, with debug":   {dumps, far, "GET", "/debug/zone", 200, "zone"},
		"a page for operators":           {nil, near, "GET", "/debug/lines?follow", 200, "follow"},
		"a page for operators, far":      {nil, far, "GET", "/debug/lines", 403, "admin.debug"},
		"such a page, far, with debug":   {dumps, far, "GET", "/debug/lines?follow", 200, "follow"},
		"no such page beside probes":     {probes, near, "GET", "/debug/lines", 404, ""},
		"a profile, near":                {nil, near, "GET", "/debug/pprof/cmdline", 200, ""},
		"a profile, near in IPv6":        {nil, "[::1]:1", "GET", "/debug/pprof/cmdline", 200, ""},
		"a profile, near as IPv4-mapped": {nil, mapped, "GET", "/debug/pprof/cmdline", 200, ""},
		"a profile, far":                 {nil, far, "GET", "/debug/pprof/cmdline", 403, "admin.pprof"},
		"the list of profiles, far":      {nil, far, "GET", "/debug/pprof/", 403, "admin.pprof"},
		"a profile, far, with pprof":     {profiles, far, "GET", "/debug/pprof/cmdline", 200, ""},
		"an unknown path below debug":    {nil, near, "GET", "/debug", 404, ""},
		"a write method":                 {nil, near, "POST", "/debug/zone", 405, ""},
		"an action":                      {nil, near, "POST", "/cache/flush?name=a.example", 200, "removed a.example\n"},
		"an action that is refused":      {nil, near, "POST", "/cache/flush", 400, "the parameter name is missing\n"},
		"an action is no page":           {nil, near, "GET", "/cache/flush?name=a.example", 405, ""},
		"an action, far":                 {nil, far, "POST", "/cache/flush?name=a.example", 403, "loopback only"},
		"an action, far, with debug":     {dumps, far, "POST", "/cache/flush?name=a.example", 403, "loopback only"},
		"no actions beside probes":       {probes, near, "POST", "/cache/flush?name=a.example", 404, ""},
		"health for a probe by its HEAD": {nil, near, "HEAD", "/healthz", 200, ""},
	} {
		cfg := settings()
		if test.change != nil {
			test.change(&cfg)
		}
		status, body := request(cfg, test.client, test.method, test.path)
		if status != test.status || !strings.Contains(body, test.words) {
			t.Errorf("%s: %s %s: %d %q, want %d and %q", claim, test.method, test.path, status, body, test.status, test.words)
		}
	}
}

// TestOneDumpAtATime verifies that a second dump is refused while one is in progress.
func TestOneDumpAtATime(t *testing.T) {
	t.Parallel()
	cfg := settings()
	begun, goOn := make(chan struct{}), make(chan struct{})
	cfg.Dumps[0].Write = func(io.Writer) error { close(begun); <-goOn; return nil }
	s := &HTTPServer{dumping: make(chan struct{}, 1)}
	routes := s.routes(&cfg)
	status := func(path string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost"
		r.RemoteAddr = "127.0.0.1:1"
		routes.ServeHTTP(w, r)
		return w.Code
	}
	first := make(chan int)
	go func() { first <- status("/debug/zone") }()
	<-begun
	if got := status("/debug/model"); got != http.StatusTooManyRequests {
		t.Errorf("a second dump: %d, want %d", got, http.StatusTooManyRequests)
	}
	close(goOn)
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first dump: %d", got)
	}
	if got := status("/debug/model"); got != http.StatusOK {
		t.Errorf("a dump after that: %d", got)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	s, err := Listen(t.Context(), settings())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	answer, err := http.Get("http://" + s.Addr() + "/healthz")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("GET /healthz: %v, %v", answer, err)
	}
	answer.Body.Close()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Run does not end")
	}
	again, err := Listen(t.Context(), Config{Connections: settings().Connections, Listen: netip.MustParseAddrPort(s.Addr()), Log: slog.New(slog.DiscardHandler), Metrics: http.NotFoundHandler()})
	if err != nil {
		t.Fatalf("its address is not free: %v", err)
	}
	again.Close()
	if err := again.Run(t.Context()); err == nil {
		t.Error("Run on a closed socket: no error")
	}
}

func TestListenTaken(t *testing.T) {
	t.Parallel()
	s, err := Listen(t.Context(), settings())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cfg := settings()
	cfg.Listen = netip.MustParseAddrPort(s.Addr())
	_, err = Listen(t.Context(), cfg)
	if err == nil || !strings.HasPrefix(err.Error(), "listen on "+s.Addr()+" (admin): ") || errors.Unwrap(err) == nil {
		t.Errorf("Listen on a taken address: %v", err)
	}
}

// TestSocket verifies that an HTTPServer replaces the Unix socket of a process that was
// killed, and no other file.
func TestSocket(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.ProbesOnly, cfg.Socket = true, filepath.Join(t.TempDir(), "probes")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: cfg.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	s, err := Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.Addr())
	}}}
	answer, err := client.Get("http://probes/ready")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("GET /ready = %v, %v", answer, err)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(cfg.Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), cfg); err == nil {
		t.Error("Listen replaces a file that is not a socket, want an error")
	}
}

// TestIdleConnections checks that connections that are kept open do not keep others out.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	cfg := settings()
	s, err := Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for range 10 {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + s.Addr() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := cfg.Connections.Stats(); got.Used > 2 || got.SourceFull < 8 {
		t.Errorf("figures %+v, want 2 connections at most and 8 closed", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestHostOfDumps verifies that a web page whose name leads to loopback does not get a dump.
func TestHostOfDumps(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.Dumps = []Dump{{"/debug/x", "text/plain", func(io.Writer) error { return nil }}}
	for host, want := range map[string]int{
		"127.0.0.1:9153": http.StatusOK, "[::1]:9153": http.StatusOK, "localhost:9153": http.StatusOK, "localhost": http.StatusOK,
		"www.example.com:9153": http.StatusForbidden, "localhost.example.com": http.StatusForbidden,
	} {
		s := &HTTPServer{dumping: make(chan struct{}, 1)}
		r := httptest.NewRequest(http.MethodGet, "/debug/x", http.NoBody)
		r.RemoteAddr, r.Host = "127.0.0.1:1", host
		w := httptest.NewRecorder()
		s.routes(&cfg).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("GET /debug/x of host %s: status %d, want %d", host, w.Code, want)
		}
	}
}

// TestActionsOfWebPages verifies that a web page of another origin cannot have a browser on
// this host request an action.
func TestActionsOfWebPages(t *testing.T) {
	t.Parallel()
	cfg := settings()
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://www.example.com"} {
		s := &HTTPServer{dumping: make(chan struct{}, 1)}
		r := httptest.NewRequest(http.MethodPost, "/cache/flush?name=a.example", http.NoBody)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		s.routes(&cfg).ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("with %s: %s: status %d, want 403", header, value, w.Code)
		}
	}
}

// TestDebugOfWebPages verifies that a web page of another site cannot have a browser on this host, or one that
// reaches an open port, request a dump or start a profile, and that an operator can.
func TestDebugOfWebPages(t *testing.T) {
	t.Parallel()
	for site, want := range map[string]int{
		"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden,
		"same-origin": http.StatusOK, "none": http.StatusOK,
	} {
		for _, path := range []string{"/debug/zone", "/debug/lines", "/debug/pprof/", "/debug/pprof/cmdline"} {
			for client, open := range map[string]bool{"127.0.0.1:1": false, "192.0.2.1:1": true} {
				cfg := settings()
				cfg.Debug, cfg.PProf = open, open
				s := &HTTPServer{dumping: make(chan struct{}, 1)}
				r := httptest.NewRequest(http.MethodGet, path+"?x", http.NoBody)
				r.RemoteAddr, r.Host = client, "localhost"
				r.Header.Set("Sec-Fetch-Site", site)
				w := httptest.NewRecorder()
				s.routes(&cfg).ServeHTTP(w, r)
				if w.Code != want {
					t.Errorf("GET %s of %s with Sec-Fetch-Site: %s: status %d, want %d", path, client, site, w.Code, want)
				}
			}
		}
	}
}
