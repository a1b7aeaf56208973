package programmer

import "github.com/prometheus/client_golang/prometheus"

// transactions are the metrics of the transactions of a part.
type transactions struct {
	duration *prometheus.HistogramVec
	failures prometheus.Counter
	repairs  prometheus.Counter
}

func newTransactions(part string) transactions {
	t := transactions{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "portolan_" + part + "_sync_duration_seconds",
			Help:    "Time to compile changes and to program them into the kernel; full compares the whole table.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18),
		}, []string{"kind"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_" + part + "_sync_failures_total", Help: "Transactions that failed. They are retried.",
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portolan_" + part + "_repairs_total",
			Help: "Times that another program had changed the nftables table.",
		}),
	}
	for _, s := range []Scope{Full, Partial} {
		t.duration.WithLabelValues(string(s))
	}
	return t
}

// observe records a transaction.
func (t *transactions) observe(r Result) {
	if r.Err != nil {
		t.failures.Inc()
		return
	}
	t.duration.WithLabelValues(string(r.Scope)).Observe(r.Took.Seconds())
}

// Describe sends the descriptions of all metrics.
func (t *transactions) Describe(ch chan<- *prometheus.Desc) {
	t.duration.Describe(ch)
	t.failures.Describe(ch)
	t.repairs.Describe(ch)
}

// Collect sends the current metrics.
func (t *transactions) Collect(ch chan<- prometheus.Metric) {
	t.duration.Collect(ch)
	t.failures.Collect(ch)
	t.repairs.Collect(ch)
}
