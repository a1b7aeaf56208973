// Package evidence keeps a bounded sample of the events of a process, each with a reason, and
// bounded counts of the subjects, clients and routes that have most of them.
//
//	producers ─► Sampler ─► seat ──────────► Ring.drain ─┬─► events: the last of each reason ─► pages, followers
//	             1 in N,    a buffer for                 └─► counts: Space-Saving, by reason ─► top
//	             all of     each goroutine
//	             the rare
//
// An event that is recorded has a weight: how many events it stands for. Each reason has an
// allowance of events a second that are all recorded, with weight 1; of the events above it, and
// of usual ones, one in N is drawn at random and recorded with weight N. So sums of weights
// estimate numbers of events without bias, and rare events are all there.
//
// Producers do not wait for readers: what a full buffer has no room for is dropped and counted.
// Nothing runs while nobody reads and buffers have room.
//
// The counts are Space-Saving summaries (Metwally, Agrawal, El Abbadi: "Efficient Computation of
// Frequent and Top-k Elements in Data Streams", ICDT 2005).
package evidence

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of what is kept, whatever clients send.
const (
	// MaxText is the longest subject, detail or route, in octets; longer ones are cut.
	MaxText = 512
	// MaxSize is the highest Config.Size.
	MaxSize = 1 << 16

	followerLen = 256                   // events that a follower may lag behind
	drainPause  = 20 * time.Millisecond // between two drains, so that a flood is drained in batches
)

// Config configures a Ring.
type Config struct {
	// Size is the number of events kept.
	Size int
	// OneIn is the number of events of which one is recorded; at least 1.
	OneIn int
	// PerSecond is the allowance of each reason that is not usual, for each Sampler.
	PerSecond int
	Mask      Mask
}

// Reason is why an event is as it is.
type Reason struct {
	// Word is short and in kebab case; it never changes. Meaning is a sentence for users.
	Word, Meaning string
	// Usual are events of ordinary operation. They have no allowance, and top leaves them out
	// unless the reason is asked for.
	Usual bool
}

// Event is an event that was recorded.
type Event struct {
	// Sequence numbers the events of a Ring in the order in which they were drained, from 1 on.
	Sequence uint64
	Time     time.Time
	Kind     string
	Reason   string
	// Client is a whole address, or a prefix if clients are masked; invalid if there is none.
	Client netip.Prefix
	// Pod is the client's, as NAMESPACE/NAME; empty if it is not known.
	Pod             string
	Subject, Detail string
	// Scheme is that of a request's URL, http or https; empty if there is none.
	Scheme string
	// Route is a key of top; empty if there is none.
	Route string
	// Weight is the number of events that this one stands for.
	Weight int
	// Usual is that of the reason.
	Usual bool
}

// Ring keeps the events of a process. Its methods are safe for concurrent use. A nil Ring keeps
// nothing.
type Ring struct {
	cfg       Config
	interval  float64       // mean of the exponential distribution behind untilNext
	wake      chan struct{} // has an element when the seats should be drained
	following atomic.Int32  // how many followers there are

	// turn is held to prepare what a tail responds with: many tails take one processor at most.
	turn sync.Mutex

	mu        sync.Mutex
	sources   []*Source
	events    events
	counts    counts
	followers map[*follower]struct{}
	ended     bool
}

// New returns a Ring. It starts nothing. A Size of 0 yields nil.
func New(cfg Config) *Ring {
	if cfg.Size == 0 {
		return nil
	}
	cfg.OneIn = max(cfg.OneIn, 1)
	return &Ring{
		cfg:       cfg,
		interval:  -1 / math.Log1p(-1/float64(cfg.OneIn)),
		wake:      make(chan struct{}, 1),
		events:    newEvents(cfg.Size),
		counts:    newCounts(time.Now()),
		followers: make(map[*follower]struct{}),
	}
}

// Run moves events out of the buffers of producers, until ctx is done. Then it ends all
// followers and returns nil.
func (r *Ring) Run(ctx context.Context) error {
	defer r.end()
	pause := time.NewTimer(drainPause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		r.drain()
		pause.Reset(drainPause)
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
	}
}

// wakeUp has Run drain the seats.
func (r *Ring) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// drain moves the events of all seats to the Ring.
func (r *Ring) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drainLocked()
}

func (r *Ring) drainLocked() {
	var all []*Event
	for _, s := range r.sources {
		for _, seat := range s.seats {
			all = s.appendEvents(all, seat)
		}
	}
	slices.SortStableFunc(all, func(a, b *Event) int { return a.Time.Compare(b.Time) })
	r.counts.rotate(time.Now())
	for _, e := range all {
		r.events.insert(e)
		r.counts.count(e)
		for f := range r.followers {
			f.offer(e)
		}
	}
}

// follower receives events from now on.
type follower struct {
	events chan *Event // closed when the Ring ends
	missed atomic.Int64
}

// offer passes an event on, if the follower has room for it.
func (f *follower) offer(e *Event) {
	select {
	case f.events <- e:
	default:
		f.missed.Add(1)
	}
}

// follow returns the events that are kept, the oldest first, and a follower that receives the
// next ones until leave is called.
func (r *Ring) follow() (before []*Event, f *follower, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drainLocked()
	f = &follower{events: make(chan *Event, followerLen)}
	before = r.events.all()
	if r.ended {
		close(f.events)
		return before, f, func() {}
	}
	r.followers[f] = struct{}{}
	r.following.Add(1)
	return before, f, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.following.Add(-1)
		delete(r.followers, f)
	}
}

// end ends all followers.
func (r *Ring) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drainLocked()
	r.ended = true
	for f := range r.followers {
		close(f.events)
	}
	clear(r.followers)
}

// Events returns the events that are kept, the oldest first.
func (r *Ring) Events() []*Event {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drainLocked()
	return r.events.all()
}

// Failures returns the last events that are not usual and match, at most so many, the newest first.
func (r *Ring) Failures(limit int, match func(*Event) bool) (last []*Event) {
	for _, e := range slices.Backward(r.Events()) {
		if len(last) < limit && !e.Usual && match(e) {
			last = append(last, e)
		}
	}
	return last
}

// knows reports whether a source has events of a kind, and with a reason; an empty one is any.
func (r *Ring) knows(kind, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.sources, func(s *Source) bool {
		return (kind == "" || s.cfg.Kind == kind) && (reason == "" ||
			slices.ContainsFunc(s.cfg.Reasons, func(known Reason) bool { return known.Word == reason }))
	})
}
