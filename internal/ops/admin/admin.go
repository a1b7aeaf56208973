// Package admin is the HTTP server for operators: health, readiness, metrics, dumps and
// profiles.
package admin

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/ops/access"
	"portolan.dev/portolan/internal/ops/web"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/httpserver"
)

// Config configures an HTTPServer.
type Config struct {
	Listen netip.AddrPort
	// Socket is the path of a Unix socket to use instead of Listen. An old socket at the
	// path is removed.
	Socket string
	// Program is whose processes share the address, see httpserver.Config.
	Program string
	// ProbesOnly serves only health, readiness and metrics, at the paths of CoreDNS, so
	// that probes made for CoreDNS need not change.
	ProbesOnly bool
	// Connections are those of all admin servers of a process.
	Connections *budget.Account
	// Ready returns what is missing until the server is ready, none if it is, and remarks
	// about other problems.
	Ready func() (missing, remarks []string)
	// Metrics answers /metrics.
	Metrics http.Handler
	// Dumps are additional pages, generated for each request.
	Dumps []Dump
	// Actions are changes that clients on loopback may request.
	Actions []Action
	// Pages are additional pages for all clients, by path.
	Pages map[string]http.Handler
	// DebugPages are additional pages, by path, for the clients that dumps are for. They may
	// take as long as they need.
	DebugPages map[string]http.Handler
	// Site is the page for operators; nil has none.
	Site *web.Site
	// Views are what the page reads, by path, and Guard decides who may; nil lets in clients on loopback
	// only.
	Views map[string]http.Handler
	Guard *access.Guard
	// TLS, if not nil, also serves connections that begin with TLS.
	TLS *tls.Config
	// Debug serves the dumps and debug pages, and PProf profiles, to all clients instead of to those on
	// loopback only.
	Debug, PProf bool
	Log          *slog.Logger
}

// Dump is a page with the complete content of a data structure.
type Dump struct {
	Path, ContentType string
	Write             func(io.Writer) error
}

// Action is a change that a client requests with POST. Only clients on loopback may, whatever
// the settings are, and no web page of another origin.
type Action struct {
	Path string
	// Do makes the change and returns what it did, for the client. An error is one of the
	// request.
	Do func(url.Values) (string, error)
}

// HTTPServer serves on a bound socket.
type HTTPServer struct {
	server *httpserver.Server
	// dumping has a token while a dump is written: a dump uses memory in proportion to the
	// model, so only one runs at a time.
	dumping chan struct{}
}

// timeout is for receiving a request, and for its response. A profile takes 30 s by default.
const timeout = 2 * time.Minute

// Listen binds the socket and starts nothing. Its error names the address.
func Listen(ctx context.Context, cfg Config) (*HTTPServer, error) {
	s := &HTTPServer{dumping: make(chan struct{}, 1)}
	server, err := httpserver.Listen(ctx, httpserver.Config{
		Name: "admin", Listen: cfg.Listen, Socket: cfg.Socket, Program: cfg.Program, Connections: cfg.Connections,
		Handler: s.routes(&cfg), TLS: cfg.TLS, Timeout: timeout, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	s.server = server
	return s, nil
}

// Addr returns the address on which it listens, or the path of the socket.
func (s *HTTPServer) Addr() string { return s.server.Addr() }

// Run serves until ctx is done, and then returns nil. It returns an error if serving ends
// earlier.
func (s *HTTPServer) Run(ctx context.Context) error { return s.server.Run(ctx) }

// Close closes the socket, if Run is not called.
func (s *HTTPServer) Close() { s.server.Close() }

func (s *HTTPServer) routes(cfg *Config) http.Handler {
	mux := http.NewServeMux()
	health, ready := "/healthz", "/readyz"
	if cfg.ProbesOnly {
		health, ready = "/health", "/ready"
	}
	mux.HandleFunc("GET "+health, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET "+ready, func(w http.ResponseWriter, _ *http.Request) {
		missing, remarks := cfg.Ready()
		if len(missing) > 0 {
			http.Error(w, strings.Join(append(missing, remarks...), "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, strings.Join(append([]string{"ok"}, remarks...), "\n"))
	})
	mux.Handle("GET /metrics", cfg.Metrics)
	if cfg.ProbesOnly {
		return mux
	}
	paths := []string{health, ready, "/metrics"}
	for _, path := range slices.Sorted(maps.Keys(cfg.Pages)) {
		mux.Handle("GET "+path, cfg.Pages[path])
		paths = append(paths, path)
	}
	for _, path := range slices.Sorted(maps.Keys(cfg.DebugPages)) {
		mux.Handle("GET "+path, restrict(cfg.Debug, debugKey, cfg.DebugPages[path]))
		paths = append(paths, path)
	}
	for _, dump := range cfg.Dumps {
		mux.Handle("GET "+dump.Path, restrict(cfg.Debug, debugKey, s.dump(dump.ContentType, dump.Write)))
		paths = append(paths, dump.Path)
	}
	origins := http.NewCrossOriginProtection()
	for _, action := range cfg.Actions {
		mux.Handle(
			"POST "+action.Path,
			onLoopback(origins.Handler(act(action.Do)), "this is done for clients on loopback only"),
		)
	}
	paths = append(append(paths, addViews(mux, cfg)...), "/debug/pprof/")
	mux.HandleFunc("GET /{$}", root(cfg.Site, paths))
	profile := func(h http.HandlerFunc) http.Handler { return restrict(cfg.PProf, "admin.pprof", h) }
	mux.Handle("GET /debug/pprof/", profile(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", profile(pprof.Cmdline))
	mux.Handle("GET /debug/pprof/profile", profile(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", profile(pprof.Symbol))
	mux.Handle("GET /debug/pprof/trace", profile(pprof.Trace))
	return mux
}

// dump responds with what write writes, one dump at a time.
func (s *HTTPServer) dump(contentType string, write func(io.Writer) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case s.dumping <- struct{}{}:
			defer func() { <-s.dumping }()
		default:
			http.Error(w, "another dump is in progress", http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_ = write(w) // it fails if the client closed the connection
	})
}

// debugKey is the key of the configuration that serves dumps to all clients.
const debugKey = "admin.debug"

// restrict serves h to clients on loopback only, unless the key of the configuration that
// serves it to all is set. Web pages of other sites cannot have a browser request it in either case.
func restrict(all bool, key string, h http.Handler) http.Handler {
	h = access.RefuseForeign(h)
	if all {
		return h
	}
	return onLoopback(h, "this page is served on loopback only, unless "+key+" is set")
}

// act responds with what do returns.
func act(do func(url.Values) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, err := do(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, done)
	})
}

// onLoopback serves h to clients on loopback only, and a refusal to others.
func onLoopback(h http.Handler, refusal string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !access.OnLoopback(r) {
			http.Error(w, refusal, http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
