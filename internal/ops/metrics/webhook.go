package metrics

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Webhook tells the figures of the admission webhook.
type Webhook struct {
	registry *prometheus.Registry
	reviews  *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refused  prometheus.Counter
}

// NewWebhook makes a Webhook; until tells when the certificate ends that is
// served, zero when there is none, and life is how long one is good.
func NewWebhook(version string, until func() time.Time, life time.Duration) *Webhook {
	w := &Webhook{
		registry: prometheus.NewPedanticRegistry(),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portolan_webhook_reviews_total",
			Help: "Admission reviews that were answered; failed are those that were let through because they could not be reviewed.",
		}, []string{"webhook", "operation", "resource", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "portolan_webhook_review_duration_seconds",
			Help:    "Time that a review took, with the wait for the API server.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"webhook"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_webhook_refused_total",
			Help: "Requests that were no review, or had no place.",
		}),
	}
	expiry := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portolan_webhook_certificate_expiry_timestamp_seconds",
		Help: "When the certificate ends that is served; 0 when there is none.",
	}, func() float64 {
		if t := until(); !t.IsZero() {
			return float64(t.Unix())
		}
		return 0
	})
	lifetime := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "portolan_webhook_certificate_life_seconds",
		Help: "How long a certificate is good; it is renewed after two thirds of that.",
	})
	lifetime.Set(life.Seconds())
	w.registry.MustRegister(w.reviews, w.duration, w.refused, expiry, lifetime)
	w.registry.MustRegister(ofProcess(version)...)
	return w
}

// Reviewed notes a review that was answered.
func (w *Webhook) Reviewed(webhook, operation, resource, result string, took time.Duration) {
	w.reviews.WithLabelValues(webhook, operation, resource, result).Inc()
	w.duration.WithLabelValues(webhook).Observe(took.Seconds())
}

// Refused notes a request that was no review, or had no place.
func (w *Webhook) Refused() { w.refused.Inc() }

// Handler answers scrapes.
func (w *Webhook) Handler(log *slog.Logger) http.Handler { return handlerFor(w.registry, log) }
