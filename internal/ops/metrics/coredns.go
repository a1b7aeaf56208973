package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
)

// The names and labels that CoreDNS 1.15.0 has for what we count as well (plugins
// metrics, cache, forward and kubernetes), so that dashboards go on working. What it tells
// apart and we do not is under one label.
var (
	coreRequests     = coreDesc("dns_requests_total", "Queries; portolan_dns_requests_total tells more.", "server", "zone", "view", "proto", "family", "type")
	coreResponses    = coreDesc("dns_responses_total", "Answers; likewise.", "server", "zone", "view", "rcode", "plugin")
	coreDuration     = coreDesc("dns_request_duration_seconds", "Time that making an answer took, of all zones.", "server", "zone", "view")
	coreRequestSize  = coreDesc("dns_request_size_bytes", "Size of queries, of all zones.", "server", "zone", "view", "proto")
	coreResponseSize = coreDesc("dns_response_size_bytes", "Size of answers, of all zones.", "server", "zone", "view", "proto")
	coreCacheEntries = coreDesc("cache_entries", "Answers that are kept, denials among them.", "server", "type", "zones", "view")
	coreCacheHits    = coreDesc("cache_hits_total", "Queries answered from them.", "server", "type", "zones", "view")
	coreCacheMisses  = coreDesc("cache_misses_total", "Questions that upstreams were asked.", "server", "zones", "view")
	coreCacheAll     = coreDesc("cache_requests_total", "Hits and misses.", "server", "zones", "view")
	coreCacheStale   = coreDesc("cache_served_stale_total", "Queries answered past the TTL.", "server", "zones", "view")
	corePrefetches   = coreDesc("cache_prefetch_total", "Questions asked before the end of a TTL.", "server", "zones", "view")
	coreUpDuration   = coreDesc("proxy_request_duration_seconds", "Time that an upstream's replies took.", "proxy_name", "to", "rcode")
	coreUpReused     = coreDesc("proxy_conn_cache_hits_total", "Queries sent to an upstream over a connection that was there.", "proxy_name", "to", "proto")
	coreUpOpened     = coreDesc("proxy_conn_cache_misses_total", "Connections made to an upstream.", "proxy_name", "to", "proto")
	coreRejects      = coreDesc("forward_max_concurrent_rejects_total", "Queries that were not forwarded, since too many waited.")
)

func coreDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("coredns_"+name, help, labels, nil)
}

// Values of CoreDNS' labels where there is one for all.
const (
	coreProxy = "forward"
	coreView  = ""
	coreZone  = "."
	coreType  = "success"
)

// coreFamilies are CoreDNS' names of the families.
var coreFamilies = map[string]string{"ipv4": "1", "ipv6": "2"}

// coreKinds are CoreDNS' names of kinds of Services. The time of a change is known
// only where there is a selector.
var coreKinds = map[string]string{"cluster_ip": "cluster_ip", "headless": "headless_with_selector"}

// coreProtos are CoreDNS' names of how connections are made.
var coreProtos = map[forward.Transport]string{forward.UDP: "tcp", forward.TCP: "tcp", forward.TLS: "tcp-tls", forward.HTTPS: "https"}

// coreCollector tells Figures in CoreDNS' names.
type coreCollector struct {
	*Metrics
	server string
}

// AliasCoreDNS has some figures told under CoreDNS' names, too; server is what its
// label of that name says, such as dns://:53.
// It must be called before Programmed.
func (m *Metrics) AliasCoreDNS(server string) {
	m.coreProgramming = newProgramming("coredns_kubernetes_dns_programming_duration_seconds")
	m.registry.MustRegister(&coreCollector{m, server}, m.coreProgramming)
}

// Describe lists what Collect tells.
func (c *coreCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		coreRequests, coreResponses, coreDuration, coreRequestSize, coreResponseSize, coreCacheEntries, coreCacheHits,
		coreCacheMisses, coreCacheAll, coreCacheStale, corePrefetches, coreRejects, coreUpDuration, coreUpReused, coreUpOpened,
	} {
		ch <- d
	}
}

// Collect tells the figures of the moment.
func (c *coreCollector) Collect(ch chan<- prometheus.Metric) {
	f := c.figures()
	s := sumUp(f.DNS)
	c.collectRequests(ch, s)
	if all := total(s.histograms[duration]); all.Count > 0 {
		ch <- prometheus.MustNewConstHistogram(coreDuration, all.Count, all.Sum, all.Buckets, c.server, coreZone, coreView)
	}
	for from, to := range map[*prometheus.Desc]*prometheus.Desc{requestSize: coreRequestSize, responseSize: coreResponseSize} {
		for proto, h := range s.histograms[from] {
			ch <- prometheus.MustNewConstHistogram(to, h.Count, h.Sum, h.Buckets, c.server, coreZone, coreView, proto)
		}
	}
	if f.Forward != nil {
		c.collectForward(ch, f.Forward, f.Cache)
	}
}

func (c *coreCollector) collectRequests(ch chan<- prometheus.Metric, s *sums) {
	type query struct{ zone, proto, family, qtype string }
	type answer struct{ zone, rcode string }
	queries, answers := make(map[query]uint64), make(map[answer]uint64)
	for labels, n := range s.requests {
		queries[query{labels.Zone, labels.Transport, labels.Family, labels.Type}] += n
		answers[answer{labels.Zone, labels.RCode}] += n
	}
	for q, n := range queries {
		counter(ch, coreRequests, n, c.server, q.zone, coreView, q.proto, coreFamilies[q.family], q.qtype)
	}
	for a, n := range answers {
		counter(ch, coreResponses, n, c.server, a.zone, coreView, a.rcode, "")
	}
}

func (c *coreCollector) collectForward(ch chan<- prometheus.Metric, f *forward.Stats, kept *cache.Stats) {
	counter(ch, coreCacheHits, f.Hits, c.server, coreType, coreZone, coreView)
	counter(ch, coreCacheMisses, f.Misses, c.server, coreZone, coreView)
	counter(ch, coreCacheAll, f.Hits+f.Misses, c.server, coreZone, coreView)
	counter(ch, coreCacheStale, f.StaleHits, c.server, coreZone, coreView)
	counter(ch, corePrefetches, f.Prefetched, c.server, coreZone, coreView)
	counter(ch, coreRejects, f.Refused)
	collectProxies(ch, f.Upstreams)
	if kept != nil {
		gauge(ch, coreCacheEntries, float64(kept.Entries), c.server, coreType, coreZone, coreView)
	}
}

// collectProxies tells of upstreams by their addresses, which several routes may
// lead to.
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
		counter(ch, coreUpOpened, n, coreProxy, c.to, c.proto)
		counter(ch, coreUpReused, reused[c], coreProxy, c.to, c.proto)
	}
	for r, d := range replies {
		ch <- prometheus.MustNewConstHistogram(coreUpDuration, d.Count, d.Sum, d.Buckets, coreProxy, r.to, r.rcode)
	}
}

// total adds histograms of equal buckets.
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
