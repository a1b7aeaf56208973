package query

import (
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// figure is one number of a sample; ok is false when it has none.
type figure func(*sample) (number float64, ok bool)

// cost is the processor time of a query, in microseconds.
func cost(s *sample) (float64, bool) {
	return microseconds(s.saturated.ServerTime) / float64(s.saturated.Answered), true
}

// speed is how many thousand queries are answered in a second.
func speed(s *sample) (float64, bool) { return rate(s.saturated) / 1000, true }

// busy is which part of its processor the server used.
func busy(s *sample) (float64, bool) {
	return float64(s.saturated.ServerTime) / float64(s.saturated.Elapsed), true
}

// octets is the length of an answer.
func octets(s *sample) (float64, bool) {
	return float64(s.saturated.Octets) / float64(s.saturated.Answered), true
}

// p50 and p99 are latencies at the fixed rate, in microseconds.
func p50(s *sample) (float64, bool) {
	return steady(s, func(r *load.Result) time.Duration { return r.P50 })
}

func p99(s *sample) (float64, bool) {
	return steady(s, func(r *load.Result) time.Duration { return r.P99 })
}

// steady is a latency, when there were quiet moments to measure it.
func steady(s *sample, of func(*load.Result) time.Duration) (float64, bool) {
	if s.steady == nil || s.steady.Quiet == 0 {
		return 0, false
	}
	return microseconds(of(s.steady)), true
}

// lost is how many queries were not answered, or with a code that no query asks
// for, at either rate.
func lost(s *sample) (float64, bool) {
	n := failed(s.saturated)
	if s.steady != nil {
		n += failed(s.steady)
	}
	return float64(n), true
}

func failed(r *load.Result) int {
	n := r.Lost
	for code, answers := range r.RCodes {
		if code := dnswire.RCode(code); code != dnswire.NoError && code != dnswire.NXDomain {
			n += answers
		}
	}
	return n
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
