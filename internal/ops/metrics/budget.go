package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/support/budget"
)

// Budget collects the figures of accounts.
type Budget struct {
	// Accounts returns the present figures.
	Accounts func() []budget.Stats
}

var (
	budgetUsed    = Desc("budget_used", "Entries in use, such as connections or waiting queries.", "account")
	budgetLimit   = Desc("budget_limit", "Entries that may be in use at once.", "account")
	budgetRefused = Desc(
		"budget_refused_total", "Entries refused or ended for others: the account was full, or the source had its share.",
		"account", "reason",
	)
)

// Describe implements prometheus.Collector.
func (b Budget) Describe(ch chan<- *prometheus.Desc) {
	ch <- budgetUsed
	ch <- budgetLimit
	ch <- budgetRefused
}

// Collect implements prometheus.Collector.
func (b Budget) Collect(ch chan<- prometheus.Metric) {
	for _, a := range b.Accounts() {
		Gauge(ch, budgetUsed, float64(a.Used), a.Account)
		Gauge(ch, budgetLimit, float64(a.Limit), a.Account)
		Counter(ch, budgetRefused, a.Full, a.Account, "full")
		Counter(ch, budgetRefused, a.SourceFull, a.Account, "source")
	}
}
