package app

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/ops/metrics"
	"portolan.dev/portolan/internal/support/budget"
)

// scrape returns the lines of a scrape that have values.
func scrape(t *testing.T, c *collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	w := httptest.NewRecorder()
	metrics.Handler(r, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	var b strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "portolan_") || strings.HasPrefix(line, "coredns_") {
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
	m := collectorOf(figures{counts: []respond.Counts{counts, other}, serials: map[string]uint32{"cluster.local.": 7}})
	m.programmed("headless", 3*time.Millisecond)
	m.programmed("headless", -time.Second) // clocks differ
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
		`portolan_zone_serial{zone="cluster.local."} 7`,
		`portolan_dns_programming_duration_seconds_bucket{service_kind="headless",le="0.001"} 1`,
		`portolan_dns_programming_duration_seconds_bucket{service_kind="headless",le="0.004"} 2`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("scrape has no %s\n%s", want, got)
		}
	}
}

// collectorOf returns a collector of the given figures.
func collectorOf(f figures) *collector {
	return &collector{figures: func() figures { return f }, programming: newProgramming("portolan_dns_programming_duration_seconds")}
}

// TestFewFigures checks that metrics of unused features are not collected.
func TestFewFigures(t *testing.T) {
	const want = "portolan_query_log_dropped_total 0\n"
	if got := scrape(t, collectorOf(figures{})); got != want {
		t.Errorf("scrape:\n%s\nwant %s", got, want)
	}
}

// upstreamOf returns an upstream with some figures.
func upstreamOf(route, address string, transport forward.Transport) forward.UpstreamStats {
	return forward.UpstreamStats{
		Route: route, Upstream: address, Address: netip.MustParseAddrPort(address), Transport: transport, Opened: 4, Reused: 5,
		Durations: []forward.LatencyHistogram{{RCode: "NOERROR", Buckets: map[float64]uint64{0.001: 2}, Count: 3, Sum: 0.5}},
	}
}

// TestCoreDNSNames checks the names and labels of CoreDNS's metrics.
func TestCoreDNSNames(t *testing.T) {
	m := collectorOf(figures{
		counts: []respond.Counts{{
			Requests: []respond.Requests{
				{Transport: "udp", Family: "ipv4", Zone: "cluster.local.", Type: "A", RCode: "NOERROR", Count: 3},
				{Transport: "udp", Family: "ipv4", Zone: "cluster.local.", Type: "A", RCode: "NXDOMAIN", Count: 4},
			},
			Duration: []respond.Histogram{
				{Transport: "udp", Buckets: map[float64]uint64{0.001: 3}, Count: 3, Sum: 0.5},
				{Transport: "tcp", Buckets: map[float64]uint64{0.001: 1}, Count: 2, Sum: 0.25},
			},
			QuerySize: []respond.Histogram{{Transport: "udp", Buckets: map[float64]uint64{64: 7}, Count: 7, Sum: 350}},
			Refused:   4,
		}},
		forward: &forward.Stats{Hits: 5, StaleHits: 1, Misses: 2, Prefetched: 3, Waiting: budget.Stats{Full: 9, SourceFull: 1}, Upstreams: []forward.UpstreamStats{
			upstreamOf(".", "192.0.2.1:53", forward.UDP), upstreamOf("example.", "192.0.2.1:53", forward.UDP), upstreamOf(".", "192.0.2.1:853", forward.TLS),
		}},
		cache: &cache.Stats{Entries: 6},
	})
	m.core = newCoreCollector(func() string { return "dns://:53" })
	m.programmed("headless", 3*time.Millisecond)
	got := scrape(t, m)
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
		if !strings.Contains(got, want+"\n") {
			t.Errorf("scrape has no %s\n%s", want, got)
		}
	}
}
