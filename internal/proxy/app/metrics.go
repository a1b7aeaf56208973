package app

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/programmer"
)

// proxyMetrics are the metrics of the service proxy.
type proxyMetrics struct {
	transactions prometheus.Collector
	elements     prometheus.Counter
	delay        prometheus.Histogram
	leftOut      prometheus.Gauge
	kube         *kubeProxyMetrics
	// connections is nil without counters.
	connections prometheus.Collector
}

func newMetrics() *proxyMetrics {
	m := &proxyMetrics{
		elements: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_proxy_elements_changed_total", Help: "Elements of nftables maps that were added or removed.",
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
	return m
}

// observe records a transaction.
func (m *proxyMetrics) observe(r programmer.Result, elements int) {
	m.kube.observe(r)
	m.elements.Add(float64(elements))
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
		[]prometheus.Collector{m.transactions, m.elements, m.delay, m.leftOut},
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
