// Package metrics is the registry of a process's metrics, and the few words that
// collectors share. Each part collects its own metrics, when they are scraped.
// Names follow Prometheus' conventions (portolan_SUBSYSTEM_NAME_UNIT).
package metrics

import (
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes is how many scrapes are answered at once.
const maxScrapes = 4

// New makes a registry that collects the metrics of every process, of this
// version of the program.
func New(version string) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portolan_build_info", Help: "Always 1; the labels have the versions of the program and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Handler answers scrapes.
func Handler(r *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		MaxRequestsInFlight: maxScrapes,
	})
}

// Desc describes the metric portolan_NAME.
func Desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("portolan_"+name, help, labels, nil)
}

// Gauge sends the value of a gauge.
func Gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// Counter sends the value of a counter.
func Counter(ch chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

// Truth is 1 for true, and 0 for false.
func Truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
