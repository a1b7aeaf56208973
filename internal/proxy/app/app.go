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

// retryInterval is the interval between attempts after a failure.
const retryInterval = time.Second

// Run keeps the kernel current until ctx is done, and returns nil. It waits until Services,
// EndpointSlices and the Node are known; until then the kernel keeps what it has.
func (p *Proxy) Run(ctx context.Context) error {
	feed := p.cfg.Store.Subscribe()
	defer feed.Close()
	w := &worker{Proxy: p, compiler: plan.NewCompiler(plan.Node{})}
	defer w.close()
	for {
		changes, err := feed.Next(ctx)
		if err != nil {
			return nil
		}
		for err := w.apply(changes); err != nil; err = w.apply(cluster.Changes{}) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(retryInterval):
			}
		}
	}
}

// worker is the goroutine that compiles and programs.
type worker struct {
	*Proxy
	compiler *plan.Compiler
	node     plan.Node
	table    *nft.Table // nil before the first Sync, and after an error
}

func (w *worker) close() {
	if w.table != nil {
		_ = w.table.Close()
	}
}

// apply brings changes into the kernel. After an error the next call brings everything.
func (w *worker) apply(c cluster.Changes) error {
	start := time.Now()
	kind, changed, err := w.program(c)
	w.metrics.observe(kind, changed, time.Since(start), err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.table = nil
		if w.problem == nil || w.problem.Error() != err.Error() {
			w.cfg.Log.Error("the kernel does not have the cluster's present state", "err", err)
		}
		w.problem = err
		return err
	}
	if w.problem != nil {
		w.cfg.Log.Info("the kernel has the cluster's present state again")
		w.problem = nil
	}
	if !w.synced && kind == fullSync {
		w.synced = true
		w.cfg.Log.Info("the kernel has the cluster's Services", "elementsChanged", changed, "took", time.Since(start))
	}
	return nil
}

// program compiles and programs changes: all Services if the node changed, or the table is not
// known.
func (w *worker) program(c cluster.Changes) (kind syncKind, changed int, err error) {
	var run func() error
	kind = noSync
	w.cfg.Store.View(func(v *cluster.View) {
		if !v.Loaded(w.Needs()...) {
			return
		}
		node, known := w.nodeOf(v)
		if !known && len(w.settings.NodePorts) == 0 {
			w.cfg.Log.Debug("the Node does not exist yet", "node", w.Proxy.node)
		}
		if w.table == nil || c.Everything || !equalNodes(node, w.node) {
			kind = fullSync
			state := w.compiler.All(v, node)
			w.node = node
			cfg := w.tableConfig(v)
			run = func() error {
				if w.table == nil {
					w.table = nft.New(cfg)
				}
				changed, err = w.table.Sync(state)
				return err
			}
			return
		}
		kind = partialSync
		changes := w.compiler.Apply(v, func(yield func(cluster.Key) bool) {
			for ref := range maps.Keys(c.Objects) {
				if ref.Kind == cluster.KindService && !yield(ref.Key) {
					return
				}
			}
		})
		run = func() error {
			changed, err = w.table.Apply(changes)
			return err
		}
	})
	if run != nil {
		err = run()
	}
	return kind, changed, err
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

// nodeOf returns the node. Without its Node, or without InternalIPs, its addresses are those
// of its interfaces.
func (w *worker) nodeOf(v *cluster.View) (node plan.Node, known bool) {
	node.Name = w.Proxy.node
	node.Addresses = localAddresses()
	n := v.Node(w.Proxy.node)
	if n != nil {
		node.Zone = n.Zone
		node.NodePorts = n.InternalIPs
	}
	if len(w.settings.NodePorts) == 0 {
		return node, n != nil
	}
	node.NodePorts = nil
	for _, a := range node.Addresses {
		if !a.IsLoopback() && slices.ContainsFunc(w.settings.NodePorts, func(p netip.Prefix) bool { return p.Contains(a) }) {
			node.NodePorts = append(node.NodePorts, a)
		}
	}
	return node, n != nil
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
