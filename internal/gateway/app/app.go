// Package app assembles a gateway: it follows the model, compiles what changes of Ingresses and of the
// objects of Gateway API, and serves requests by it.
//
//	cluster.Store ──feed──► worker: compile.Compiler ──► proxy.Proxy, balance.Set
//	                                                └──► sockets: an h1.Server for each port, with the
//	                                                     certificates of a tlsfront.Front
//	clients ─────────────────────────────────────────────► sockets ──► proxy.Proxy ──► endpoints
package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/settings"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/tlsfront"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/certfile"
)

// Config configures a Gateway.
type Config struct {
	Settings config.Config
	Store    *cluster.Store
	Log      *slog.Logger
	// Problem returns the first error that prevents reading one of the kinds, or nil.
	Problem func(kinds ...cluster.Kind) error
	// Loaded is called when requests are served by the cluster for the first time.
	Loaded func()
}

// Gateway serves requests for Ingresses and HTTPRoutes.
type Gateway struct {
	cfg      Config
	settings settings.Compiled
	metrics  *gatewayMetrics
	// endpoints are where upstreams are; the worker changes them.
	endpoints   *balance.Set[table.Upstream]
	proxy       *proxy.Proxy
	connections *budget.Account
	sockets     *sockets
	worker      *worker
}

// New returns a Gateway. It returns an error if the settings are invalid. It starts nothing.
func New(cfg Config) (*Gateway, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		cfg: cfg, settings: compiled.Gateway, metrics: newMetrics(), endpoints: new(balance.Set[table.Upstream]),
		connections: newConnections(compiled.Gateway.Connections),
	}
	if g.settings.Compile.Node == "" {
		g.settings.Compile.Node = os.Getenv("NODE_NAME")
	}
	// Manifests of many projects have Ingresses and no IngressClass, which is the cluster's.
	g.settings.Compile.Unclassed = cfg.Settings.Manifests != ""
	g.proxy = proxy.New(proxy.Config{
		Endpoints: g.endpoints, Trusted: g.settings.Trusted, Log: cfg.Log, Done: g.metrics.done,
	})
	front := tlsfront.Config{Table: g.proxy.Table, Log: cfg.Log}
	if file := g.settings.Certificate; file != "" {
		c, err := certfile.Open(file, g.settings.Key, cfg.Log)
		if err != nil {
			return nil, fmt.Errorf("gateway.ingress.certificate: %w", err)
		}
		front.Default = c.Get
	}
	g.sockets = newSockets(socketsConfig{
		Listen: g.settings.Listen, PortOffset: g.settings.PortOffset, Limits: g.settings.Limits,
		Drain: g.settings.DrainListener, Connections: g.connections, Handler: g.proxy.At, TLS: tlsfront.New(front).At,
		Refused: g.metrics.refused, Log: cfg.Log,
	})
	g.worker = newWorker(g)
	return g, nil
}

// The share of the memory limit for connections, the memory of one in octets, and the highest number. One
// with a request has two buffers and a goroutine, and as much towards the endpoint.
const (
	connectionShare = 0.4
	connectionCost  = 32 << 10
	maxConnections  = 50_000
)

// newConnections returns the account of all connections of clients, for as many as set, or as the memory
// limit allows. One client may have them all: it may be a load balancer.
func newConnections(set int) *budget.Account {
	n := set
	if n == 0 {
		n = budget.Within(connectionShare, connectionCost, maxConnections)
	}
	return budget.NewAccount("gateway", budget.Limits{Total: n, PerSource: n})
}

// Name returns the part's name.
func (g *Gateway) Name() string { return "gateway" }

// Needs returns the kinds that the table is compiled from.
func (g *Gateway) Needs() []cluster.Kind {
	return []cluster.Kind{
		cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindNode,
		cluster.KindIngressClass, cluster.KindIngress, cluster.KindGatewayClass, cluster.KindGateway,
		cluster.KindListenerSet, cluster.KindHTTPRoute, cluster.KindReferenceGrant, cluster.KindSecret,
	}
}

// Bind binds the port of Ingresses, at which requests are answered with 503 until the cluster is known.
func (g *Gateway) Bind(ctx context.Context) (serving []any, err error) {
	at := table.Socket{Port: g.settings.Compile.IngressPort}
	g.sockets.update(ctx, []table.Socket{at})
	return []any{"http", g.sockets.addresses(at)}, nil
}

// Close breaks off what is under way.
func (g *Gateway) Close() {
	g.sockets.close()
	g.proxy.Close()
}

// Ready describes what is missing until requests are served as the cluster wants, and which ports cannot
// be bound.
func (g *Gateway) Ready() (missing, remarks []string) {
	if !g.worker.served.Load() {
		missing = append(missing, "the Ingresses and routes are not known yet")
		if g.cfg.Problem != nil {
			if err := g.cfg.Problem(g.Needs()...); err != nil {
				missing = append(missing, err.Error())
			}
		}
	}
	for _, err := range g.sockets.problems() {
		remarks = append(remarks, err)
	}
	return missing, remarks
}

// Accounts returns the figures of the connections.
func (g *Gateway) Accounts() []budget.Stats { return []budget.Stats{g.connections.Stats()} }

// Metrics returns the collector of the part's metrics.
func (g *Gateway) Metrics() prometheus.Collector { return g.metrics }

// Run serves requests, and the present state of the cluster, until ctx is done. Then it closes the ports,
// lets what is under way end, and returns nil.
func (g *Gateway) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	working, stop := context.WithCancel(context.WithoutCancel(ctx)) // endpoints change while requests end
	group.Go(func() error { return g.worker.run(working) })
	group.Go(func() error {
		defer stop()
		<-running.Done()
		g.sockets.drain(g.settings.DrainShutdown)
		return nil
	})
	return group.Wait()
}
