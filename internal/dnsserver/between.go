package dnsserver

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lookPause is how long AnswerWaiting does not look again.
const lookPause = 100 * time.Microsecond

// AnswerWaiting answers packets that wait at UDP sockets, without waiting for
// any. Who works for long calls it now and then, at moments at which answers are
// as right as at any other: the runtime looks for packets when no goroutine on a
// processor has work to do, else every 10 ms only. It may be called as often as
// one likes; most calls cost no more than a look at the clock.
func (s *Server) AnswerWaiting() { s.between.look() }

// between is what answers the packets of sockets that are served.
type between struct {
	mu      sync.Mutex // held by who looks, or changes who is looked for
	last    atomic.Int64
	sockets []*func()
}

// start is what last counts from.
var start = time.Now()

func (b *between) look() {
	now, last := int64(time.Since(start)), b.last.Load()
	if now-last < int64(lookPause) || !b.last.CompareAndSwap(last, now) || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	for _, answer := range b.sockets {
		(*answer)()
	}
}

// add has answer called, until remove is, which waits for the last call.
func (b *between) add(answer func()) (remove func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	added := &answer
	b.sockets = append(b.sockets, added)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sockets = slices.DeleteFunc(b.sockets, func(s *func()) bool { return s == added })
	}
}
