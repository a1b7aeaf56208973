// Package app assembles the agent of a node: its addresses are put on the node
// and packets diverted to it, for as long as it runs.
package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/node/hostnet"
	"portolan.dev/portolan/internal/ops/metrics"
)

// part is what answers at a node's addresses, see daemon.Part.
type part interface {
	Name() string
	Needs() []cluster.Kind
	Bind(ctx context.Context) (serving []any, err error)
	Run(ctx context.Context) error
	Close()
	Ready() (missing, remarks []string)
	Metrics() prometheus.Collector
}

// OnNode is a part with addresses of its own on the node.
type OnNode struct {
	part
	cfg     hostnet.Config
	log     *slog.Logger
	network *hostnet.Net // nil until Bind
}

// New puts the addresses of cfg on the node while p runs.
func New(cfg hostnet.Config, p part, log *slog.Logger) *OnNode {
	cfg.Log = log
	return &OnNode{part: p, cfg: cfg, log: log}
}

// Bind puts the addresses on the node, and binds them.
func (o *OnNode) Bind(ctx context.Context) (serving []any, err error) {
	if o.network, err = hostnet.Install(o.cfg); err != nil {
		return nil, err
	}
	return o.part.Bind(ctx)
}

// Start diverts packets for the addresses to this process until ctx, the order to
// stop, is done: packets in flight are answered to the end.
func (o *OnNode) Start(ctx context.Context) error {
	context.AfterFunc(ctx, func() {
		if err := o.network.Undivert(); err != nil {
			o.log.Warn("packets for the node's addresses keep coming here until the end", "err", err)
		}
	})
	return o.network.Divert()
}

// Run runs the part, and repairs what is on the node.
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

// Close takes from the node what Bind put there.
func (o *OnNode) Close() {
	o.part.Close()
	if o.network == nil {
		return
	}
	if err := o.network.Close(); err != nil {
		o.log.Error("the node's network is not as it was before", "err", err)
	}
}

// Ready is the part's, with a remark where the network cannot be repaired.
func (o *OnNode) Ready() (missing, remarks []string) {
	missing, remarks = o.part.Ready()
	if err := o.network.Healthy(); err != nil {
		remarks = append(remarks, "the node's network cannot be repaired: "+err.Error())
	}
	return missing, remarks
}

// Metrics collects the metrics of the part and of the node's network.
func (o *OnNode) Metrics() prometheus.Collector { return &collector{o} }

type collector struct{ *OnNode }

var (
	healthy = metrics.Desc(
		"node_network_healthy", "Whether all that the agent put on its node was there at the last look.",
	)
	repairs = metrics.Desc("node_network_repairs_total", "Repairs of what the agent put on its node.")
)

// Describe sends the descriptions of what Collect sends.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	c.part.Metrics().Describe(ch)
	ch <- healthy
	ch <- repairs
}

// Collect sends the metrics of the moment.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.part.Metrics().Collect(ch)
	metrics.Gauge(ch, healthy, metrics.Truth(c.network.Healthy() == nil))
	metrics.Counter(ch, repairs, c.network.Repairs())
}
