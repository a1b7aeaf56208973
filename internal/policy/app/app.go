// Package app assembles the policies of a node: it follows the model, compiles what changes into a
// ruleset and programs it into the kernel, and admits Pods when the kernel has theirs.
//
//	cluster.Store ──feed──► plan.Compiler ──► nft.Table ──► kernel
//	portolan cni ─────────► cni.Server ──► worker.Admit ──┘
//	DNS answers ─► fqdn.Gate ─► addresses of domain names ────────┘
//	                        flows.Cutter: ends flows that a change forbids
//	                        droplog.Log ◄── packets that were dropped
//
// What is in the kernel stays when the process ends, so that policies hold while it is replaced;
// `portolan cleanup` removes it.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/cni/conflist"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/policy/cni"
	"portolan.dev/portolan/internal/policy/droplog"
	"portolan.dev/portolan/internal/policy/flows"
	"portolan.dev/portolan/internal/policy/fqdn"
	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/plan"
	"portolan.dev/portolan/internal/policy/settings"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/evidence"
	"portolan.dev/portolan/internal/support/filelock"
	"portolan.dev/portolan/internal/support/programmer"
)

// Config configures a Policy.
type Config struct {
	Settings config.Config
	Store    *cluster.Store
	Log      *slog.Logger
	// Node is the name of the Node.
	Node string
	// DNS has the addresses at which an agent in this process answers DNS; none if there is no such part.
	DNS []netip.Addr
	// Resolves says that a part of this process answers DNS: from its answers the addresses of domain names are.
	Resolves bool
	// Linked says that the network of the node is in this process and asks Admission, so that there is no socket.
	Linked bool
	// Find looks for what Removed is about until ctx is done, and Removed reports whether the agents were
	// removed from the cluster, so that nothing is to stay on the node, or fs.ErrPermission if it may not be
	// asked any more. It is called when the process ends. Both are nil if that is not known.
	Find    func(context.Context)
	Removed func(context.Context) (bool, error)
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
	// Loaded is called when the kernel has the policies for the first time.
	Loaded func()
	// Evidence, if not nil, receives the packets that policies deny.
	Evidence *evidence.Ring
}

// Policy is the part of a node that enforces policies.
type Policy struct {
	cfg      Config
	settings settings.Compiled
	dns      cluster.Key // the Service of the cluster DNS
	metrics  *policyMetrics
	worker   *worker
	gate     *fqdn.Gate
	log      *droplog.Log
	flows    *flows.Cutter // nil before Bind
	plugin   *cni.Server   // nil without a socket, and while another process programs the table
	registry *cni.Registry // nil if nothing asks, and while another process programs the table
	owned    chan struct{} // closed when this process programs the table
	begun    chan struct{} // closed when the network in this process is that of the node
	asked    chan struct{} // closed when it asks nothing more

	installed conflist.Installation
}

// New returns a Policy. It returns an error if the settings are invalid. It starts nothing.
func New(cfg Config) (*Policy, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	p := &Policy{cfg: cfg, settings: compiled.Policy, dns: compiled.DNS.Zone.DNSService, metrics: newMetrics(),
		owned: make(chan struct{}), begun: make(chan struct{}), asked: make(chan struct{})}
	p.worker = newWorker(p)
	p.gate = fqdn.New(fqdn.Config{
		Programmer: p.worker,
		Namespace:  p.worker.namespaceOf,
		MinTTL:     p.settings.Domains.Least,
		Grace:      p.settings.Domains.Grace,
		MaxPerName: p.settings.Domains.MaxAddresses,
		Log:        cfg.Log,
	})
	p.log = droplog.New(droplog.Config{
		Group: uint16(p.settings.Log.Group), Parse: label, Pod: p.worker.nameOf, Behind: p.worker.behindDevice,
		Ended: p.worker.endedLately, Observe: newDrops(cfg.Evidence).observe, Log: cfg.Log,
	})
	p.metrics.stats, p.metrics.names, p.metrics.lines = p.worker.stats, p.gate.Stats, p.log.Stats
	p.metrics.transactions, p.metrics.installed = p.worker.programmer, p.installed.State
	return p, nil
}

// label returns what a rule says of the packets that it logs.
func label(prefix string) (droplog.Label, bool) {
	p, ok := nft.ParsePrefix(prefix)
	return droplog.Label{Event: p.Event.String(), Direction: p.Direction, Chain: p.Chain, Reason: p.Reason}, ok
}

// PodOf returns the Pod that has an address, as NAMESPACE/NAME; empty if none is known.
func (p *Policy) PodOf(addr netip.Addr) string { return p.worker.nameOf(addr) }

// Gate returns what answers of DNS to Pods have to pass.
func (p *Policy) Gate() *fqdn.Gate { return p.gate }

// DebugPages returns the page of the log of packets.
func (p *Policy) DebugPages() map[string]http.Handler {
	return map[string]http.Handler{droplog.Path: p.log}
}

// Accounts returns the figures of the answers that wait.
func (p *Policy) Accounts() []budget.Stats { return []budget.Stats{p.gate.Account()} }

// Name returns the part's name.
func (p *Policy) Name() string { return "policy" }

// Needs returns the kinds that rules are compiled from.
func (p *Policy) Needs() []cluster.Kind { return plan.Kinds() }

// Bind finds out whether the kernel has what rules need. They change when the cluster is known, and no
// other process programs them.
func (p *Policy) Bind(context.Context) (serving []any, err error) {
	table, err := nft.New(nft.Config{
		Name: p.settings.Table, LogGroup: uint16(p.settings.Log.Group), LogRate: uint32(p.settings.Log.Rate), Log: p.cfg.Log,
	})
	if err != nil {
		return nil, programmer.WithCure(err)
	}
	p.worker.table = table
	p.metrics.read(table.Counters)
	p.flows = flows.New(flows.Config{
		Denied: p.worker.denied, IsPod: p.worker.isPod, Cut: table.Cut, Uncut: table.Uncut, CutTime: nft.CutTime,
		Full:   nft.ErrCutFull,
		Passed: p.metrics.passed, Log: p.cfg.Log,
	})
	return []any{"node", p.cfg.Node, "table", p.settings.Table, "socket", p.settings.Socket}, nil
}

// Close closes the socket. What is in the kernel stays.
func (p *Policy) Close() {
	if p.plugin != nil {
		p.plugin.Close()
	}
	if p.worker.table != nil {
		_ = p.worker.table.Close()
	}
}

// Ready describes what is missing until the kernel has the policies of the cluster, for a Node that it has.
func (p *Policy) Ready() (missing, remarks []string) {
	missing, remarks = p.worker.programmer.Ready(func() error {
		if p.cfg.Problem == nil {
			return nil
		}
		return p.cfg.Problem(p.Needs()...)
	})
	if err := p.worker.nodeProblem(); err != nil {
		missing = append(missing, err.Error())
	}
	pluginMissing, pluginRemarks := pluginReady(p.installed.Err())
	return append(missing, pluginMissing...), slices.Concat(remarks, pluginRemarks, p.worker.sharedRanges())
}

// Metrics returns the collector of the part's metrics.
func (p *Policy) Metrics() prometheus.Collector { return p.metrics }

// Run keeps the kernel current until ctx is done, and returns nil. It waits until the cluster is
// known; until then the kernel keeps what it has.
func (p *Policy) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	working, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the plugin has its last answer
	var lock *os.File                                               // until nothing is programmed any more
	group.Go(func() (err error) {
		defer stop()
		if lock, err = p.own(running); lock == nil {
			return err
		}
		if err := p.open(running); err != nil {
			return err
		}
		close(p.owned)
		if p.plugin == nil {
			<-running.Done()
			if p.cfg.Linked {
				<-p.asked
			}
			return nil
		}
		return p.plugin.Run(running)
	})
	group.Go(func() error { return p.worker.run(working, p.owned, running.Done()) })
	group.Go(func() error { return p.flows.Run(running) })
	group.Go(func() error { return p.gate.Run(running) })
	group.Go(func() error {
		select {
		case <-p.owned: // one process reads the group of the log
			return p.log.Run(running)
		case <-running.Done():
			return nil
		}
	})
	if p.cfg.Find != nil {
		group.Go(func() error {
			p.cfg.Find(running)
			return nil
		})
	}
	if p.settings.Install {
		group.Go(func() error {
			select {
			case <-p.worker.loaded: // from then on Pods can start
			case <-running.Done():
				return nil
			}
			return conflist.Follow(running, p.network(), p.cfg.Log)
		})
	}
	err := group.Wait()
	if lock != nil {
		p.leave(nft.Cleanup)
		lock.Close()
	}
	return err
}

// own waits until no other process programs the table, and returns what shows others that this one does;
// nil if ctx is done before. It is the lock of a file beside the socket.
func (p *Policy) own(ctx context.Context) (*os.File, error) {
	if p.cfg.Linked {
		p.worker.programmer.SetStandby(true)
		select {
		case <-p.begun:
		case <-ctx.Done():
			return nil, nil
		}
	}
	dir := filepath.Dir(cmp.Or(p.settings.Socket, attach.DefaultSocket))
	lock, err := filelock.Acquire(ctx, filepath.Join(dir, p.settings.Table+".lock"), func() {
		p.worker.programmer.SetStandby(true)
	})
	if err != nil {
		return nil, fmt.Errorf("lock of the table of policies: %w", err)
	}
	if lock != nil {
		p.worker.programmer.SetStandby(false)
	}
	return lock, nil
}

// open opens the registry of attachments, and binds the socket of the CNI plugin unless Linked.
func (p *Policy) open(ctx context.Context) (err error) {
	switch {
	case p.cfg.Linked:
		p.registry, err = cni.OpenRegistry(attach.Records(p.settings.Socket), p.worker, p.cfg.Log)
	case p.settings.Socket != "":
		if p.plugin, err = p.listen(ctx); err == nil {
			p.registry = p.plugin.Registry()
		}
	}
	return err
}

// listen binds the socket of the CNI plugin.
func (p *Policy) listen(ctx context.Context) (*cni.Server, error) {
	return cni.Listen(ctx, cni.Config{
		Socket:  p.settings.Socket,
		Gate:    p.worker,
		Ready:   p.worker.programmer.Err,
		Observe: p.metrics.asked,
		Log:     p.cfg.Log,
	})
}

// network is where the plugin is installed.
func (p *Policy) network() conflist.Config {
	return conflist.Config{
		BinDir: p.settings.BinDir, ConfDir: p.settings.ConfDir, Socket: p.settings.Socket, Observe: p.installed.Observe,
	}
}

// leaveTime is how long the API server may take to say whether the agents were removed.
const leaveTime = 10 * time.Second

// leave removes the plugin and the table, by cleanup, if no other agent follows: with them, but without an
// agent, no Pod would start. If the agents lost the right to ask, which those that were removed have lost as
// well as those whose role is broken, it removes only the plugin, so that policies hold and Pods start.
func (p *Policy) leave(cleanup func(table string) (bool, error)) {
	if p.cfg.Removed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	removed, err := p.cfg.Removed(ctx)
	switch {
	case removed:
		p.cfg.Log.Info("the agents were removed: policies do not hold any more on this node")
		err = p.uninstall()
		_, failure := cleanup(p.settings.Table)
		err = errors.Join(err, failure)
	case errors.Is(err, fs.ErrPermission):
		p.cfg.Log.Warn("the API server refuses to say whether the agents were removed: policies stay in the kernel, "+
			"and Pods start without waiting for theirs; if no other agent follows, run portolan cleanup here", "err", err)
		err = p.uninstall()
	}
	if err != nil {
		p.cfg.Log.Error("what policies have on this node stays; if no other agent follows, "+
			"run portolan cni uninstall and portolan cleanup here", "err", err)
	}
}

// uninstall takes the plugin out of the networks of the node, if it was installed.
func (p *Policy) uninstall() error {
	if !p.settings.Install {
		return nil
	}
	_, err := conflist.Leave(p.network())
	return err
}
