// Package httpserver serves HTTP to clients that may be slow, many or hostile: connections
// are entries of an account, and each step of a request has a timeout.
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"portolan.dev/portolan/internal/support/budget"
)

// Config configures a Server.
type Config struct {
	// Name says what is served, for errors.
	Name   string
	Listen netip.AddrPort
	// Socket is the path of a Unix socket to use instead of Listen. An old socket at the
	// path is removed.
	Socket string
	// Program names the program in the header field Server (RFC 9110, section 10.2.4). Its
	// processes of the same user share the address, so that one can replace another, and it is not
	// shared with other programs. Empty shares with none.
	Program string
	// Connections are those of this server, and of others that share the account.
	Connections *budget.Account
	Handler     http.Handler
	// TLS, if not nil, also serves connections that begin with TLS. The others are served as before.
	TLS *tls.Config
	// Timeout is for receiving a request, and for its response.
	Timeout time.Duration
	Log     *slog.Logger
}

// Server serves on a bound socket.
type Server struct {
	name     string
	listener net.Listener
	http     *http.Server
}

// The other bounds of requests.
const (
	headerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
	drainTimeout  = time.Second
	maxHeader     = 16 << 10 // in octets
)

// Listen binds the socket and starts nothing. Its error names the address.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	var l net.Listener
	var err error
	address := cfg.Listen.String()
	if cfg.Socket != "" {
		address = cfg.Socket
		removeSocket(cfg.Socket)
		l, err = new(net.ListenConfig).Listen(ctx, "unix", address)
	} else {
		l, err = listenTCP(ctx, address, cfg.Program)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s (%s): %w", address, cfg.Name, reason(err))
	}
	l = cfg.Connections.Listener(l)
	if cfg.TLS != nil {
		l = mix(l, cfg.TLS)
	}
	return &Server{name: cfg.Name, listener: l, http: New(cfg)}, nil
}

// reason returns an error of listening without the address.
func reason(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// removeSocket removes the socket of a process that was killed. It leaves other files, with
// which binding fails.
func removeSocket(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path) // binding reports the error
	}
}

// Addr returns the address on which it listens, or the path of the socket.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx is done, and then returns nil. It returns an error if serving ends
// earlier.
func (s *Server) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		Drain(s.http)
	})
	err := s.http.Serve(s.listener)
	if stop() {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	<-stopped
	return nil
}

// Close closes the socket, if Run is not called.
func (s *Server) Close() { s.listener.Close() }

// New returns a server with the handler, the timeout and the log of cfg, for listeners that
// the caller has. A connection that has a request is busy in the accounts of its listener, see
// budget.Use.
func New(cfg Config) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
				defer budget.Use(conn)()
			}
			if cfg.Program != "" {
				w.Header().Set("Server", cfg.Program)
			}
			defer logPanic(cfg.Log, r)
			cfg.Handler.ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ReadHeaderTimeout: min(headerTimeout, cfg.Timeout),
		ReadTimeout:       cfg.Timeout,
		WriteTimeout:      cfg.Timeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
}

// logPanic logs that a handler panics, and has the connection closed.
func logPanic(log *slog.Logger, r *http.Request) {
	what := recover()
	if what == nil {
		return
	}
	if err, ok := what.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		log.Error("a request failed by a fault of this program; please report it", "path", r.URL.Path, "fault", what,
			"stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// connKey is the context key of a request's connection.
type connKey struct{}

// Drain closes the listeners of a server, lets the requests in progress complete for a second
// and closes the connections.
func Drain(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}
