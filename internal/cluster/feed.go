package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Changes is a set of possible changes.
type Changes struct {
	// Everything: any object that is present may have changed. Those that were
	// deleted are among Objects.
	Everything bool
	// Freshness: the freshness of a kind changed.
	Freshness bool
	// Objects are those that may have changed, of kinds that are loaded. The value
	// is when the earliest cause of the change happened, in nanoseconds since
	// 1970; 0 when that is unknown.
	Objects map[Ref]int64
	// Hosts are the names, as in External.Hosts, of objects that changed, before or
	// after the change.
	Hosts map[string]struct{}
}

// Empty reports whether nothing changed.
func (c *Changes) Empty() bool { return !c.Everything && !c.Freshness && len(c.Objects) == 0 }

func (c *Changes) add(ref Ref, cause int64) {
	if c.Objects == nil {
		c.Objects = make(map[Ref]int64)
	}
	if known := c.Objects[ref]; known != 0 && (cause == 0 || known < cause) {
		cause = known
	}
	c.Objects[ref] = cause
}

func (c *Changes) addHosts(hosts []string) {
	if c.Hosts == nil && len(hosts) > 0 {
		c.Hosts = make(map[string]struct{})
	}
	for _, h := range hosts {
		c.Hosts[h] = struct{}{}
	}
}

func (c *Changes) merge(o Changes) {
	c.Everything = c.Everything || o.Everything
	c.Freshness = c.Freshness || o.Freshness
	for ref, cause := range o.Objects {
		c.add(ref, cause)
	}
	c.addHosts(slices.Collect(maps.Keys(o.Hosts)))
}

// Feed tells one consumer which objects changed. It is level-triggered: the
// consumer looks up the present state. A slow consumer loses nothing, and
// several changes of one object while it is busy become one.
type Feed struct {
	store *Store

	mu      sync.Mutex
	pending Changes
	ready   chan struct{} // holds a token while pending is not empty
}

// Subscribe returns a feed that starts with everything that is present. The
// consumer must Close it.
func (s *Store) Subscribe() *Feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &Feed{store: s, ready: make(chan struct{}, 1)}
	f.add(Changes{Everything: true, Freshness: true})
	s.feeds = append(s.feeds, f)
	return f
}

// Close ends the feed.
func (f *Feed) Close() {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.store.feeds = slices.DeleteFunc(slices.Clone(f.store.feeds), func(o *Feed) bool { return o == f })
}

// add makes changes pending, and may keep their map.
func (f *Feed) add(changes Changes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pending.Empty() {
		f.pending = changes
	} else {
		f.pending.merge(changes)
	}
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// Ready receives a token when anything changed. The receiver then calls Pending.
func (f *Feed) Ready() <-chan struct{} { return f.ready }

// Next waits until anything changed and returns all changes, or fails with
// ctx's error.
func (f *Feed) Next(ctx context.Context) (Changes, error) {
	select {
	case <-ctx.Done():
		return Changes{}, ctx.Err()
	case <-f.ready:
		return f.Pending(), nil
	}
}

// Pending returns all changes since the last call, without waiting.
func (f *Feed) Pending() Changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Next has received the token, unless a change came since.
	select {
	case <-f.ready:
	default:
	}
	changes := f.pending
	f.pending = Changes{}
	return changes
}
