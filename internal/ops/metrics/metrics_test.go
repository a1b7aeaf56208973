package metrics

import (
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
)

// scrape is what a scrape gets, but for Go's own metrics.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	var b strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "portolan_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestFigures(t *testing.T) {
	counts := respond.Counts{
		Requests: []respond.Requests{{Transport: "udp", Family: "ipv4", Zone: "cluster.local.", Type: "A", RCode: "NOERROR", Count: 3}},
		Dropped:  map[string]uint64{"udp": 2},
		EDE:      map[uint16]uint64{14: 1},
		Searches: []respond.Searches{{By: "name", End: "found", Count: 8}},
		Duration: []respond.Histogram{{Transport: "udp", Buckets: map[float64]uint64{0.001: 3}, Count: 3, Sum: 0.0015}},
	}
	other := counts
	other.Requests = append([]respond.Requests{{Transport: "tcp", Family: "ipv6", Zone: ".", Type: "other", RCode: "REFUSED", Count: 1}}, counts.Requests...)
	other.Duration = []respond.Histogram{{Transport: "udp", Buckets: map[float64]uint64{0.001: 1}, Count: 1, Sum: 0.5}}
	m := New("v1", func() Figures {
		return Figures{
			DNS:      []respond.Counts{counts, other},
			Kinds:    []Kind{{Name: "Service", State: Stale, Staleness: 1500 * time.Millisecond, Events: map[string]uint64{"added": 4}, Objects: 5}},
			Serials:  map[string]uint32{"cluster.local.": 7},
			Snapshot: &SnapshotFigures{Written: time.Unix(100, 0), Failures: 6},
			Node:     &NodeFigures{Repairs: 3, Healthy: true},
			Reload:   &ReloadFigures{OK: true, At: time.Unix(200, 0)},
		}
	})
	m.Programmed("headless", 3*time.Millisecond)
	m.Programmed("headless", -time.Second) // clocks differ
	got := scrape(t, m)
	for _, want := range []string{
		`portolan_dns_requests_total{family="ipv4",proto="udp",rcode="NOERROR",type="A",zone="cluster.local."} 6`,
		`portolan_dns_requests_total{family="ipv6",proto="tcp",rcode="REFUSED",type="other",zone="."} 1`,
		`portolan_dns_dropped_total{proto="udp"} 4`,
		`portolan_dns_ede_total{code="14"} 2`,
		`portolan_dns_searches_total{by="name",result="found"} 16`,
		`portolan_dns_request_duration_seconds_bucket{proto="udp",le="0.001"} 4`,
		`portolan_dns_request_duration_seconds_count{proto="udp"} 4`,
		`portolan_dns_request_duration_seconds_sum{proto="udp"} 0.5015`,
		`portolan_source_state{kind="Service",state="stale"} 1`,
		`portolan_source_state{kind="Service",state="live"} 0`,
		`portolan_source_staleness_seconds{kind="Service"} 1.5`,
		`portolan_source_events_total{kind="Service",type="added"} 4`,
		`portolan_model_objects{kind="Service"} 5`,
		`portolan_zone_serial{zone="cluster.local."} 7`,
		`portolan_snapshot_write_timestamp_seconds 100`,
		`portolan_snapshot_errors_total 6`,
		`portolan_node_network_healthy 1`,
		`portolan_node_network_repairs_total 3`,
		`portolan_config_reload_success 1`,
		`portolan_config_last_reload_timestamp_seconds 200`,
		`portolan_dns_programming_duration_seconds_bucket{service_kind="headless",le="0.001"} 1`,
		`portolan_dns_programming_duration_seconds_bucket{service_kind="headless",le="0.004"} 2`,
		`version="v1"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("scrape has no %s\n%s", want, got)
		}
	}
}

// TestFewFigures: what there is nothing of is not told.
func TestFewFigures(t *testing.T) {
	got := scrape(t, New("v1", func() Figures { return Figures{} }))
	if lines := strings.Count(got, "\n"); lines != 1 || !strings.HasPrefix(got, "portolan_build_info{") {
		t.Errorf("scrape:\n%s\nwant the build only", got)
	}
}

// upstreamOf is an upstream with some figures.
func upstreamOf(route, address string, transport forward.Transport) forward.UpstreamStats {
	return forward.UpstreamStats{
		Route: route, Upstream: address, Address: netip.MustParseAddrPort(address), Transport: transport, Opened: 4, Reused: 5,
		Durations: []forward.LatencyHistogram{{RCode: "NOERROR", Buckets: map[float64]uint64{0.001: 2}, Count: 3, Sum: 0.5}},
	}
}

// TestAliasCoreDNS: figures under CoreDNS' names, with its labels.
func TestAliasCoreDNS(t *testing.T) {
	m := New("v1", func() Figures {
		return Figures{
			DNS: []respond.Counts{{
				Requests: []respond.Requests{
					{Transport: "udp", Family: "ipv4", Zone: "cluster.local.", Type: "A", RCode: "NOERROR", Count: 3},
					{Transport: "udp", Family: "ipv4", Zone: "cluster.local.", Type: "A", RCode: "NXDOMAIN", Count: 4},
				},
				Duration: []respond.Histogram{
					{Transport: "udp", Buckets: map[float64]uint64{0.001: 3}, Count: 3, Sum: 0.5},
					{Transport: "tcp", Buckets: map[float64]uint64{0.001: 1}, Count: 2, Sum: 0.25},
				},
				QuerySize: []respond.Histogram{{Transport: "udp", Buckets: map[float64]uint64{64: 7}, Count: 7, Sum: 350}},
			}},
			Forward: &forward.Stats{Hits: 5, StaleHits: 1, Misses: 2, Prefetched: 3, Refused: 4, Upstreams: []forward.UpstreamStats{
				upstreamOf(".", "192.0.2.1:53", forward.UDP), upstreamOf("example.", "192.0.2.1:53", forward.UDP), upstreamOf(".", "192.0.2.1:853", forward.TLS),
			}},
			Cache: &cache.Stats{Entries: 6},
		}
	})
	m.AliasCoreDNS("dns://:53")
	m.Programmed("headless", 3*time.Millisecond)
	w := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`coredns_dns_requests_total{family="1",proto="udp",server="dns://:53",type="A",view="",zone="cluster.local."} 7`,
		`coredns_dns_responses_total{plugin="",rcode="NXDOMAIN",server="dns://:53",view="",zone="cluster.local."} 4`,
		`coredns_dns_request_duration_seconds_bucket{server="dns://:53",view="",zone=".",le="0.001"} 4`,
		`coredns_dns_request_duration_seconds_sum{server="dns://:53",view="",zone="."} 0.75`,
		`coredns_dns_request_size_bytes_count{proto="udp",server="dns://:53",view="",zone="."} 7`,
		`coredns_cache_entries{server="dns://:53",type="success",view="",zones="."} 6`,
		`coredns_cache_hits_total{server="dns://:53",type="success",view="",zones="."} 5`,
		`coredns_cache_requests_total{server="dns://:53",view="",zones="."} 7`,
		`coredns_cache_served_stale_total{server="dns://:53",view="",zones="."} 1`,
		`coredns_forward_max_concurrent_rejects_total 4`,
		`coredns_proxy_request_duration_seconds_bucket{proxy_name="forward",rcode="NOERROR",to="192.0.2.1:53",le="0.001"} 4`,
		`coredns_proxy_request_duration_seconds_sum{proxy_name="forward",rcode="NOERROR",to="192.0.2.1:53"} 1`,
		`coredns_proxy_request_duration_seconds_count{proxy_name="forward",rcode="NOERROR",to="192.0.2.1:853"} 3`,
		`coredns_proxy_conn_cache_hits_total{proto="tcp",proxy_name="forward",to="192.0.2.1:53"} 10`,
		`coredns_proxy_conn_cache_misses_total{proto="tcp-tls",proxy_name="forward",to="192.0.2.1:853"} 4`,
		`coredns_kubernetes_dns_programming_duration_seconds_bucket{service_kind="headless_with_selector",le="0.004"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("scrape has no %s\n%s", want, w.Body)
		}
	}
}
