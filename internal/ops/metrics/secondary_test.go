package metrics

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

// TestReplica: what is told of copies, each with a row in the manual.
func TestReplica(t *testing.T) {
	now := time.Now()
	m := New("v1", func() Figures {
		return Figures{Replica: &secondary.Status{
			Server: "tcp://192.0.2.1:53",
			Zones: []secondary.ZoneStatus{
				{Zone: dnsname.MustParse("cluster.local"), Loaded: true, VerifiedAt: now.Add(-time.Hour), Stale: true, Failure: errors.New("x")},
				{Zone: dnsname.MustParse("10.in-addr.arpa")},
			},
			Counters: secondary.Counters{AXFR: 1, IXFR: 2, Unchanged: 3, Octets: 4, Failures: 5, Notified: 6, Refused: 7, Lag: 3 * time.Second, Lags: 2},
			Saved:    time.Unix(100, 0), SaveFailures: 8,
		}}
	})
	got := scrape(t, m)
	for _, want := range []string{
		`portolan_replica_state{state="stale",zone="cluster.local."} 1`,
		`portolan_replica_state{state="live",zone="cluster.local."} 0`,
		`portolan_replica_state{state="loading",zone="10.in-addr.arpa."} 1`,
		`portolan_replica_age_seconds{zone="cluster.local."} 3600.`,
		`portolan_replica_followed{server="tcp://192.0.2.1:53"} 1`,
		`portolan_replica_transfers_total{kind="axfr"} 1`,
		`portolan_replica_transfers_total{kind="ixfr"} 2`,
		`portolan_replica_transfers_total{kind="unchanged"} 3`,
		`portolan_replica_transfer_bytes_total 4`,
		`portolan_replica_failures_total 5`,
		`portolan_replica_notifies_total{result="taken"} 6`,
		`portolan_replica_notifies_total{result="refused"} 7`,
		`portolan_replica_lag_seconds_sum 3`,
		`portolan_replica_lag_seconds_count 2`,
		`portolan_replica_write_timestamp_seconds 100`,
		`portolan_replica_write_errors_total 8`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %s in\n%s", want, got)
		}
	}
	page, err := os.ReadFile("../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("\n\\| `(portolan_replica_[a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(replicaDescs) {
		t.Errorf("operate.md has %d rows of metrics of copies, want %d", len(rows), len(replicaDescs))
	}
	for _, row := range rows {
		if !strings.Contains(got, row[1]) {
			t.Errorf("operate.md has %s, which is not told", row[1])
		}
	}
}
