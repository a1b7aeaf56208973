package load

import (
	"math/bits"
	"time"
)

// book tracks the queries of one socket that wait for an answer.
type book struct {
	patience time.Duration // timeout of each query
	entries  []entry       // the length is a power of two
	next     uint16        // the next ID
	waiting  int
}

// entry is a sent query.
type entry struct {
	id      uint16
	waiting bool
	at      time.Duration // when it was due
}

// newBook returns a book for up to most queries at once. A query is lost after
// patience.
func newBook(most int, patience time.Duration) *book {
	const roomFor = 4 // times as many entries, so that the next entry is rarely in use
	size := 1 << bits.Len(uint(roomFor*most-1))
	return &book{patience: patience, entries: make([]entry, min(size, 1<<16))}
}

// ask adds a query and returns its ID. If the entry of a query that timed out is
// reused, that query counts as lost. ok is false if no entry is free.
func (b *book) ask(at time.Duration) (id uint16, lost int, ok bool) {
	for range b.entries {
		e := &b.entries[int(b.next)&(len(b.entries)-1)]
		if e.waiting && at-e.at < b.patience {
			b.next++
			continue
		}
		if e.waiting {
			lost++
			b.waiting--
		}
		*e = entry{b.next, true, at}
		b.next++
		b.waiting++
		return e.id, lost, true
	}
	return 0, lost, false
}

// withdraw removes a query that was not sent.
func (b *book) withdraw(id uint16) { b.answer(id) }

// answer returns when the query with that ID was due; ok is false if no such query
// waits.
func (b *book) answer(id uint16) (at time.Duration, ok bool) {
	e := &b.entries[int(id)&(len(b.entries)-1)]
	if !e.waiting || e.id != id {
		return 0, false
	}
	e.waiting = false
	b.waiting--
	return e.at, true
}

// expire removes the queries that timed out and returns their number.
func (b *book) expire(now time.Duration) (lost int) {
	if b.waiting == 0 {
		return 0
	}
	for i := range b.entries {
		if e := &b.entries[i]; e.waiting && now-e.at >= b.patience {
			e.waiting = false
			b.waiting--
			lost++
		}
	}
	return lost
}
