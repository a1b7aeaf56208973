package app

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/ops/metrics"
)

// These are the names and labels of CoreDNS 1.15.0 (plugins metrics, cache, forward and
// kubernetes) for figures that Portolan collects too, so that dashboards continue to
// work. A label that Portolan does not distinguish has one fixed value.
var (
	coreRequests = coreDesc(
		"dns_requests_total", "Queries; portolan_dns_requests_total tells more.", "server", "zone", "view", "proto",
		"family", "type",
	)
	coreResponses = coreDesc("dns_responses_total", "Answers; likewise.", "server", "zone", "view", "rcode", "plugin")
	coreDuration  = coreDesc(
		"dns_request_duration_seconds", "Time that making an answer took, of all zones.", "server", "zone", "view",
	)
	coreRequestSize = coreDesc(
		"dns_request_size_bytes", "Size of queries, of all zones.", "server", "zone", "view", "proto",
	)
	coreResponseSize = coreDesc(
		"dns_response_size_bytes", "Size of answers, of all zones.", "server", "zone", "view", "proto",
	)
	coreCacheEntries = coreDesc(
		"cache_entries", "Entries in the cache, denials included.", "server", "type", "zones", "view",
	)
	coreCacheHits   = coreDesc("cache_hits_total", "Queries answered from the cache.", "server", "type", "zones", "view")
	coreCacheMisses = coreDesc(
		"cache_misses_total", "Queries that were not in the cache and went to an upstream.", "server", "zones",
		"view",
	)
	coreCacheAll   = coreDesc("cache_requests_total", "Cache hits and misses.", "server", "zones", "view")
	coreCacheStale = coreDesc("cache_served_stale_total", "Queries answered with stale data.", "server", "zones", "view")
	corePrefetches = coreDesc(
		"cache_prefetch_total", "Queries sent to refresh an entry before its TTL expired.", "server", "zones", "view",
	)
	coreUpDuration = coreDesc(
		"proxy_request_duration_seconds", "Time from a query to the upstream's reply.", "proxy_name", "to", "rcode",
	)
	coreUpReused = coreDesc(
		"proxy_conn_cache_hits_total", "Queries sent to an upstream over a connection that was there.", "proxy_name",
		"to", "proto",
	)
	coreUpOpened = coreDesc(
		"proxy_conn_cache_misses_total", "Connections opened to an upstream.", "proxy_name", "to", "proto",
	)
	coreRejects = coreDesc(
		"forward_max_concurrent_rejects_total", "Queries not forwarded because too many were waiting.",
	)
	corePanics = coreDesc("panics_total", "Always 0: a panic ends the process.")
)

func coreDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("coredns_"+name, help, labels, nil)
}

// These are the fixed values of labels that Portolan does not distinguish.
const (
	coreProxy = "forward"
	coreView  = ""
	coreZone  = "."
	coreType  = "success"
)

// coreFamilies maps address families to CoreDNS's names.
var coreFamilies = map[string]string{"ipv4": "1", "ipv6": "2"}

// coreKinds maps kinds of Services to CoreDNS's names. The time of a change is known
// only for Services with a selector.
var coreKinds = map[string]string{"cluster_ip": "cluster_ip", "headless": "headless_with_selector"}

// coreProtos maps transports to CoreDNS's names of connections.
var coreProtos = map[forward.Transport]string{
	forward.UDP: "tcp", forward.TCP: "tcp", forward.TLS: "tcp-tls", forward.HTTPS: "https",
}

// coreCollector collects figures under CoreDNS's names.
type coreCollector struct {
	server      func() string // returns the label server, such as dns://:53
	programming *prometheus.HistogramVec
}

func newCoreCollector(server func() string) *coreCollector {
	return &coreCollector{server, newProgramming("coredns_kubernetes_dns_programming_duration_seconds")}
}

// coreDNSServer returns CoreDNS's label server: the first address of the server.
func coreDNSServer(settings *dnssettings.Compiled) string {
	switch {
	case len(settings.Listen) > 0:
		return fmt.Sprintf("dns://:%d", settings.Listen[0].Port())
	case len(settings.ListenTLS) > 0:
		return fmt.Sprintf("tls://:%d", settings.ListenTLS[0].Port())
	}
	return fmt.Sprintf("https://:%d", settings.ListenHTTPS[0].Port())
}

func (c *coreCollector) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		coreRequests, coreResponses, coreDuration, coreRequestSize, coreResponseSize, coreCacheEntries, coreCacheHits,
		coreCacheMisses, coreCacheAll, coreCacheStale, corePrefetches, coreRejects, coreUpDuration, coreUpReused,
		coreUpOpened, corePanics,
	} {
		ch <- d
	}
	c.programming.Describe(ch)
}

func (c *coreCollector) collect(ch chan<- prometheus.Metric, f *figures, s *sums) {
	server := c.server()
	collectCoreRequests(ch, server, s)
	if all := total(s.histograms[duration]); all.Count > 0 {
		ch <- prometheus.MustNewConstHistogram(coreDuration, all.Count, all.Sum, all.Buckets, server, coreZone, coreView)
	}
	for from, to := range map[*prometheus.Desc]*prometheus.Desc{
		requestSize: coreRequestSize, responseSize: coreResponseSize,
	} {
		for proto, h := range s.histograms[from] {
			ch <- prometheus.MustNewConstHistogram(to, h.Count, h.Sum, h.Buckets, server, coreZone, coreView, proto)
		}
	}
	if f.forward != nil {
		collectCoreForward(ch, server, f.forward, f.cache)
		metrics.Counter(ch, coreRejects, s.refused)
	}
	metrics.Counter(ch, corePanics, 0)
	c.programming.Collect(ch)
}

func collectCoreRequests(ch chan<- prometheus.Metric, server string, s *sums) {
	type query struct{ zone, proto, family, qtype string }
	type answer struct{ zone, rcode string }
	queries, answers := make(map[query]uint64), make(map[answer]uint64)
	for labels, n := range s.requests {
		queries[query{labels.Zone, labels.Transport, labels.Family, labels.Type}] += n
		answers[answer{labels.Zone, labels.RCode}] += n
	}
	for q, n := range queries {
		metrics.Counter(ch, coreRequests, n, server, q.zone, coreView, q.proto, coreFamilies[q.family], q.qtype)
	}
	for a, n := range answers {
		metrics.Counter(ch, coreResponses, n, server, a.zone, coreView, a.rcode, "")
	}
}

func collectCoreForward(ch chan<- prometheus.Metric, server string, f *forward.Stats, kept *cache.Stats) {
	metrics.Counter(ch, coreCacheHits, f.Hits, server, coreType, coreZone, coreView)
	metrics.Counter(ch, coreCacheMisses, f.Misses, server, coreZone, coreView)
	metrics.Counter(ch, coreCacheAll, f.Hits+f.Misses, server, coreZone, coreView)
	metrics.Counter(ch, coreCacheStale, f.StaleHits, server, coreZone, coreView)
	metrics.Counter(ch, corePrefetches, f.Prefetched, server, coreZone, coreView)
	collectProxies(ch, f.Upstreams)
	if kept != nil {
		metrics.Gauge(ch, coreCacheEntries, float64(kept.Entries), server, coreType, coreZone, coreView)
	}
}

// collectProxies sends the metrics of upstreams by address. Several routes may lead to
// the same address.
func collectProxies(ch chan<- prometheus.Metric, upstreams []forward.UpstreamStats) {
	type connection struct{ to, proto string }
	type reply struct{ to, rcode string }
	opened, reused := make(map[connection]uint64), make(map[connection]uint64)
	replies := make(map[reply]*forward.LatencyHistogram)
	for _, u := range upstreams {
		c := connection{u.Address.String(), coreProtos[u.Transport]}
		opened[c] += u.Opened
		reused[c] += u.Reused
		for _, d := range u.Durations {
			r := reply{c.to, d.RCode}
			if replies[r] == nil {
				replies[r] = &forward.LatencyHistogram{Buckets: make(map[float64]uint64)}
			}
			add(replies[r].Buckets, d.Buckets)
			replies[r].Count += d.Count
			replies[r].Sum += d.Sum
		}
	}
	for c, n := range opened {
		metrics.Counter(ch, coreUpOpened, n, coreProxy, c.to, c.proto)
		metrics.Counter(ch, coreUpReused, reused[c], coreProxy, c.to, c.proto)
	}
	for r, d := range replies {
		ch <- prometheus.MustNewConstHistogram(coreUpDuration, d.Count, d.Sum, d.Buckets, coreProxy, r.to, r.rcode)
	}
}

// total adds histograms that have the same buckets.
func total(of map[string]respond.Histogram) (all respond.Histogram) {
	all.Buckets = make(map[float64]uint64)
	for _, h := range of {
		all.Count += h.Count
		all.Sum += h.Sum
		add(all.Buckets, h.Buckets)
	}
	return all
}

func add(to, buckets map[float64]uint64) {
	for bound, n := range buckets {
		to[bound] += n
	}
}
