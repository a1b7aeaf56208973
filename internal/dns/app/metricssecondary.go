package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/dns/secondary"
	"portolan.dev/portolan/internal/ops/metrics"
)

var (
	zoneState = metrics.Desc("secondary_state", "1 for the state that a transferred zone is in.", "zone", "state")
	zoneAge   = metrics.Desc(
		"secondary_age_seconds", "Time since a zone was last known to be what its primary has.", "zone",
	)
	primary          = metrics.Desc("secondary_followed", "1 for the primary that zones are transferred from.", "server")
	transferred      = metrics.Desc("secondary_transfers_total", "Answers of primaries to queries for changes.", "kind")
	transferredSize  = metrics.Desc("secondary_transfer_bytes_total", "Bytes received in transfers.")
	transferFailures = metrics.Desc(
		"secondary_failures_total", "Transfers that failed, and primaries that were not reached.",
	)
	notifies = metrics.Desc(
		"secondary_notifies_total",
		"NOTIFY messages, by whether they came from a primary (taken) or from anyone else (refused).", "result",
	)
	notifyLag      = metrics.Desc("secondary_lag_seconds", "Time from a NOTIFY to the answers that show the change.")
	zonesWritten   = metrics.Desc("secondary_write_timestamp_seconds", "When the zones were last saved.")
	zonesUnwritten = metrics.Desc("secondary_write_errors_total", "Attempts to save the zones that failed.")
)

// secondaryDescs are the descriptions of the metrics that collectSecondary sends.
var secondaryDescs = []*prometheus.Desc{
	zoneState,
	zoneAge,
	primary,
	transferred,
	transferredSize,
	transferFailures,
	notifies,
	notifyLag,
	zonesWritten,
	zonesUnwritten,
}

func collectSecondary(ch chan<- prometheus.Metric, s *secondary.Status) {
	for i := range s.Zones {
		collectZone(ch, &s.Zones[i])
	}
	if s.Server != "" {
		metrics.Gauge(ch, primary, 1, s.Server)
	}
	metrics.Counter(ch, transferred, s.Counters.AXFR, "axfr")
	metrics.Counter(ch, transferred, s.Counters.IXFR, "ixfr")
	metrics.Counter(ch, transferred, s.Counters.Unchanged, "unchanged")
	metrics.Counter(ch, transferredSize, s.Counters.Octets)
	metrics.Counter(ch, transferFailures, s.Counters.Failures)
	metrics.Counter(ch, notifies, s.Counters.Notified, "taken")
	metrics.Counter(ch, notifies, s.Counters.Refused, "refused")
	ch <- prometheus.MustNewConstSummary(notifyLag, s.Counters.Lags, s.Counters.Lag.Seconds(), nil)
	if !s.Saved.IsZero() {
		metrics.Gauge(ch, zonesWritten, float64(s.Saved.UnixNano())/1e9)
	}
	metrics.Counter(ch, zonesUnwritten, s.SaveFailures)
}

func collectZone(ch chan<- prometheus.Metric, z *secondary.ZoneStatus) {
	state := "live"
	switch {
	case !z.Loaded:
		state = "loading"
	case z.Stale:
		state = "stale"
	}
	for _, s := range []string{"loading", "live", "stale"} {
		metrics.Gauge(ch, zoneState, metrics.Truth(s == state), z.Zone.String(), s)
	}
	if !z.VerifiedAt.IsZero() {
		metrics.Gauge(ch, zoneAge, time.Since(z.VerifiedAt).Seconds(), z.Zone.String())
	}
}
