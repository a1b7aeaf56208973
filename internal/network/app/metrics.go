package app

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/network/ipam"
	"portolan.dev/portolan/internal/ops/metrics"
)

// networkMetrics are the metrics of the part.
type networkMetrics struct {
	transactions prometheus.Collector
	requests     *prometheus.HistogramVec
	pool         atomic.Pointer[ipam.Pool] // nil until this process makes the network
	installed    func() (installed, known bool)
	// keys returns how many other nodes have an encrypted tunnel, and how many have no key; nil without encryption.
	keys func() (peers, keyless int)
}

// The results of requests of the plugin.
const (
	done   = "done"
	failed = "failed"
)

func newMetrics(n *Network) *networkMetrics {
	var keys func() (peers, keyless int)
	if n.worker.tunnels != nil {
		keys = n.worker.countKeys
	}
	m := &networkMetrics{
		keys:         keys,
		transactions: n.worker.programmer, installed: n.installed.State,
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "portolan_network_cni_duration_seconds",
			Help:    "Time that requests of the CNI plugin took, by verb and result.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"verb", "result"}),
	}
	for _, result := range []string{done, failed} { // so that the first one counts as an increase
		m.requests.WithLabelValues(string(attach.Admit), result)
	}
	return m
}

// observe records a request of the plugin.
func (m *networkMetrics) observe(verb attach.Verb, took time.Duration, err error) {
	result := done
	if err != nil {
		result = failed
	}
	m.requests.WithLabelValues(string(verb), result).Observe(took.Seconds())
}

var (
	addresses = metrics.Desc("network_addresses",
		"Addresses of the node's ranges of Pods, by state: used by a Pod, or held back since a Pod has ended lately.",
		"range", "state")
	capacity = metrics.Desc(
		"network_addresses_capacity", "How many Pods can have an address of a range of the node.", "range",
	)
	tunnelPeers = metrics.Desc("network_wireguard_peers",
		"Other nodes that have an encrypted tunnel; only with network.encryption.")
	tunnelKeyless = metrics.Desc("network_wireguard_nodes_without_key",
		"Other nodes that have no key for an encrypted tunnel; only with network.encryption.")
	cniInstalled = metrics.Desc("network_cni_installed",
		"1 if the CNI plugin and its configuration are installed, otherwise 0; only with network.cni.install.")
)

// Describe sends the descriptions of all metrics.
func (m *networkMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.transactions.Describe(ch)
	m.requests.Describe(ch)
	for _, d := range []*prometheus.Desc{addresses, capacity, tunnelPeers, tunnelKeyless, cniInstalled} {
		ch <- d
	}
}

// Collect sends the current metrics.
func (m *networkMetrics) Collect(ch chan<- prometheus.Metric) {
	m.transactions.Collect(ch)
	m.requests.Collect(ch)
	if pool := m.pool.Load(); pool != nil {
		for _, s := range pool.Stats() {
			metrics.Gauge(ch, addresses, float64(s.Used), s.Range.String(), "used")
			metrics.Gauge(ch, addresses, float64(s.HeldBack), s.Range.String(), "held-back")
			metrics.Gauge(ch, capacity, float64(s.Size), s.Range.String())
		}
	}
	if m.keys != nil {
		peers, keyless := m.keys()
		metrics.Gauge(ch, tunnelPeers, float64(peers))
		metrics.Gauge(ch, tunnelKeyless, float64(keyless))
	}
	if installed, known := m.installed(); known {
		metrics.Gauge(ch, cniInstalled, metrics.Truth(installed))
	}
}
