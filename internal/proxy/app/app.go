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
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/proxy/conntrack"
	"portolan.dev/portolan/internal/proxy/healthcheck"
	"portolan.dev/portolan/internal/proxy/settings"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/httpserver"
	"portolan.dev/portolan/internal/support/programmer"
	"portolan.dev/portolan/internal/support/retry"
)

// Config configures a Proxy.
type Config struct {
	Settings config.Config
	Store    *cluster.Store
	Log      *slog.Logger
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
	// Loaded is called when the kernel has the cluster for the first time.
	Loaded func()
	// Memory is the share of the memory limit of the process that Services may take, above 0 and up to 1.
	Memory float64
	// Warn tells the owner of a Service of a problem; nil tells nobody.
	Warn func(context.Context, Warning) error
}

// Proxy is the service proxy of a node.
type Proxy struct {
	cfg      Config
	settings settings.Compiled
	node     string
	metrics  *proxyMetrics
	counters *counters // nil without proxy.counters
	health   *healthcheck.Health
	checks   *healthcheck.Servers
	flows    *conntrack.Cleaner
	warnings warnings
	servers  []*httpserver.Server // the probes'
	probes   *budget.Account      // connections to them
	room     int                  // plan.Node.Room
	// programmed is closed when the kernel has the cluster for the first time.
	programmed chan struct{}

	programmer *programmer.Programmer
}

// New returns a Proxy. It returns an error if the settings are invalid. It starts nothing.
func New(cfg Config) (*Proxy, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, settings: compiled.Proxy, metrics: newMetrics(), programmed: make(chan struct{})}
	p.settings.Table.Log = cfg.Log
	p.programmer = programmer.New(programmer.Config{
		Part: "proxy", Table: p.settings.Table.Name, Title: "the nftables table",
		State: "the present state of the cluster", NotSynced: errors.New("the Services are not in the kernel yet"),
		Standby: "another process programs the nftables table; this one takes over when it ends",
		Repair:  "; Linux 6.9 or newer refuses such changes", Repeated: "repairs wait longer and longer",
		LongestRepair: retry.LongestPause, Log: cfg.Log,
	})
	p.metrics.transactions = p.programmer
	p.warnings = newWarnings(cfg.Warn, cfg.Log)
	if p.settings.Table.Counters {
		p.counters = newCounters(cfg.Log)
		p.metrics.connections = p.counters
	}
	p.health = healthcheck.NewHealth(p.settings.HealthLimit, time.Now)
	p.checks = healthcheck.New(healthcheck.Config{Healthy: p.health.Healthy, Report: p.reportCheck, Log: cfg.Log})
	p.flows = conntrack.New(conntrack.Config{ResetTCP: p.settings.ResetTCP, Passed: p.metrics.kube.passed, Log: cfg.Log})
	p.probes = budget.NewAccount("healthz", budget.Limits{Total: maxProbes, PerSource: maxProbes})
	p.room = budget.Within(cfg.Memory, roomCost, math.MaxInt)
	p.node, err = NodeName(p.settings.NodeName)
	return p, err
}

// Init makes what needs more privileges than Run: the settings of connection tracking. Its error
// names those that cannot be made.
func Init(settings *config.Config, log *slog.Logger) error {
	compiled, err := settings.Compile()
	if err != nil {
		return err
	}
	return conntrack.Require(compiled.Proxy.Conntrack.Sysctls(conntrack.CPUs()), log)
}

// reportCheck logs that the health check of a Service is not served, or is again.
func (p *Proxy) reportCheck(service cluster.Key, err error) {
	if err != nil {
		p.cfg.Log.Error("load balancers cannot check a Service", "err", err)
		p.warnings.put(Warning{
			Service: service, Node: p.node, Reason: "FailedToStartServiceHealthcheck", Action: "Listen",
			Note: "node " + p.node + ": " + err.Error(),
		})
		return
	}
	p.cfg.Log.Info("load balancers can check a Service again", "service", service)
}

// NodeName returns the name of the Node: as set, or of the environment variable NODE_NAME, or
// the host name in lower case, as kubelets register.
func NodeName(set string) (string, error) {
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

// Node returns the name of the Node.
func (p *Proxy) Node() string { return p.node }

// Name returns the part's name.
func (p *Proxy) Name() string { return "proxy" }

// Needs returns the kinds that frontends are compiled from.
func (p *Proxy) Needs() []cluster.Kind {
	return []cluster.Kind{cluster.KindService, cluster.KindEndpointSlice, cluster.KindNode, cluster.KindServiceCIDR}
}

// Bind binds the address of the probes. The kernel changes when the cluster is known.
func (p *Proxy) Bind(ctx context.Context) (serving []any, err error) {
	serving = []any{"node", p.node, "table", p.settings.Table.Name}
	if !p.settings.Healthz.IsValid() {
		return serving, nil
	}
	probes := &healthcheck.Probes{Health: p.health, Node: p.thisNode, Observe: p.metrics.probed}
	server, err := httpserver.Listen(ctx, httpserver.Config{
		Name: "proxy.healthz", Listen: p.settings.Healthz, Handler: probes.Handler(), Timeout: probeTimeout, Log: p.cfg.Log,
		Connections: p.probes, Program: "portolan proxy", // of which another one may stand by
	})
	if err != nil {
		return nil, err
	}
	p.servers = append(p.servers, server)
	return append(serving, "healthz", p.settings.Healthz), nil
}

// roomCost is how much memory a unit of plan.Service.Size takes while the whole table is compared, in
// octets, with the model and with what garbage there is.
const roomCost = 512

// maxProbes is how many connections to the probes there may be, and probeTimeout how long a
// request and its response may take.
const (
	maxProbes    = 256
	probeTimeout = 5 * time.Second
)

// thisNode returns the Node; without an API it exists if no manifest has one.
func (p *Proxy) thisNode() (n *cluster.Node) {
	p.cfg.Store.View(func(v *cluster.View) {
		if n = v.Node(p.node); n == nil && p.cfg.Settings.Manifests != "" {
			n = &cluster.Node{Name: p.node}
		}
	})
	return n
}

// Close closes the probes. What is in the kernel stays.
func (p *Proxy) Close() {
	for _, server := range p.servers {
		server.Close()
	}
}

// Ready describes what is missing until the kernel has what the cluster wants, from this process
// or from the one that it replaces.
func (p *Proxy) Ready() (missing, remarks []string) {
	return p.programmer.Ready(func() error {
		if p.cfg.Problem == nil {
			return nil
		}
		return p.cfg.Problem(p.Needs()...)
	})
}

// Accounts returns the figures of the connections.
func (p *Proxy) Accounts() []budget.Stats { return append(p.checks.Accounts(), p.probes.Stats()) }

// Metrics returns the collector of the part's metrics.
func (p *Proxy) Metrics() prometheus.Collector { return p.metrics }

// addressInterval is the interval between looks at the host's addresses.
const addressInterval = 5 * time.Second

// Run keeps the kernel current until ctx is done, and returns nil. It waits until Services,
// EndpointSlices, Nodes and ServiceCIDRs are known; until then the kernel keeps what it has.
func (p *Proxy) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return p.flows.Run(running) })
	group.Go(func() error { return p.checks.Run(running) })
	group.Go(func() error { return p.warnings.run(running) })
	for _, server := range p.servers {
		group.Go(func() error { return server.Run(running) })
	}
	if p.settings.ReplaceKubeProxy {
		group.Go(func() error {
			take := &takeover{log: p.cfg.Log}
			take.run(running, p.programmed)
			return nil
		})
	}
	group.Go(func() error { return newWorker(p).run(running) })
	return group.Wait()
}
