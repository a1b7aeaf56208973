package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/support/budget"
)

// ReviewServer serves reviews over HTTPS on a bound socket.
type ReviewServer struct {
	listener    net.Listener
	connections *budget.Account
	http        http.Server
	longest     time.Duration // of a request
}

// Limits of a client: to send a header, for a request apart from its review, and for an
// idle connection.
const (
	headerTimeout = 5 * time.Second
	clientTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
)

// The share of the memory limit for connections, the memory of one in octets, and the
// highest number. API servers keep a few.
const (
	connectionShare = 0.25
	connectionCost  = 64 << 10
	maxConnections  = 1000
)

// Listen binds the socket and starts nothing. Its error names the address.
func Listen(
	ctx context.Context,
	cfg Config,
	handler http.Handler,
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error),
	log *slog.Logger,
) (*ReviewServer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.Listen.String())
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("listen on %s (webhook): %w", cfg.Listen, err)
	}
	longest := cfg.Timeout + clientTimeout
	most := budget.Within(connectionShare, connectionCost, maxConnections)
	connections := budget.NewAccount("webhook", budget.Limits{Total: most, PerSource: most})
	// API servers call webhooks over HTTP/1.1 (apiserver, util/webhook, client.go).
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &ReviewServer{listener: l, connections: connections, longest: longest, http: http.Server{
		Handler:           handler,
		Protocols:         protocols,
		TLSConfig:         &tls.Config{GetCertificate: certificate, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       longest,
		WriteTimeout:      longest,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// Accounts returns the figures of the connections.
func (s *ReviewServer) Accounts() []budget.Stats { return []budget.Stats{s.connections.Stats()} }

// Addr returns the address of the socket.
func (s *ReviewServer) Addr() netip.AddrPort { return s.listener.Addr().(*net.TCPAddr).AddrPort() }

// Run serves until ctx is done, completes the requests in flight and returns nil, or
// the error that ended it before.
func (s *ReviewServer) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.longest)
		defer cancel()
		if s.http.Shutdown(drain) != nil {
			s.http.Close()
		}
	})
	err := s.http.ServeTLS(s.connections.Listener(s.listener), "", "")
	if stop() {
		return fmt.Errorf("webhook: %w", err)
	}
	<-stopped
	return nil
}

// Close closes the socket if Run is never called.
func (s *ReviewServer) Close() { s.listener.Close() }
