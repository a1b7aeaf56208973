package app

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/conntrack"
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
	probes   map[string]*prometheus.CounterVec // by path
	passes   prometheus.Histogram
	delay    prometheus.Histogram
	deleted  prometheus.Counter
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
	m.probes = map[string]*prometheus.CounterVec{
		"/healthz": kubeProxyCounter("proxy_healthz_total", "Responses of /healthz.", "code"),
		"/livez":   kubeProxyCounter("proxy_livez_total", "Responses of /livez.", "code"),
	}
	m.delay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kubeproxy_network_programming_duration_seconds",
		Help:    "Time from what caused a change of endpoints, as its controller noted it, until the kernel has the change.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
	})
	m.passes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kubeproxy_conntrack_reconciler_sync_duration_seconds",
		Help:    "Time to look for stale entries of connection tracking.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	})
	m.deleted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubeproxy_conntrack_reconciler_deleted_entries_total",
		Help: "Stale entries of connection tracking that were deleted.",
	})
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
	default:
		m.duration.WithLabelValues(string(kind)).Observe(took.Seconds())
	}
}

// kubeProxyCounter returns a counter with kube-proxy's name, for dashboards that have it.
func kubeProxyCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubeproxy_" + name, Help: help}, labels)
}

// probed records a response to a probe.
func (m *proxyMetrics) probed(path string, status int) {
	if c, ok := m.probes[path]; ok {
		c.WithLabelValues(strconv.Itoa(status)).Inc()
	}
}

// programmed records that the kernel has changes, given when they were caused by other machines'
// clocks, which may be ahead.
func (m *proxyMetrics) programmed(causes map[cluster.Ref]int64) {
	for _, cause := range causes {
		m.delay.Observe(max(0, time.Since(time.Unix(0, cause)).Seconds()))
	}
}

// passed records a pass over the entries of connection tracking.
func (m *proxyMetrics) passed(p conntrack.Pass) {
	m.passes.Observe(p.Duration.Seconds())
	m.deleted.Add(float64(p.Deleted))
}

// collectors returns all metrics.
func (m *proxyMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.duration, m.elements, m.failures, m.repairs, m.probes["/healthz"], m.probes["/livez"], m.passes, m.deleted,
		m.delay,
	}
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
