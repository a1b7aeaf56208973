package forwarding

import (
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// figure is one number of a sample; ok is false if the sample has none.
type figure func(*sample) (number float64, ok bool)

// cost returns the processor time per query, in microseconds.
func cost(s *sample) (float64, bool) {
	r := s.saturated
	if r == nil {
		r = s.steady
	}
	return microseconds(r.ServerTime) / float64(r.Answered), true
}

// speed returns the thousands of queries answered per second.
func speed(s *sample) (float64, bool) { return rate(s.saturated) / 1000, true }

// p50 and p99 return latencies at the fixed rate, in microseconds, if there were quiet
// slices.
func p50(s *sample) (float64, bool) {
	return steady(s, func(r *load.Result) time.Duration { return r.P50 })
}

func p99(s *sample) (float64, bool) {
	return steady(s, func(r *load.Result) time.Duration { return r.P99 })
}

func steady(s *sample, of func(*load.Result) time.Duration) (float64, bool) {
	if s.steady == nil || s.uneven || of(s.steady) == 0 {
		return 0, false
	}
	return microseconds(of(s.steady)), true
}

// whole50, whole99 and slowest return latencies over all slices.
func whole50(s *sample) (float64, bool) { return microseconds(s.steady.Whole.P50), true }
func whole99(s *sample) (float64, bool) { return microseconds(s.steady.Whole.P99), true }
func slowest(s *sample) (float64, bool) { return microseconds(s.steady.Whole.Most), true }

// inMilliseconds converts a figure in microseconds.
func inMilliseconds(f figure) figure {
	return func(s *sample) (float64, bool) {
		n, ok := f(s)
		return n / 1000, ok
	}
}

// lost returns the number of queries not answered in time.
func lost(s *sample) (float64, bool) {
	n := 0
	for _, r := range []*load.Result{s.saturated, s.steady} {
		if r != nil {
			n += r.Lost
		}
	}
	return float64(n), true
}

// failed returns the number of queries answered with an error code.
func failed(s *sample) (float64, bool) {
	n := 0
	for _, r := range []*load.Result{s.saturated, s.steady} {
		if r != nil {
			n += r.Answered - r.RCodes[dnswire.NoError]
		}
	}
	return float64(n), true
}

// asked returns the number of upstream queries per client query.
func asked(s *sample) (float64, bool) { return s.asked, true }

// before and with return the resident memory, in MiB.
func before(s *sample) (float64, bool) { return s.before, true }
func with(s *sample) (float64, bool)   { return s.with, true }

// perName returns the memory per name, in octets.
func perName(s *sample) (float64, bool) {
	const mebi = 1 << 20
	return (s.with - s.before) * mebi / keptNames, true
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
