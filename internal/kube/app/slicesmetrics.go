package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/ops/metrics"
)

// slicesMetrics are the metrics of the EndpointSlice controller.
type slicesMetrics struct {
	controller *endpointslices.Controller
	leading    func() bool
	syncs      *prometheus.CounterVec
	duration   prometheus.Histogram
}

var (
	queueDepth = metrics.Desc(
		"controller_queue_depth",
		"Services that wait to be worked on; where this process does not lead, those that would be.",
	)
	sliceCount = metrics.Desc(
		"controller_endpointslices", "EndpointSlices that the controller manages, as listed by the API.",
	)
	leads = metrics.Desc("controller_leader", "Whether this process leads: 1, and 0 while it waits to take over.")
)

func newSlicesMetrics(leading func() bool) *slicesMetrics {
	m := &slicesMetrics{
		leading: leading,
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portolan_controller_syncs_total",
			Help: "Attempts at the EndpointSlices of a Service; stale are those postponed until the API's watch shows " +
				"what was written before.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "portolan_controller_sync_duration_seconds",
			Help:    "Time that an attempt took, writing included.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}),
	}
	for _, result := range []string{"done", "stale", "failed"} {
		m.syncs.WithLabelValues(result)
	}
	return m
}

// observe sets the controller whose state is collected.
func (m *slicesMetrics) observe(c *endpointslices.Controller) { m.controller = c }

// Synced records a sync of a Service.
func (m *slicesMetrics) Synced(result endpointslices.SyncResult, took time.Duration) {
	m.syncs.WithLabelValues(string(result)).Inc()
	m.duration.Observe(took.Seconds())
}

// Describe sends the descriptions of all metrics.
func (m *slicesMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.syncs.Describe(ch)
	m.duration.Describe(ch)
	ch <- queueDepth
	ch <- sliceCount
	ch <- leads
}

// Collect sends the current metrics.
func (m *slicesMetrics) Collect(ch chan<- prometheus.Metric) {
	m.syncs.Collect(ch)
	m.duration.Collect(ch)
	metrics.Gauge(ch, queueDepth, float64(m.controller.Waiting()))
	metrics.Gauge(ch, sliceCount, float64(m.controller.Slices()))
	metrics.Gauge(ch, leads, metrics.Truth(m.leading()))
}
