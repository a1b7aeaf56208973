// Package tlsfront chooses the certificates of TLS connections by a gateway's table (RFC 6066, section 3;
// Gateway API v1, Listener.hostname).
//
//	h1.Server ──► Front.At: has the socket TLS? ──► ClientHello ──► table.Port ──► certificate
//
// The table is that of the moment: a handshake gets what is current, and connections that are open stay.
package tlsfront

import (
	"crypto/tls"
	"log/slog"
	"sync/atomic"

	"portolan.dev/portolan/internal/gateway/table"
)

// Config is what a Front needs.
type Config struct {
	// Table returns the current table, nil before the first.
	Table func() *table.Table
	// Default returns the certificate for hosts of Ingresses that have none; nil for none.
	Default func() *tls.Certificate
	// MinVersion is the lowest version of TLS, 0 for 1.2; Suites are those of TLS 1.2, nil for Suites().
	MinVersion uint16
	Suites     []uint16
	Log        *slog.Logger // nil for none
}

// Front has the certificates of all sockets.
type Front struct {
	cfg     Config
	tickets tickets
	staples atomic.Pointer[staples]
}

// New returns a Front.
func New(cfg Config) *Front {
	if cfg.Default == nil {
		cfg.Default = func() *tls.Certificate { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MinVersion == 0 {
		cfg.MinVersion = tls.VersionTLS12
	}
	if cfg.Suites == nil {
		cfg.Suites = Suites()
	}
	return &Front{cfg: cfg}
}

// refused is the configuration of handshakes for names that have no certificate: they end with the alert
// unrecognized_name, also if the client resumes a session.
var refused = &tls.Config{SessionTicketsDisabled: true, MinVersion: tls.VersionTLS12}

// At returns a function that returns the configuration of a connection to a socket, nil as long as the socket
// has no TLS. Sessions can be resumed at the same socket, see SetTicketKeys.
func (f *Front) At(at table.Socket) func() *tls.Config {
	config := &tls.Config{
		MinVersion: f.cfg.MinVersion, CipherSuites: f.cfg.Suites, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			t := f.cfg.Table()
			_, c := f.certificate(t, at, hello)
			return f.fresh(t, c), nil
		},
	}
	// It is asked before a session is resumed, which needs no certificate of the server, and which crypto/tls refuses if
	// the client's certificate does not do any more.
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		owner, c := f.certificate(f.cfg.Table(), at, hello)
		if c == nil {
			f.cfg.Log.Debug("no certificate", "name", hello.ServerName, "client", hello.Conn.RemoteAddr())
			return refused, nil
		}
		return owner.Demand(config), nil
	}
	f.tickets.resumeAt(at, config)
	return func() *tls.Config {
		if p := port(f.cfg.Table(), at); p == nil || !p.TLS() {
			return nil
		}
		return config
	}
}

// port returns what a table, which may be nil, serves at a socket; nil if nothing is.
func port(t *table.Table, at table.Socket) *table.Port {
	if t == nil {
		return nil
	}
	return t.Port(at)
}

// certificate returns the one for a client, and whose it is; nil if there is none.
func (f *Front) certificate(
	t *table.Table,
	at table.Socket,
	hello *tls.ClientHelloInfo,
) (owner *table.Listener, c *tls.Certificate) {
	p := port(t, at)
	if p == nil {
		return nil, nil
	}
	owner, c = p.Certificate(hello)
	if c == nil && owner != nil && owner.OfIngresses() {
		c = f.cfg.Default()
	}
	return owner, c
}
