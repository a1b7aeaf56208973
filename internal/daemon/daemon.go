// Package daemon wires sources, compilers, answers and servers together. The
// wiring is here and nowhere else.
package daemon

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"os"
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
	store     *cluster.Store
	compiler  *kubezone.Compiler
	responder *respond.Responder

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
	d := &Daemon{cfg: cfg, store: cluster.NewStore()}
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
	server, err := d.listen(ctx, log)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error { return d.compiler.Run(ctx, d.store, d.DB) })
	group.Go(func() error {
		return d.source(log).Run(ctx, func(r manifest.Report) {
			log.Info("manifests loaded", "path", d.cfg.Manifests, "objects", r.Objects, "passed_over", r.PassedOver, "problems", len(r.Problems))
		})
	})
	log.Info("serving", "listen", server.Addrs(), "zones", d.cfg.Zones)
	err = group.Wait()
	if ctx.Err() != nil && err == context.Canceled {
		log.Info("stopped")
		return nil
	}
	return err
}

func (d *Daemon) listen(ctx context.Context, log *slog.Logger) (*dnsserver.Server, error) {
	cfg := dnsserver.Config{
		NewAnswerer:    func() dnsserver.Answerer { return d.responder.NewWorker() },
		MaxConnections: d.cfg.TCP.MaxConnections,
		MaxInFlight:    d.cfg.TCP.MaxInFlight,
		MaxQueries:     d.cfg.TCP.MaxQueries,
		Idle:           time.Duration(d.cfg.TCP.Idle),
		Log:            log,
	}
	for _, l := range d.cfg.Listen {
		addr, err := netip.ParseAddrPort(l)
		if err != nil {
			return nil, err
		}
		cfg.Listen = append(cfg.Listen, addr)
	}
	return dnsserver.Listen(ctx, cfg)
}
