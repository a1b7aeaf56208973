package app

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/conntrack"
	"portolan.dev/portolan/internal/proxy/plan"
	"portolan.dev/portolan/internal/support/programmer"
)

// kubeProxyMetrics are metrics with the names, labels and buckets of kube-proxy in mode nftables
// (k8s.io/kubernetes v1.36.3, pkg/proxy/metrics), so that dashboards and sums over nodes with
// either go on. A transaction changes both families: its duration counts for each.
type kubeProxyMetrics struct {
	families []cluster.AddressType // the host's

	sync, full, partial *prometheus.HistogramVec
	queuedAt, syncedAt  *prometheus.GaugeVec
	endpointsPending    prometheus.Gauge
	endpointsTotal      prometheus.Counter
	servicesPending     prometheus.Gauge
	servicesTotal       prometheus.Counter
	failures, cleanups  *prometheus.CounterVec
	noLocal             *prometheus.GaugeVec
	programming         *prometheus.HistogramVec
	healthz, livez      *prometheus.CounterVec
	passes              *prometheus.HistogramVec
	deleted             *prometheus.CounterVec
}

// byFamily is the label of most of kube-proxy's metrics.
const byFamily = "ip_family"

func newKubeProxyMetrics() *kubeProxyMetrics {
	m := &kubeProxyMetrics{
		families: []cluster.AddressType{cluster.IPv4, cluster.IPv6}[:len(families())],
		queuedAt: gaugeVec(
			"sync_proxy_rules_last_queued_timestamp_seconds",
			"When a change was last seen.",
			byFamily,
		),
		syncedAt: gaugeVec("sync_proxy_rules_last_timestamp_seconds",
			"When the kernel last got all.", byFamily),
		endpointsPending: gauge("sync_proxy_rules_endpoint_changes_pending", "Changes of endpoints that the kernel lacks."),
		servicesPending:  gauge("sync_proxy_rules_service_changes_pending", "Changes of Services that the kernel lacks."),
		noLocal: gaugeVec("sync_proxy_rules_no_local_endpoints_total",
			"Ports of Services with a traffic policy Local and endpoints on other nodes only.", "traffic_policy", byFamily),
		endpointsTotal: prometheus.NewCounter(counterOpts("sync_proxy_rules_endpoint_changes_total",
			"Changes of endpoints. Those of a Service that come together count once.")),
		servicesTotal: prometheus.NewCounter(counterOpts("sync_proxy_rules_service_changes_total",
			"Changes of Services. Those of one that come together count once.")),
		failures: counterVec(
			"sync_proxy_rules_nftables_sync_failures_total",
			"Transactions that failed. They are retried.",
			byFamily,
		),
		cleanups: counterVec("sync_proxy_rules_nftables_cleanup_failures_total",
			"Always 0: what is stale is removed in the transaction that makes it so.", byFamily),
		healthz: counterVec("proxy_healthz_total", "Responses of /healthz.", "code"),
		livez:   counterVec("proxy_livez_total", "Responses of /livez.", "code"),
		deleted: counterVec("conntrack_reconciler_deleted_entries_total",
			"Stale entries of connection tracking that were deleted.", byFamily),
	}
	short := prometheus.ExponentialBuckets(0.001, 2, 15)
	m.sync = histogramVec("sync_proxy_rules_duration_seconds", "Time to compile and program changes.", short)
	m.full = histogramVec("sync_full_proxy_rules_duration_seconds",
		"The same where the whole table was compared.", short)
	m.partial = histogramVec(
		"sync_partial_proxy_rules_duration_seconds",
		"The same where only changes were programmed.",
		short,
	)
	m.passes = histogramVec("conntrack_reconciler_sync_duration_seconds",
		"Time to look for stale entries of connection tracking.", short)
	m.programming = histogramVec("network_programming_duration_seconds",
		"Time from what caused a change of endpoints, as its controller noted it, until the kernel has the change.",
		programmingBuckets())
	m.begin()
	return m
}

// begin has metrics be 0 from the start, except for those of which 0 would be a state or a time.
func (m *kubeProxyMetrics) begin() {
	for _, f := range m.families {
		for _, h := range []*prometheus.HistogramVec{m.sync, m.full, m.partial, m.programming, m.passes} {
			h.WithLabelValues(string(f))
		}
		for _, c := range []*prometheus.CounterVec{m.failures, m.cleanups, m.deleted} {
			c.WithLabelValues(string(f))
		}
	}
	for _, c := range []*prometheus.CounterVec{m.healthz, m.livez} {
		c.WithLabelValues(strconv.Itoa(http.StatusOK))
		c.WithLabelValues(strconv.Itoa(http.StatusServiceUnavailable))
	}
}

// programmingBuckets are 0.25 s to 300 s, in growing steps, after an empty one that kube-proxy has.
func programmingBuckets() []float64 {
	all := []float64{0}
	for _, part := range [][]float64{
		prometheus.LinearBuckets(0.25, 0.25, 2), prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7),
	} {
		all = append(all, part...)
	}
	return all
}

const kubeProxyPrefix = "kubeproxy_"

func counterOpts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: kubeProxyPrefix + name, Help: help}
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(counterOpts(name, help), labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: kubeProxyPrefix + name, Help: help})
}

func gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: kubeProxyPrefix + name, Help: help}, labels)
}

func histogramVec(name, help string, buckets []float64) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Name: kubeProxyPrefix + name, Help: help, Buckets: buckets}
	return prometheus.NewHistogramVec(opts, []string{byFamily})
}

// countChanges counts changes of the cluster that are to be programmed, before they are compiled.
func (w *worker) countChanges(c cluster.Changes) {
	services, endpoints := 0, 0
	w.cfg.Store.View(func(v *cluster.View) {
		switch {
		case !v.Loaded(w.Needs()...): // all are counted when they are
			return
		case c.Everything:
			services, endpoints = v.Len(cluster.KindService), v.Len(cluster.KindEndpointSlice)
			return
		}
		for ref := range c.Objects {
			switch {
			case ref.Kind != cluster.KindService:
			case w.compiler.IsCompiled(ref.Key, v.Service(ref.Key)):
				endpoints++
			default:
				services++
			}
		}
	})
	if services+endpoints > 0 {
		w.metrics.kube.queued(services, endpoints)
	}
}

// queued records that changes are to be programmed.
func (m *kubeProxyMetrics) queued(services, endpoints int) {
	m.endpointsTotal.Add(float64(endpoints))
	m.endpointsPending.Add(float64(endpoints))
	m.servicesTotal.Add(float64(services))
	m.servicesPending.Add(float64(services))
	for _, f := range m.families {
		m.queuedAt.WithLabelValues(string(f)).SetToCurrentTime()
	}
}

// cause is when a change of a Service's endpoints was caused, in one family.
type cause struct {
	family cluster.AddressType
	at     time.Time
}

// causesByFamily returns when the changes were caused that the kernel now has, for each family of
// their Services.
func (w *worker) causesByFamily() (all []cause) {
	w.cfg.Store.View(func(v *cluster.View) {
		for ref, at := range w.causes {
			service := v.Service(ref.Key)
			if ref.Kind != cluster.KindService || service == nil {
				continue
			}
			for _, ip := range service.ClusterIPs {
				all = append(all, cause{cluster.FamilyOf(ip), time.Unix(0, at)})
			}
		}
	})
	return all
}

// observe records a transaction, successful or not.
func (m *kubeProxyMetrics) observe(r programmer.Result) {
	of := m.full
	if r.Scope == programmer.Partial {
		of = m.partial
	}
	for _, f := range m.families {
		m.sync.WithLabelValues(string(f)).Observe(r.Took.Seconds())
		of.WithLabelValues(string(f)).Observe(r.Took.Seconds())
		if r.Err != nil {
			m.failures.WithLabelValues(string(f)).Inc()
		}
	}
}

// programmed records that the kernel has all changes, given the causes of those that were missing,
// by clocks that may be ahead.
func (m *kubeProxyMetrics) programmed(causes []cause, compiler *plan.Compiler) {
	m.endpointsPending.Set(0)
	m.servicesPending.Set(0)
	for _, f := range m.families {
		m.syncedAt.WithLabelValues(string(f)).SetToCurrentTime()
		for _, policy := range []plan.TrafficPolicy{plan.Internal, plan.External} {
			n := compiler.WithoutLocal(plan.NoLocal{Policy: policy, Family: f})
			m.noLocal.WithLabelValues(string(policy), string(f)).Set(float64(n))
		}
	}
	for _, c := range causes {
		m.programming.WithLabelValues(string(c.family)).Observe(max(0, time.Since(c.at).Seconds()))
	}
}

// passed records a pass over the entries of connection tracking.
func (m *kubeProxyMetrics) passed(p conntrack.Pass) {
	m.passes.WithLabelValues(p.Family.String()).Observe(p.Duration.Seconds())
	m.deleted.WithLabelValues(p.Family.String()).Add(float64(p.Deleted))
}

// collectors returns all metrics.
func (m *kubeProxyMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.sync, m.full, m.partial, m.queuedAt, m.syncedAt, m.endpointsPending, m.endpointsTotal, m.servicesPending,
		m.servicesTotal, m.failures, m.cleanups, m.noLocal, m.programming, m.healthz, m.livez, m.passes, m.deleted,
	}
}
