package forwarding

import (
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// figure is one number of a sample; ok is false when it has none.
type figure func(*sample) (number float64, ok bool)

// cost is the processor time of a query, in microseconds.
func cost(s *sample) (float64, bool) {
	r := s.saturated
	if r == nil {
		r = s.steady
	}
	return microseconds(r.ServerTime) / float64(r.Answered), true
}

// speed is how many thousand queries are answered in a second.
func speed(s *sample) (float64, bool) { return rate(s.saturated) / 1000, true }

// p50 and p99 are latencies at the fixed rate, in microseconds, when there were
// quiet moments to measure them.
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

// whole50, whole99 and slowest are of all moments.
func whole50(s *sample) (float64, bool) { return microseconds(s.steady.Whole.P50), true }
func whole99(s *sample) (float64, bool) { return microseconds(s.steady.Whole.P99), true }
func slowest(s *sample) (float64, bool) { return microseconds(s.steady.Whole.Most), true }

// inMilliseconds is a figure of microseconds in another unit.
func inMilliseconds(f figure) figure {
	return func(s *sample) (float64, bool) {
		n, ok := f(s)
		return n / 1000, ok
	}
}

// lost is how many queries were not answered in time.
func lost(s *sample) (float64, bool) {
	n := 0
	for _, r := range []*load.Result{s.saturated, s.steady} {
		if r != nil {
			n += r.Lost
		}
	}
	return float64(n), true
}

// failed is how many were answered with a code that says so.
func failed(s *sample) (float64, bool) {
	n := 0
	for _, r := range []*load.Result{s.saturated, s.steady} {
		if r != nil {
			n += r.Answered - r.RCodes[dnswire.NoError]
		}
	}
	return float64(n), true
}

// asked is how many queries came to the upstreams for each of a client.
func asked(s *sample) (float64, bool) { return s.asked, true }

// before and with are the resident memory, in MiB.
func before(s *sample) (float64, bool) { return s.before, true }
func with(s *sample) (float64, bool)   { return s.with, true }

// perName is how many octets a name takes up.
func perName(s *sample) (float64, bool) {
	const mebi = 1 << 20
	return (s.with - s.before) * mebi / keptNames, true
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
