package query

import (
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// figure is one number of a sample; ok is false if the sample has none.
type figure func(*sample) (number float64, ok bool)

// cost returns the processor time per query, in microseconds.
func cost(s *sample) (float64, bool) {
	return microseconds(s.saturated.ServerTime) / float64(s.saturated.Answered), true
}

// speed returns the thousands of queries answered per second.
func speed(s *sample) (float64, bool) { return rate(s.saturated) / 1000, true }

// busy returns the share of its processor that the server used.
func busy(s *sample) (float64, bool) {
	return float64(s.saturated.ServerTime) / float64(s.saturated.Elapsed), true
}

// octets returns the average length of an answer.
func octets(s *sample) (float64, bool) {
	return float64(s.saturated.Octets) / float64(s.saturated.Answered), true
}

// p50 and p99 return latencies at the fixed rate, in microseconds.
func p50(s *sample) (float64, bool) {
	return steady(s, func(r *load.Result) time.Duration { return r.P50 })
}

func p99(s *sample) (float64, bool) {
	return steady(s, func(r *load.Result) time.Duration { return r.P99 })
}

// steady returns a latency, if there were quiet slices.
func steady(s *sample, of func(*load.Result) time.Duration) (float64, bool) {
	if s.steady == nil || s.steady.Quiet == 0 {
		return 0, false
	}
	return microseconds(of(s.steady)), true
}

// lost returns the number of queries without an answer, or with an error code that no
// query expects, at either rate.
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
