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
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/gateway/accesslog"
	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/datagram"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/settings"
	"portolan.dev/portolan/internal/gateway/status"
	"portolan.dev/portolan/internal/gateway/stream"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/tlsfront"
	"portolan.dev/portolan/internal/gateway/tracing"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/certfile"
	"portolan.dev/portolan/internal/support/evidence"
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
	// AccessLog is where the lines of the access log go.
	AccessLog io.Writer
	// Evidence, if not nil, receives a sample of requests.
	Evidence *evidence.Ring
	// Statuses writes to the API; nil without one. Lead and Bundles are as in status.Config.
	Statuses status.Writer
	Lead     func(ctx context.Context, work func(context.Context) error) error
	Bundles  func(ctx context.Context, set func(status.Bundle)) error
	// TicketKeys follows the keys of session tickets that gateways share, that which encrypts first, until ctx is done;
	// nil if they share none.
	TicketKeys func(ctx context.Context, set func([][32]byte)) error
}

// Gateway serves requests for Ingresses and HTTPRoutes.
type Gateway struct {
	cfg         Config
	settings    settings.Compiled
	metrics     *gatewayMetrics
	endpoints   *balance.Set[table.Upstream] // where upstreams are; the worker changes them
	proxy       *proxy.Proxy
	connections *budget.Account
	streams     *budget.Account // requests over HTTP/2
	sessions    *budget.Account // of UDP
	passing     *stream.Server
	datagrams   *datagram.Server
	log         *accesslog.Log
	evidence    evidenceOf
	tracer      *tracing.Tracer // nil without a collector
	sockets     *sockets
	fronts      *tlsfront.Front
	ofFiles     func() *tls.Certificate // the certificate of gateway.ingress.certificate; nil without one
	pressure    *pressure               // nil without a memory limit
	reporter    *status.Reporter
	writes      bool // the reporter writes to an API
	worker      *worker
	underWay    atomic.Int64 // requests, and upgraded connections
	stopped     atomic.Bool  // what was left was broken off at the end of the process
}

// New returns a Gateway. It returns an error if the settings are invalid. It starts nothing.
func New(cfg Config) (*Gateway, error) {
	compiled, err := cfg.Settings.Compile()
	if err != nil {
		return nil, err
	}
	made := compiled.Gateway
	g := &Gateway{
		cfg: cfg, settings: made, endpoints: new(balance.Set[table.Upstream]),
		connections: newConnections(made.Connections), streams: newStreams(), sessions: newSessions(),
	}
	g.metrics = newMetrics(made.RouteMetrics, g.hasRoute)
	if g.settings.Compile.Node == "" {
		g.settings.Compile.Node = os.Getenv("NODE_NAME")
	}
	// Manifests of many projects have Ingresses and no IngressClass, which is the cluster's.
	g.settings.Compile.Unclassed = cfg.Settings.Manifests != ""
	g.log = accesslog.New(accesslog.Config{
		Out: cfg.AccessLog, Format: accesslog.Format(made.AccessLog), Trusted: made.Trusted, Log: cfg.Log,
	})
	g.evidence = newEvidence(cfg.Evidence, runtime.GOMAXPROCS(0), made.Trusted)
	proxying := proxy.Config{
		Endpoints: g.endpoints, Trusted: made.Trusted, Drain: made.DrainEndpoint, DrainUpgraded: made.DrainUpgraded,
		Log: cfg.Log, Clients: budget.Within(clientShare, clientCost, maxClients),
		Done: func(r *proxy.Record) {
			upgraded := r.Status == http.StatusSwitchingProtocols && r.Reason == ""
			if g.stopped.Load() && (upgraded || r.Reason == proxy.ClientGone) {
				r.Reason = proxy.Stopped
			}
			g.metrics.done(r)
			g.log.Request(r)
			g.evidence.request(r)
		},
	}
	if made.TraceEndpoint != "" {
		g.tracer, err = tracing.New(tracing.Config{
			Endpoint: made.TraceEndpoint, OneIn: made.TraceOneIn, Fields: os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"),
			Log: cfg.Log,
		})
		if err != nil {
			return nil, err
		}
		proxying.Tracer = g.tracer
	}
	g.proxy = proxy.New(proxying)
	front := tlsfront.Config{Table: g.proxy.Table, MinVersion: made.MinTLS, Suites: made.Suites, Log: cfg.Log}
	if file := made.Certificate; file != "" {
		c, err := certfile.Open(file, made.Key, cfg.Log)
		if err != nil {
			return nil, fmt.Errorf("gateway.ingress.certificate: %w", err)
		}
		front.Default, g.ofFiles = c.Get, c.Get
	}
	g.fronts = tlsfront.New(front)
	g.newPassing()
	g.sockets = newSockets(socketsConfig{
		Listen: made.Listen, PortOffset: made.PortOffset, Limits: made.Limits, Drain: made.DrainListener,
		Connections: g.connections, Streams: g.passing, Datagrams: g.datagrams, Handler: g.handler, TLS: g.fronts.At,
		Refused: g.refused, BreakOff: g.breakOff, Log: cfg.Log,
	})
	g.pressure = newPressure(g)
	if g.reporter, err = g.newReporter(); err != nil {
		return nil, err
	}
	g.worker = newWorker(g)
	return g, nil
}

// newReporter returns what writes the statuses: into the log if there is no API, or no address that they could have. A
// gateway that serves a cluster's routes on a laptop does not tell the cluster.
func (g *Gateway) newReporter() (*status.Reporter, error) {
	cfg := status.Config{
		Controller: g.settings.Compile.GatewayController, Experimental: g.settings.Compile.Experimental,
		Log: g.cfg.Log,
	}
	publish := &g.settings.Compile.Publish
	if g.settings.PublishNode {
		if publish.Node = g.settings.Compile.Node; publish.Node == "" {
			return nil, errors.New("gateway.publish.node: the name of the Node is not known; set gateway.nodeName")
		}
	}
	switch noAddress := publish.Empty() && len(g.settings.Compile.Pool) == 0; {
	case g.cfg.Statuses != nil && !noAddress:
		cfg.Writer, cfg.Lead, cfg.Bundles, cfg.Wrote = g.cfg.Statuses, g.cfg.Lead, g.cfg.Bundles, g.metrics.wrote
		g.writes = true
		return status.New(cfg), nil
	case g.cfg.Statuses != nil:
		g.cfg.Log.Info("statuses are not written: gateway.publish and gateway.pool are empty")
	}
	cfg.Writer = newStatusLog(&g.cfg, cfg.Controller)
	*publish = compile.Publish{Addresses: []string{netip.IPv6Loopback().String()}} // which nobody is told
	return status.New(cfg), nil
}

// The shares of the runtime's memory limit for connections, for requests over HTTP/2 and for sessions of UDP, the
// memory of one in octets, and the highest numbers. An idle connection of HTTP/2 takes 44 KiB with the kernel's part, a
// WebSocket 32 KiB, and others less (test/attack, TestGatewayFull); a session of UDP takes 11 KiB. Those whose clients
// take nothing can take much more: see pressure.
const (
	connectionShare = 0.55
	streamShare     = 0.27
	connectionCost  = 32 << 10
	maxConnections  = 50_000
	sessionShare    = 0.1
	sessionCost     = 12 << 10
)

// The share of the memory limit for clients of rate limits, the memory of one in octets, and the highest number.
const (
	clientShare = 0.02
	clientCost  = 128
	maxClients  = 128 << 10
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

// newStreams returns the account of all requests over HTTP/2.
func newStreams() *budget.Account {
	n := budget.Within(streamShare, connectionCost, maxConnections)
	return budget.NewAccount("gateway-http2", budget.Limits{Total: n, PerSource: n})
}

// newSessions returns the account of all sessions of UDP.
func newSessions() *budget.Account {
	n := budget.Within(sessionShare, sessionCost, maxConnections)
	return budget.NewAccount("gateway-udp", budget.Limits{Total: n, PerSource: n})
}

// newPassing makes what passes on connections and datagrams as they are.
func (g *Gateway) newPassing() {
	g.passing = stream.New(stream.Config{
		Table: g.proxy.Table, Endpoints: g.endpoints, TLS: g.fronts.StreamsAt, Idle: g.settings.StreamIdle,
		Handshake: g.settings.Limits.HandshakeTimeout, Drain: g.settings.DrainUpgraded, Log: g.cfg.Log,
		Began: func() {
			g.pressure.begin()
			g.underWay.Add(1)
		},
		Done: func(r *stream.Record) {
			g.metrics.passed(r)
			g.log.Stream(r)
			g.evidence.passed(r)
			g.underWay.Add(-1)
		},
	})
	g.datagrams = datagram.New(datagram.Config{
		Table: g.proxy.Table, Endpoints: g.endpoints, Sessions: g.sessions, Idle: g.settings.SessionIdle, Log: g.cfg.Log,
		Done: func(r *datagram.Record) {
			g.metrics.session(r)
			g.log.Session(r)
			g.evidence.session(r)
		},
	})
}

// handler returns what serves the requests that come to a socket.
func (g *Gateway) handler(at table.Socket) http.Handler {
	serve := g.proxy.At(at)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.pressure.begin()
		g.underWay.Add(1)
		defer g.underWay.Add(-1)
		if r.ProtoMajor >= 2 {
			peer, _ := netip.ParseAddrPort(r.RemoteAddr) // none is a source, too
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			entry, err := g.streams.EnterFairly(peer.Addr(), func(error) { // it ends for another one
				cancel()
				_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // if it fails, the stream has ended
			})
			if err != nil {
				g.refuseStream(w, r, err)
				return
			}
			defer entry.Leave()
			r = r.WithContext(ctx)
		}
		serve.ServeHTTP(w, r)
	})
}

// refuseStream answers a request over HTTP/2 that there is no room for.
func (g *Gateway) refuseStream(w http.ResponseWriter, r *http.Request, err error) {
	const status = http.StatusServiceUnavailable
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	g.refused(h1.Refusal{Local: local, Remote: r.RemoteAddr, Status: status, Reason: "too many requests over HTTP/2"})
	http.Error(w, http.StatusText(status)+": "+err.Error(), status)
}

// refused records a request that was refused.
func (g *Gateway) refused(r h1.Refusal) {
	g.metrics.refuse(r)
	g.log.Refused(r)
	g.evidence.refused(r)
}

// closeTracer sends the spans that wait.
func (g *Gateway) closeTracer() {
	if g.tracer == nil {
		return
	}
	const patience = 3 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := g.tracer.Close(ctx); err != nil {
		g.cfg.Log.Warn("the last traces are lost", "err", err)
	}
}

// Name returns the part's name.
func (g *Gateway) Name() string { return "gateway" }

// Needs returns the kinds that the table is compiled from.
func (g *Gateway) Needs() []cluster.Kind {
	return cluster.KindsOfGateway()
}

// Bind binds the port of Ingresses, at which requests are answered with 503 until the cluster is known, unless
// another process serves them until then.
func (g *Gateway) Bind(ctx context.Context) (serving []any, err error) {
	if g.inherit(ctx) {
		return nil, nil
	}
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
	if g.worker.table.Load() == nil {
		missing = append(missing, "the Ingresses and routes are not known yet")
		if g.cfg.Problem != nil {
			if err := g.cfg.Problem(g.Needs()...); err != nil {
				missing = append(missing, err.Error())
			}
		}
	}
	if !g.sockets.bound() {
		missing = append(missing, "no port is bound")
	}
	return missing, g.sockets.problems()
}

// Accounts returns the figures of the connections.
func (g *Gateway) Accounts() []budget.Stats {
	return []budget.Stats{g.connections.Stats(), g.streams.Stats(), g.sessions.Stats()}
}

// Metrics returns the collector of the part's metrics.
func (g *Gateway) Metrics() prometheus.Collector { return g }

// Reconfigure applies the settings that can change: the format of the access log.
func (g *Gateway) Reconfigure(cfg config.Config) error {
	compiled, err := cfg.Compile()
	if err != nil {
		return err
	}
	g.log.SetFormat(accesslog.Format(compiled.Gateway.AccessLog))
	return nil
}

// Run serves requests, and the present state of the cluster, until ctx is done. Then it closes the ports,
// lets what is under way end, and returns nil.
func (g *Gateway) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	working, stop := context.WithCancel(context.WithoutCancel(ctx)) // endpoints change while requests end
	group.Go(func() error { return g.worker.run(working) })
	group.Go(func() error { return g.log.Run(working) })
	group.Go(func() error { return g.reporter.Run(running) })
	if g.cfg.TicketKeys != nil {
		group.Go(func() error {
			if err := g.cfg.TicketKeys(running, g.fronts.SetTicketKeys); running.Err() == nil {
				return err
			}
			return nil
		})
	}
	if g.pressure != nil {
		group.Go(func() error {
			g.pressure.run(working)
			return nil
		})
	}
	group.Go(func() error {
		g.offer(running)
		return nil
	})
	group.Go(func() error {
		defer stop()
		<-running.Done()
		g.drain()
		g.closeTracer()
		return nil
	})
	return group.Wait()
}

// drain closes the ports, and lets what is under way end.
func (g *Gateway) drain() {
	within := g.settings.DrainShutdown
	g.cfg.Log.Info("the ports are closed; what is under way ends", "requests", g.underWay.Load(), "within", within)
	g.sockets.drain(within)
	const patience = time.Second // for those that were broken off, which the access log is to have
	for end := time.Now().Add(patience); g.underWay.Load() > 0 && time.Now().Before(end); {
		time.Sleep(patience / 100)
	}
}

// breakOff notes that what is left is broken off.
func (g *Gateway) breakOff() {
	if n := g.underWay.Load(); n > 0 && g.stopped.CompareAndSwap(false, true) {
		g.cfg.Log.Warn("requests and upgraded connections are broken off: gateway.drain.shutdown is over", "requests", n)
	}
}
