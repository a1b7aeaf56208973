package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/admin"
	"portolan.dev/portolan/internal/dnsserver"
	"portolan.dev/portolan/internal/metrics"
)

func (d *Daemon) listen(ctx context.Context) (*dnsserver.Server, error) {
	settings := d.current.Load().settings
	var pair func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	if d.cfg.TLS.Certificate != "" {
		c, err := newCertificate(d.cfg.TLS.Certificate, d.cfg.TLS.Key, d.log)
		if err != nil {
			return nil, err
		}
		pair = c.get
	}
	server, err := dnsserver.Listen(ctx, dnsserver.Config{
		Listen:         settings.Listen,
		ListenTLS:      settings.ListenTLS,
		ListenHTTPS:    settings.ListenHTTPS,
		HTTPSPath:      d.cfg.HTTPS.Path,
		Certificate:    pair,
		NewAnswerer:    d.newWorker,
		MaxConnections: d.cfg.TCP.MaxConnections,
		MaxInFlight:    d.cfg.TCP.MaxInFlight,
		MaxQueries:     d.cfg.TCP.MaxQueries,
		Idle:           time.Duration(d.cfg.TCP.Idle),
		Steering:       dnsserver.Steering(d.cfg.UDPSteering),
		Log:            d.log,
	})
	return server, withCure(err, "--listen")
}

// listenAdmin gives the admin server, or nil when there shall be none.
func (d *Daemon) listenAdmin(ctx context.Context, version string) (*admin.Server, error) {
	d.metrics = metrics.New(version, d.figures)
	addr := d.current.Load().settings.Admin
	if !addr.IsValid() {
		return nil, nil
	}
	server, err := admin.Listen(ctx, admin.Config{
		Listen:  addr,
		Ready:   d.unready,
		Metrics: d.metrics.Handler(d.log),
		Zone:    d.writeZone,
		Model:   d.writeModel,
		PProf:   d.cfg.Admin.PProf,
		Log:     d.log,
	})
	return server, withCure(err, "--admin")
}

// announce logs what is served where.
func (d *Daemon) announce(server *dnsserver.Server, admin *admin.Server) {
	at := []any{"listen", server.Addrs(), "zones", d.cfg.Zones}
	for name, addrs := range map[string][]netip.AddrPort{"tls": server.TLSAddrs(), "https": server.HTTPSAddrs()} {
		if len(addrs) > 0 {
			at = append(at, name, addrs)
		}
	}
	if admin != nil {
		at = append(at, "admin", admin.Addr())
	}
	d.log.Info("serving", at...)
	if len(d.current.Load().settings.Zone.DNSAddresses) == 0 {
		d.log.Warn("ns.dns of each zone has no address unless the DNS Service is there; set nameServer.addresses", "service", d.cfg.NameServer.Service)
	}
}

// withCure adds to an error of listening what helps against it; flag gives
// another address.
func withCure(err error, flag string) error {
	for reason, cure := range map[error]string{
		syscall.EADDRINUSE:    "another process has it; stop that one, or give another address with " + flag,
		syscall.EACCES:        "ports below 1024 need root or the capability CAP_NET_BIND_SERVICE",
		syscall.EADDRNOTAVAIL: "no interface of this host has that address",
	} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%w; %s", err, cure)
		}
	}
	return err
}
