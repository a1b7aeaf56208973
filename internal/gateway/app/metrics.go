package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
)

// gatewayMetrics are the metrics of a gateway.
type gatewayMetrics struct {
	compiles prometheus.Histogram
}

func newMetrics() *gatewayMetrics {
	return &gatewayMetrics{
		compiles: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "portolan_gateway_compile_duration_seconds",
			Help:    "Time from the notice of a change until requests are served by it.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}),
	}
}

// done records what became of a request.
func (m *gatewayMetrics) done(*proxy.Record) {}

// refused records a request that was refused.
func (m *gatewayMetrics) refused(h1.Refusal) {}

// compiled records that changes are served.
func (m *gatewayMetrics) compiled(took time.Duration, _ *cluster.Changes) {
	m.compiles.Observe(took.Seconds())
}

// Describe sends the descriptions of all metrics.
func (m *gatewayMetrics) Describe(ch chan<- *prometheus.Desc) { m.compiles.Describe(ch) }

// Collect sends the current metrics.
func (m *gatewayMetrics) Collect(ch chan<- prometheus.Metric) { m.compiles.Collect(ch) }
