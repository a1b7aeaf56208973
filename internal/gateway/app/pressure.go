package app

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/support/memgroup"
	"portolan.dev/portolan/internal/support/sockbuf"
)

const (
	// highMemory is the share of the memory limit above which connections are closed, unless the runtime's own limit
	// is so near that aboveRuntime more is; but never more than mostMemory. The rest is for what requests that have just
	// begun will need.
	highMemory, aboveRuntime, mostMemory = 0.66, 0.11, 0.92
	// They are closed until relief less is in use. A little before garbage is collected.
	relief = 0.06
	// lookEvery is how often the memory is looked at, and lookSoon if half of what may be used is used. With many
	// requests that begin it is looked at as often as requestLook, and with each requestsLook of them if much is used: the
	// goroutine that looks may not run in time.
	lookEvery    = 500 * time.Millisecond
	lookSoon     = 20 * time.Millisecond
	requestLook  = 50 * time.Millisecond
	requestsLook = 16
	// settleTime is how long it may take until the memory of connections that were closed is free. Until then no more
	// are closed unless still more is used, or by so much more than it may be.
	settleTime = 300 * time.Millisecond
	urgency    = 0.04
	// leastHeld is for how many octets a connection is closed. Requests and responses that are just on their way are
	// smaller most of the time.
	leastHeld = 16 << 10
	// sampleEvery is for how long, at most twice, growth counts.
	sampleEvery = 100 * time.Millisecond
	// collectEvery is how often garbage is collected because of it, at most, and warnEvery how often that is logged.
	collectEvery, warnEvery = 2 * time.Second, 10 * time.Second
)

// pressure closes connections when the memory of the process is nearly used up, as the kernel would end the process
// otherwise, and with it all of them. What a connection costs depends on what its ends take: those are closed for which
// the kernel holds the most, as they take nothing or little.
type pressure struct {
	pressureConfig

	requests atomic.Uint64
	next     atomic.Int64 // when a request has the memory be looked at, in nanoseconds since began
	began    time.Time
	much     atomic.Bool // half of what may be used is used

	mu                          sync.Mutex
	collected, warned, relieved time.Time
	level                       int64 // what was used when connections were closed
	sampled                     time.Time
	samples                     [2]int64 // what was used then, and before
}

type pressureConfig struct {
	limit, high int64 // octets; above high connections are closed
	used        func() int64
	// clients and endpoints return the connections to them. Closing one of an endpoint ends what a client has there.
	clients, endpoints func() []net.Conn
	closed             func(n int)
	log                *slog.Logger
}

// newPressure returns nil if the process has no memory limit.
func newPressure(g *Gateway) *pressure {
	group, err := memgroup.Own()
	if err != nil {
		return nil
	}
	limit := float64(group.Limit())
	high := max(highMemory, min(mostMemory, float64(debug.SetMemoryLimit(-1))/limit+aboveRuntime))
	return &pressure{began: time.Now(), pressureConfig: pressureConfig{
		limit: group.Limit(), high: int64(high * limit), used: group.Used,
		clients:   g.sockets.connections,
		endpoints: func() []net.Conn { return append(g.proxy.InUse(), g.passing.InUse()...) },
		closed:    func(n int) { g.metrics.relieved.Add(float64(n)) }, log: g.cfg.Log,
	}}
}

// run looks at the memory until ctx is done.
func (p *pressure) run(ctx context.Context) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			p.look()
		}
		pause := lookEvery
		if p.much.Load() {
			pause = lookSoon
		}
		timer.Reset(pause)
	}
}

// begin notes that a request begins.
func (p *pressure) begin() {
	if p != nil && p.requests.Add(1)%requestsLook == 0 && int64(time.Since(p.began)) >= p.next.Load() {
		p.look()
	}
}

// look relieves the memory if it is nearly used up.
func (p *pressure) look() {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	now := time.Now()
	used := p.soon(p.used(), now)
	enough := p.high - int64(relief*float64(p.limit))
	pause := requestLook
	if used > enough {
		pause = 0
	}
	p.next.Store(int64(now.Sub(p.began) + pause))
	p.much.Store(used > p.high/2)
	if used > enough && now.Sub(p.collected) > collectEvery {
		p.collected = now
		go debug.FreeOSMemory() // which takes long when connections may have to be closed at once
	}
	urgent := used > p.level || used > p.high+int64(urgency*float64(p.limit))
	if used > p.high && (urgent || now.Sub(p.relieved) > settleTime) {
		p.relieve(used - enough)
		p.relieved, p.level = now, used
	}
}

// soon returns how much will be used soon: what is used, and as much as that has grown by of late. Requests that have
// begun already will need it, whatever is closed.
func (p *pressure) soon(used int64, now time.Time) int64 {
	age := now.Sub(p.sampled)
	if age > 2*sampleEvery { // what it has grown by is too long ago
		p.samples = [2]int64{used, used}
	}
	grown := max(0, used-min(p.samples[0], p.samples[1]))
	if age > sampleEvery {
		p.sampled, p.samples = now, [2]int64{used, p.samples[0]}
	}
	return used + grown
}

// relieve closes connections for which the kernel holds so many octets together. Streams of HTTP/2 that take nothing
// are not seen in connections to clients, but in those to endpoints.
func (p *pressure) relieve(octets int64) {
	closed := 0
	for _, conns := range []func() []net.Conn{p.clients, p.endpoints} {
		for _, h := range fullest(conns()) {
			if octets <= 0 {
				break
			}
			abort(h.conn)
			octets -= h.octets
			closed++
		}
	}
	p.closed(closed)
	if now := time.Now(); now.Sub(p.warned) > warnEvery {
		p.warned = now
		p.log.Warn("memory is nearly used up; connections are closed whose ends take the least",
			"closed", closed, "limit", p.limit)
	}
}

// held is a connection for which the kernel holds some octets.
type held struct {
	conn   net.Conn
	octets int64
}

// fullest returns the connections for which the kernel holds much, those first for which it holds the most.
func fullest(conns []net.Conn) (all []held) {
	for _, c := range conns {
		if s, ok := c.(syscall.Conn); ok {
			if n := sockbuf.Queued(s); n >= leastHeld {
				all = append(all, held{c, int64(n)})
			}
		}
	}
	slices.SortFunc(all, func(a, b held) int { return cmp.Compare(b.octets, a.octets) })
	return all
}

// abort closes a connection, and has the kernel forget what was not sent yet.
func abort(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(seconds int) error }); ok {
		_ = l.SetLinger(0)
	}
	c.Close()
}

// connections returns those that are open.
func (s *sockets) connections() (all []net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sock := range s.open {
		all = sock.conns.appendTo(all)
	}
	return all
}
