// Package app assembles the policies of a node: it follows the model, compiles what changes into a
// ruleset and programs it into the kernel, and admits Pods when the kernel has theirs.
//
//	cluster.Store ──feed──► plan.Compiler ──► nft.Table ──► kernel
//	portolan cni ─────────► cni.Server ──► worker.Admit ──┘
//	                        flows.Cutter: ends flows that a change forbids
//	                        droplog.Log ◄── packets that were dropped
//
// What is in the kernel stays when the process ends, so that policies hold while it is replaced;
// `portolan cleanup` removes it.
package app

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/policy/cni"
	"portolan.dev/portolan/internal/policy/flows"
	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/settings"
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
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
	// Loaded is called when the kernel has the policies for the first time.
	Loaded func()
}

// Policy is the part of a node that enforces policies.
type Policy struct {
	cfg      Config
	settings settings.Compiled
	dns      cluster.Key // the Service of the cluster DNS
	metrics  *policyMetrics
	worker   *worker
	flows    *flows.Cutter // nil if flows go on
	plugin   *cni.Server   // nil without a socket, and before Bind

	mu      sync.Mutex // guards the fields below
	synced  bool
	problem error // of the last transaction
}

// New returns a Policy. It returns an error if the settings are invalid. It starts nothing.
func New(cfg Config) (*Policy, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	p := &Policy{cfg: cfg, settings: compiled.Policy, dns: compiled.DNS.Zone.DNSService, metrics: newMetrics()}
	p.worker = newWorker(p)
	p.metrics.stats = p.worker.stats
	return p, nil
}

// Name returns the part's name.
func (p *Policy) Name() string { return "policy" }

// Needs returns the kinds that rules are compiled from.
func (p *Policy) Needs() []cluster.Kind {
	return []cluster.Kind{
		cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy, cluster.KindPod, cluster.KindNamespace,
		cluster.KindNode, cluster.KindService,
	}
}

// Bind binds the socket of the CNI plugin, and finds out whether the kernel has what rules need. They
// change when the cluster is known.
func (p *Policy) Bind(ctx context.Context) (serving []any, err error) {
	table, err := nft.New(nft.Config{
		Name: p.settings.Table, LogGroup: uint16(p.settings.Log.Group), LogRate: uint32(p.settings.Log.Rate), Log: p.cfg.Log,
	})
	if err != nil {
		return nil, withCure(err)
	}
	p.worker.table, p.metrics.counters = table, table.Counters
	if p.settings.Cut {
		p.flows = flows.New(flows.Config{
			Denied: p.worker.denied, Cut: table.Cut, Uncut: table.Uncut, CutTime: nft.CutTime,
			Passed: p.metrics.passed, Log: p.cfg.Log,
		})
	}
	serving = []any{"node", p.cfg.Node, "table", p.settings.Table}
	if p.settings.Socket == "" {
		return serving, nil
	}
	p.plugin, err = cni.Listen(ctx, cni.Config{
		Socket: p.settings.Socket, Gate: p.worker, Ready: p.admits, Observe: p.metrics.admitted, Log: p.cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return append(serving, "socket", p.settings.Socket), nil
}

// admits returns why Pods cannot be admitted now, or nil.
func (p *Policy) admits() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem == nil && !p.synced {
		return errNotSynced
	}
	return p.problem
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

// Ready describes what is missing until the kernel has the policies of the cluster.
func (p *Policy) Ready() (missing, remarks []string) {
	err := p.admits()
	if err == nil {
		return nil, nil
	}
	missing = []string{err.Error()}
	if p.cfg.Problem != nil {
		if err := p.cfg.Problem(p.Needs()...); err != nil {
			missing = append(missing, err.Error())
		}
	}
	return missing, nil
}

// Metrics returns the collector of the part's metrics.
func (p *Policy) Metrics() prometheus.Collector { return p.metrics }

// Run keeps the kernel current until ctx is done, and returns nil. It waits until the cluster is
// known; until then the kernel keeps what it has.
func (p *Policy) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return p.worker.run(running) })
	if p.flows != nil {
		group.Go(func() error { return p.flows.Run(running) })
	}
	if p.plugin != nil {
		group.Go(func() error { return p.plugin.Run(running) })
	}
	return group.Wait()
}
