package forward

import (
	"net/netip"
	"time"
)

// Figures are those of one moment, counted from the start.
type Stats struct {
	Hits       uint64 // good answers that were known
	StaleHits  uint64 // answers past their TTL
	Misses     uint64 // questions that were asked
	Joined     uint64 // queries that waited for a question that was under way
	Prefetched uint64 // questions that were asked before their answer's TTL ended
	Refused    uint64 // queries for which there was no place
	Waiting    int    // queries that wait for an answer
	Upstreams  []UpstreamStats
}

// UpstreamFigures are those of one upstream of a route.
type UpstreamStats struct {
	Route, Upstream string
	Address         netip.AddrPort
	Transport       Transport
	Queries         uint64 // sent, with those sent again
	Replies         uint64
	Late            uint64 // not answered in the time that it usually takes
	Failures        uint64 // of the network
	Forged          uint64 // packets that were no reply to a query, and replies for another subnet
	Opened          uint64 // connections made, whether they came about or not
	Reused          uint64 // queries over a connection that was there
	Down            bool
	RTT             time.Duration      // smoothed; 0 when it never answered
	Durations       []LatencyHistogram // of its replies, by response code
}

// Figures gives those of the moment.
func (f *Forwarder) Stats() Stats {
	figures := Stats{
		Hits:       f.counts.hits.Load(),
		StaleHits:  f.counts.staleHits.Load(),
		Misses:     f.counts.misses.Load(),
		Joined:     f.counts.joined.Load(),
		Prefetched: f.counts.prefetched.Load(),
		Refused:    f.counts.refused.Load(),
		Waiting:    f.limit.inUse(),
	}
	for _, r := range f.routes {
		for _, u := range *r.upstreams.Load() {
			figures.Upstreams = append(figures.Upstreams, UpstreamStats{
				Route: r.String(), Upstream: u.String(), Address: u.Addr, Transport: u.Transport,
				Queries: u.counts.queries.Load(), Replies: u.counts.replies.Load(), Late: u.counts.lates.Load(),
				Failures: u.counts.failures.Load(), Forged: u.counts.forged.Load(),
				Opened: u.counts.opened.Load(), Reused: u.counts.reused.Load(),
				Down: u.down.Load(), RTT: u.smoothedRTT(), Durations: u.durations.figures(),
			})
		}
	}
	return figures
}
