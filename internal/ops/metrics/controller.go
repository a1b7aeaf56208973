package metrics

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ControllerState is what a controller tells of itself when it is asked.
type ControllerState interface {
	// Waiting is how many objects wait to be worked on, Slices how many
	// EndpointSlices it keeps up.
	Waiting() int
	Slices() int
}

// Controller tells the figures of the controller of EndpointSlices.
type Controller struct {
	registry *prometheus.Registry
	syncs    *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewController makes a Controller.
func NewController(version string) *Controller {
	c := &Controller{
		registry: prometheus.NewPedanticRegistry(),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portolan_controller_syncs_total",
			Help: "Attempts at the EndpointSlices of a Service; stale are those that were put off until the API's watch has told what was written before.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "portolan_controller_sync_duration_seconds",
			Help:    "Time that an attempt took, with what was written.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}),
	}
	for _, result := range []string{"done", "stale", "failed"} {
		c.syncs.WithLabelValues(result)
	}
	c.registry.MustRegister(c.syncs, c.duration)
	c.registry.MustRegister(ofProcess(version)...)
	return c
}

// Watch has the figures tell of a controller's state, and whether it leads. It may
// be called once.
func (c *Controller) Watch(state ControllerState, leading func() bool) {
	c.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "portolan_controller_queue_depth",
			Help: "Services that wait to be worked on; of one that does not lead, those that would be.",
		}, func() float64 { return float64(state.Waiting()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "portolan_controller_endpointslices",
			Help: "EndpointSlices that are kept up, as the API tells.",
		}, func() float64 { return float64(state.Slices()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "portolan_controller_leader",
			Help: "Whether this process leads: 1, and 0 when it waits to take over.",
		}, func() float64 {
			if leading() {
				return 1
			}
			return 0
		}),
	)
}

// Synced notes an attempt.
func (c *Controller) Synced(result string, took time.Duration) {
	c.syncs.WithLabelValues(result).Inc()
	c.duration.Observe(took.Seconds())
}

// Handler answers scrapes.
func (c *Controller) Handler(log *slog.Logger) http.Handler { return handlerFor(c.registry, log) }
