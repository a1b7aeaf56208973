package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/ops/metrics"
)

// webhookMetrics are the metrics of the admission webhook.
type webhookMetrics struct {
	until    func() time.Time // returns when the certificate expires; zero if there is none
	life     time.Duration    // of a certificate
	reviews  *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refused  prometheus.Counter
}

var (
	certificateExpiry = metrics.Desc(
		"webhook_certificate_expiry_timestamp_seconds", "When the certificate in use expires; 0 when there is none.",
	)
	certificateLife = metrics.Desc(
		"webhook_certificate_life_seconds",
		"How long a certificate is valid; it is renewed after two thirds of that.",
	)
)

func newWebhookMetrics(until func() time.Time, life time.Duration) *webhookMetrics {
	return &webhookMetrics{
		until: until, life: life,
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portolan_webhook_reviews_total",
			Help: "Admission reviews answered; failed are those allowed because they could not be reviewed.",
		}, []string{"webhook", "operation", "resource", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "portolan_webhook_review_duration_seconds",
			Help:    "Time that a review took, the wait for the API server included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"webhook"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_webhook_refused_total",
			Help: "Requests refused: they were no review, or too many were under way.",
		}),
	}
}

// Reviewed records an answered review.
func (m *webhookMetrics) Reviewed(webhook, operation, resource, result string, took time.Duration) {
	m.reviews.WithLabelValues(webhook, operation, resource, result).Inc()
	m.duration.WithLabelValues(webhook).Observe(took.Seconds())
}

// Refused records a request that was not a review or exceeded the limit.
func (m *webhookMetrics) Refused() { m.refused.Inc() }

// Describe sends the descriptions of all metrics.
func (m *webhookMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.reviews.Describe(ch)
	m.duration.Describe(ch)
	m.refused.Describe(ch)
	ch <- certificateExpiry
	ch <- certificateLife
}

// Collect sends the current metrics.
func (m *webhookMetrics) Collect(ch chan<- prometheus.Metric) {
	m.reviews.Collect(ch)
	m.duration.Collect(ch)
	m.refused.Collect(ch)
	expiry := 0.0
	if t := m.until(); !t.IsZero() {
		expiry = float64(t.Unix())
	}
	metrics.Gauge(ch, certificateExpiry, expiry)
	metrics.Gauge(ch, certificateLife, m.life.Seconds())
}
