// Package admin is the HTTP server for those who run the DNS server: health,
// readiness, metrics, dumps and profiles.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// Config is what a Server is made from.
type Config struct {
	Listen netip.AddrPort
	// Socket is the path of a Unix socket, in the place of Listen; what is left of
	// one there is removed.
	Socket string
	// Control sets the socket up before it is bound, see net.ListenConfig; nil does
	// nothing.
	Control func(network, address string, c syscall.RawConn) error
	// ProbesOnly leaves out all but health, readiness and metrics, and puts them
	// where CoreDNS has them, so that what asks for those there need not change.
	ProbesOnly bool
	// Ready says in words what is missing until the server is ready, nothing
	// when it is; and what else is not as it should be.
	Ready func() (missing, remarks []string)
	// Metrics answers /metrics.
	Metrics http.Handler
	// Dumps are further pages, written anew for each request.
	Dumps []Dump
	// PProf gives profiles to everybody who can connect; else only loopback
	// has them.
	PProf bool
	Log   *slog.Logger
}

// Dump is a page with all that there is of something.
type Dump struct {
	Path, ContentType string
	Write             func(io.Writer) error
}

// Server serves on a bound socket.
type HTTPServer struct {
	listener net.Listener
	http     http.Server
	// dumping holds a token while a dump is made: each takes memory for all
	// that there is.
	dumping chan struct{}
}

// Times that a client may take. Profiles last 30 s unless asked otherwise.
const (
	headerTimeout = 5 * time.Second
	writeTimeout  = 2 * time.Minute
	drainTimeout  = time.Second
)

// Listen binds the socket and begins nothing. Its error names the address.
func Listen(ctx context.Context, cfg Config) (*HTTPServer, error) {
	lc := net.ListenConfig{Control: cfg.Control}
	network, address := "tcp", cfg.Listen.String()
	if cfg.Socket != "" {
		network, address = "unix", cfg.Socket
		removeSocket(cfg.Socket)
	}
	l, err := lc.Listen(ctx, network, address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("listen on %s (admin): %w", address, err)
	}
	s := &HTTPServer{listener: l, dumping: make(chan struct{}, 1)}
	s.http = http.Server{
		Handler:           s.routes(&cfg),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// removeSocket removes the socket that a process left which was killed; what is no
// socket stays, and is in the way.
func removeSocket(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path) // binding says what is wrong
	}
}

// Addr is the address that is listened on, or the path of the socket.
func (s *HTTPServer) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx is done, and returns nil after that, or the error that
// ended it.
func (s *HTTPServer) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if s.http.Shutdown(drain) != nil {
			s.http.Close()
		}
	})
	err := s.http.Serve(s.listener)
	if stop() {
		return fmt.Errorf("admin: %w", err)
	}
	<-stopped
	return nil
}

// Close gives the socket back when Run is never called.
func (s *HTTPServer) Close() { s.listener.Close() }

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
	for _, dump := range cfg.Dumps {
		mux.Handle("GET "+dump.Path, s.dump(dump.ContentType, dump.Write))
		paths = append(paths, dump.Path)
	}
	paths = append(paths, "/debug/pprof/")
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, strings.Join(paths, "\n")) })
	profile := func(h http.HandlerFunc) http.HandlerFunc {
		if cfg.PProf {
			return h
		}
		return onLoopback(h)
	}
	mux.HandleFunc("GET /debug/pprof/", profile(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/cmdline", profile(pprof.Cmdline))
	mux.HandleFunc("GET /debug/pprof/profile", profile(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/symbol", profile(pprof.Symbol))
	mux.HandleFunc("GET /debug/pprof/trace", profile(pprof.Trace))
	return mux
}

// dump answers with what write writes; one dump at a time.
func (s *HTTPServer) dump(contentType string, write func(io.Writer) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case s.dumping <- struct{}{}:
			defer func() { <-s.dumping }()
		default:
			http.Error(w, "another dump is being made", http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_ = write(w) // the client has gone, and nobody is there to be told
	})
}

// onLoopback refuses clients on other hosts.
func onLoopback(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		client, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !client.Addr().Unmap().IsLoopback() {
			http.Error(w, "profiles are given on loopback only, unless admin.pprof is set", http.StatusForbidden)
			return
		}
		h(w, r)
	}
}
