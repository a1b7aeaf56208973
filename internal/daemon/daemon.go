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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/ops/admin"
	"portolan.dev/portolan/internal/support/bind"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/evidence"
)

// Part is one capability of a process. Its methods are called in this order: Bind, Run,
// Close. Run is not called if Bind of any part failed. Needs, Ready and Metrics may be
// called at any time after Bind.
type Part interface {
	// Name returns the part's name in logs, readiness and errors, such as dns.
	Name() string
	// Needs returns the kinds of the model that the part reads.
	Needs() []cluster.Kind
	// Bind binds sockets and changes the host. It returns the served addresses as keys
	// and values for the log. It starts nothing.
	Bind(ctx context.Context) (serving []any, err error)
	// Run works until ctx is done, drains and returns nil. It returns an error if the
	// part can no longer work.
	Run(ctx context.Context) error
	// Close undoes Bind, including a Bind that failed.
	Close()
	// Ready describes what is missing until the part is ready, and other problems.
	Ready() (missing, remarks []string)
	// Metrics returns the collector of the part's metrics.
	Metrics() prometheus.Collector
}

// Starter is a Part with work to do after all parts are bound and before any runs.
type Starter interface {
	// Start starts to attract clients. ctx is done when the process is told to stop.
	Start(ctx context.Context) error
}

// Endpoint is a Part that clients reach through an EndpointSlice.
type Endpoint interface {
	// Advertised reports whether an EndpointSlice lists the part as serving.
	Advertised() bool
}

// Reconfigurer is a Part whose settings can change while it runs.
type Reconfigurer interface {
	// Reconfigure applies settings. If it fails, it changes nothing.
	Reconfigure(cfg config.Config) error
}

// Source fills the model. *source.Source implements it.
type Source interface {
	prometheus.Collector
	// Open finds the cluster. It returns an error if there is none.
	Open() error
	// Run keeps the model current until ctx is done.
	Run(ctx context.Context) error
	// Staleness describes the kinds that are stale for longer than limit (late), and
	// for less (remarks).
	Staleness(limit time.Duration) (late, remarks []string)
	// Invalid describes the kinds of which objects are invalid.
	Invalid() (remarks []string)
}

// Config configures a Daemon.
type Config struct {
	// Settings are valid. The Daemon uses the sections admin, lameduck and log.
	Settings config.Config
	Version  string
	Log      *slog.Logger
	Parts    []Part
	Source   Source // nil if no cluster is read
	// Program is whose processes share the addresses of the admin servers, so that one can replace
	// another, such as "portolan node"; empty shares with none.
	Program string
	// Dumps are additional pages of the admin server.
	Dumps []admin.Dump
	// Actions are changes that clients on loopback may request.
	Actions []admin.Action
	// Evidence keeps a sample of what the parts do; nil keeps nothing.
	Evidence *evidence.Ring
	// Reload reloads the settings; nil disables that.
	Reload *Reload
	// Observe, if not nil, is given what returns the state of all parts, before any runs.
	Observe func(parts func() []PartState)
	// AdminFlag is the flag that sets the address of the admin server; empty is --admin.
	AdminFlag string
	// Bound, if not nil, is called with the address of the admin server when everything is bound.
	Bound func(admin string)
}

// PartState is how a part is.
type PartState struct {
	Name string
	// Missing describes what is missing until it is ready, and Remarks other problems.
	Missing, Remarks []string
}

// Daemon is one process.
type Daemon struct {
	cfg      Config
	admins   []*admin.HTTPServer
	stopping atomic.Bool
	running  atomic.Int32 // parts
	reloads  reloadState
	inForce  config.Config // the settings of the parts
	// connections are those of the admin servers; set by bind.
	connections *budget.Account

	mu     sync.Mutex
	failed map[string]error // failed parts, by name
}

// New returns a Daemon. It starts nothing.
func New(cfg Config) *Daemon {
	d := &Daemon{cfg: cfg, inForce: cfg.Settings, failed: make(map[string]error)}
	if cfg.Observe != nil {
		cfg.Observe(d.states)
	}
	return d
}

// states returns the state of all parts.
func (d *Daemon) states() (all []PartState) {
	for _, p := range d.cfg.Parts {
		made := PartState{Name: p.Name()}
		if err := d.failure(p.Name()); err != nil {
			made.Missing = []string{fmt.Sprintf("failed: %v", err)}
		} else {
			made.Missing, made.Remarks = p.Ready()
		}
		all = append(all, made)
	}
	return all
}

// Run runs the process until ctx is done, drains the parts and returns nil. It returns
// an error if the process cannot start, for example because there is no cluster to read
// or an address is in use. If a part fails later, Run logs that, reports it in
// readiness and continues with the other parts. Run returns an error when no part is
// left, or when the source or an admin server fails.
func (d *Daemon) Run(ctx context.Context) error {
	log := d.cfg.Log
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
	if d.cfg.Bound != nil && len(d.admins) > 0 {
		d.cfg.Bound(d.admins[0].Addr())
	}
	// Parts stop first and everything else after them, so that the model stays current
	// and probes are answered to the end.
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
	if d.cfg.Evidence != nil {
		group.Go(func() error { return d.cfg.Evidence.Run(running) })
	}
	err = group.Wait()
	// Goroutines end with the error of their context, which is also done when one of
	// them failed. Only if ctx itself is done has the process stopped as told.
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		log.Info("stopped")
		return nil
	}
	return err
}

// bind binds the parts and the admin servers. It returns the served addresses for the
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

// close closes the admin servers and then the parts, in reverse order.
func (d *Daemon) close() {
	for _, server := range d.admins {
		server.Close()
	}
	for i := range d.cfg.Parts {
		d.cfg.Parts[len(d.cfg.Parts)-1-i].Close()
	}
}

// runParts runs all parts until ctx is done. If a part fails, the others continue.
// runParts returns an error when no part is left.
func (d *Daemon) runParts(ctx context.Context) error {
	ended := make(chan error, len(d.cfg.Parts))
	d.running.Store(int32(len(d.cfg.Parts)))
	for _, p := range d.cfg.Parts {
		go func() {
			err := p.Run(ctx)
			d.running.Add(-1)
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
	if d.running.Load() > 0 { // otherwise the process ends with this error
		d.cfg.Log.Error("a part failed; the others go on", "part", name, "err", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[name] = err
}

// lameduck returns the context of the parts. After order it is done when nothing leads
// clients here any more (see awaitUnadvertised), or at once if running is done.
func (d *Daemon) lameduck(order, running context.Context) context.Context {
	serving, stop := context.WithCancel(running)
	context.AfterFunc(order, func() {
		defer stop()
		d.stopping.Store(true)
		if wait := time.Duration(d.cfg.Settings.Lameduck); wait > 0 {
			d.cfg.Log.Info("stopping", "lameduck", wait)
			d.awaitUnadvertised(running, wait)
		}
	})
	return serving
}

const (
	// proxyTime is how long service proxies take to apply a change of an EndpointSlice.
	// kube-proxy changes rules once per second (nftables.minSyncPeriod).
	proxyTime = 2 * time.Second
	// maxAdvertised is how long a process that is told to stop waits for the EndpointSlices
	// at most. A kubelet kills it after terminationGracePeriodSeconds, 30 by default.
	maxAdvertised = time.Minute
	// advertisedInterval is the interval between looks at the EndpointSlices.
	advertisedInterval = 250 * time.Millisecond
)

// awaitUnadvertised waits for the given time, in which a readiness probe can fail, and
// until service proxies have seen that no EndpointSlice lists a part as serving: before,
// they still pass packets of flows that they know to this process. It returns when ctx is
// done.
func (d *Daemon) awaitUnadvertised(ctx context.Context, lameduck time.Duration) {
	now := time.Now()
	end, limit := now.Add(lameduck), now.Add(max(lameduck, maxAdvertised))
	look := time.NewTicker(advertisedInterval)
	defer look.Stop()
	for now.Before(end) {
		select {
		case <-ctx.Done():
			return
		case now = <-look.C:
		}
		if free := now.Add(proxyTime); free.After(end) && d.advertised() {
			end = free
		}
		if !now.Before(limit) && now.Before(end) {
			d.cfg.Log.Warn("stopping although an EndpointSlice lists this process as serving", "waited", maxAdvertised)
			return
		}
	}
}

func (d *Daemon) advertised() bool {
	return slices.ContainsFunc(d.cfg.Parts, func(p Part) bool {
		e, ok := p.(Endpoint)
		return ok && e.Advertised()
	})
}

// ready describes what is missing until all parts are ready, and other problems.
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
		remarks = append(remarks, d.cfg.Source.Invalid()...)
	}
	return missing, append(remarks, d.reloads.remarks()...)
}

func (d *Daemon) failure(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed[name]
}
