package filter

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

// Limit says how many responses over UDP the clients of one prefix get: more are
// dropped, or told to ask over TCP, since whoever forges a client's address has
// them sent there.
type RateLimit struct {
	PerSecond int // with 0 there is no limit
	// Burst is how many may come at once, at least 1.
	Burst int
	// Prefix4 and Prefix6 are how many bits of an address make a client.
	Prefix4, Prefix6 int
	// Slip has one of so many that are over the limit answered with a cut
	// response, which sends those who are real to TCP; with 0 none.
	Slip int
}

// Limiter keeps a Limit, in memory that does not grow: clients whose prefixes
// have the same hash share it.
type RateLimiter struct {
	limit    RateLimit
	interval int64 // of one response, in nanoseconds
	burst    int64 // likewise
	seed     maphash.Seed
	began    time.Time
	slots    [limitSlots]atomic.Int64 // until when each has used its share
	over     atomic.Uint64
}

const limitSlots = 1 << 16

// NewLimiter makes a Limiter; nil where there is no limit.
func NewRateLimiter(l RateLimit) *RateLimiter {
	if l.PerSecond == 0 {
		return nil
	}
	interval := int64(time.Second) / int64(l.PerSecond)
	return &RateLimiter{limit: l, interval: interval, burst: interval * int64(max(l.Burst, 1)), seed: maphash.MakeSeed(), began: time.Now()}
}

// Verdict is what becomes of a response.
type LimitVerdict uint8

// The verdicts.
const (
	Send LimitVerdict = iota
	SendTruncated
	SendNothing
)

// Take counts a response to client (a generic cell rate: each uses up the time
// that it may take).
func (l *RateLimiter) Count(client netip.Addr, now time.Time) LimitVerdict {
	slot := &l.slots[l.hash(client)%limitSlots]
	at := int64(now.Sub(l.began))
	for {
		used := slot.Load()
		next := max(used, at) + l.interval
		if next-at > l.burst {
			if n := l.over.Add(1); l.limit.Slip > 0 && n%uint64(l.limit.Slip) == 0 {
				return SendTruncated
			}
			return SendNothing
		}
		if slot.CompareAndSwap(used, next) {
			return Send
		}
	}
}

// Over is how many responses were over the limit.
func (l *RateLimiter) Exceeded() uint64 { return l.over.Load() }

func (l *RateLimiter) hash(client netip.Addr) uint64 {
	bits := l.limit.Prefix6
	if client.Is4() {
		bits = l.limit.Prefix4
	}
	prefix, err := client.Prefix(bits)
	if err != nil {
		prefix = netip.PrefixFrom(client, 0)
	}
	return maphash.Comparable(l.seed, prefix)
}
