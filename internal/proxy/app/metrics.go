package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// syncKind is how much of the table a transaction compares.
type syncKind string

const (
	noSync      syncKind = "none" // the cluster is not loaded yet
	fullSync    syncKind = "full"
	partialSync syncKind = "partial"
)

// proxyMetrics are the metrics of the service proxy.
type proxyMetrics struct {
	duration *prometheus.HistogramVec
	elements prometheus.Counter
	failures prometheus.Counter
	repairs  prometheus.Counter
}

func newMetrics() *proxyMetrics {
	m := &proxyMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "portolan_proxy_sync_duration_seconds",
			Help:    "Time to compile changes and to program them into the kernel.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18),
		}, []string{"kind"}),
		elements: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_proxy_elements_changed_total", Help: "Elements of nftables maps that were added or removed.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_proxy_sync_failures_total", Help: "Transactions that failed. They are retried.",
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_proxy_repairs_total", Help: "Times that another program had changed the nftables table.",
		}),
	}
	for _, kind := range []syncKind{fullSync, partialSync} {
		m.duration.WithLabelValues(string(kind))
	}
	return m
}

// observe records a transaction.
func (m *proxyMetrics) observe(kind syncKind, elements int, took time.Duration, err error) {
	m.elements.Add(float64(elements))
	switch {
	case err != nil:
		m.failures.Inc()
	case kind != noSync:
		m.duration.WithLabelValues(string(kind)).Observe(took.Seconds())
	}
}

// Describe sends the descriptions of all metrics.
func (m *proxyMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.duration.Describe(ch)
	m.elements.Describe(ch)
	m.failures.Describe(ch)
	m.repairs.Describe(ch)
}

// Collect sends the current metrics.
func (m *proxyMetrics) Collect(ch chan<- prometheus.Metric) {
	m.duration.Collect(ch)
	m.elements.Collect(ch)
	m.failures.Collect(ch)
	m.repairs.Collect(ch)
}
