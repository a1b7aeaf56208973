// Package daemon wires sources, compilers, answers and servers together. The
// wiring is here and nowhere else.
package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dnsserver"
	"portolan.dev/portolan/internal/kubezone"
	"portolan.dev/portolan/internal/respond"
	"portolan.dev/portolan/internal/source/manifest"
	"portolan.dev/portolan/internal/zone"
)

// Daemon holds the parts that every command needs.
type Daemon struct {
	cfg       config.Config
	addrs     []netip.AddrPort
	store     *cluster.Store
	compiler  *kubezone.Compiler
	responder *respond.Responder
	nameless  bool // the name server has no address of its own

	// DB is the compiled zones.
	DB *zone.DB
}

// New wires a Daemon. It fails on a bad configuration, and starts nothing.
func New(cfg config.Config) (*Daemon, error) {
	compiled, err := cfg.Compile()
	if err != nil {
		return nil, err
	}
	compiled.Zone.Serial = uint32(time.Now().Unix())
	d := &Daemon{cfg: cfg, addrs: compiled.Listen, store: cluster.NewStore()}
	d.nameless = len(compiled.Zone.DNSAddresses) == 0
	if d.compiler, err = kubezone.New(compiled.Zone); err != nil {
		return nil, err
	}
	if d.DB, err = d.compiler.NewDB(); err != nil {
		return nil, err
	}
	d.responder, err = respond.New(respond.Config{
		Data:          d.DB,
		UDPSize:       cfg.UDPSize,
		NSID:          nsid(cfg.Identity.NSID),
		ServerID:      cfg.Identity.ServerID,
		Version:       cfg.Identity.Version,
		CookieSecrets: cookieSecrets(compiled.CookieSecrets),
		TCPIdle:       time.Duration(cfg.TCP.Idle),
	})
	return d, err
}

// nsid is the configured identity, or the host's name as far as it fits.
func nsid(configured string) string {
	if configured != "" {
		return configured
	}
	const maxLabel = 63
	host, _ := os.Hostname() // none is no identity
	return host[:min(len(host), maxLabel)]
}

func cookieSecrets(configured []respond.CookieSecret) []respond.CookieSecret {
	if len(configured) > 0 {
		return configured
	}
	var secret respond.CookieSecret
	_, _ = rand.Read(secret[:]) // never fails
	return []respond.CookieSecret{secret}
}

// Load reads the manifests once and compiles them.
func (d *Daemon) Load(log *slog.Logger) (manifest.Report, error) {
	feed := d.store.Subscribe()
	defer feed.Close()
	report, err := d.source(log).Load()
	if err != nil {
		return report, err
	}
	d.compiler.Apply(d.store, feed.Pending(), d.DB)
	return report, nil
}

func (d *Daemon) source(log *slog.Logger) *manifest.Source {
	return manifest.New(manifest.Config{Path: d.cfg.Manifests, Store: d.store, Log: log})
}

// Responder answers queries from the compiled zones.
func (d *Daemon) Responder() *respond.Responder { return d.responder }

// Serve serves until ctx is done, and returns nil after that. It fails when it
// can't begin: an address is taken, the manifests can't be read. While the
// manifests are being read it answers that they are.
func (d *Daemon) Serve(ctx context.Context, log *slog.Logger) error {
	// Looked at before a socket is bound: nothing began yet when it is not there.
	if _, err := os.Stat(d.cfg.Manifests); err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	server, err := d.listen(ctx, log)
	if err != nil {
		return err
	}
	log.Info("serving", "listen", server.Addrs(), "zones", d.cfg.Zones)
	if d.nameless {
		log.Warn("ns.dns of each zone has no address unless the DNS Service is there; set nameServer.addresses", "service", d.cfg.NameServer.Service)
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(running) })
	group.Go(func() error { return d.compiler.Run(running, d.store, d.DB) })
	group.Go(func() error {
		return d.source(log).Run(running, func(r manifest.Report) {
			log.Info("manifests loaded", "path", d.cfg.Manifests, "objects", r.Objects, "passed_over", r.PassedOver, "problems", len(r.Problems))
		})
	})
	err = group.Wait()
	// What runs ends with the error of its context, and that is done as well
	// when one of them failed: ctx itself must be.
	if stopped := ctx.Err(); stopped != nil && errors.Is(err, stopped) {
		log.Info("stopped")
		return nil
	}
	return err
}

func (d *Daemon) listen(ctx context.Context, log *slog.Logger) (*dnsserver.Server, error) {
	server, err := dnsserver.Listen(ctx, dnsserver.Config{
		Listen:         d.addrs,
		NewAnswerer:    func() dnsserver.Answerer { return d.responder.NewWorker() },
		MaxConnections: d.cfg.TCP.MaxConnections,
		MaxInFlight:    d.cfg.TCP.MaxInFlight,
		MaxQueries:     d.cfg.TCP.MaxQueries,
		Idle:           time.Duration(d.cfg.TCP.Idle),
		Log:            log,
	})
	return server, withCure(err)
}

// withCure adds to an error of listening what helps against it.
func withCure(err error) error {
	for reason, cure := range map[error]string{
		syscall.EADDRINUSE:    "another process has it; stop that one, or give another address with --listen",
		syscall.EACCES:        "ports below 1024 need root or the capability CAP_NET_BIND_SERVICE",
		syscall.EADDRNOTAVAIL: "no interface of this host has that address",
	} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%w; %s", err, cure)
		}
	}
	return err
}
