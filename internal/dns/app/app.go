// Package app assembles the DNS of a process: zones, responder, upstreams,
// filters, transfers and servers.
//
//	cluster.Store ─► kubezone ─┐
//	                           ├─► zone.DB ─► respond ◄─ dnsserver ◄─ UDP, TCP, DoT, DoH
//	primaries ─► secondary ────┘                 │
//	                                             └─► forward ─► upstreams
//
// A DNS is one part of a process (see daemon.Part). Each version of the configuration
// has its own answers. New answers replace the current ones without losing a query.
package app

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/querylog"
	"portolan.dev/portolan/internal/dns/respond"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/evidence"
)

// Config configures a DNS.
type Config struct {
	Settings config.Config
	// Store is the model of the cluster; it stays empty in the agent on a node.
	Store *cluster.Store
	Log   *slog.Logger
	// Problem returns why the first of the kinds cannot be read; nil where no problem
	// is known. The field is nil where the cluster is not read.
	Problem func(kinds ...cluster.Kind) error
	// Gate, if not nil, holds answers back until their addresses can be reached.
	Gate respond.Gate
	// Evidence, if not nil, receives a sample of queries.
	Evidence *evidence.Ring
	// Pod returns the Pod that has an address, as NAMESPACE/NAME; empty if none is known. Nil
	// knows none.
	Pod func(netip.Addr) string
	// Loaded, if not nil, is called once, when the zones have been compiled from a live
	// model.
	Loaded func()
}

// zoneKeeper maintains the zones that answers come from.
type zoneKeeper interface {
	// prepare sets the zones of a and the settings that depend on their source. before
	// is nil for the first answers.
	prepare(a, before *answers) error
	// keep maintains the zones of a until ctx is done and returns its error. It calls
	// publish when a can serve queries.
	keep(ctx context.Context, a *answers, publish func()) error
	// ready describes what is missing until all names can be answered, and what is
	// stale.
	ready() (missing, remarks []string)
	// collect adds the keeper's metrics.
	collect(f *figures)
}

// DNS answers queries.
type DNS struct {
	cfg    Config
	keeper zoneKeeper
	// restore loads the saved zones before the servers start. background lists the
	// functions that maintain them.
	restore    func()
	background []func(context.Context) error
	sharePorts bool // with the next process, which takes over
	notify     notifyServer

	secret  respond.CookieSecret
	queries *querylog.Log // shared by all answers, one after another
	// evidence is shared like queries; nil without one.
	evidence *evidence.Source
	current  atomic.Pointer[answers]
	// compiled is closed when the zones have been compiled from the model. It is nil in
	// an agent, which can answer at once.
	compiled chan struct{}
	replaced chan *answers   // the answers that replace current
	applied  dnssettings.DNS // the settings of the newest answers
	newest   *answers

	server  atomic.Pointer[dnsserver.Server]
	metrics *collector
	retired retired
}

// New returns the DNS of a cluster, whose zones are compiled from the model. It returns
// an error if the configuration is invalid. It starts nothing.
func New(cfg Config) (*DNS, error) {
	d := newDNS(cfg)
	d.compiled = make(chan struct{})
	d.keeper = &compiledZones{dns: d, signal: sync.OnceFunc(func() { close(d.compiled) })}
	return d, d.begin()
}

func newDNS(cfg Config) *DNS {
	if cfg.Loaded == nil {
		cfg.Loaded = func() {}
	}
	if cfg.Problem == nil {
		cfg.Problem = func(...cluster.Kind) error { return nil }
	}
	d := &DNS{
		cfg: cfg, restore: func() {}, replaced: make(chan *answers, 1), applied: cfg.Settings.DNS,
		queries: querylog.New(querylog.Config{}),
	}
	_, _ = rand.Read(d.secret[:]) // never fails
	d.metrics = newCollector(d)
	return d
}

// begin creates the first answers.
func (d *DNS) begin() error {
	a, err := d.newAnswers(d.cfg.Settings, uint32(time.Now().Unix()), nil)
	if err != nil {
		return err
	}
	d.queries.Set(a.settings.DNS.QueryLog)
	d.newest = a
	d.current.Store(a)
	return nil
}

// ContinueFrom makes the zones' serials continue after serial. It must be called before
// Run.
func (d *DNS) ContinueFrom(serial uint32) error {
	if !after(serial+1, d.Serial()) {
		return nil
	}
	a, err := d.newAnswers(d.cfg.Settings, serial+1, nil)
	if err != nil {
		return err
	}
	d.newest = a
	d.current.Store(a)
	return nil
}

// Name returns the part's name.
func (d *DNS) Name() string { return "dns" }

// Needs returns the kinds of the model that answers depend on.
func (d *DNS) Needs() []cluster.Kind {
	if compiler := d.current.Load().compiler; compiler != nil {
		return compiler.Kinds()
	}
	return nil
}

// Accounts returns the figures of what clients make the process hold.
func (d *DNS) Accounts() (all []budget.Stats) {
	if server := d.server.Load(); server != nil {
		all = server.Accounts()
	}
	if upstreams := d.current.Load().upstreams; upstreams != nil {
		all = append(all, upstreams.Stats().Waiting)
	}
	return all
}

// Serial returns the highest serial of all zones.
func (d *DNS) Serial() uint32 { return d.current.Load().serial() }

// DB returns the zones.
func (d *DNS) DB() *zone.DB { return d.current.Load().db }

// ZoneProblems returns why local zones are not as their files are.
func (d *DNS) ZoneProblems() []*localzone.ZoneError { return d.current.Load().local.Problems() }

// ZoneWarnings returns what local zones have that cannot be answered.
func (d *DNS) ZoneWarnings() []string { return d.current.Load().local.Warnings() }

// Responder returns the current responder.
func (d *DNS) Responder() *respond.Responder { return d.current.Load().responder }

// WriteZone writes the records as master files (RFC 1035, section 5).
func (d *DNS) WriteZone(w io.Writer) error {
	zones, err := zone.Records(d.DB().Entries())
	if err != nil {
		return err
	}
	return zone.WriteMaster(w, zones)
}

// AnswerWaiting answers waiting queries. Long computations call it between their steps.
// See dnsserver.Server.
func (d *DNS) AnswerWaiting() {
	if server := d.server.Load(); server != nil {
		server.AnswerWaiting()
	}
}

// Compile compiles the zones once from the current model. It is for commands that do
// not serve.
func (d *DNS) Compile() {
	feed := d.cfg.Store.Subscribe()
	defer feed.Close()
	a := d.current.Load()
	a.compiler.Apply(d.cfg.Store, feed, a.db)
}

// Run answers queries until ctx is done, drains the servers and returns nil. The DNS
// servers stop first and everything else after them, so that the zones stay current to
// the end.
func (d *DNS) Run(ctx context.Context) error {
	others, stopOthers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOthers()
	group, running := errgroup.WithContext(others)
	group.Go(func() error {
		defer stopOthers()
		serving, stop := context.WithCancel(running)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		d.awaitZones(serving)
		return d.server.Load().Run(serving)
	})
	group.Go(func() error { return d.keepCurrent(running) })
	group.Go(func() error { return d.queries.Run(running, d.cfg.Log) })
	if d.notify.server != nil {
		group.Go(func() error { return d.notify.server.Run(running) })
	}
	for _, run := range d.background {
		group.Go(func() error { return run(running) })
	}
	if err := group.Wait(); ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// holdTime is the longest time that queries wait for the zones when the process starts.
const holdTime = time.Second

// awaitZones waits until the zones are compiled, for at most holdTime. Queries wait in the
// buffers of the sockets: clients that get SERVFAIL give up, or ask another server at once.
func (d *DNS) awaitZones(ctx context.Context) {
	if d.compiled == nil {
		return
	}
	late := time.NewTimer(holdTime)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-late.C:
	case <-d.compiled:
	}
}

// Ready describes what is missing until queries can be answered, and what is stale.
func (d *DNS) Ready() (missing, remarks []string) { return d.keeper.ready() }

// Reconfigure replaces the current answers by answers with the settings of cfg. If the
// settings are unusable, it returns an error and changes nothing.
func (d *DNS) Reconfigure(cfg config.Config) error {
	if reflect.DeepEqual(cfg.DNS, d.applied) {
		compiled, err := cfg.Compile()
		if err != nil || areSameRoots(rootsOf(compiled), d.newest.roots) {
			return err
		}
	}
	// Every zone may have changed. The serials of the current zones may advance
	// meanwhile.
	const ahead = 1 << 10
	last := d.newest
	serial := last.serial()
	if now := d.Serial(); after(now, serial) {
		serial = now
	}
	a, err := d.newAnswers(cfg, serial+ahead, last)
	if err != nil {
		return err
	}
	if a.stats != last.stats {
		d.retired.add(last.stats)
	}
	d.applied, d.newest = cfg.DNS, a
	select {
	case <-d.replaced: // answers that were never used
	default:
	}
	d.replaced <- a
	return nil
}

// keepCurrent maintains the current answers until ctx is done, and replaces them when
// Reconfigure makes new ones.
func (d *DNS) keepCurrent(ctx context.Context) error {
	for a := d.current.Load(); ; {
		next, err := d.keepUntilReplaced(ctx, a)
		if err != nil {
			return err
		}
		if next.db == a.db {
			d.current.Store(next)
		}
		a = next
	}
}

// keepUntilReplaced runs the background work of a until other answers replace it, and
// returns those.
func (d *DNS) keepUntilReplaced(ctx context.Context, a *answers) (next *answers, err error) {
	d.queries.Set(a.settings.DNS.QueryLog)
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { a.run(running, d.cfg.Log) })
	kept := make(chan error, 1)
	wg.Go(func() { kept <- d.keeper.keep(running, a, func() { d.current.Store(a) }) })
	select {
	case err := <-kept: // ctx is done, or keep failed
		return nil, err
	case next := <-d.replaced:
		return next, nil
	}
}
