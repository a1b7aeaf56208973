package rig

import (
	"slices"
	"time"
)

// SliceLength is long enough for the 10 ms to which stolen time is known.
const SliceLength = 100 * time.Millisecond

// Slices sorts latencies by whether the host took time from this machine. Time
// is cut in slices; those of latencies are kept in which it took nothing, nor
// in the one before.
type Slices struct {
	// Kept and All are latencies.
	Kept, All []time.Duration
	// Quiet are how many slices were kept, of those that Ended.
	Quiet, Ended int

	stolen      func() time.Duration
	stolenThen  time.Duration
	current     []time.Duration
	endsAt      time.Duration
	quietBefore bool
}

// NewSlices begins with the first slice. So many latencies may come; stolen says
// how much time the host took since the machine started.
func NewSlices(now time.Duration, most int, stolen func() time.Duration) *Slices {
	s := &Slices{stolen: stolen, stolenThen: stolen(), endsAt: now + SliceLength, quietBefore: true}
	for _, times := range []*[]time.Duration{&s.current, &s.Kept, &s.All} {
		*times = make([]time.Duration, 0, most)
	}
	return s
}

// Add adds a latency.
func (s *Slices) Add(took time.Duration) {
	s.current, s.All = append(s.current, took), append(s.All, took)
}

// End ends a slice when it is time for that.
func (s *Slices) End(now time.Duration) {
	if now < s.endsAt {
		return
	}
	for s.endsAt <= now {
		s.endsAt += SliceLength
	}
	before := s.stolenThen
	s.stolenThen = s.stolen()
	quiet := s.stolenThen == before
	if quiet && s.quietBefore {
		s.Kept = append(s.Kept, s.current...)
		s.Quiet++
	}
	s.Ended++
	s.quietBefore, s.current = quiet, s.current[:0]
}

// Quantile is that of times at q, between 0 and 1; 0 when there are none.
func Quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
