package forward

import (
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// LatencyHistogram is the distribution of the latency of replies with one
// response code.
type LatencyHistogram struct {
	RCode string // "other" for rare codes
	// Buckets hold the cumulative number of replies by upper bound in seconds.
	Buckets map[float64]uint64
	Count   uint64
	Sum     float64 // in seconds
}

// latencyBounds are the upper bounds of the buckets.
var latencyBounds = [...]time.Duration{
	500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second,
}

// otherRCode stands for all response codes from BADCOOKIE up, so that upstreams
// cannot create many series.
const otherRCode = dnswire.BadCookie + 1

// latencies collects the latency of replies. Its zero value is ready to use.
type latencies struct {
	mu sync.Mutex
	of map[dnswire.RCode]*latencyCounts
}

type latencyCounts struct {
	buckets [len(latencyBounds) + 1]uint64
	sum     time.Duration
}

func (d *latencies) observe(rcode dnswire.RCode, took time.Duration) {
	at, _ := slices.BinarySearch(latencyBounds[:], took)
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := d.countsOf(min(rcode, otherRCode))
	counts.buckets[at]++
	counts.sum += took
}

func (d *latencies) countsOf(rcode dnswire.RCode) *latencyCounts {
	if d.of == nil {
		d.of = make(map[dnswire.RCode]*latencyCounts)
	}
	counts := d.of[rcode]
	if counts == nil {
		counts = new(latencyCounts)
		d.of[rcode] = counts
	}
	return counts
}

// histograms returns the present histograms in no order. That of NOERROR always
// exists.
func (d *latencies) histograms() (all []LatencyHistogram) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.countsOf(dnswire.NoError)
	for rcode, counts := range d.of {
		made := LatencyHistogram{
			RCode:   rcode.String(),
			Buckets: make(map[float64]uint64, len(latencyBounds)),
			Sum:     counts.sum.Seconds(),
		}
		if rcode == otherRCode {
			made.RCode = "other"
		}
		for i, n := range counts.buckets {
			made.Count += n
			if i < len(latencyBounds) {
				made.Buckets[latencyBounds[i].Seconds()] = made.Count
			}
		}
		all = append(all, made)
	}
	return all
}
