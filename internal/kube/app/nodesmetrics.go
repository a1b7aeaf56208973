package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/kube/nodespec"
	"portolan.dev/portolan/internal/ops/metrics"
)

// nodesMetrics are the metrics of the controller of Nodes' ranges.
type nodesMetrics struct {
	of      *nodespec.Controller
	leading *leading
	writes  *prometheus.CounterVec
}

var (
	podRanges = metrics.Desc("pod_ranges",
		"Ranges of pod addresses, for the Nodes of a cluster, that are free or taken; none where this process does not lead.",
		"family", "state")
	podRangesMissing = metrics.Desc("pod_ranges_missing",
		"Nodes that get no range of pod addresses, because all are taken.")
)

func newNodesMetrics(leading *leading) *nodesMetrics {
	m := &nodesMetrics{leading: leading, writes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portolan_pod_range_writes_total",
		Help: "Attempts to write the ranges of a Node; kept are those where the Node has others, which stay, or is gone.",
	}, []string{"result"})}
	for _, result := range []nodespec.Result{nodespec.Written, nodespec.Kept, nodespec.Failed} {
		m.writes.WithLabelValues(string(result))
	}
	return m
}

func (m *nodesMetrics) wrote(r nodespec.Result) { m.writes.WithLabelValues(string(r)).Inc() }

// Describe sends the descriptions of all metrics.
func (m *nodesMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.writes.Describe(ch)
	ch <- podRanges
	ch <- podRangesMissing
	ch <- leads
}

// Collect sends the current metrics.
func (m *nodesMetrics) Collect(ch chan<- prometheus.Metric) {
	m.writes.Collect(ch)
	leading := m.leading.working.Load()
	metrics.Gauge(ch, leads, metrics.Truth(leading))
	if !leading {
		return
	}
	usage, waiting := m.of.Usage()
	for _, u := range usage {
		metrics.Gauge(ch, podRanges, float64(u.Free), string(u.Family), "free")
		metrics.Gauge(ch, podRanges, float64(u.Taken), string(u.Family), "taken")
	}
	metrics.Gauge(ch, podRangesMissing, float64(waiting))
}
