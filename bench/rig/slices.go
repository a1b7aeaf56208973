package rig

import (
	"slices"
	"time"
)

// SliceLength is the length of a slice. It is long enough for the resolution of stolen
// time, 10 ms.
const SliceLength = 100 * time.Millisecond

// Slices separates latencies by whether the host took time from this machine. Time is
// divided into slices. Latencies are kept if the host took no time in their slice and
// in the previous one.
type Slices struct {
	// Kept has the latencies of quiet slices, and All has all latencies.
	Kept, All []time.Duration
	// Quiet is the number of slices that were kept, and Ended that of all that ended.
	Quiet, Ended int

	stolen      func() time.Duration
	stolenThen  time.Duration
	current     []time.Duration
	endsAt      time.Duration
	quietBefore bool
}

// NewSlices starts the first slice. most is the highest expected number of latencies.
// stolen returns the time that the host has taken since the machine started.
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

// End ends the slice if it is due.
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

// Quantile returns the q-quantile of times, with q between 0 and 1; 0 if there are
// none.
func Quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
