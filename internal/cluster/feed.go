package cluster

import (
	"context"
	"sync"
)

// Changes says what may be different.
type Changes struct {
	// Everything says that every object that is there may be. Those that went
	// are among Objects.
	Everything bool
	// Freshness says that how far a kind can be relied on may be.
	Freshness bool
	// Objects are those that may be, of kinds that are loaded. With each goes
	// when the earliest cause of its change was that a transaction told, in
	// nanoseconds since 1970; 0 when none did.
	Objects map[Change]int64
}

// Change names an object. A slice is told as a change of its Service.
type Change struct {
	Kind Kind
	Key  Key
}

// Empty tells whether nothing changed.
func (c *Changes) Empty() bool { return !c.Everything && !c.Freshness && len(c.Objects) == 0 }

func (c *Changes) add(ch Change, cause int64) {
	if c.Objects == nil {
		c.Objects = make(map[Change]int64)
	}
	if known := c.Objects[ch]; known != 0 && (cause == 0 || known < cause) {
		cause = known
	}
	c.Objects[ch] = cause
}

func (c *Changes) merge(o Changes) {
	c.Everything = c.Everything || o.Everything
	c.Freshness = c.Freshness || o.Freshness
	for ch, cause := range o.Objects {
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
	f := &Feed{store: s, ready: make(chan struct{}, 1)}
	f.add(Changes{Everything: true, Freshness: true}, true)
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

// add makes changes pending; the feed may keep the map when it is given.
func (f *Feed) add(changes Changes, given bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pending.Empty() && given {
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
		return Changes{}, ctx.Err()
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
	f.pending = Changes{}
	return changes
}
