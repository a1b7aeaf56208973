// Package app assembles the agent of a node. While the agent runs, the node has its
// addresses and packets for them are diverted to it.
package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/node/hostnet"
	"portolan.dev/portolan/internal/ops/metrics"
	"portolan.dev/portolan/internal/support/budget"
)

// part is the part that answers at a node's addresses, see daemon.Part.
type part interface {
	Name() string
	Needs() []cluster.Kind
	Bind(ctx context.Context) (serving []any, err error)
	Run(ctx context.Context) error
	Close()
	Ready() (missing, remarks []string)
	Metrics() prometheus.Collector
	Accounts() []budget.Stats
}

// OnNode is a part with dedicated addresses on the node.
type OnNode struct {
	part
	cfg     hostnet.Config
	log     *slog.Logger
	network *hostnet.Net // nil until Bind
}

// New returns p with the addresses of cfg, which the node has while p runs.
func New(cfg hostnet.Config, p part, log *slog.Logger) *OnNode {
	cfg.Log = log
	return &OnNode{part: p, cfg: cfg, log: log}
}

// Bind adds the addresses to the node and binds the part to them.
func (o *OnNode) Bind(ctx context.Context) (serving []any, err error) {
	if o.network, err = hostnet.Install(o.cfg); err != nil {
		return nil, err
	}
	return o.part.Bind(ctx)
}

// Start diverts packets for the addresses to this process until ctx is done, when the
// process is told to stop. Packets in flight are still answered then.
func (o *OnNode) Start(ctx context.Context) error {
	context.AfterFunc(ctx, func() {
		if err := o.network.Undivert(); err != nil {
			o.log.Warn("cannot remove the nftables rules; packets for the node's addresses still reach this process", "err", err)
		}
	})
	return o.network.Divert()
}

// Run runs the part, and repairs the node's network.
func (o *OnNode) Run(ctx context.Context) error {
	repairing, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = o.network.Run(repairing) // ends with its context
	}()
	err := o.part.Run(ctx)
	stop()
	<-done
	return err
}

// Close undoes Bind.
func (o *OnNode) Close() {
	o.part.Close()
	if o.network == nil {
		return
	}
	if err := o.network.Close(); err != nil {
		o.log.Error("cannot restore the node's network", "err", err)
	}
}

// Ready returns the part's readiness, with a remark if the network cannot be repaired.
func (o *OnNode) Ready() (missing, remarks []string) {
	missing, remarks = o.part.Ready()
	if err := o.network.Healthy(); err != nil {
		remarks = append(remarks, "the node's network cannot be repaired: "+err.Error())
	}
	return missing, remarks
}

// Metrics returns the collector of the metrics of the part and of the node's network.
func (o *OnNode) Metrics() prometheus.Collector { return &collector{o} }

type collector struct{ *OnNode }

var (
	healthy = metrics.Desc(
		"node_network_healthy",
		"1 if the agent's device, addresses and nftables rules were all present at the last check, otherwise 0.",
	)
	repairs = metrics.Desc("node_network_repairs_total", "Repairs of the agent's device, addresses or nftables rules.")
)

// Describe sends the descriptions of all metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	c.part.Metrics().Describe(ch)
	ch <- healthy
	ch <- repairs
}

// Collect sends the current metrics.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.part.Metrics().Collect(ch)
	metrics.Gauge(ch, healthy, metrics.Truth(c.network.Healthy() == nil))
	metrics.Counter(ch, repairs, c.network.Repairs())
}
