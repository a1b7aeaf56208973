package forward

import (
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// Durations are how long replies with one response code took.
type LatencyHistogram struct {
	RCode string // "other" where it is one of many
	// Buckets are how many took at most so long, by the upper bound in seconds.
	Buckets map[float64]uint64
	Count   uint64
	Sum     float64 // in seconds
}

// durationBounds are the upper bounds of the buckets.
var durationBounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
}

// otherRCode stands for all that are not counted apart: those from here on, so
// that no upstream makes many.
const otherRCode = dnswire.BadCookie + 1

// durations counts how long replies took. The zero value counts.
type durations struct {
	mu sync.Mutex
	of map[dnswire.RCode]*durationCounts
}

type durationCounts struct {
	buckets [len(durationBounds) + 1]uint64
	sum     time.Duration
}

func (d *durations) observe(rcode dnswire.RCode, took time.Duration) {
	at, _ := slices.BinarySearch(durationBounds[:], took)
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := d.countsOf(min(rcode, otherRCode))
	counts.buckets[at]++
	counts.sum += took
}

func (d *durations) countsOf(rcode dnswire.RCode) *durationCounts {
	if d.of == nil {
		d.of = make(map[dnswire.RCode]*durationCounts)
	}
	counts := d.of[rcode]
	if counts == nil {
		counts = new(durationCounts)
		d.of[rcode] = counts
	}
	return counts
}

// figures gives those of the moment, NOERROR among them, in no order.
func (d *durations) figures() (all []LatencyHistogram) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.countsOf(dnswire.NoError)
	for rcode, counts := range d.of {
		made := LatencyHistogram{RCode: rcode.String(), Buckets: make(map[float64]uint64, len(durationBounds)), Sum: counts.sum.Seconds()}
		if rcode == otherRCode {
			made.RCode = "other"
		}
		for i, n := range counts.buckets {
			made.Count += n
			if i < len(durationBounds) {
				made.Buckets[durationBounds[i].Seconds()] = made.Count
			}
		}
		all = append(all, made)
	}
	return all
}
