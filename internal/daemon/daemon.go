// Package daemon runs a process: it binds the parts that a command is made of,
// runs them beside the source of the cluster and the admin servers, and stops
// them in order. It knows nothing of what a part does.
//
//	bind parts ─► bind admin ─► start ─► run source, admin, reload ┐
//	                                     run parts ────────────────┤ order to stop
//	                                     not ready, lameduck ◄─────┘
//	                                     parts drain ─► the rest ends ─► close
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/ops/admin"
	"portolan.dev/portolan/internal/support/bind"
)

// Part is one capability of a process. Methods are called in this order: Bind,
// Run, Close; Run is not called when any part's Bind failed. Needs, Ready and
// Metrics may be called at any time after Bind.
type Part interface {
	// Name is the part's in logs, readiness and errors, such as dns.
	Name() string
	// Needs lists the kinds of the model that the part reads.
	Needs() []cluster.Kind
	// Bind binds sockets and changes the host, and returns what is served where, as
	// keys and values for the log. It begins nothing.
	Bind(ctx context.Context) (serving []any, err error)
	// Run works until ctx is done, drains and returns nil. It fails when the part
	// can no longer work.
	Run(ctx context.Context) error
	// Close gives back what Bind took, as far as it went.
	Close()
	// Ready lists in words what is missing until the part is ready, and what else is
	// not as it should be.
	Ready() (missing, remarks []string)
	// Metrics collects the part's metrics.
	Metrics() prometheus.Collector
}

// Starter is a Part with something to do when all parts are bound, and before any
// runs.
type Starter interface {
	// Start begins to attract work. ctx is done at the order to stop.
	Start(ctx context.Context) error
}

// Reconfigurer is a Part that takes settings while it runs.
type Reconfigurer interface {
	// Reconfigure applies settings, or fails and changes nothing.
	Reconfigure(cfg config.Config) error
}

// Source fills the model; *source.Source is one.
type Source interface {
	prometheus.Collector
	// Open finds the cluster, and fails when there is none.
	Open() error
	// Run follows the cluster until ctx is done.
	Run(ctx context.Context) error
	// Staleness lists kinds that were not heard of for longer than limit, and for
	// shorter.
	Staleness(limit time.Duration) (late, remarks []string)
}

// Config is what a Daemon is made from.
type Config struct {
	// Settings are valid; the sections admin, lameduck and log count here.
	Settings config.Config
	Version  string
	Log      *slog.Logger
	Parts    []Part
	Source   Source // nil where no cluster is read
	// Control sets up the sockets of the admin servers, see net.ListenConfig; nil does
	// nothing.
	Control func(network, address string, c syscall.RawConn) error
	// Dumps are pages of the admin server.
	Dumps []admin.Dump
	// Reload is how settings are read again; nil is never.
	Reload *Reload
}

// Daemon is one process.
type Daemon struct {
	cfg      Config
	admins   []*admin.HTTPServer
	stopping atomic.Bool
	reloads  reloadState
	inForce  config.Config // the settings of the parts

	mu     sync.Mutex
	failed map[string]error // parts that ended, by name
}

// New makes a Daemon, and starts nothing.
func New(cfg Config) *Daemon {
	return &Daemon{cfg: cfg, inForce: cfg.Settings, failed: make(map[string]error)}
}

// Run runs the process until ctx is done, drains, and returns nil after that. It
// fails when it cannot begin: there is no cluster to read, or an address is taken.
// While it runs, a part that fails is logged, its readiness says so, and the others
// go on; Run fails when none is left, or when the source or an admin server fails.
func (d *Daemon) Run(ctx context.Context) error {
	log := d.cfg.Log
	limitMemory(log)
	if d.cfg.Source != nil {
		if err := d.cfg.Source.Open(); err != nil {
			return err
		}
	}
	defer d.close()
	var serving []any
	err := bind.Privileged(func() (err error) {
		serving, err = d.bind(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for _, p := range d.cfg.Parts {
		if s, ok := p.(Starter); ok {
			if err := s.Start(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.Name(), err)
			}
		}
	}
	log.Info("serving", serving...)
	// Parts stop first, all else when they have: the model stays fresh, and probes
	// are answered, to the end.
	others, stopOthers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOthers()
	group, running := errgroup.WithContext(others)
	group.Go(func() error {
		defer stopOthers()
		return d.runParts(d.lameduck(ctx, running))
	})
	if d.cfg.Source != nil {
		group.Go(func() error { return d.cfg.Source.Run(running) })
	}
	for _, server := range d.admins {
		group.Go(func() error { return server.Run(running) })
	}
	if d.cfg.Reload != nil {
		group.Go(func() error { return d.reload(running) })
	}
	err = group.Wait()
	// What runs ends with the error of its context, which is also done when one of
	// them failed: ctx itself must be.
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		log.Info("stopped")
		return nil
	}
	return err
}

// bind binds the parts and the admin servers. It returns what is served where, for the
// log.
func (d *Daemon) bind(ctx context.Context) (serving []any, err error) {
	for _, p := range d.cfg.Parts {
		at, err := p.Bind(ctx)
		if err != nil {
			return nil, err
		}
		serving = append(serving, at...)
	}
	at, err := d.bindAdmin(ctx)
	return append(serving, at...), err
}

// close gives back what was bound, the last first.
func (d *Daemon) close() {
	for _, server := range d.admins {
		server.Close()
	}
	for i := range d.cfg.Parts {
		d.cfg.Parts[len(d.cfg.Parts)-1-i].Close()
	}
}

// runParts runs all parts until ctx is done. A part that fails leaves the others
// running; it fails when none is left.
func (d *Daemon) runParts(ctx context.Context) error {
	ended := make(chan error, len(d.cfg.Parts))
	for _, p := range d.cfg.Parts {
		go func() {
			err := p.Run(ctx)
			if err != nil && ctx.Err() == nil {
				d.fail(p.Name(), err)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", p.Name(), err)
			}
			ended <- err
		}()
	}
	var errs []error
	for range d.cfg.Parts {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// fail records that a part ended with an error.
func (d *Daemon) fail(name string, err error) {
	if len(d.cfg.Parts) > 1 { // otherwise the process ends with this error
		d.cfg.Log.Error("a part failed; the others go on", "part", name, "err", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[name] = err
}

// lameduck is a context that is done when parts have to stop: as long after the
// order to stop as clients may need to see that the process is not ready any more,
// or at once when something else failed.
func (d *Daemon) lameduck(order, running context.Context) context.Context {
	serving, stop := context.WithCancel(running)
	wait := time.Duration(d.cfg.Settings.Lameduck)
	context.AfterFunc(order, func() {
		d.stopping.Store(true)
		if wait > 0 {
			d.cfg.Log.Info("stopping", "lameduck", wait)
			time.AfterFunc(wait, stop)
			return
		}
		stop()
	})
	return serving
}

// ready lists in words what is missing until all parts are ready, and what else is
// not as it should be.
func (d *Daemon) ready() (missing, remarks []string) {
	if d.stopping.Load() {
		missing = append(missing, "stopping")
	}
	for _, p := range d.cfg.Parts {
		if err := d.failure(p.Name()); err != nil {
			missing = append(missing, fmt.Sprintf("%s failed: %v", p.Name(), err))
			continue
		}
		more, other := p.Ready()
		missing, remarks = append(missing, more...), append(remarks, other...)
	}
	if d.cfg.Source != nil {
		late, other := d.cfg.Source.Staleness(time.Duration(d.cfg.Settings.Admin.MaxStaleness))
		missing, remarks = append(missing, late...), append(remarks, other...)
	}
	return missing, append(remarks, d.reloads.remarks()...)
}

func (d *Daemon) failure(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed[name]
}
