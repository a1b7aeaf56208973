package app

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/secondary"
)

// TestSecondaryMetrics checks that the manual has a row for each metric of transferred
// zones.
func TestSecondaryMetrics(t *testing.T) {
	now := time.Now()
	m := collectorOf(figures{secondary: &secondary.Status{
		Server: "tcp://192.0.2.1:53",
		Zones: []secondary.ZoneStatus{
			{Zone: dnsname.MustParse("cluster.local"), Loaded: true, VerifiedAt: now.Add(-time.Hour), Stale: true, Failure: errors.New("x")},
			{Zone: dnsname.MustParse("10.in-addr.arpa")},
		},
		Counters: secondary.Counters{AXFR: 1, IXFR: 2, Unchanged: 3, Octets: 4, Failures: 5, Notified: 6, Refused: 7, Lag: 3 * time.Second, Lags: 2},
		Saved:    time.Unix(100, 0), SaveFailures: 8,
	}})
	got := scrape(t, m)
	for _, want := range []string{
		`portolan_secondary_state{state="stale",zone="cluster.local."} 1`,
		`portolan_secondary_state{state="live",zone="cluster.local."} 0`,
		`portolan_secondary_state{state="loading",zone="10.in-addr.arpa."} 1`,
		`portolan_secondary_age_seconds{zone="cluster.local."} 3600.`,
		`portolan_secondary_followed{server="tcp://192.0.2.1:53"} 1`,
		`portolan_secondary_transfers_total{kind="axfr"} 1`,
		`portolan_secondary_transfers_total{kind="ixfr"} 2`,
		`portolan_secondary_transfers_total{kind="unchanged"} 3`,
		`portolan_secondary_transfer_bytes_total 4`,
		`portolan_secondary_failures_total 5`,
		`portolan_secondary_notifies_total{result="taken"} 6`,
		`portolan_secondary_notifies_total{result="refused"} 7`,
		`portolan_secondary_lag_seconds_sum 3`,
		`portolan_secondary_lag_seconds_count 2`,
		`portolan_secondary_write_timestamp_seconds 100`,
		`portolan_secondary_write_errors_total 8`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %s in\n%s", want, got)
		}
	}
	page, err := os.ReadFile("../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("\n\\| `(portolan_secondary_[a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(secondaryDescs) {
		t.Errorf("operate.md has %d rows of metrics of transferred zones, want %d", len(rows), len(secondaryDescs))
	}
	for _, row := range rows {
		if !strings.Contains(got, row[1]) {
			t.Errorf("operate.md has %s, which is not collected", row[1])
		}
	}
}
