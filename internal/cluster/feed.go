package cluster

import (
	"context"
	"sync"
)

// Change says that something may be different: the object at a key, or how far
// a kind can be relied on. A slice is told as a change of its Service.
type Change struct {
	Kind Kind
	// Freshness says that a kind's did, and Kind and Key mean nothing. Where a
	// kind was not loaded before, every object is told as changed, too.
	Freshness bool
	Key       Key
}

// Changes is a set of changes. With each goes when the earliest cause of it was
// that a transaction told, in nanoseconds since 1970; 0 when none did.
type Changes map[Change]int64

func (c Changes) add(ch Change, cause int64) {
	if known := c[ch]; known != 0 && (cause == 0 || known < cause) {
		cause = known
	}
	c[ch] = cause
}

func (c Changes) merge(o Changes) {
	for ch, cause := range o {
		c.add(ch, cause)
	}
}

// Feed tells one consumer what changed. It is level-triggered: the consumer
// looks up the present state, so that nothing is lost however slow it is, and
// changes of one key that come while it is busy are one.
type Feed struct {
	store *Store

	mu      sync.Mutex
	pending Changes
	ready   chan struct{} // holds a token while pending is not empty
}

// Subscribe makes a feed, which begins with everything that is there. It goes
// on until it is closed.
func (s *Store) Subscribe() *Feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &Feed{store: s, pending: make(Changes), ready: make(chan struct{}, 1)}
	all := make(Changes)
	s.state.addEverything(all)
	f.add(all, true)
	s.feeds = append(s.feeds, f)
	return f
}

// Close ends the feed.
func (f *Feed) Close() {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	kept := f.store.feeds[:0:0]
	for _, other := range f.store.feeds {
		if other != f {
			kept = append(kept, other)
		}
	}
	f.store.feeds = kept
}

// add makes changes pending; the feed may keep the set when it is given.
func (f *Feed) add(changes Changes, given bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) == 0 && given {
		f.pending = changes
	} else {
		f.pending.merge(changes)
	}
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// Ready gives a token when anything changed; Pending is to be asked then.
func (f *Feed) Ready() <-chan struct{} { return f.ready }

// Next waits until anything changed and gives all that did, or fails with
// ctx's error.
func (f *Feed) Next(ctx context.Context) (Changes, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-f.ready:
		return f.Pending(), nil
	}
}

// Pending gives all that changed since it was last asked, without waiting.
func (f *Feed) Pending() Changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Next has taken the token, unless it came after that or nobody waits.
	select {
	case <-f.ready:
	default:
	}
	changes := f.pending
	f.pending = make(Changes)
	return changes
}
