package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/dns/secondary"
)

var (
	copyState     = desc("replica_state", "1 for the state that the copy of a zone is in.", "zone", "state")
	copyAge       = desc("replica_age_seconds", "Time since the copy of a zone was known to be what the server has.", "zone")
	followedBy    = desc("replica_followed", "1 for the server that is followed.", "server")
	copyTransfers = desc("replica_transfers_total", "Answers of servers to the question what is new.", "kind")
	copySize      = desc("replica_transfer_bytes_total", "What was received in transfers.")
	copyFailures  = desc("replica_failures_total", "Transfers that failed, and servers that were not reached.")
	copyNotifies  = desc("replica_notifies_total", "NOTIFY messages of servers, and of others.", "result")
	copyLag       = desc("replica_lag_seconds", "Time from a NOTIFY to the answer that shows what it tells of.")
	copyWritten   = desc("replica_write_timestamp_seconds", "When the copy was last saved.")
	copyUnwritten = desc("replica_write_errors_total", "Copies that could not be saved.")
)

// replicaDescs are what collectReplica tells.
var replicaDescs = []*prometheus.Desc{
	copyState, copyAge, followedBy, copyTransfers, copySize, copyFailures, copyNotifies, copyLag, copyWritten, copyUnwritten,
}

func collectReplica(ch chan<- prometheus.Metric, s *secondary.Status) {
	for i := range s.Zones {
		collectCopy(ch, &s.Zones[i])
	}
	if s.Server != "" {
		gauge(ch, followedBy, 1, s.Server)
	}
	counter(ch, copyTransfers, s.Counters.AXFR, "axfr")
	counter(ch, copyTransfers, s.Counters.IXFR, "ixfr")
	counter(ch, copyTransfers, s.Counters.Unchanged, "unchanged")
	counter(ch, copySize, s.Counters.Octets)
	counter(ch, copyFailures, s.Counters.Failures)
	counter(ch, copyNotifies, s.Counters.Notified, "taken")
	counter(ch, copyNotifies, s.Counters.Refused, "refused")
	ch <- prometheus.MustNewConstSummary(copyLag, s.Counters.Lags, s.Counters.Lag.Seconds(), nil)
	if !s.Saved.IsZero() {
		gauge(ch, copyWritten, float64(s.Saved.UnixNano())/1e9)
	}
	counter(ch, copyUnwritten, s.SaveFailures)
}

func collectCopy(ch chan<- prometheus.Metric, z *secondary.ZoneStatus) {
	state := Live
	switch {
	case !z.Loaded:
		state = Loading
	case z.Stale:
		state = Stale
	}
	for _, s := range []string{Loading, Live, Stale} {
		gauge(ch, copyState, truth(s == state), z.Zone.String(), s)
	}
	if !z.VerifiedAt.IsZero() {
		gauge(ch, copyAge, time.Since(z.VerifiedAt).Seconds(), z.Zone.String())
	}
}
