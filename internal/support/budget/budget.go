// Package budget bounds what clients can make a process hold.
//
// An Account bounds the entries of one kind, such as queries that wait for upstream
// servers, in total and for each source, which is a client's address. A new entry of a
// source that has its share takes the place of the oldest one of that source. If an
// Account is full, it takes the place of the oldest one of the source with the most
// entries: no source can starve the others, and of many sources with one entry each,
// those entries go that have waited the longest.
package budget

import (
	"container/heap"
	"errors"
	"math"
	"net/netip"
	"runtime/debug"
	"sync"
)

// Errors of TryEnter, and reasons for which entries end.
var (
	ErrFull       = errors.New("no capacity is left")
	ErrSourceFull = errors.New("no capacity is left for this client")
)

// Limits of an Account, in entries.
type Limits struct {
	Total, PerSource int // at least 1
	// Complete lets half of the entries, in total and of a source, stay until they end by
	// themselves: entries take time, and if all ended for newer ones, none might complete.
	Complete bool
}

// Account is the entries of one kind. Its methods are safe for concurrent use.
type Account struct {
	limits Limits

	mu      sync.Mutex
	used    int
	kept    int   // busy entries of an account with Limits.Complete
	stats   Stats // but for Used
	last    uint64
	sources map[netip.Addr]*source
	order   byWeight
}

// Stats are the figures of an Account.
type Stats struct {
	Account     string // its name
	Used, Limit int
	// Entries since the start that were refused or had to end, because the account was
	// full or because their source had its share.
	Full, SourceFull uint64
}

// NewAccount returns an empty Account. The name is for metrics.
func NewAccount(name string, limits Limits) *Account {
	return &Account{
		limits: limits, stats: Stats{Account: name, Limit: limits.Total}, sources: make(map[netip.Addr]*source),
	}
}

// Entry is one unit of the resource in use.
type Entry struct {
	account *Account
	of      *source
	number  uint64 // entries are numbered by age
	in      *queue // of.idle or of.busy; nil when the entry has ended
	uses    int
	evict   func(reason error)

	before, after *Entry // in the queue
}

// source is the entries of one source.
type source struct {
	addr netip.Addr
	// Busy entries are in use or stay until they end by themselves; idle ones are not.
	idle, busy queue
	complete   bool // Limits.Complete
	index      int  // in Account.order
}

func (s *source) len() int { return s.idle.n + s.busy.n }

// oldest returns the entry to end first.
func (s *source) oldest() *Entry {
	if s.idle.first != nil {
		return s.idle.first
	}
	return s.busy.first
}

// weight is by how much the source is to give way to others: by the entries that may end.
func (s *source) weight() int {
	if s.complete {
		return s.idle.n
	}
	return s.len()
}

// queue is a list of entries, the oldest first.
type queue struct {
	first, last *Entry
	n           int
}

func (q *queue) pushBack(e *Entry) {
	e.in, e.before, e.after = q, q.last, nil
	if q.last != nil {
		q.last.after = e
	} else {
		q.first = e
	}
	q.last = e
	q.n++
}

func (q *queue) pushFront(e *Entry) {
	e.in, e.before, e.after = q, nil, q.first
	if q.first != nil {
		q.first.before = e
	} else {
		q.last = e
	}
	q.first = e
	q.n++
}

func (q *queue) remove(e *Entry) {
	if e.before != nil {
		e.before.after = e.after
	} else {
		q.first = e.after
	}
	if e.after != nil {
		e.after.before = e.before
	} else {
		q.last = e.before
	}
	e.in, e.before, e.after = nil, nil, nil
	q.n--
}

// Enter adds an entry of the client at addr. Where the source has its share, or the
// account is full, another entry ends for it: its evict is called with ErrSourceFull or
// ErrFull, and must not block.
func (a *Account) Enter(addr netip.Addr, evict func(reason error)) *Entry {
	a.mu.Lock()
	victim, reason := a.victim(sourceOf(addr))
	if victim != nil {
		a.refuse(reason)
		a.remove(victim)
	}
	e := a.add(addr, evict)
	a.mu.Unlock()
	if victim != nil {
		victim.evict(reason)
	}
	return e
}

// TryEnter adds an entry of the client at addr, or fails with ErrSourceFull or ErrFull.
// evict may be nil in an account without Enter.
func (a *Account) TryEnter(addr netip.Addr, evict func(reason error)) (*Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if victim, reason := a.victim(sourceOf(addr)); victim != nil {
		a.refuse(reason)
		return nil, reason
	}
	return a.add(addr, evict), nil
}

// EnterFairly is TryEnter, but if the account is full the oldest entry of another source ends, as with Enter, if that
// source still has more entries than this one then.
func (a *Account) EnterFairly(addr netip.Addr, evict func(reason error)) (*Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	victim, reason := a.victim(sourceOf(addr))
	if victim == nil {
		return a.add(addr, evict), nil
	}
	a.refuse(reason)
	own := 0
	if of := a.sources[sourceOf(addr)]; of != nil {
		own = of.len()
	}
	if victim.of.addr == sourceOf(addr) || victim.of.len()-1 <= own {
		return nil, reason
	}
	a.remove(victim)
	go victim.evict(reason)
	return a.add(addr, evict), nil
}

// sourceOf returns the source that an address belongs to.
func sourceOf(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// victim returns the entry that has to end for one more of a source, nil if there is
// capacity: its own oldest one, or that of the source with the most entries.
func (a *Account) victim(addr netip.Addr) (*Entry, error) {
	if of := a.sources[addr]; of != nil && of.len() >= a.limits.PerSource {
		return of.oldest(), ErrSourceFull
	}
	if a.used >= a.limits.Total {
		return a.order[0].oldest(), ErrFull
	}
	return nil, nil
}

func (a *Account) refuse(reason error) {
	if errors.Is(reason, ErrFull) {
		a.stats.Full++
	} else {
		a.stats.SourceFull++
	}
}

func (a *Account) add(addr netip.Addr, evict func(error)) *Entry {
	addr = sourceOf(addr)
	of := a.sources[addr]
	if of == nil {
		of = &source{addr: addr, complete: a.limits.Complete}
		a.sources[addr] = of
	}
	a.last++
	e := &Entry{account: a, of: of, number: a.last, evict: evict}
	of.idle.pushBack(e)
	a.keep(of)
	a.used++
	if of.len() == 1 {
		heap.Push(&a.order, of)
	} else {
		heap.Fix(&a.order, of.index)
	}
	return e
}

// Leave ends the entry, if it has not ended.
func (e *Entry) Leave() {
	e.account.mu.Lock()
	defer e.account.mu.Unlock()
	if e.in != nil {
		e.account.remove(e)
	}
}

// Touch makes the entry the newest of its source, and so the last to end for others.
func (e *Entry) Touch() { e.change(func() { e.move(e.in) }) }

// Use makes the entry busy until Done is called as often: entries that are not busy end
// before it.
func (e *Entry) Use() {
	e.change(func() {
		e.uses++
		e.move(&e.of.busy)
	})
}

// Done is the end of Use.
func (e *Entry) Done() {
	e.change(func() {
		if e.uses--; e.uses == 0 {
			e.move(&e.of.idle)
		}
	})
}

// Age makes the entry the oldest of its source.
func (e *Entry) Age() {
	e.change(func() {
		in := e.in
		in.remove(e)
		in.pushFront(e)
		e.number = 0
	})
}

// change changes the order of an entry that has not ended.
func (e *Entry) change(do func()) {
	a := e.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.in != nil {
		do()
		heap.Fix(&a.order, e.of.index)
	}
}

// move makes the entry the newest of a list.
func (e *Entry) move(to *queue) {
	e.account.last++
	e.number = e.account.last
	e.in.remove(e)
	to.pushBack(e)
}

// keep lets the oldest idle entry of a source stay until it ends by itself, if it may.
func (a *Account) keep(of *source) {
	if e := of.idle.first; e != nil && a.limits.Complete && of.busy.n < a.limits.PerSource/2 && a.kept < a.limits.Total/2 {
		a.kept++
		of.idle.remove(e)
		of.busy.pushBack(e)
	}
}

func (a *Account) remove(e *Entry) {
	a.used--
	if a.limits.Complete && e.in == &e.of.busy {
		a.kept--
	}
	e.in.remove(e)
	if e.of.len() == 0 {
		heap.Remove(&a.order, e.of.index)
		delete(a.sources, e.of.addr)
		return
	}
	a.keep(e.of)
	heap.Fix(&a.order, e.of.index)
}

// Stats returns the present figures.
func (a *Account) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	s.Used = a.used
	return s
}

// byWeight is a heap of sources: those with the most entries first, and of equal ones
// that with the oldest entry.
type byWeight []*source

func (h byWeight) Len() int { return len(h) }

func (h byWeight) Less(i, j int) bool {
	if m, n := h[i].weight(), h[j].weight(); m != n {
		return m > n
	}
	return h[i].oldest().number < h[j].oldest().number
}

func (h byWeight) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *byWeight) Push(x any) {
	s := x.(*source) //nolint:forcetypeassert // heap.Push has one caller
	s.index = len(*h)
	*h = append(*h, s)
}

// Pop implements heap.Interface.
func (h *byWeight) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}

// Within returns how many entries of the given cost in octets fit into a share of the
// memory limit of the process (GOMEMLIMIT), at least 1 and at most most. Without a limit
// it returns most.
func Within(share float64, cost, most int) int {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return most
	}
	return max(1, min(most, int(share*float64(limit))/cost))
}
