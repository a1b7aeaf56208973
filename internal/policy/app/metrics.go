package app

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/ops/metrics"
	"portolan.dev/portolan/internal/policy/droplog"
	"portolan.dev/portolan/internal/policy/flows"
	"portolan.dev/portolan/internal/policy/fqdn"
	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/plan"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// policyMetrics are the metrics of policies.
type policyMetrics struct {
	transactions prometheus.Collector
	starts       *prometheus.HistogramVec
	cut          prometheus.Counter
	passes       prometheus.Histogram

	// These are read when metrics are collected.
	stats func() plan.Stats
	names func() fqdn.Stats
	lines func() droplog.Stats
	// installed returns whether the plugin is installed, if that is known.
	installed func() (installed, known bool)

	mu       sync.Mutex                                    // guards the fields below; held for a short time only
	counters func(chains ...string) ([]nft.Counter, error) // nil before Bind
	packets  map[packetLabels]uint64
	last     map[nft.Prefix]uint64 // the kernel's counts of packets
	reading  bool                  // the counters of all chains are being read
	past     map[string]struct{}   // chains that were about to go or went while they are
}

// packetLabels are the labels of the metric of packets.
type packetLabels struct {
	direction ruleset.Direction
	event     nft.Event
}

// read has metrics count packets by the kernel's counters.
func (m *policyMetrics) read(counters func(chains ...string) ([]nft.Counter, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counters = counters
}

// countPackets returns how many packets met rules that log since the start. It reads the counters, unless
// somebody else does now: then it returns what was counted before.
func (m *policyMetrics) countPackets() map[packetLabels]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counters == nil || m.reading {
		return maps.Clone(m.packets)
	}
	m.reading = true
	counters := m.counters
	m.mu.Unlock()
	all, err := counters()
	m.mu.Lock()
	m.reading = false
	if err == nil { // otherwise there is no table yet, or the kernel has no answer
		m.addAll(all)
	}
	clear(m.past)
	return maps.Clone(m.packets)
}

// addAll adds what the counters of all chains were, but for the chains that countGone counted meanwhile. The
// caller holds the lock.
func (m *policyMetrics) addAll(all []nft.Counter) {
	isPast := func(p nft.Prefix) bool {
		_, ok := m.past[p.Chain]
		return ok
	}
	now := m.add(slices.DeleteFunc(all, func(c nft.Counter) bool { return isPast(c.Prefix) }))
	for prefix, n := range m.last {
		if isPast(prefix) {
			now[prefix] = n
		}
	}
	m.last = now
}

// countGone adds what chains count that are about to go, since the counts go with them. The caller calls
// gone when they have gone.
func (m *policyMetrics) countGone(chains []string) (gone func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counters == nil || len(chains) == 0 {
		return func() {}
	}
	m.pass(chains)
	if some, err := m.counters(chains...); err == nil {
		maps.Copy(m.last, m.add(some))
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pass(chains)
		maps.DeleteFunc(m.last, func(p nft.Prefix, _ uint64) bool { return slices.Contains(chains, p.Chain) })
	}
}

// pass has what is being read now not count for chains. The caller holds the lock.
func (m *policyMetrics) pass(chains []string) {
	if !m.reading {
		return
	}
	for _, chain := range chains {
		m.past[chain] = struct{}{}
	}
}

// add adds what was counted since the counters were read last, and returns their counts. The caller holds
// the lock.
func (m *policyMetrics) add(all []nft.Counter) map[nft.Prefix]uint64 {
	now := make(map[nft.Prefix]uint64)
	for _, c := range all {
		now[c.Prefix] += c.Packets
	}
	for prefix, n := range now {
		if before := m.last[prefix]; before <= n {
			n -= before
		}
		m.packets[packetLabels{prefix.Direction, prefix.Event}] += n
	}
	return now
}

// The results of requests of the plugin.
const (
	admitted = "admitted"
	refused  = "refused"
)

func newMetrics() *policyMetrics {
	m := &policyMetrics{
		packets: make(map[packetLabels]uint64), last: make(map[nft.Prefix]uint64), past: make(map[string]struct{}),
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
	for _, result := range []string{admitted, refused} { // so that the first one counts as an increase
		m.starts.WithLabelValues(result)
	}
	return m
}

// asked records a request of the plugin.
func (m *policyMetrics) asked(verb attach.Verb, took time.Duration, err error) {
	if verb != attach.Admit {
		return
	}
	result := admitted
	if err != nil {
		result = refused
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
	return []prometheus.Collector{m.transactions, m.starts, m.cut, m.passes}
}

var (
	pods     = metrics.Desc("policy_pods", "Pods of the node whose packets are judged.")
	chains   = metrics.Desc("policy_chains", "Chains of rules in the kernel.")
	sets     = metrics.Desc("policy_sets", "Sets of peers in the kernel.")
	elements = metrics.Desc("policy_elements", "Elements of all sets of peers in the kernel.")
	packets  = metrics.Desc("policy_packets_total",
		"Packets that rules of the kernel denied, would deny in audit mode, or dropped since no Pod has the address.",
		"direction", "event")
	domainNames    = metrics.Desc("policy_domain_names", "Domain names of policies whose addresses are known.")
	domainElements = metrics.Desc("policy_domain_elements",
		"Addresses of domain names of policies, counted in each set that has them.")
	domainEvictions = metrics.Desc("policy_domain_evictions_total",
		"Addresses of domain names that were removed so that others had room.")
	answersHeld = metrics.Desc(
		"policy_answers_held_total",
		"Answers of DNS that waited until the kernel had their addresses.",
	)
	answersLate = metrics.Desc("policy_answers_late_total",
		"Answers of DNS that left before the kernel had all of their addresses, which it denies until then.")
	domainOverflows = metrics.Desc("policy_domain_overflows_total",
		"Addresses of domain names that were not added, by the limit: of a name, a set, a namespace, or all.", "limit")
	cniInstalled = metrics.Desc("policy_cni_installed",
		"1 if the CNI plugin is in the node's network, otherwise 0; only with policy.cni.install.")
	logLines      = metrics.Desc("policy_log_lines_total", "Lines of the log of packets.")
	logSuppressed = metrics.Desc(
		"policy_log_suppressed_total",
		"Packets without a line in the log, because of its limits.",
	)
)

// Describe sends the descriptions of all metrics.
func (m *policyMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{
		pods, chains, sets, elements, packets, domainNames, domainElements, domainEvictions, answersHeld, answersLate,
		domainOverflows, cniInstalled, logLines, logSuppressed,
	} {
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
	for of, n := range m.countPackets() {
		metrics.Counter(ch, packets, n, of.direction.String(), of.event.String())
	}
	names := m.names()
	metrics.Gauge(ch, domainNames, float64(names.Names))
	metrics.Gauge(ch, domainElements, float64(names.Elements))
	metrics.Counter(ch, domainEvictions, names.Evicted)
	metrics.Counter(ch, answersHeld, names.Held)
	metrics.Counter(ch, answersLate, names.Late)
	for limit, n := range names.Overflows {
		metrics.Counter(ch, domainOverflows, n, limit)
	}
	if installed, known := m.installed(); known {
		metrics.Gauge(ch, cniInstalled, metrics.Truth(installed))
	}
	lines := m.lines()
	metrics.Counter(ch, logLines, lines.Lines)
	metrics.Counter(ch, logSuppressed, lines.Suppressed)
}
