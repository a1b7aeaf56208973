package filter

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

// RateLimit limits the responses over UDP to the clients of one prefix.
// Responses over the limit are dropped or truncated, because a query with a
// forged source address directs the response at a victim.
type RateLimit struct {
	PerSecond int // 0 means no limit
	// Burst is how many responses may be sent at once, at least 1.
	Burst int
	// Prefix4 and Prefix6 are the lengths of the IPv4 and IPv6 prefixes that
	// count as one client.
	Prefix4, Prefix6 int
	// Slip sends a truncated response for every Slip-th query over the limit,
	// so that a real client retries over TCP. 0 sends none.
	Slip int
}

// RateLimiter applies a RateLimit in constant memory: prefixes with the same
// hash share one budget.
type RateLimiter struct {
	limit    RateLimit
	interval int64 // between responses, in nanoseconds
	burst    int64 // in nanoseconds
	seed     maphash.Seed
	start    time.Time
	slots    [limitSlots]atomic.Int64 // when the budget of each slot is full again, in nanoseconds since began
	exceeded atomic.Uint64
}

const limitSlots = 1 << 16

// NewRateLimiter returns a RateLimiter, or nil if there is no limit.
func NewRateLimiter(l RateLimit) *RateLimiter {
	if l.PerSecond == 0 {
		return nil
	}
	interval := int64(time.Second) / int64(l.PerSecond)
	return &RateLimiter{
		limit:    l,
		interval: interval,
		burst:    interval * int64(max(l.Burst, 1)),
		seed:     maphash.MakeSeed(),
		start:    time.Now(),
	}
}

// LimitVerdict says whether a response is sent.
type LimitVerdict uint8

// Verdicts: Send sends the response, SendTruncated sends it without records and
// with TC set, SendNothing drops it.
const (
	Send LimitVerdict = iota
	SendTruncated
	SendNothing
)

// Count counts a response to client at time now and returns what to do with it.
// It allocates nothing and takes no lock.
func (l *RateLimiter) Count(client netip.Addr, now time.Time) LimitVerdict {
	slot := &l.slots[l.hash(client)%limitSlots]
	at := max(int64(now.Sub(l.start)), 0) // a clock before the start stands still
	for {
		used := slot.Load()
		next := max(used, at) + l.interval
		if next-at > l.burst {
			if n := l.exceeded.Add(1); l.limit.Slip > 0 && n%uint64(l.limit.Slip) == 0 {
				return SendTruncated
			}
			return SendNothing
		}
		if slot.CompareAndSwap(used, next) {
			return Send
		}
	}
}

// Exceeded returns how many responses exceeded the limit since the start.
func (l *RateLimiter) Exceeded() uint64 { return l.exceeded.Load() }

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
