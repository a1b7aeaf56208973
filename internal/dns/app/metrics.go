package app

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/secondary"
	"portolan.dev/portolan/internal/ops/metrics"
)

var (
	requests = metrics.Desc("dns_requests_total", "Queries answered.", "proto", "family", "zone", "type", "rcode")
	dropped  = metrics.Desc("dns_dropped_total", "Packets dropped: malformed, or denied by access.", "proto")
	duration = metrics.Desc(
		"dns_request_duration_seconds", "Time to produce an answer, including the wait for upstreams.", "proto",
	)
	requestSize  = metrics.Desc("dns_request_size_bytes", "Size of queries.", "proto")
	responseSize = metrics.Desc("dns_response_size_bytes", "Size of answers.", "proto")
	ede          = metrics.Desc(
		"dns_ede_total", "Extended DNS Errors (RFC 8914) of answers, counted even if the client did not send EDNS.",
		"code",
	)
	reasons  = metrics.Desc("dns_reasons_total", "Negative, refused and stale answers by their reason.", "reason")
	searches = metrics.Desc(
		"dns_searches_total",
		"Queries resolved through a search path, by where the path came from (the name or an EDNS option).", "by",
		"result",
	)
	serial    = metrics.Desc("zone_serial", "SOA serial of a zone.", "zone")
	cacheHits = metrics.Desc(
		"cache_hits_total", "Queries answered from the cache; stale answers are past their TTL (RFC 8767).", "type",
	)
	cacheMisses = metrics.Desc("cache_misses_total", "Queries that were not in the cache and went to an upstream.")
	prefetches  = metrics.Desc(
		"cache_prefetches_total", "Queries sent to upstreams to refresh an entry before its TTL expired.",
	)
	cacheEntries = metrics.Desc("cache_entries", "Entries in the cache.")
	cacheSize    = metrics.Desc("cache_size_bytes", "Approximate memory of the cache.")
	waiting      = metrics.Desc("forward_waiting", "Queries waiting for an upstream.")
	joined       = metrics.Desc(
		"forward_joined_total", "Queries that waited for the same query of another client instead of being sent.",
	)
	refused   = metrics.Desc("forward_refused_total", "Queries that were not resolved because too many were waiting.")
	upQueries = metrics.Desc(
		"forward_queries_total", "Queries sent to an upstream, including retries.", "route", "upstream",
	)
	upReplies = metrics.Desc("forward_replies_total", "Replies received from an upstream.", "route", "upstream")
	upLate    = metrics.Desc(
		"forward_late_total", "Queries that an upstream did not answer within its usual time.", "route", "upstream",
	)
	upFailures = metrics.Desc("forward_failures_total", "Queries that failed with a network error.", "route", "upstream")
	upForged   = metrics.Desc(
		"forward_bad_replies_total",
		"Packets from an upstream's address that match no query, and replies for another client subnet.", "route",
		"upstream",
	)
	upUp     = metrics.Desc("forward_up", "1 if the upstream is considered up, 0 if it is down.", "route", "upstream")
	upOpened = metrics.Desc("forward_connections_total", "Connections opened to an upstream.", "route", "upstream")
	upReused = metrics.Desc(
		"forward_connections_reused_total", "Queries sent over an existing connection.", "route", "upstream",
	)
	upDuration = metrics.Desc(
		"forward_duration_seconds", "Time from a query to the upstream's reply.", "route", "upstream", "rcode",
	)
	upRTT  = metrics.Desc("forward_rtt_seconds", "Smoothed round-trip time of an upstream.", "route", "upstream")
	untold = metrics.Desc(
		"query_log_dropped_total", "Query log lines and dnstap messages dropped because too many were waiting.",
	)
	limited = metrics.Desc("dns_rate_limited_total", "Responses dropped or truncated by the rate limit.")
)

// figures are the values collected by one scrape.
type figures struct {
	counts      []respond.Counts // one for each set of counters; added up later
	serials     map[string]uint32
	undelivered uint64            // dropped observations of queries
	limited     *uint64           // responses over the rate limit; nil if there is no limit
	secondary   *secondary.Status // nil if no zones are transferred
	forward     *forward.Stats    // nil if nothing is forwarded, as is cache
	cache       *cache.Stats
	transfer    *transferFigures // nil if zones are not transferred
}

// retired holds the counters of replaced answers.
type retired struct {
	mu    sync.Mutex
	stats []*respond.Stats
}

func (r *retired) add(stats *respond.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.stats, stats) {
		r.stats = append(r.stats, stats)
	}
}

// counts returns the counts of the current and all replaced answers.
func (r *retired) counts(now *respond.Stats) (all []respond.Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, st := range r.stats {
		if st != now {
			all = append(all, st.Counts())
		}
	}
	return append(all, now.Counts())
}

// figures returns the current figures.
func (d *DNS) figures() figures {
	now := d.current.Load()
	f := figures{
		counts: d.retired.counts(now.stats), serials: make(map[string]uint32), undelivered: d.queries.Dropped(),
		limited: new(uint64),
	}
	for _, soa := range now.db.SOAs() {
		f.serials[soa.Zone.String()] = soa.Serial
	}
	if now.upstreams != nil {
		asked, kept := now.upstreams.Stats(), now.cache.Stats()
		f.forward, f.cache = &asked, &kept
	}
	if now.limiter != nil {
		*f.limited = now.limiter.Exceeded()
	}
	f.transfer = now.transferFigures()
	d.keeper.collect(&f)
	return f
}

// Metrics returns the collector of the DNS's metrics.
func (d *DNS) Metrics() prometheus.Collector { return d.metrics }

// collector collects figures and measures the time until changes show.
type collector struct {
	figures     func() figures
	programming *prometheus.HistogramVec
	// core collects the same figures under CoreDNS's names; nil if that is off.
	core *coreCollector
}

// newCollector returns the collector of a DNS.
func newCollector(d *DNS) *collector {
	c := &collector{figures: d.figures, programming: newProgramming("portolan_dns_programming_duration_seconds")}
	if d.cfg.Settings.Admin.CoreDNSMetrics {
		c.core = newCoreCollector(func() string { return coreDNSServer(&d.current.Load().settings.DNS) })
	}
	return c
}

func newProgramming(name string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    name,
		Help:    "Time from a change of a Service's ready Pods, as its EndpointSlice says, to the answer that shows it.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
	}, []string{"service_kind"})
}

// programmed records the time from a change of a Service to the answers that show it.
// serviceKind is cluster_ip or headless.
func (c *collector) programmed(serviceKind string, d time.Duration) {
	took := max(0, d.Seconds())
	c.programming.WithLabelValues(serviceKind).Observe(took)
	if c.core != nil {
		c.core.programming.WithLabelValues(coreKinds[serviceKind]).Observe(took)
	}
}

// Describe sends the descriptions of all metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		requests, dropped, duration, requestSize, responseSize, ede, reasons, searches, serial, untold, limited,
		cacheHits, cacheMisses, prefetches, cacheEntries, cacheSize, waiting, joined, refused,
		upQueries, upReplies, upLate, upFailures, upForged, upUp, upOpened, upReused, upDuration, upRTT,
		transfers, transferSize, notices, remembered, rememberedSize,
	} {
		ch <- d
	}
	for _, d := range secondaryDescs {
		ch <- d
	}
	c.programming.Describe(ch)
	if c.core != nil {
		c.core.describe(ch)
	}
}

// Collect sends the current metrics.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	f := c.figures()
	sums := sumUp(f.counts)
	collectDNS(ch, sums)
	for zone, n := range f.serials {
		metrics.Gauge(ch, serial, float64(n), zone)
	}
	metrics.Counter(ch, untold, f.undelivered)
	if f.limited != nil {
		metrics.Counter(ch, limited, *f.limited)
	}
	if f.secondary != nil {
		collectSecondary(ch, f.secondary)
	}
	if f.forward != nil {
		collectForward(ch, f.forward)
		metrics.Counter(ch, refused, sums.refused)
	}
	if f.transfer != nil {
		collectTransfer(ch, f.transfer)
	}
	if f.cache != nil {
		metrics.Gauge(ch, cacheEntries, float64(f.cache.Entries))
		metrics.Gauge(ch, cacheSize, float64(f.cache.Octets))
	}
	c.programming.Collect(ch)
	if c.core != nil {
		c.core.collect(ch, &f, sums)
	}
}

func collectForward(ch chan<- prometheus.Metric, f *forward.Stats) {
	metrics.Counter(ch, cacheHits, f.Hits, "fresh")
	metrics.Counter(ch, cacheHits, f.StaleHits, "stale")
	metrics.Counter(ch, cacheMisses, f.Misses)
	metrics.Counter(ch, prefetches, f.Prefetched)
	metrics.Counter(ch, joined, f.Joined)
	metrics.Gauge(ch, waiting, float64(f.Waiting.Used))
	for _, u := range f.Upstreams {
		metrics.Counter(ch, upQueries, u.Queries, u.Route, u.Upstream)
		metrics.Counter(ch, upReplies, u.Replies, u.Route, u.Upstream)
		metrics.Counter(ch, upLate, u.Late, u.Route, u.Upstream)
		metrics.Counter(ch, upFailures, u.Failures, u.Route, u.Upstream)
		metrics.Counter(ch, upForged, u.Forged, u.Route, u.Upstream)
		metrics.Gauge(ch, upUp, metrics.Truth(!u.Down), u.Route, u.Upstream)
		metrics.Counter(ch, upOpened, u.Opened, u.Route, u.Upstream)
		metrics.Counter(ch, upReused, u.Reused, u.Route, u.Upstream)
		for _, d := range u.Durations {
			ch <- prometheus.MustNewConstHistogram(upDuration, d.Count, d.Sum, d.Buckets, u.Route, u.Upstream, d.RCode)
		}
		metrics.Gauge(ch, upRTT, u.RTT.Seconds(), u.Route, u.Upstream)
	}
}

func collectDNS(ch chan<- prometheus.Metric, s *sums) {
	for labels, n := range s.requests {
		metrics.Counter(ch, requests, n, labels.Transport, labels.Family, labels.Zone, labels.Type, labels.RCode)
	}
	for proto, n := range s.dropped {
		metrics.Counter(ch, dropped, n, proto)
	}
	for labels, n := range s.searches {
		metrics.Counter(ch, searches, n, labels.By, labels.End)
	}
	for reason, n := range s.reasons {
		metrics.Counter(ch, reasons, n, reason)
	}
	for code, n := range s.ede {
		metrics.Counter(ch, ede, n, strconv.Itoa(int(code)))
	}
	for d, byProto := range s.histograms {
		for proto, h := range byProto {
			ch <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum, h.Buckets, proto)
		}
	}
}

// sums are the added counts of several Responders.
type sums struct {
	requests   map[respond.Requests]uint64 // by labels; the key's Count is 0
	dropped    map[string]uint64
	ede        map[uint16]uint64
	refused    uint64
	reasons    map[string]uint64
	searches   map[respond.Searches]uint64
	histograms map[*prometheus.Desc]map[string]respond.Histogram
}

func sumUp(all []respond.Counts) *sums {
	s := &sums{
		requests: make(map[respond.Requests]uint64), dropped: make(map[string]uint64), ede: make(map[uint16]uint64),
		reasons:  make(map[string]uint64),
		searches: make(map[respond.Searches]uint64), histograms: make(map[*prometheus.Desc]map[string]respond.Histogram),
	}
	for _, c := range all {
		for _, r := range c.Requests {
			labels := r
			labels.Count = 0
			s.requests[labels] += r.Count
		}
		for proto, n := range c.Dropped {
			s.dropped[proto] += n
		}
		s.refused += c.Refused
		for reason, n := range c.Reasons {
			s.reasons[reason] += n
		}
		for code, n := range c.EDE {
			s.ede[code] += n
		}
		for _, r := range c.Searches {
			labels := r
			labels.Count = 0
			s.searches[labels] += r.Count
		}
		s.addHistograms(duration, c.Duration)
		s.addHistograms(requestSize, c.QuerySize)
		s.addHistograms(responseSize, c.ResponseSize)
	}
	return s
}

func (s *sums) addHistograms(d *prometheus.Desc, hs []respond.Histogram) {
	if s.histograms[d] == nil {
		s.histograms[d] = make(map[string]respond.Histogram)
	}
	for _, h := range hs {
		sum, ok := s.histograms[d][h.Transport]
		if !ok {
			s.histograms[d][h.Transport] = h
			continue
		}
		sum.Count += h.Count
		sum.Sum += h.Sum
		for bound, n := range h.Buckets {
			sum.Buckets[bound] += n
		}
		s.histograms[d][h.Transport] = sum
	}
}
