package status

import (
	"container/heap"
	"reflect"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/retry"
)

// queue has the objects that something is to be written about, each once. Kinds take turns, and the Namespaces of a
// kind: a Namespace with thousands of routes does not delay the routes of others, nor the status of a Gateway.
//
//	put ──► ready (by kind, by Namespace) ──► take: writing ──► done: gone, ready again, or delayed
//	drop ◄── what needs no writing any more
type queue struct {
	now func() time.Time

	mu    sync.Mutex
	items map[cluster.Ref]*item
	kinds []*kindQueue // in the order of their turns
	// delayed are items that are not due yet, the first one first.
	delayed delays
	// written is what was written lately.
	written map[cluster.Ref]*writing
	swept   time.Time
	wake    chan struct{} // has a token when there may be something to take
}

// item is an object of the queue.
type item struct {
	*wanted
	state   itemState
	at      *element[*item] // in its lane, if it is ready
	backoff retry.Backoff
	due     time.Time // if it is delayed
	index   int       // in delayed
	// next is what was put while this is written; nil for nothing.
	next *wanted
}

type itemState uint8

const (
	gone itemState = iota
	ready
	delayed
	taken
)

// kindQueue are the items of a kind that are ready.
type kindQueue struct {
	kind  cluster.Kind
	lanes map[string]*lane // by Namespace
	turns list[*lane]      // that are not empty
	// held is until when nothing is taken, since the API refused one.
	held    time.Time
	backoff retry.Backoff
}

type lane struct {
	namespace string
	items     list[*item]
	at        *element[*lane] // in turns
}

// writing is what was written of an object last, and how often others changed it.
type writing struct {
	*wanted
	repairs retry.Repairs
	at      time.Time
}

func newQueue(now func() time.Time, kinds ...cluster.Kind) *queue {
	q := &queue{
		now: now, items: make(map[cluster.Ref]*item), written: make(map[cluster.Ref]*writing), wake: make(chan struct{}, 1),
	}
	for _, k := range kinds {
		q.kinds = append(q.kinds, &kindQueue{kind: k, lanes: make(map[string]*lane)})
	}
	return q
}

// put has an object be written.
func (q *queue) put(w *wanted) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[w.ref]
	if i == nil {
		i = &item{wanted: w}
		q.items[w.ref] = i
		if pause := q.repair(w); pause > 0 {
			q.delay(i, pause)
			return
		}
		q.ready(i)
		return
	}
	switch {
	case i.state == taken:
		i.next = w
		return
	case i.state == delayed && !reflect.DeepEqual(i.wanted, w): // it may be possible
		q.remove(i)
		i.backoff = retry.Backoff{}
		q.ready(i)
	}
	i.wanted = w
}

// repair returns how long an object waits because somebody else changed what was written.
func (q *queue) repair(w *wanted) time.Duration {
	last := q.written[w.ref]
	if last == nil || !reflect.DeepEqual(last.wanted, w) {
		return 0
	}
	pause, _ := last.repairs.Next(q.now())
	return pause
}

// drop removes an object that needs no writing.
func (q *queue) drop(ref cluster.Ref) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[ref]
	switch {
	case i == nil:
	case i.state == taken:
		i.next = nil
	default:
		q.remove(i)
		delete(q.items, ref)
	}
}

// len returns how many objects there are.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// take returns the next item; nil if there is none before the time next, which is zero if only a put changes that.
func (q *queue) take() (i *item, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for len(q.delayed) > 0 && !q.delayed[0].due.After(now) {
		due := q.delayed[0]
		q.remove(due)
		q.ready(due)
	}
	for n, k := range q.kinds {
		if k.turns.empty() {
			continue
		}
		if k.held.After(now) {
			next = earlier(next, k.held)
			continue
		}
		q.kinds = append(append(q.kinds[:n:n], q.kinds[n+1:]...), k) // the others are first now
		l := k.turns.first.value
		k.turns.remove(l.at)
		l.at = k.turns.push(l)
		i = l.items.first.value
		q.remove(i)
		i.state = taken
		return i, time.Time{}
	}
	if len(q.delayed) > 0 {
		next = earlier(next, q.delayed[0].due)
	}
	return nil, next
}

// earlier returns the earlier of two times; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// done ends the writing of an item that was taken, for the time being if it failed.
func (q *queue) done(i *item, failure scope) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if failure < allOfKind {
		q.kind(i.ref.Kind).backoff = retry.Backoff{}
	}
	switch failure {
	case none:
		q.note(i.wanted)
	case allOfKind:
		q.hold(q.kind(i.ref.Kind))
	case all:
		for _, k := range q.kinds {
			q.hold(k)
		}
	}
	next := i.next
	i.next = nil
	if next != nil && !reflect.DeepEqual(next, i.wanted) {
		i.wanted, i.backoff = next, retry.Backoff{}
		q.ready(i)
		return
	}
	switch {
	case failure == none && next == nil:
		i.state = gone
		delete(q.items, i.ref)
	case failure == none: // it was put before the API's watch showed what was written
		q.delay(i, q.repair(i.wanted))
	case failure == oneObject:
		q.delay(i, i.backoff.Next())
	default:
		q.ready(i)
	}
}

// abandon removes what is written of an object, which does not exist.
func (q *queue) abandon(i *item) {
	q.done(i, none)
	q.mu.Lock()
	delete(q.written, i.ref)
	q.mu.Unlock()
}

// note keeps what was written, and forgets what was written long ago.
func (q *queue) note(w *wanted) {
	now := q.now()
	if last := q.written[w.ref]; last == nil {
		q.written[w.ref] = &writing{wanted: w, at: now}
	} else {
		last.wanted, last.at = w, now
	}
	if now.Sub(q.swept) < retry.Calm {
		return
	}
	q.swept = now
	for ref, last := range q.written {
		if now.Sub(last.at) > retry.Calm {
			delete(q.written, ref)
		}
	}
}

// hold has nothing of a kind be taken for a while. Those that were taken before and fail too make it no longer.
func (q *queue) hold(k *kindQueue) {
	if now := q.now(); !k.held.After(now) {
		k.held = now.Add(k.backoff.Next())
	}
}

func (q *queue) kind(of cluster.Kind) *kindQueue {
	for _, k := range q.kinds {
		if k.kind == of {
			return k
		}
	}
	panic("no queue of " + of.String())
}

// ready makes an item one that can be taken.
func (q *queue) ready(i *item) {
	k := q.kind(i.ref.Kind)
	l := k.lanes[i.ref.Key.Namespace]
	if l == nil {
		l = &lane{namespace: i.ref.Key.Namespace}
		l.at = k.turns.push(l)
		k.lanes[l.namespace] = l
	}
	i.state, i.at = ready, l.items.push(i)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// delay makes an item ready later.
func (q *queue) delay(i *item, pause time.Duration) {
	i.state, i.due = delayed, q.now().Add(pause)
	heap.Push(&q.delayed, i)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// remove removes an item from those that are ready, or from those that are delayed.
func (q *queue) remove(i *item) {
	switch i.state {
	case ready:
		k := q.kind(i.ref.Kind)
		l := k.lanes[i.ref.Key.Namespace]
		if l.items.remove(i.at); l.items.empty() {
			k.turns.remove(l.at)
			delete(k.lanes, l.namespace)
		}
	case delayed:
		heap.Remove(&q.delayed, i.index)
	}
	i.state, i.at = gone, nil
}

// delays implements heap.Interface.
type delays []*item

func (d delays) Len() int           { return len(d) }
func (d delays) Less(i, k int) bool { return d[i].due.Before(d[k].due) }
func (d delays) Swap(i, k int) {
	d[i], d[k] = d[k], d[i]
	d[i].index, d[k].index = i, k
}

// Push implements heap.Interface.
func (d *delays) Push(x any) {
	i, _ := x.(*item)
	i.index = len(*d)
	*d = append(*d, i)
}

// Pop implements heap.Interface.
func (d *delays) Pop() any {
	last := len(*d) - 1
	i := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return i
}
