package load

import (
	"math/bits"
	"time"
)

// book knows which queries of one socket wait for an answer.
type book struct {
	patience time.Duration // with each
	entries  []entry       // as many as a power of two
	next     uint16        // ID
	waiting  int
}

// entry is a query that was asked.
type entry struct {
	id      uint16
	waiting bool
	at      time.Duration // when it was due
}

// newBook makes a book for so many queries at once, each of which is given up
// after some time.
func newBook(most int, patience time.Duration) *book {
	const roomFor = 4 // times as many, so that the next entry is seldom in use
	size := 1 << bits.Len(uint(roomFor*most-1))
	return &book{patience: patience, entries: make([]entry, min(size, 1<<16))}
}

// ask enters a query, and gives its ID. Who did not get an answer in time is
// lost, when its entry is needed; without a free entry, ok is false.
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

// withdraw forgets a query that was not sent.
func (b *book) withdraw(id uint16) { b.answer(id) }

// answer says when the query of that ID was due; ok is false when none waits.
func (b *book) answer(id uint16) (at time.Duration, ok bool) {
	e := &b.entries[int(id)&(len(b.entries)-1)]
	if !e.waiting || e.id != id {
		return 0, false
	}
	e.waiting = false
	b.waiting--
	return e.at, true
}

// expire forgets who waited too long, and says how many these were.
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
