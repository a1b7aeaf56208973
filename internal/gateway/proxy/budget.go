package proxy

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
)

// errRetryBudget: a request may not be sent again, as too many to its Service were.
var errRetryBudget = errors.New("the retry budget is used up")

// ownBudget limits the retries that no rule demands to a fifth of the requests, so that they don't multiply the load of
// upstreams that fail. It is not for Services with a table.RetryBudget. The zero ownBudget allows a few.
type ownBudget struct{ tokens atomic.Int64 }

const (
	requestTokens, retryTokens = 1, 5
	firstTokens                = 50 // is how much below zero the tokens may go
	maxTokens                  = 500
)

// request counts a request.
func (b *ownBudget) request() {
	if b.tokens.Add(requestTokens) > maxTokens {
		b.tokens.Add(-requestTokens)
	}
}

// take reports whether a retry is allowed, and counts it.
func (b *ownBudget) take() bool {
	if b.tokens.Add(-retryTokens) >= -firstTokens {
		return true
	}
	b.tokens.Add(retryTokens)
	return false
}

// serviceBudgets are what is counted for Services with a table.RetryBudget.
type serviceBudgets struct {
	mu  sync.RWMutex
	all map[serviceName]*serviceBudget
	// swept is how many there were when those of long ago were last forgotten.
	swept int
}

type serviceName struct{ namespace, name string }

// request counts a request to an upstream, and returns what its retries are counted in.
func (s *serviceBudgets) request(up *table.Upstream, limits *table.RetryBudget) *serviceBudget {
	now := time.Now()
	b := s.of(serviceName{up.Namespace, up.Service}, now)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = now
	b.requests.add(now, limits.Interval)
	return b
}

func (s *serviceBudgets) of(name serviceName, now time.Time) *serviceBudget {
	s.mu.RLock()
	b := s.all[name]
	s.mu.RUnlock()
	if b != nil {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b = s.all[name]; b != nil {
		return b
	}
	if s.all == nil {
		s.all = make(map[serviceName]*serviceBudget)
	}
	const few = 64
	if len(s.all) >= max(few, 2*s.swept) {
		s.sweep(now)
	}
	b = &serviceBudget{last: now}
	s.all[name] = b
	return b
}

// sweep forgets Services that got no request for longer than any interval is.
func (s *serviceBudgets) sweep(now time.Time) {
	for name, b := range s.all {
		b.mu.Lock()
		if now.Sub(b.last) > 2*time.Hour {
			delete(s.all, name)
		}
		b.mu.Unlock()
	}
	s.swept = len(s.all)
}

// serviceBudget is what is counted for a Service.
type serviceBudget struct {
	mu   sync.Mutex
	last time.Time // a request
	// requests and retries are those of RetryBudget.Interval, recent the retries of RetryBudget.Per.
	requests, retries, recent window
}

// take reports whether a retry is allowed, and counts it.
func (b *serviceBudget) take(limits *table.RetryBudget) bool {
	const whole = 100 // per cent
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	retries, requests := b.retries.count(now, limits.Interval), b.requests.count(now, limits.Interval)
	if (retries+1)*whole > requests*uint64(limits.Percent) && b.recent.count(now, limits.Per) >= uint64(limits.Least) {
		return false
	}
	b.retries.add(now, limits.Interval)
	b.recent.add(now, limits.Per)
	return true
}

// window counts what happens in an interval that ends now, in steps of a tenth of it. It begins anew if the interval is
// another one than before.
type window struct {
	begin  time.Time
	step   time.Duration
	newest int // how many steps after begin it counts now
	counts [10]uint64
}

// count returns how much was added in the interval.
func (w *window) count(now time.Time, interval time.Duration) (sum uint64) {
	w.advance(now, interval)
	for _, n := range w.counts {
		sum += n
	}
	return sum
}

func (w *window) add(now time.Time, interval time.Duration) {
	w.advance(now, interval)
	w.counts[w.newest%len(w.counts)]++
}

// advance forgets what is longer ago than the interval.
func (w *window) advance(now time.Time, interval time.Duration) {
	if step := max(1, interval/time.Duration(len(w.counts))); step != w.step {
		*w = window{begin: now, step: step}
	}
	at := int(now.Sub(w.begin) / w.step)
	for w.newest = max(w.newest, at-len(w.counts)); w.newest < at; {
		w.newest++
		w.counts[w.newest%len(w.counts)] = 0
	}
}
