package forward

import (
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/support/budget"
)

// Stats are the counters of a Forwarder since the start.
type Stats struct {
	Hits       uint64 // fresh answers from the cache
	StaleHits  uint64 // stale answers
	Misses     uint64 // questions sent to upstreams
	Joined     uint64 // queries that joined a flight
	Prefetched uint64 // questions sent before their answer's TTL ended
	Waiting    budget.Stats
	Upstreams  []UpstreamStats
}

// UpstreamStats are the counters of one upstream of a route.
type UpstreamStats struct {
	Route, Upstream string
	Address         netip.AddrPort
	Transport       Transport
	Queries         uint64 // sent, including retransmissions
	Replies         uint64
	Late            uint64 // not answered within the upstream's patience
	Failures        uint64 // network errors
	Forged          uint64 // packets that do not match a query, and replies for another subnet
	Opened          uint64 // connection attempts
	Reused          uint64 // queries over an existing connection
	Down            bool
	RTT             time.Duration      // smoothed; 0 before the first reply
	Durations       []LatencyHistogram // of replies, by response code
}

// Stats returns the present counters.
func (f *Forwarder) Stats() Stats {
	stats := Stats{
		Hits:       f.counts.hits.Load(),
		StaleHits:  f.counts.staleHits.Load(),
		Misses:     f.counts.misses.Load(),
		Joined:     f.counts.joined.Load(),
		Prefetched: f.counts.prefetched.Load(),
		Waiting:    f.places.Stats(),
	}
	for _, r := range f.routes {
		for _, u := range *r.upstreams.Load() {
			stats.Upstreams = append(stats.Upstreams, UpstreamStats{
				Route: r.String(), Upstream: u.String(), Address: u.Addr, Transport: u.Transport,
				Queries: u.counts.queries.Load(), Replies: u.counts.replies.Load(), Late: u.counts.lates.Load(),
				Failures: u.counts.failures.Load(), Forged: u.counts.forged.Load(),
				Opened: u.counts.opened.Load(), Reused: u.counts.reused.Load(),
				Down: u.down.Load(), RTT: u.smoothedRTT(), Durations: u.latency.histograms(),
			})
		}
	}
	return stats
}
