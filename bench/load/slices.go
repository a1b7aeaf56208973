package load

import (
	"slices"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// sliceLength is long enough for the 10 ms to which stolen time is known.
const sliceLength = 100 * time.Millisecond

// slicer sorts latencies by whether the machine was disturbed.
type slicer struct {
	current, kept, all []time.Duration
	endsAt             time.Duration
	ended, quiet       int // slices
	stolen             time.Duration
	quietBefore        bool
}

// begin begins with the first slice. So many latencies may come.
func (s *slicer) begin(now time.Duration, most int) {
	for _, times := range []*[]time.Duration{&s.current, &s.kept, &s.all} {
		*times = make([]time.Duration, 0, most)
	}
	s.endsAt, s.stolen, s.quietBefore = now+sliceLength, rig.ReadUsage().Stolen, true
}

// add adds a latency.
func (s *slicer) add(took time.Duration) {
	s.current, s.all = append(s.current, took), append(s.all, took)
}

// end ends a slice when it is time for that, at which so much had been stolen
// since the machine started.
func (s *slicer) end(now time.Duration, stolen func() time.Duration) {
	if now < s.endsAt {
		return
	}
	s.endsAt += sliceLength
	before := s.stolen
	s.stolen = stolen()
	quiet := s.stolen == before
	if quiet && s.quietBefore {
		s.kept = append(s.kept, s.current...)
		s.quiet++
	}
	s.ended++
	s.quietBefore, s.current = quiet, s.current[:0]
}

// quantile is that of times at q, between 0 and 1; 0 when there are none.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
