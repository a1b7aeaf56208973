package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/support/bind"
	"portolan.dev/portolan/internal/support/certfile"
	"portolan.dev/portolan/internal/support/deadline"
)

// Bind binds all addresses. It returns the served addresses as keys and values for the
// log. Its errors name the cure.
func (d *DNS) Bind(ctx context.Context) (serving []any, err error) {
	settings, cfg := &d.current.Load().settings.DNS, &d.cfg.Settings.DNS
	d.restore()
	pair, err := d.certificate()
	if err != nil {
		return nil, err
	}
	authorities, err := d.clientCAs()
	if err != nil {
		return nil, err
	}
	server, err := dnsserver.Listen(ctx, dnsserver.Config{
		Listen:         settings.Listen,
		ListenTLS:      settings.ListenTLS,
		ListenHTTPS:    settings.ListenHTTPS,
		HTTPSPath:      cfg.HTTPS.Path,
		Certificate:    pair,
		ClientCAs:      authorities,
		NewAnswerer:    d.newWorker,
		MaxConnections: cfg.TCP.MaxConnections,
		MaxInFlight:    cfg.TCP.MaxInFlight,
		MaxQueries:     cfg.TCP.MaxQueries,
		Idle:           time.Duration(cfg.TCP.Idle),
		Steering:       dnsserver.Steering(cfg.UDPSteering),
		SharePorts:     d.sharePorts,
		Log:            d.cfg.Log,
	})
	if err != nil {
		return nil, bind.WithCure(err, "--listen")
	}
	d.server.Store(server)
	if err := d.listenNotify(ctx); err != nil {
		return nil, err
	}
	return d.serving(), nil
}

// Close closes the sockets. It is for a DNS whose Run is never called.
func (d *DNS) Close() {
	if server := d.server.Load(); server != nil {
		server.Close()
	}
	if d.notify.server != nil {
		d.notify.server.Close()
	}
}

// serving returns the served addresses as keys and values for the log.
func (d *DNS) serving() (at []any) {
	listed := func(name string, addrs []netip.AddrPort) {
		if len(addrs) > 0 {
			at = append(at, name, addrs)
		}
	}
	server := d.server.Load()
	listed("listen", server.Addrs())
	at = append(at, "zones", d.cfg.Settings.DNS.Zones)
	listed("tls", server.TLSAddrs())
	listed("https", server.HTTPSAddrs())
	if d.notify.server != nil {
		listed("notify", d.notify.server.Addrs())
	}
	return at
}

// CheckFiles returns an error if the certificate or the client CAs cannot be read.
func (d *DNS) CheckFiles() error {
	if _, err := d.certificate(); err != nil {
		return err
	}
	_, err := d.clientCAs()
	return err
}

// certificate returns a function that returns the server's certificate for a handshake;
// nil if none is configured.
func (d *DNS) certificate() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	cfg := &d.cfg.Settings.DNS.TLS
	if cfg.Certificate == "" {
		return nil, nil
	}
	c, err := certfile.Open(cfg.Certificate, cfg.Key, d.cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Get(), nil }, nil
}

// clientCAs returns the CAs that sign client certificates; nil if clients are not asked
// for one.
func (d *DNS) clientCAs() (*x509.CertPool, error) {
	file := d.cfg.Settings.DNS.TLS.ClientCA
	if file == "" {
		return nil, nil
	}
	text, err := deadline.ReadFile(file, deadline.File, deadline.Small)
	if err != nil {
		return nil, fmt.Errorf("dns.tls.clientCA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("dns.tls.clientCA: %s: no certificate in PEM", file)
	}
	return pool, nil
}
