package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/kube/loadbalancer"
	"portolan.dev/portolan/internal/ops/metrics"
)

// loadBalancerMetrics are the metrics of the controller of load balancers' addresses.
type loadBalancerMetrics struct {
	of      *loadbalancer.Controller
	leading *leading
	writes  *prometheus.CounterVec
}

var (
	poolAddresses = metrics.Desc("load_balancer_addresses",
		"Addresses of a pool that are assigned, reserved and not assigned, or free; none where this process does not lead.",
		"pool", "family", "state")
	servicesLacking = metrics.Desc("load_balancer_services_lacking",
		"Services of type LoadBalancer that lack an address; an Event of each says why.")
)

func newLoadBalancerMetrics(leading *leading) *loadBalancerMetrics {
	m := &loadBalancerMetrics{leading: leading, writes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portolan_load_balancer_writes_total",
		Help: "Attempts to write the status of a Service; repaired are those where somebody else had changed it.",
	}, []string{"result"})}
	for _, result := range []loadbalancer.Result{loadbalancer.Written, loadbalancer.Repaired, loadbalancer.Failed} {
		m.writes.WithLabelValues(string(result))
	}
	return m
}

func (m *loadBalancerMetrics) wrote(r loadbalancer.Result) { m.writes.WithLabelValues(string(r)).Inc() }

// Describe sends the descriptions of all metrics.
func (m *loadBalancerMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.writes.Describe(ch)
	ch <- poolAddresses
	ch <- servicesLacking
	ch <- leads
}

// Collect sends the current metrics.
func (m *loadBalancerMetrics) Collect(ch chan<- prometheus.Metric) {
	m.writes.Collect(ch)
	leading := m.leading.working.Load()
	metrics.Gauge(ch, leads, metrics.Truth(leading))
	if !leading {
		return
	}
	usage, lacking := m.of.Usage()
	for _, u := range usage {
		metrics.Gauge(ch, poolAddresses, u.Assigned, u.Pool, string(u.Family), "assigned")
		metrics.Gauge(ch, poolAddresses, u.Reserved, u.Pool, string(u.Family), "reserved")
		metrics.Gauge(ch, poolAddresses, u.Free, u.Pool, string(u.Family), "free")
	}
	metrics.Gauge(ch, servicesLacking, float64(lacking))
}
