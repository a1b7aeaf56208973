package evidence

import "github.com/prometheus/client_golang/prometheus"

var (
	recordedDesc = prometheus.NewDesc(
		"portolan_evidence_events_total", "Events that were recorded as evidence, each for its weight of events.",
		[]string{"kind"}, nil,
	)
	droppedDesc = prometheus.NewDesc(
		"portolan_evidence_dropped_total", "Events that were to be recorded as evidence and for which no buffer had room.",
		[]string{"kind"}, nil,
	)
)

// Describe implements prometheus.Collector.
func (r *Ring) Describe(ch chan<- *prometheus.Desc) {
	ch <- recordedDesc
	ch <- droppedDesc
}

// Collect implements prometheus.Collector.
func (r *Ring) Collect(ch chan<- prometheus.Metric) {
	recorded, dropped := make(map[string]uint64), make(map[string]uint64)
	r.mu.Lock()
	for _, s := range r.sources {
		taken, lost := s.figures()
		recorded[s.cfg.Kind] += taken - lost
		dropped[s.cfg.Kind] += lost
	}
	r.mu.Unlock()
	for kind, n := range recorded {
		ch <- prometheus.MustNewConstMetric(recordedDesc, prometheus.CounterValue, float64(n), kind)
		ch <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(dropped[kind]), kind)
	}
}
