package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/ops/metrics"
	"portolan.dev/portolan/internal/policy/cni/attach"
	"portolan.dev/portolan/internal/policy/flows"
	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/plan"
)

// policyMetrics are the metrics of policies.
type policyMetrics struct {
	duration *prometheus.HistogramVec
	failures prometheus.Counter
	repairs  prometheus.Counter
	starts   *prometheus.HistogramVec
	cut      prometheus.Counter
	passes   prometheus.Histogram

	// stats and counters are read when metrics are collected; counters is nil before Bind.
	stats    func() plan.Stats
	counters func() ([]nft.Counter, error)
}

func newMetrics() *policyMetrics {
	return &policyMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "portolan_policy_sync_duration_seconds",
			Help:    "Time to compile changes and to program them into the kernel; full compares the whole table.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18),
		}, []string{"kind"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_policy_sync_failures_total", Help: "Transactions that failed. They are retried.",
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_policy_repairs_total", Help: "Times that another program had changed the nftables table.",
		}),
		starts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "portolan_policy_pod_admission_duration_seconds",
			Help:    "Time that the CNI plugin waited for the rules of a Pod that starts.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"result"}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_policy_flows_ended_total",
			Help: "Flows that were ended because policies do not allow them any more.",
		}),
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "portolan_policy_flows_pass_duration_seconds",
			Help:    "Time to look at all flows after a change of policies.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
	}
}

// programmed records a transaction.
func (m *policyMetrics) programmed(full bool, took time.Duration, err error) {
	kind := "partial"
	if full {
		kind = "full"
	}
	if err != nil {
		m.failures.Inc()
		return
	}
	m.duration.WithLabelValues(kind).Observe(took.Seconds())
}

// admitted records a request of the plugin.
func (m *policyMetrics) admitted(verb attach.Verb, took time.Duration, err error) {
	if verb != attach.Admit {
		return
	}
	result := "admitted"
	if err != nil {
		result = "refused"
	}
	m.starts.WithLabelValues(result).Observe(took.Seconds())
}

// passed records a look at all flows.
func (m *policyMetrics) passed(p flows.Pass) {
	m.cut.Add(float64(p.Cut))
	if p.Err == nil {
		m.passes.Observe(p.Duration.Seconds())
	}
}

func (m *policyMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.duration, m.failures, m.repairs, m.starts, m.cut, m.passes}
}

var (
	pods     = metrics.Desc("policy_pods", "Pods of the node whose packets are judged.")
	chains   = metrics.Desc("policy_chains", "Chains of rules in the kernel.")
	sets     = metrics.Desc("policy_sets", "Sets of peers in the kernel.")
	elements = metrics.Desc("policy_elements", "Elements of all sets of peers in the kernel.")
	packets  = metrics.Desc("policy_packets_total",
		"Packets that rules of the kernel denied, would deny in audit mode, or dropped since no Pod has the address.",
		"direction", "event")
)

// Describe sends the descriptions of all metrics.
func (m *policyMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{pods, chains, sets, elements, packets} {
		ch <- d
	}
}

// Collect sends the current metrics.
func (m *policyMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	s := m.stats()
	metrics.Gauge(ch, pods, float64(s.Local))
	metrics.Gauge(ch, chains, float64(s.Chains))
	metrics.Gauge(ch, sets, float64(s.Sets))
	metrics.Gauge(ch, elements, float64(s.Elements))
	if m.counters == nil {
		return
	}
	all, err := m.counters()
	if err != nil {
		return // there is no table yet, or the kernel has no answer
	}
	sums := make(map[[2]string]uint64)
	for _, c := range all {
		sums[[2]string{c.Direction.String(), c.Event.String()}] += c.Packets
	}
	for of, n := range sums {
		metrics.Counter(ch, packets, n, of[0], of[1])
	}
}
