// Package metrics tells the figures of the server to Prometheus. It keeps none
// of its own but the durations of changes; it asks the parts that do, when it
// is asked.
package metrics

import (
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/secondary"
)

// Kind is how one kind of object stands.
type Kind struct {
	Name      string
	State     string // one of States
	Staleness time.Duration
	Events    map[string]uint64 // by type
	Objects   int
}

// States of a kind: not all objects are there; they are from a snapshot; the
// source follows them; it did, and has lost the cluster.
const (
	Loading  = "loading"
	Snapshot = "snapshot"
	Live     = "live"
	Stale    = "stale"
)

// States lists every state.
var States = []string{Loading, Snapshot, Live, Stale}

// Figures are those of one moment.
type Figures struct {
	DNS   []respond.Counts // added up
	Kinds []Kind
	// Serials are the zones', by name.
	Serials map[string]uint32
	// Snapshot is nil when none is kept.
	Snapshot *SnapshotFigures
	// Node is nil where nothing was put on the node.
	Node *NodeFigures
	// Reload is nil until the configuration was read again.
	Reload *ReloadFigures
	// QueriesUntold are queries that were to be logged, and were not; nil when
	// none are to be.
	QueriesUntold *uint64
	// Limited are responses over the rate limit; nil when there is none.
	Limited *uint64
	// Replica is nil where no copies are kept.
	Replica *secondary.Status
	// Forward and Cache are nil when nobody else is asked.
	Forward *forward.Stats
	Cache   *cache.Stats
	// Transfer is nil when it is not known.
	Transfer *TransferFigures
}

// SnapshotFigures are those of the snapshot file.
type SnapshotFigures struct {
	Written  time.Time // zero when it was not, since the start
	Failures uint64
}

// NodeFigures are those of what an agent has put on its node.
type NodeFigures struct {
	Repairs uint64
	Healthy bool
}

// ReloadFigures are those of the last time that the configuration was read
// again.
type ReloadFigures struct {
	OK bool
	At time.Time
}

// Metrics tells figures, and measures changes.
type Metrics struct {
	figures     func() Figures
	registry    *prometheus.Registry
	programming *prometheus.HistogramVec
	// coreProgramming is the same under CoreDNS' name; nil without its names.
	coreProgramming *prometheus.HistogramVec
}

// New makes Metrics that ask for figures at each scrape.
func New(version string, figures func() Figures) *Metrics {
	m := &Metrics{
		figures:     figures,
		registry:    prometheus.NewPedanticRegistry(),
		programming: newProgramming("portolan_dns_programming_duration_seconds"),
	}
	m.registry.MustRegister(m.programming, (*collector)(m))
	m.registry.MustRegister(ofProcess(version)...)
	return m
}

// ofProcess collects what every process tells.
func ofProcess(version string) []prometheus.Collector {
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portolan_build_info", Help: "Always 1; its labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
	return []prometheus.Collector{
		build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
}

func newProgramming(name string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    name,
		Help:    "Time from a change of a Service's ready Pods, as its EndpointSlice tells it, to the answer that shows it.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
	}, []string{"service_kind"})
}

// Programmed notes how long a change of a Service took to show; serviceKind is
// cluster_ip or headless.
func (m *Metrics) Programmed(serviceKind string, d time.Duration) {
	took := max(0, d.Seconds())
	m.programming.WithLabelValues(serviceKind).Observe(took)
	if m.coreProgramming != nil {
		m.coreProgramming.WithLabelValues(coreKinds[serviceKind]).Observe(took)
	}
}

// Handler answers scrapes.
func (m *Metrics) Handler(log *slog.Logger) http.Handler { return handlerFor(m.registry, log) }

func handlerFor(registry *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		MaxRequestsInFlight: 4,
	})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("portolan_"+name, help, labels, nil)
}

var (
	requests     = desc("dns_requests_total", "Queries answered.", "proto", "family", "zone", "type", "rcode")
	dropped      = desc("dns_dropped_total", "Packets that had no answer: no queries, and those of clients that access drops.", "proto")
	duration     = desc("dns_request_duration_seconds", "Time that making an answer took, with the wait for upstreams.", "proto")
	requestSize  = desc("dns_request_size_bytes", "Size of queries.", "proto")
	responseSize = desc("dns_response_size_bytes", "Size of answers.", "proto")
	ede          = desc("dns_ede_total", "Extended DNS Errors (RFC 8914) in answers, whether or not the client has EDNS.", "code")
	searches     = desc("dns_searches_total", "Queries whose names were searched for, by what says in which paths.", "by", "result")
	sourceState  = desc("source_state", "1 for the state that a kind of object is in.", "kind", "state")
	staleness    = desc("source_staleness_seconds", "Time since the source was last in touch with the cluster about a kind; 0 while it is.", "kind")
	events       = desc("source_events_total", "What the source heard of a kind.", "kind", "type")
	objects      = desc("model_objects", "Objects in the model.", "kind")
	serial       = desc("zone_serial", "Serial of a zone.", "zone")
	snapWritten  = desc("snapshot_write_timestamp_seconds", "When the snapshot was last written.")
	snapErrors   = desc("snapshot_errors_total", "Snapshots that could not be written.")
	cacheHits    = desc("cache_hits_total", "Queries answered from what upstreams answered before; stale is past its TTL.", "type")
	cacheMisses  = desc("cache_misses_total", "Questions that upstreams were asked.")
	prefetches   = desc("cache_prefetches_total", "Questions that upstreams were asked before the TTL of their answers was over.")
	cacheEntries = desc("cache_entries", "Answers of upstreams that are kept.")
	cacheSize    = desc("cache_size_bytes", "Memory that they take, about.")
	waiting      = desc("forward_waiting", "Queries that wait for upstreams.")
	joined       = desc("forward_joined_total", "Queries that waited for a question that an upstream was being asked already.")
	refused      = desc("forward_refused_total", "Queries that were not forwarded, since too many waited.")
	upQueries    = desc("forward_queries_total", "Queries sent to an upstream, with those sent again.", "route", "upstream")
	upReplies    = desc("forward_replies_total", "Replies of an upstream.", "route", "upstream")
	upLate       = desc("forward_late_total", "Queries that an upstream took longer for than it usually does.", "route", "upstream")
	upFailures   = desc("forward_failures_total", "Queries that the network refused to take to an upstream.", "route", "upstream")
	upForged     = desc("forward_bad_replies_total", "Packets from an upstream's address that were no reply to a query, and replies for another client subnet.", "route", "upstream")
	upUp         = desc("forward_up", "Whether an upstream is held to answer.", "route", "upstream")
	upOpened     = desc("forward_connections_total", "Connections made to an upstream.", "route", "upstream")
	upReused     = desc("forward_connections_reused_total", "Queries sent over a connection that was there.", "route", "upstream")
	upDuration   = desc("forward_duration_seconds", "Time that an upstream's replies took.", "route", "upstream", "rcode")
	upRTT        = desc("forward_rtt_seconds", "Time that an upstream takes, smoothed.", "route", "upstream")
	untold       = desc("query_log_dropped_total", "Lines and dnstap messages about queries that were dropped, since too many waited.")
	limited      = desc("dns_rate_limited_total", "Responses that the rate limit held back.")
	netHealthy   = desc("node_network_healthy", "Whether all that the agent has put on its node was there when it last looked.")
	netRepairs   = desc("node_network_repairs_total", "How often something of it was missing and was put there again.")
	reloadOK     = desc("config_reload_success", "Whether the configuration was good when it was last read again.")
	reloadTime   = desc("config_last_reload_timestamp_seconds", "When the configuration was last read again and found good.")
)

// collector tells Figures.
type collector Metrics

// Describe lists what Collect tells.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		requests, dropped, duration, requestSize, responseSize, ede, searches, sourceState, staleness, events, objects, serial,
		snapWritten, snapErrors, netHealthy, netRepairs, reloadOK, reloadTime, untold, limited,
		cacheHits, cacheMisses, prefetches, cacheEntries, cacheSize, waiting, joined, refused,
		upQueries, upReplies, upLate, upFailures, upForged, upUp, upOpened, upReused, upDuration, upRTT,
		transfers, transferSize, notices, remembered, rememberedSize,
	} {
		ch <- d
	}
	for _, d := range replicaDescs {
		ch <- d
	}
}

// Collect tells the figures of the moment.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	f := c.figures()
	collectDNS(ch, sumUp(f.DNS))
	for _, k := range f.Kinds {
		collectKind(ch, k)
	}
	for zone, n := range f.Serials {
		gauge(ch, serial, float64(n), zone)
	}
	if f.Snapshot != nil {
		if !f.Snapshot.Written.IsZero() {
			gauge(ch, snapWritten, float64(f.Snapshot.Written.UnixNano())/1e9)
		}
		counter(ch, snapErrors, f.Snapshot.Failures)
	}
	if f.Node != nil {
		gauge(ch, netHealthy, truth(f.Node.Healthy))
		counter(ch, netRepairs, f.Node.Repairs)
	}
	if f.Reload != nil {
		gauge(ch, reloadOK, truth(f.Reload.OK))
		gauge(ch, reloadTime, float64(f.Reload.At.UnixNano())/1e9)
	}
	if f.QueriesUntold != nil {
		counter(ch, untold, *f.QueriesUntold)
	}
	if f.Limited != nil {
		counter(ch, limited, *f.Limited)
	}
	if f.Replica != nil {
		collectReplica(ch, f.Replica)
	}
	if f.Forward != nil {
		collectForward(ch, f.Forward)
	}
	if f.Transfer != nil {
		collectTransfer(ch, f.Transfer)
	}
	if f.Cache != nil {
		gauge(ch, cacheEntries, float64(f.Cache.Entries))
		gauge(ch, cacheSize, float64(f.Cache.Octets))
	}
}

func collectForward(ch chan<- prometheus.Metric, f *forward.Stats) {
	counter(ch, cacheHits, f.Hits, "fresh")
	counter(ch, cacheHits, f.StaleHits, "stale")
	counter(ch, cacheMisses, f.Misses)
	counter(ch, prefetches, f.Prefetched)
	counter(ch, joined, f.Joined)
	counter(ch, refused, f.Refused)
	gauge(ch, waiting, float64(f.Waiting))
	for _, u := range f.Upstreams {
		counter(ch, upQueries, u.Queries, u.Route, u.Upstream)
		counter(ch, upReplies, u.Replies, u.Route, u.Upstream)
		counter(ch, upLate, u.Late, u.Route, u.Upstream)
		counter(ch, upFailures, u.Failures, u.Route, u.Upstream)
		counter(ch, upForged, u.Forged, u.Route, u.Upstream)
		gauge(ch, upUp, truth(!u.Down), u.Route, u.Upstream)
		counter(ch, upOpened, u.Opened, u.Route, u.Upstream)
		counter(ch, upReused, u.Reused, u.Route, u.Upstream)
		for _, d := range u.Durations {
			ch <- prometheus.MustNewConstHistogram(upDuration, d.Count, d.Sum, d.Buckets, u.Route, u.Upstream, d.RCode)
		}
		gauge(ch, upRTT, u.RTT.Seconds(), u.Route, u.Upstream)
	}
}

func collectDNS(ch chan<- prometheus.Metric, s *sums) {
	for labels, n := range s.requests {
		counter(ch, requests, n, labels.Transport, labels.Family, labels.Zone, labels.Type, labels.RCode)
	}
	for proto, n := range s.dropped {
		counter(ch, dropped, n, proto)
	}
	for labels, n := range s.searches {
		counter(ch, searches, n, labels.By, labels.End)
	}
	for code, n := range s.ede {
		counter(ch, ede, n, strconv.Itoa(int(code)))
	}
	for d, byProto := range s.histograms {
		for proto, h := range byProto {
			ch <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum, h.Buckets, proto)
		}
	}
}

func collectKind(ch chan<- prometheus.Metric, k Kind) {
	for _, s := range States {
		gauge(ch, sourceState, truth(s == k.State), k.Name, s)
	}
	gauge(ch, staleness, k.Staleness.Seconds(), k.Name)
	gauge(ch, objects, float64(k.Objects), k.Name)
	for what, n := range k.Events {
		counter(ch, events, n, k.Name, what)
	}
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// sums are counts of several Responders, one after another, added up.
type sums struct {
	requests   map[respond.Requests]uint64 // by labels, their Count 0
	dropped    map[string]uint64
	ede        map[uint16]uint64
	searches   map[respond.Searches]uint64
	histograms map[*prometheus.Desc]map[string]respond.Histogram
}

func sumUp(all []respond.Counts) *sums {
	s := &sums{
		requests: make(map[respond.Requests]uint64), dropped: make(map[string]uint64), ede: make(map[uint16]uint64),
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
