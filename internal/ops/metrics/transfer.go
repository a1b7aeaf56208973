package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/dns/transfer"
)

// TransferFigures are those of transfers.
type TransferFigures struct {
	*transfer.Counters
	// Changes are remembered for who follows them, and take so many octets.
	Changes int
	Memory  int64
}

var (
	transfers      = desc("transfer_queries_total", "Queries for a zone or for what changed in it, by how they ended.", "kind", "result")
	transferSize   = desc("transfer_sent_bytes_total", "What was sent in transfers.")
	notices        = desc("transfer_notifies_total", "NOTIFY messages to secondaries, by what became of them.", "result")
	remembered     = desc("transfer_history_changes", "Changes that are remembered for who follows them.")
	rememberedSize = desc("transfer_history_bytes", "Memory that they take, about.")
)

func collectTransfer(ch chan<- prometheus.Metric, f *TransferFigures) {
	f.Transfers(func(k transfer.Kind, r transfer.TransferResult, n uint64) {
		counter(ch, transfers, n, k.String(), r.String())
	})
	counter(ch, transferSize, f.Octets())
	f.Notifies(func(r transfer.NotifyResult, n uint64) { counter(ch, notices, n, r.String()) })
	gauge(ch, remembered, float64(f.Changes))
	gauge(ch, rememberedSize, float64(f.Memory))
}
