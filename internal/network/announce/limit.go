package announce

import (
	"hash/maphash"
	"time"

	"portolan.dev/portolan/internal/network/announce/frame"
)

// Limits of questions on a link. A router asks for all addresses; hosts ask again for each once in half a minute.
const (
	perSource, perSourceBurst = 200, 400
	overall, overallBurst     = 2000, 2000
	// buckets is how many sources are told apart. Those that share a bucket share its limit.
	buckets = 1024
)

// bucket has tokens: each event takes one. The zero bucket is full.
type bucket struct {
	spent   float64
	settled time.Time
}

// take takes a token, and reports whether there was one.
func (b *bucket) take(now time.Time, rate, burst float64) bool {
	b.spent = max(0, b.spent-rate*now.Sub(b.settled).Seconds())
	b.settled = now
	if b.spent+1 > burst {
		return false
	}
	b.spent++
	return true
}

// limiter limits the questions that are answered. It is of one goroutine.
type limiter struct {
	seed    maphash.Seed
	all     bucket
	sources [buckets]bucket
}

func newLimiter() *limiter { return &limiter{seed: maphash.MakeSeed()} }

// allow reports whether a question is answered.
func (l *limiter) allow(now time.Time, source frame.MAC) bool {
	return l.sources[l.bucketOf(source)].take(now, perSource, perSourceBurst)
}

// bucketOf returns the place of the bucket of a source.
func (l *limiter) bucketOf(source frame.MAC) int {
	return int(maphash.Bytes(l.seed, source[:]) % buckets)
}

// read returns how long to wait before the next frame is read, so that a flood costs little: what comes meanwhile the
// kernel drops.
func (l *limiter) read(now time.Time) time.Duration {
	if l.all.take(now, overall, overallBurst) {
		return 0
	}
	return 10 * time.Millisecond
}
