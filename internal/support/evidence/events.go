package evidence

import (
	"cmp"
	"slices"
)

// events are the last events, of all reasons together as many as size. Where there are more, the
// oldest of the reason with most of them goes, so that a flood for one reason hides no other.
type events struct {
	size, total int
	sequence    uint64
	queues      map[queueKey]*queue
}

type queueKey struct{ kind, reason string }

// queue has the events of a reason, the oldest first.
type queue struct{ events []*Event }

func newEvents(size int) events {
	return events{size: size, queues: make(map[queueKey]*queue)}
}

// insert adds an event and gives it its number.
func (s *events) insert(e *Event) {
	s.sequence++
	e.Sequence = s.sequence
	key := queueKey{e.Kind, e.Reason}
	q := s.queues[key]
	if q == nil {
		q = new(queue)
		s.queues[key] = q
	}
	q.events = append(q.events, e)
	if s.total++; s.total > s.size {
		s.evict()
	}
}

// evict removes the oldest event of the reason with most, and of the kind and reason first in
// order if several have as many.
func (s *events) evict() {
	var most queueKey
	for key, q := range s.queues {
		n := len(q.events)
		if best := s.queues[most]; best == nil || n > len(best.events) || n == len(best.events) && key.before(most) {
			most = key
		}
	}
	q := s.queues[most]
	q.events[0] = nil
	q.events = q.events[1:]
	s.total--
}

func (k queueKey) before(other queueKey) bool {
	return cmp.Or(cmp.Compare(k.kind, other.kind), cmp.Compare(k.reason, other.reason)) < 0
}

// all returns the events, the oldest first.
func (s *events) all() []*Event {
	all := make([]*Event, 0, s.total)
	for _, q := range s.queues {
		all = append(all, q.events...)
	}
	slices.SortFunc(all, func(a, b *Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return all
}
