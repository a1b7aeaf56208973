package dnsserver

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lookPause is how long AnswerWaiting does not look again: who calls it has at
// least that for its own work between two looks.
const lookPause = 100 * time.Microsecond

// AnswerWaiting answers packets that wait at UDP sockets, without waiting for
// any, or for room to send: what the system does not take then is lost. Who works
// for long calls it now and then, at moments at which answers are as right as at
// any other: the runtime looks for packets when no goroutine on a processor has
// work to do, else every 10 ms only. It may be called as often as one likes; most
// calls cost no more than a look at the clock.
func (s *Server) AnswerWaiting() { s.between.look() }

// between is what answers the packets of sockets that are served.
type between struct {
	began time.Time
	ended atomic.Int64 // when the last look had, in nanoseconds since began

	mu      sync.Mutex // held by who looks, or changes who is looked for
	sockets []*func()
}

func (b *between) look() {
	if time.Since(b.began)-time.Duration(b.ended.Load()) < lookPause || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	for _, answer := range b.sockets {
		(*answer)()
	}
	b.ended.Store(int64(time.Since(b.began)))
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
