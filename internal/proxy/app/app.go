// Package app assembles the service proxy of a node: it follows the model, compiles what
// changes into frontends and programs them into the kernel.
//
//	cluster.Store ──feed──► plan.Compiler ──► nft.Table ──► kernel
//
// What is in the kernel stays when the process ends, so that connections are made while it
// is replaced; `portolan cleanup` removes it.
package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/proxy/plan"
	"portolan.dev/portolan/internal/proxy/settings"
)

// Config configures a Proxy.
type Config struct {
	Settings config.Config
	Store    *cluster.Store
	Log      *slog.Logger
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
}

// Proxy is the service proxy of a node.
type Proxy struct {
	cfg      Config
	settings settings.Compiled
	node     string
	metrics  *proxyMetrics

	mu      sync.Mutex // guards the fields below
	synced  bool
	problem error // of the last transaction
}

// New returns a Proxy. It returns an error if the settings are invalid. It starts nothing.
func New(cfg Config) (*Proxy, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, settings: compiled.Proxy, metrics: newMetrics()}
	p.node, err = nodeName(p.settings.NodeName)
	p.settings.Table.Log = cfg.Log
	return p, err
}

// nodeName returns the name of the Node: as set, or of the environment variable NODE_NAME, or
// the host name in lower case, as kubelets register.
func nodeName(set string) (string, error) {
	if set != "" {
		return set, nil
	}
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of the node: %w; set proxy.nodeName", err)
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}

// Name returns the part's name.
func (p *Proxy) Name() string { return "proxy" }

// Needs returns the kinds that frontends are compiled from.
func (p *Proxy) Needs() []cluster.Kind {
	return []cluster.Kind{cluster.KindService, cluster.KindEndpointSlice, cluster.KindNode, cluster.KindServiceCIDR}
}

// Bind does nothing: what is in the kernel changes when the cluster is known.
func (p *Proxy) Bind(context.Context) (serving []any, err error) {
	return []any{"node", p.node, "table", p.settings.Table.Name}, nil
}

// Close does nothing: what is in the kernel stays.
func (p *Proxy) Close() {}

// Ready describes what is missing until the kernel has what the cluster wants.
func (p *Proxy) Ready() (missing, remarks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.problem != nil:
		return []string{p.problem.Error()}, nil
	case p.synced:
		return nil, nil
	}
	missing = []string{"the Services are not in the kernel yet"}
	if p.cfg.Problem != nil {
		if err := p.cfg.Problem(p.Needs()...); err != nil {
			missing = append(missing, err.Error())
		}
	}
	return missing, nil
}

// Metrics returns the collector of the part's metrics.
func (p *Proxy) Metrics() prometheus.Collector { return p.metrics }

const (
	// retryInterval is the interval between attempts after a failure.
	retryInterval = time.Second
	// addressInterval is the interval between looks at the host's addresses.
	addressInterval = 5 * time.Second
)

// Run keeps the kernel current until ctx is done, and returns nil. It waits until Services,
// EndpointSlices, Nodes and ServiceCIDRs are known; until then the kernel keeps what it has.
func (p *Proxy) Run(ctx context.Context) error {
	feed := p.cfg.Store.Subscribe()
	defer feed.Close()
	w := &worker{Proxy: p, compiler: plan.NewCompiler(plan.Node{}), changed: make(chan struct{}, 1)}
	defer w.close()
	look := time.NewTicker(addressInterval)
	defer look.Stop()
	var retry <-chan time.Time
	for {
		var changes cluster.Changes
		select {
		case <-ctx.Done():
			return nil
		case <-feed.Ready():
			changes = feed.Pending()
		case <-look.C:
		case <-retry:
		case <-w.changed:
			p.cfg.Log.Warn("another program changed the nftables table; it is repaired", "table", p.settings.Table.Name)
			p.metrics.repairs.Inc()
			w.stale = true
		}
		retry = nil
		if err := w.apply(ctx, changes); err != nil {
			retry = time.After(retryInterval)
		}
	}
}

// worker is the goroutine that compiles and programs.
type worker struct {
	*Proxy
	compiler *plan.Compiler
	node     plan.Node
	table    *nft.Table // nil before the first Sync
	stale    bool       // the kernel may differ from what the table recorded
	changed  chan struct{}
	watching sync.WaitGroup
	stop     context.CancelFunc // of watching
}

func (w *worker) close() {
	if w.stop != nil {
		w.stop()
		w.watching.Wait()
	}
	if w.table != nil {
		_ = w.table.Close()
	}
}

// apply brings changes into the kernel. After an error the next call brings everything.
func (w *worker) apply(ctx context.Context, c cluster.Changes) error {
	start := time.Now()
	job := w.compile(c)
	changed, err := job.run(ctx, w)
	w.metrics.observe(job.kind, changed, time.Since(start), err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.stale = true
		if w.problem == nil || w.problem.Error() != err.Error() {
			w.cfg.Log.Error("the kernel does not have the present state of the cluster", "err", err)
		}
		w.problem = err
		return err
	}
	if w.problem != nil && job.kind == fullSync {
		w.cfg.Log.Info("the kernel has the present state of the cluster again")
		w.problem = nil
	}
	if !w.synced && job.kind == fullSync {
		w.synced = true
		w.cfg.Log.Info("the kernel has the Services of the cluster", "frontends", len(job.state.Frontends), "elementsChanged", changed,
			"took", time.Since(start))
	}
	return nil
}

// job is what is to be programmed.
type job struct {
	kind    syncKind
	config  nft.Config
	state   *frontend.State   // for a full sync
	changes *frontend.Changes // for a partial one
}

// compile compiles changes: everything if the node changed, or if the kernel may differ from
// what was programmed.
func (w *worker) compile(c cluster.Changes) (j job) {
	j.kind = noSync
	w.cfg.Store.View(func(v *cluster.View) {
		if !v.Loaded(w.Needs()...) {
			return
		}
		switch node := w.nodeOf(v); {
		case w.table == nil, w.stale, c.Everything, !equalNodes(node, w.node):
			w.node = node
			j = job{kind: fullSync, config: w.tableConfig(v), state: w.compiler.All(v, node)}
		case len(c.Objects) > 0:
			j = job{kind: partialSync, changes: w.compiler.Apply(v, func(yield func(cluster.Key) bool) {
				for ref := range maps.Keys(c.Objects) {
					if ref.Kind == cluster.KindService && !yield(ref.Key) {
						return
					}
				}
			})}
		}
	})
	return j
}

// run programs the job.
func (j *job) run(ctx context.Context, w *worker) (changed int, err error) {
	switch j.kind {
	case fullSync:
		if w.table == nil {
			w.table = nft.New(j.config)
		}
		changed, err = w.table.Sync(j.state)
		w.stale = err != nil
		if err == nil && w.stop == nil {
			w.watch(ctx)
		}
	case partialSync:
		changed, err = w.table.Apply(j.changes)
	}
	return changed, err
}

// watch has changes by other programs noticed.
func (w *worker) watch(ctx context.Context) {
	ctx, w.stop = context.WithCancel(ctx)
	w.watching.Go(func() {
		if err := w.table.Watch(ctx, w.changed); err != nil {
			w.cfg.Log.Warn("changes of the nftables table by other programs are not noticed", "err", err)
		}
	})
}

// tableConfig returns the settings of the table, with the families of the host and the Node's
// Pods.
func (w *worker) tableConfig(v *cluster.View) nft.Config {
	cfg := w.settings.Table
	cfg.Families = families()
	if n := v.Node(w.Proxy.node); n != nil && w.settings.PodCIDRs {
		cfg.Pods.CIDRs = n.PodCIDRs
	}
	return cfg
}

// families returns the families of the host. Where IPv6 is disabled, it has no such file.
func families() []nft.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []nft.Family{nft.IPv4}
	}
	return []nft.Family{nft.IPv4, nft.IPv6}
}

// nodeOf returns the node. Without its Node object, it has no zone and, unless the settings
// have ranges, no addresses for node ports.
func (w *worker) nodeOf(v *cluster.View) plan.Node {
	node := plan.Node{Name: w.Proxy.node, Addresses: localAddresses()}
	if n := v.Node(w.Proxy.node); n != nil {
		node.Zone, node.NodePorts = n.Zone, n.InternalIPs
	}
	if len(w.settings.NodePorts) == 0 {
		return node
	}
	node.NodePorts = nil
	for _, a := range node.Addresses {
		if !a.IsLoopback() && slices.ContainsFunc(w.settings.NodePorts, func(p netip.Prefix) bool { return p.Contains(a) }) {
			node.NodePorts = append(node.NodePorts, a)
		}
	}
	return node
}

func equalNodes(a, b plan.Node) bool {
	return a.Name == b.Name && a.Zone == b.Zone && slices.Equal(a.NodePorts, b.NodePorts) && slices.Equal(a.Addresses, b.Addresses)
}

// localAddresses returns the addresses of the host's interfaces, sorted; none if they cannot
// be read.
func localAddresses() (all []netip.Addr) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, prefix.Addr().Unmap())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}
