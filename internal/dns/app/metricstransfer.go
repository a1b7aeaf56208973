package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/ops/metrics"
)

// transferFigures are the figures of transfers to secondaries.
type transferFigures struct {
	*transfer.Counters
	changes int   // kept for incremental transfers
	memory  int64 // of the kept changes, in octets
}

func (a *answers) transferFigures() *transferFigures {
	f := &transferFigures{Counters: new(transfer.Counters)}
	if a.transfer != nil {
		f.Counters = a.transfer.Counters()
	}
	f.changes, f.memory = a.db.HistorySize()
	return f
}

var (
	transfers      = metrics.Desc("transfer_queries_total", "Zone transfer queries, by kind and result.", "kind", "result")
	transferSize   = metrics.Desc("transfer_sent_bytes_total", "Bytes sent in transfers.")
	notices        = metrics.Desc("transfer_notifies_total", "NOTIFY messages sent to secondaries, by result.", "result")
	remembered     = metrics.Desc("transfer_history_changes", "Changes that are kept for incremental transfers.")
	rememberedSize = metrics.Desc("transfer_history_bytes", "Memory that the kept changes take, about.")
)

func collectTransfer(ch chan<- prometheus.Metric, f *transferFigures) {
	f.Transfers(func(k transfer.Kind, r transfer.SendResult, n uint64) {
		metrics.Counter(ch, transfers, n, k.String(), r.String())
	})
	metrics.Counter(ch, transferSize, f.Octets())
	f.Notifies(func(r transfer.NotifyResult, n uint64) { metrics.Counter(ch, notices, n, r.String()) })
	metrics.Gauge(ch, remembered, float64(f.changes))
	metrics.Gauge(ch, rememberedSize, float64(f.memory))
}
