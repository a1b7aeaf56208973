package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/datagram"
	"portolan.dev/portolan/internal/gateway/h1"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/status"
	"portolan.dev/portolan/internal/gateway/stream"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/ops/metrics"
)

var (
	upstreamCount = metrics.Desc("gateway_upstreams", "Ports of Services that rules refer to.")
	endpointCount = metrics.Desc("gateway_endpoints", "Endpoints of the ports of Services that rules refer to.")
	ejectedCount  = metrics.Desc(
		"gateway_endpoints_ejected", "Endpoints that get no requests for a while, as they failed several times in a row.",
	)
	socketCount  = metrics.Desc("gateway_ports", "Ports at which requests are to be accepted.")
	unboundCount = metrics.Desc("gateway_ports_unbound", "Ports that cannot be bound, at one of their addresses or more.")
	certExpiry   = metrics.Desc(
		"gateway_certificate_expiry_timestamp_seconds",
		"Time at which the first of the certificates expires that clients get; hostname is the first that it has.",
		"hostname",
	)
	linesDropped = metrics.Desc("gateway_access_log_dropped_total", "Lines of the access log that were dropped.")
	waitingCount = metrics.Desc(
		"gateway_statuses_waiting",
		"Objects whose status the gateway that leads is to write.",
	)
	spanCount = metrics.Desc(
		"gateway_spans_total",
		"Spans of traced requests, by whether the collector took them.",
		"result",
	)
	underWayCount = metrics.Desc(
		"gateway_requests_under_way",
		"Requests that are served now, upgraded connections, and those of TLSRoutes and TCPRoutes.",
	)
	sessionCount  = metrics.Desc("gateway_udp_sessions", "Sessions of UDPRoutes.")
	datagramCount = metrics.Desc("gateway_udp_datagrams_total", "Datagrams sent to endpoints and to clients.", "to")
	leading       = metrics.Desc("gateway_leader", "1 if this gateway writes the statuses, 0 if another one does.")
)

// ruleReason is the label of all reasons that rules have.
const ruleReason = "rule"

// gatewayMetrics are the metrics of a gateway.
type gatewayMetrics struct {
	routes   *routesStats
	reasons  *prometheus.CounterVec
	refused  *prometheus.CounterVec
	writes   *prometheus.CounterVec // of statuses
	attempts prometheus.Counter
	sent     prometheus.Counter
	relieved prometheus.Counter
	// streams and sessions are connections and sessions of UDP that were passed on, and octets what was.
	streams, sessions, octets *prometheus.CounterVec
	// compiles are how long changes took to be served, and delays how old their causes were then.
	compiles, delays prometheus.Histogram
}

func newMetrics(routes int, exists func(route string) bool) *gatewayMetrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "portolan_gateway_" + name, Help: help}
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "portolan_gateway_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		})
	}
	m := &gatewayMetrics{
		routes: newRoutesStats(routes, exists),
		reasons: prometheus.NewCounterVec(counter(
			"own_responses_total", "Responses that no endpoint gave, by the reason; rule is one that a rule has.",
		), []string{"reason"}),
		refused: prometheus.NewCounterVec(counter(
			"refused_total", "Requests that were refused before a route was looked for, such as malformed ones.",
		), []string{"reason"}),
		writes: prometheus.NewCounterVec(counter(
			"status_writes_total", "Attempts to write statuses; unneeded if the API had that status already.",
		), []string{"kind", "result"}),
		attempts: prometheus.NewCounter(counter("attempts_total", "Requests to endpoints, also those that are sent again.")),
		sent:     prometheus.NewCounter(counter("sent_bytes_total", "Size of the bodies sent to clients.")),
		relieved: prometheus.NewCounter(counter(
			"connections_closed_for_memory_total", "Connections that were closed as the memory was nearly used up.",
		)),
		streams: prometheus.NewCounterVec(counter(
			"streams_total",
			"Connections of TLSRoutes and TCPRoutes that ended, by the route and why; done if their ends ended them.",
		), []string{"route", "result"}),
		sessions: prometheus.NewCounterVec(counter(
			"udp_sessions_total", "Sessions of UDPRoutes that ended, by the route and why, and datagrams that were dropped; "+
				"done if nothing came any more.",
		), []string{"route", "result"}),
		octets: prometheus.NewCounterVec(counter(
			"passed_bytes_total", "Size of what connections and sessions passed on that have ended, to clients and from them.",
		), []string{"transport", "direction"}),
		compiles: histogram("compile_duration_seconds", "Time from the notice of a change until requests are served by it."),
		delays: histogram(
			"programming_duration_seconds",
			"Time from what caused a change of endpoints, as its controller noted it, until requests are served by it.",
		),
	}
	for _, k := range status.Kinds() {
		for _, r := range status.Results() {
			m.writes.WithLabelValues(k.String(), string(r))
		}
	}
	m.streams.WithLabelValues(noRoute, string(stream.NoRoute))
	m.sessions.WithLabelValues(noRoute, string(datagram.NoRoute))
	for _, t := range []table.Transport{table.TCP, table.UDP} {
		m.pass(t, 0, 0)
	}
	return m
}

// done records what became of a request.
func (m *gatewayMetrics) done(r *proxy.Record) {
	m.routes.count(r)
	m.attempts.Add(float64(r.Attempts))
	m.sent.Add(float64(r.Sent))
	if r.Reason != "" {
		reason := string(r.Reason)
		if !proxy.Known(r.Reason) {
			reason = ruleReason
		}
		m.reasons.WithLabelValues(reason).Inc()
	}
}

// passed records what became of a connection that was to be passed on.
func (m *gatewayMetrics) passed(r *stream.Record) {
	m.streams.WithLabelValues(m.routes.label(r.Rule), result(r.Reason, stream.Known(r.Reason))).Inc()
	m.pass(table.TCP, r.Sent, r.Received)
}

// session records what became of a session of UDP.
func (m *gatewayMetrics) session(r *datagram.Record) {
	m.sessions.WithLabelValues(m.routes.label(r.Rule), result(r.Reason, datagram.Known(r.Reason))).Inc()
	m.pass(table.UDP, r.Sent, r.Received)
}

func (m *gatewayMetrics) pass(t table.Transport, sent, received int64) {
	m.octets.WithLabelValues(t.String(), "sent").Add(float64(sent))
	m.octets.WithLabelValues(t.String(), "received").Add(float64(received))
}

// result returns the label of a reason. Those of rules have one together.
func result(r table.Reason, known bool) string {
	switch {
	case r == "":
		return "done"
	case known:
		return string(r)
	}
	return ruleReason
}

// prune removes the series of routes that are no more.
func (m *gatewayMetrics) prune() {
	for _, route := range m.routes.prune() {
		m.streams.DeletePartialMatch(prometheus.Labels{"route": route})
		m.sessions.DeletePartialMatch(prometheus.Labels{"route": route})
	}
}

// refuse records a request that was refused.
func (m *gatewayMetrics) refuse(r h1.Refusal) { m.refused.WithLabelValues(r.Reason).Inc() }

// wrote records an attempt to write a status.
func (m *gatewayMetrics) wrote(k cluster.Kind, r status.Result) {
	m.writes.WithLabelValues(k.String(), string(r)).Inc()
}

// changed records that changes are served. What caused them was noted by the clocks of other machines,
// which may be ahead.
func (m *gatewayMetrics) changed(took time.Duration, changes *cluster.Changes) {
	m.compiles.Observe(took.Seconds())
	for _, cause := range changes.Objects {
		if cause != 0 {
			m.delays.Observe(max(0, time.Since(time.Unix(0, cause)).Seconds()))
		}
	}
}

func (m *gatewayMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.reasons, m.refused, m.writes, m.attempts, m.sent, m.relieved, m.compiles, m.delays, m.streams, m.sessions, m.octets,
	}
}

// Describe sends the descriptions of all metrics.
func (g *Gateway) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		routeRequests, routeDuration, upstreamCount, endpointCount, ejectedCount, socketCount, unboundCount, linesDropped,
		certExpiry, waitingCount, spanCount, underWayCount, leading, sessionCount, datagramCount,
	} {
		ch <- d
	}
	for _, c := range g.metrics.collectors() {
		c.Describe(ch)
	}
}

// Collect sends the current metrics.
func (g *Gateway) Collect(ch chan<- prometheus.Metric) {
	g.metrics.routes.collect(ch)
	for _, c := range g.metrics.collectors() {
		c.Collect(ch)
	}
	pools, all, out := 0, 0, 0
	for _, pool := range g.endpoints.All() {
		pools++
		all += pool.Len()
		out += pool.Ejected()
	}
	metrics.Gauge(ch, upstreamCount, float64(pools))
	metrics.Gauge(ch, endpointCount, float64(all))
	metrics.Gauge(ch, ejectedCount, float64(out))
	open, failing := g.sockets.count()
	metrics.Gauge(ch, socketCount, float64(open))
	metrics.Gauge(ch, unboundCount, float64(failing))
	metrics.Gauge(ch, underWayCount, float64(g.underWay.Load()))
	metrics.Gauge(ch, sessionCount, float64(g.datagrams.Sessions()))
	there, back := g.datagrams.Datagrams()
	metrics.Counter(ch, datagramCount, there, "endpoint")
	metrics.Counter(ch, datagramCount, back, "client")
	metrics.Counter(ch, linesDropped, g.log.Dropped())
	if g.tracer != nil {
		taken, lost := g.tracer.Sent()
		metrics.Counter(ch, spanCount, taken, "taken")
		metrics.Counter(ch, spanCount, lost, "lost")
	}
	if first := g.firstToExpire(); first != nil {
		metrics.Gauge(ch, certExpiry, float64(first.NotAfter.Unix()), firstName(first))
	}
	if g.writes {
		metrics.Gauge(ch, waitingCount, float64(g.reporter.Waiting()))
		metrics.Gauge(ch, leading, metrics.Truth(g.reporter.Leading()))
	}
}
