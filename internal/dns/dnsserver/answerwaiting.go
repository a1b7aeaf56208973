package dnsserver

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lookPause is the shortest interval between two checks of the sockets by
// AnswerWaiting. Its caller has at least that much time for its work.
const lookPause = 100 * time.Microsecond

// AnswerWaiting answers the packets that wait at UDP sockets. It never blocks:
// responses that do not fit into the send buffer are lost. A goroutine with a long
// computation calls it at points where the zones are consistent, because the runtime
// polls for packets only when a processor is idle or else every 10 ms. Most calls cost
// no more than reading the clock.
func (s *Server) AnswerWaiting() { s.waiting.answer() }

// waitingSockets answers the packets that wait at the sockets being served.
type waitingSockets struct {
	start time.Time
	ended atomic.Int64 // when the last check ended, in nanoseconds since start

	mu      sync.Mutex // held during a check and while sockets changes
	sockets []*func()
}

func (b *waitingSockets) answer() {
	if time.Since(b.start)-time.Duration(b.ended.Load()) < lookPause || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	for _, answer := range b.sockets {
		(*answer)()
	}
	b.ended.Store(int64(time.Since(b.start)))
}

// add registers answer, which checks call until remove is called. remove waits for a
// running call.
func (b *waitingSockets) add(answer func()) (remove func()) {
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
