package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/ops/admin"
	"portolan.dev/portolan/internal/ops/metrics"
)

// bind binds all addresses that something is served on.
func (d *Daemon) bind(ctx context.Context, version string) (server *dnsserver.Server, admin admins, err error) {
	err = bindPrivileged(func() (err error) {
		if server, err = d.listen(ctx); err == nil {
			admin, err = d.listenAdmin(ctx, version)
		}
		if err == nil && d.agent != nil {
			err = d.listenNotified(ctx)
		}
		return err
	})
	if err != nil && server != nil {
		server.Close()
		admin.close()
	}
	return server, admin, err
}

func (d *Daemon) listen(ctx context.Context) (*dnsserver.Server, error) {
	settings := d.current.Load().settings
	pair, err := d.certificate()
	if err != nil {
		return nil, err
	}
	authorities, err := d.clientCAs()
	if err != nil {
		return nil, err
	}
	server, err := dnsserver.Listen(ctx, dnsserver.Config{
		Listen:         settings.DNS.Listen,
		ListenTLS:      settings.DNS.ListenTLS,
		ListenHTTPS:    settings.DNS.ListenHTTPS,
		HTTPSPath:      d.cfg.DNS.HTTPS.Path,
		Certificate:    pair,
		ClientCAs:      authorities,
		NewAnswerer:    d.newWorker,
		MaxConnections: d.cfg.DNS.TCP.MaxConnections,
		MaxInFlight:    d.cfg.DNS.TCP.MaxInFlight,
		MaxQueries:     d.cfg.DNS.TCP.MaxQueries,
		Idle:           time.Duration(d.cfg.DNS.TCP.Idle),
		Steering:       dnsserver.Steering(d.cfg.DNS.UDPSteering),
		SharePorts:     d.agent != nil,
		Log:            d.log,
	})
	return server, withCure(err, "--listen")
}

// certificate gives the server's certificate for each handshake; nil where there
// is none.
func (d *Daemon) certificate() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if d.cfg.DNS.TLS.Certificate == "" {
		return nil, nil
	}
	c, err := newCertificate(d.cfg.DNS.TLS.Certificate, d.cfg.DNS.TLS.Key, d.log)
	if err != nil {
		return nil, err
	}
	return c.get, nil
}

// admins are the admin servers.
type admins struct {
	main   *admin.HTTPServer // nil when there shall be none
	probes []*admin.HTTPServer
}

func (a *admins) all() []*admin.HTTPServer {
	if a.main == nil {
		return a.probes
	}
	return append([]*admin.HTTPServer{a.main}, a.probes...)
}

// listenAdmin gives the admin servers, also those that there are when it fails.
func (d *Daemon) listenAdmin(ctx context.Context, version string) (made admins, err error) {
	d.metrics = metrics.New(version, d.figures)
	settings := d.current.Load().settings
	if d.cfg.Admin.CoreDNSMetrics {
		d.metrics.AliasCoreDNS(coreDNSServer(settings))
	}
	cfg := admin.Config{
		Ready:   d.ready,
		Metrics: d.metrics.Handler(d.log),
		Zone:    d.writeZone,
		Model:   d.writeModel,
		PProf:   d.cfg.Admin.PProf,
		Log:     d.log,
	}
	if d.agent != nil { // another agent takes over, or gave way to this one
		cfg.Control = dnsserver.SharePort
	}
	if cfg.Listen = settings.Admin; cfg.Listen.IsValid() {
		if made.main, err = admin.Listen(ctx, cfg); err != nil {
			return made, withCure(err, "--admin")
		}
	}
	cfg.ProbesOnly = true
	for _, cfg.Listen = range settings.Probes {
		if err := made.addProbes(ctx, cfg); err != nil {
			return made, err
		}
	}
	cfg.Control = nil
	for _, cfg.Socket = range settings.ProbeSockets {
		if err := made.addProbes(ctx, cfg); err != nil {
			return made, err
		}
	}
	return made, nil
}

func (a *admins) addProbes(ctx context.Context, cfg admin.Config) error {
	server, err := admin.Listen(ctx, cfg)
	if err != nil {
		return withCure(err, "admin.probes")
	}
	a.probes = append(a.probes, server)
	return nil
}

// coreDNSServer is what CoreDNS' label of a server says, of the first address.
func coreDNSServer(settings *config.Compiled) string {
	switch {
	case len(settings.DNS.Listen) > 0:
		return fmt.Sprintf("dns://:%d", settings.DNS.Listen[0].Port())
	case len(settings.DNS.ListenTLS) > 0:
		return fmt.Sprintf("tls://:%d", settings.DNS.ListenTLS[0].Port())
	}
	return fmt.Sprintf("https://:%d", settings.DNS.ListenHTTPS[0].Port())
}

// close gives the sockets back when Run is never called.
func (a *admins) close() {
	for _, server := range a.all() {
		server.Close()
	}
}

// announce logs what is served where.
func (d *Daemon) announce(server *dnsserver.Server, admin *admins) {
	var at []any
	listed := func(name string, addrs []netip.AddrPort) {
		if len(addrs) > 0 {
			at = append(at, name, addrs)
		}
	}
	listed("listen", server.Addrs())
	at = append(at, "zones", d.cfg.DNS.Zones)
	listed("tls", server.TLSAddrs())
	listed("https", server.HTTPSAddrs())
	if admin.main != nil {
		at = append(at, "admin", admin.main.Addr())
	}
	var probes []string
	for _, server := range admin.probes {
		probes = append(probes, server.Addr())
	}
	if len(probes) > 0 {
		at = append(at, "probes", probes)
	}
	if d.agent != nil && d.agent.notified != nil {
		listed("notify", d.agent.notified.Addrs())
	}
	d.log.Info("serving", at...)
	if d.agent == nil && len(d.current.Load().settings.DNS.Zone.DNSAddresses) == 0 {
		d.log.Warn("ns.dns of each zone has no address unless the DNS Service is there; set dns.nameServer.addresses", "service", d.cfg.DNS.NameServer.Service)
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
