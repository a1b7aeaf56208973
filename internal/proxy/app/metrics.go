package app

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
)

// syncKind is how much of the table a transaction compares.
type syncKind string

const (
	noSync      syncKind = "none" // nothing changed, or the cluster is not loaded yet
	fullSync    syncKind = "full"
	partialSync syncKind = "partial"
)

// proxyMetrics are the metrics of the service proxy.
type proxyMetrics struct {
	duration *prometheus.HistogramVec
	elements prometheus.Counter
	failures prometheus.Counter
	repairs  prometheus.Counter
	delay    prometheus.Histogram
	leftOut  prometheus.Gauge
	kube     *kubeProxyMetrics
	// connections is nil without counters.
	connections prometheus.Collector
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
	m.leftOut = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "portolan_proxy_services_left_out",
		Help: "Services that are not served, since older ones have all that the proxy holds with its memory limit.",
	})
	m.delay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "portolan_proxy_programming_duration_seconds",
		Help:    "Time from what caused a change of endpoints, as its controller noted it, until the kernel has the change.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
	})
	m.kube = newKubeProxyMetrics()
	for _, kind := range []syncKind{fullSync, partialSync} {
		m.duration.WithLabelValues(string(kind))
	}
	return m
}

// observe records a transaction.
func (m *proxyMetrics) observe(kind syncKind, elements int, took time.Duration, err error) {
	m.kube.observe(kind, took, err)
	m.elements.Add(float64(elements))
	switch {
	case err != nil:
		m.failures.Inc()
	default:
		m.duration.WithLabelValues(string(kind)).Observe(took.Seconds())
	}
}

// probed records a response to a probe.
func (m *proxyMetrics) probed(path string, status int) {
	of := m.kube.livez
	if path == "/healthz" {
		of = m.kube.healthz
	}
	of.WithLabelValues(strconv.Itoa(status)).Inc()
}

// programmed records that the kernel has changes, given when they were caused by other machines'
// clocks, which may be ahead.
func (m *proxyMetrics) programmed(causes map[cluster.Ref]int64) {
	for _, cause := range causes {
		m.delay.Observe(max(0, time.Since(time.Unix(0, cause)).Seconds()))
	}
}

// collectors returns all metrics.
func (m *proxyMetrics) collectors() []prometheus.Collector {
	all := append(
		[]prometheus.Collector{m.duration, m.elements, m.failures, m.repairs, m.delay, m.leftOut},
		m.kube.collectors()...)
	if m.connections != nil {
		all = append(all, m.connections)
	}
	return all
}

// Describe sends the descriptions of all metrics.
func (m *proxyMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect sends the current metrics.
func (m *proxyMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}
