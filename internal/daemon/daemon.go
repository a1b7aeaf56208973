// Package daemon wires sources, compilers, answers and servers together. The
// wiring is here and nowhere else.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cluster/snapshot"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/querylog"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/simulate"
	"portolan.dev/portolan/internal/ops/metrics"
)

// Daemon holds the parts that every command needs.
type Daemon struct {
	// Stdin is where manifests are read from whose path is "-".
	Stdin io.Reader

	cfg     config.Config // as at the start
	agent   *agent        // nil where this is not the agent of one
	secret  respond.CookieSecret
	store   *cluster.Store
	plane   *simulate.ControlPlane // nil where none is simulated
	queries *querylog.Log          // of all answers, one after the other
	current atomic.Pointer[answers]

	// While it serves.
	server   atomic.Pointer[dnsserver.Server]
	api      *api.Source     // nil when the cluster is read from manifests
	saver    *snapshot.Saver // nil when no snapshot is kept
	metrics  *metrics.Metrics
	status   status
	replaced chan *answers // those that are to take the place of current
	log      *slog.Logger
}

// New wires a Daemon. It fails on a bad configuration, and starts nothing.
func New(cfg config.Config) (*Daemon, error) {
	d := &Daemon{cfg: cfg}
	return d, d.begin()
}

// begin makes all parts that every Daemon has.
func (d *Daemon) begin() error {
	d.secret, d.store, d.replaced = randomSecret(), cluster.NewStore(), make(chan *answers, 1)
	d.queries = querylog.New(querylog.Config{})
	a, err := d.newAnswers(d.cfg, uint32(time.Now().Unix()), nil)
	if err != nil {
		return err
	}
	d.queries.Set(a.settings.DNS.QueryLog)
	d.current.Store(a)
	return nil
}

// DB is the compiled zones.
func (d *Daemon) DB() *zone.DB { return d.current.Load().db }

// Responder answers queries from the compiled zones.
func (d *Daemon) Responder() *respond.Responder { return d.current.Load().responder }

// Options are what Serve needs beside the configuration.
type Options struct {
	Version string
	Log     *slog.Logger
	// Level is Log's, which the configuration may change; nil when it can't.
	Level *slog.LevelVar
	// Reread reads the configuration again, as the command line overrides it,
	// whenever Content is another one: the text of its files. Without, it is
	// never read again.
	Reread  func() (config.Config, error)
	Content func() ([]byte, error)
	// Reload asks for that, too.
	Reload <-chan os.Signal
}

// Serve serves until ctx is done, drains, and returns nil after that. It fails
// when it can't begin: an address is taken, the manifests or the kubeconfig
// can't be read. While the cluster is being read it answers that it is.
func (d *Daemon) Serve(ctx context.Context, o Options) error {
	d.log = o.Log
	limitMemory(d.log)
	delayGC()
	go dropImage() // which initialization brought in
	if err := d.beginSimulation(); err != nil {
		return err
	}
	source, err := d.open(o.Version)
	if err != nil {
		return err
	}
	defer d.closeNetwork()
	server, admin, err := d.bind(ctx, o.Version)
	if err != nil {
		return err
	}
	if err := d.divert(ctx); err != nil {
		server.Close()
		admin.close()
		if d.agent.notified != nil {
			d.agent.notified.Close()
		}
		return err
	}
	d.server.Store(server)
	d.announce(server, &admin)

	// The server stops first, all else when it has: names stay fresh, and
	// probes are answered, to the end.
	others, stopOthers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOthers()
	group, running := errgroup.WithContext(others)
	group.Go(func() error {
		defer stopOthers()
		return server.Run(lameduck(ctx, running, time.Duration(d.cfg.Lameduck), &d.status.stopping, d.log))
	})
	group.Go(func() error { return d.keepCurrent(running) })
	group.Go(func() error { return d.queries.Run(running, d.log) })
	group.Go(func() error { return source(running) })
	if d.agent != nil && d.agent.notified != nil {
		group.Go(func() error { return d.agent.notified.Run(running) })
	}
	for _, server := range admin.all() {
		group.Go(func() error { return server.Run(running) })
	}
	if d.saver != nil {
		group.Go(func() error { return d.saver.Run(running) })
	}
	if o.Reread != nil {
		group.Go(func() error { return d.reload(running, o) })
	}
	err = group.Wait()
	if d.saver != nil {
		d.saver.Save()
	}
	// What runs ends with the error of its context, and that is done as well
	// when one of them failed: ctx itself must be.
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		d.log.Info("stopped")
		return nil
	}
	return err
}

// lameduck is a context for a server: it is done so long after the order to stop
// as clients may need to see that it is not ready any more, which stopping says
// from then on, or at once when another part has failed.
func lameduck(order, running context.Context, wait time.Duration, stopping *atomic.Bool, log *slog.Logger) context.Context {
	serving, stop := context.WithCancel(running)
	context.AfterFunc(order, func() {
		stopping.Store(true)
		if wait > 0 {
			log.Info("stopping", "lameduck", wait)
			time.AfterFunc(wait, stop)
			return
		}
		stop()
	})
	return serving
}

// answerWaiting is for goroutines that work for long, see dnsserver.Server.
func (d *Daemon) answerWaiting() {
	if server := d.server.Load(); server != nil {
		server.AnswerWaiting()
	}
}

// needed are the kinds that answers need; none on a node.
func (d *Daemon) needed() []cluster.Kind {
	if d.agent != nil {
		return nil
	}
	return d.current.Load().compiler.Kinds()
}

// missing are those of them that are not loaded.
func (d *Daemon) missing() []cluster.Kind { return d.unloaded(d.needed()) }

// unloaded are those of the kinds that are not loaded.
func (d *Daemon) unloaded(kinds []cluster.Kind) (not []cluster.Kind) {
	d.store.View(func(v *cluster.View) {
		for _, k := range kinds {
			if !v.Loaded(k) {
				not = append(not, k)
			}
		}
	})
	return not
}

// live tells whether all kinds that answers need are what the source has now,
// not what a snapshot had.
func (d *Daemon) live() bool {
	live := true
	d.store.View(func(v *cluster.View) {
		for _, k := range d.needed() {
			live = live && v.Freshness(k) == cluster.Live
		}
	})
	return live
}

// errNotRead says that a cluster could not be read in time.
func errNotRead(problem error) error {
	if problem == nil {
		return fmt.Errorf("the cluster could not be read within %s", loadTime)
	}
	return fmt.Errorf("the cluster could not be read within %s: %w", loadTime, problem)
}
