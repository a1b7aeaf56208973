// Package balance chooses the endpoint of a request: of two that are drawn, the one with fewer
// requests under way (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing"), and none
// that failed often of late.
//
//	Set: the Pools of all upstreams ──► Pool: the endpoints of one ──► Endpoint: what is under way
package balance

import (
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// When an endpoint is ejected, and for how long.
const (
	// failuresToEject are the failures in a row after which an endpoint gets no requests.
	failuresToEject = 5
	// ejectFor is for how long at first; each time in a row that it fails again doubles it, up to
	// maxEject.
	ejectFor = 5 * time.Second
	maxEject = 5 * time.Minute
)

// Endpoint is an address that serves an upstream. It stays the same in all Updates that have it.
type Endpoint struct {
	Addr     netip.AddrPort
	underWay atomic.Int64
	failures atomic.Int64
	// until is when an ejection ends; nil if the endpoint is not ejected. It has a reading of the monotonic clock,
	// so that an ejection lasts no longer when the other one is set back.
	until     atomic.Pointer[time.Time]
	ejections atomic.Int64

	mu        sync.Mutex
	removed   bool
	onRemoval []func()
}

// UnderWay returns how many requests the endpoint has.
func (e *Endpoint) UnderWay() int64 { return e.underWay.Load() }

// Done ends a request that Pick chose the endpoint for.
func (e *Endpoint) Done() { e.underWay.Add(-1) }

// OnRemoval has f be called once the endpoint is removed from its Pool; at once if it is already. f must not
// block.
func (e *Endpoint) OnRemoval(f func()) {
	e.mu.Lock()
	if !e.removed {
		e.onRemoval = append(e.onRemoval, f)
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	f()
}

// remove notes that the endpoint is removed.
func (e *Endpoint) remove() {
	e.mu.Lock()
	all := e.onRemoval
	e.removed, e.onRemoval = true, nil
	e.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// ejected reports whether the endpoint gets no requests for now.
func (e *Endpoint) ejected() bool {
	until := e.until.Load()
	return until != nil && time.Until(*until) > 0
}

// Pool is the endpoints of an upstream. Its methods may be called at any time, Update by one goroutine at a time.
type Pool struct {
	endpoints atomic.Pointer[[]*Endpoint]
}

// NewPool returns a Pool without endpoints.
func NewPool() *Pool {
	p := new(Pool)
	p.endpoints.Store(new([]*Endpoint))
	return p
}

// Update has requests from now on use these addresses. What is under way at others goes on.
func (p *Pool) Update(addrs []netip.AddrPort) {
	before := *p.endpoints.Load()
	all := make(map[netip.AddrPort]*Endpoint, len(before))
	for _, e := range before {
		all[e.Addr] = e
	}
	made, stay := make([]*Endpoint, 0, len(addrs)), make(map[*Endpoint]struct{}, len(addrs))
	for _, a := range addrs {
		e := all[a]
		if e == nil {
			e = &Endpoint{Addr: a}
			all[a] = e
		}
		made = append(made, e)
		stay[e] = struct{}{}
	}
	p.endpoints.Store(&made)
	for _, e := range before {
		if _, stays := stay[e]; !stays {
			e.remove()
		}
	}
}

// end is Update when the upstream is gone. Requests that have the Pool already may choose its endpoints still.
func (p *Pool) end() {
	for _, e := range *p.endpoints.Load() {
		e.remove()
	}
}

// Has reports whether requests may still use the address of an endpoint.
func (p *Pool) Has(e *Endpoint) bool { return slices.Contains(*p.endpoints.Load(), e) }

// Len returns how many endpoints there are.
func (p *Pool) Len() int { return len(*p.endpoints.Load()) }

// UnderWay returns how many requests the endpoints have.
func (p *Pool) UnderWay() (n int64) {
	for _, e := range *p.endpoints.Load() {
		n += e.UnderWay()
	}
	return n
}

// Ejected returns how many endpoints are ejected.
func (p *Pool) Ejected() (n int) {
	for _, e := range *p.endpoints.Load() {
		if e.ejected() {
			n++
		}
	}
	return n
}

// Pick chooses an endpoint for a request, which must be ended with Done, of those that were not tried. Those that are
// ejected are chosen only if there are no others. It is nil if there is none.
func (p *Pool) Pick(tried ...*Endpoint) *Endpoint {
	all := *p.endpoints.Load()
	usable := func(e *Endpoint) bool { return !e.ejected() && !slices.Contains(tried, e) }
	best := better(draw(all, usable), draw(all, usable))
	if best == nil {
		best = draw(all, func(e *Endpoint) bool { return !slices.Contains(tried, e) })
	}
	if best != nil {
		best.underWay.Add(1)
	}
	return best
}

// draw returns a random endpoint that meets a condition, nil if none does.
func draw(all []*Endpoint, condition func(*Endpoint) bool) *Endpoint {
	if len(all) == 0 {
		return nil
	}
	const draws = 8 // before all are looked at, of which those after others that do not meet it are preferred
	for range draws {
		if e := all[rand.IntN(len(all))]; condition(e) {
			return e
		}
	}
	first := rand.IntN(len(all))
	for i := range all {
		if e := all[(first+i)%len(all)]; condition(e) {
			return e
		}
	}
	return nil
}

func better(a, b *Endpoint) *Endpoint {
	if a == nil || b != nil && b.underWay.Load() < a.underWay.Load() {
		return b
	}
	return a
}

// Report says how a request to an endpoint ended: ok is false if it could not be connected to, or did not
// answer. After some failures in a row the endpoint is ejected, unless half of the Pool is.
func (p *Pool) Report(e *Endpoint, ok bool) {
	if ok {
		e.succeeded()
		return
	}
	if e.failures.Add(1) < failuresToEject {
		return
	}
	all, ejected := *p.endpoints.Load(), 0
	for _, o := range all {
		if o != e && o.ejected() {
			ejected++
		}
	}
	if 2*(ejected+1) > len(all) {
		return
	}
	e.failures.Store(0)
	limit := ejectFor << min(e.ejections.Add(1)-1, 10)
	e.until.Store(new(time.Now().Add(min(limit, maxEject))))
}

// succeeded has an endpoint be as if it had never failed. Most are, and their memory is only read.
func (e *Endpoint) succeeded() {
	if e.failures.Load() != 0 || e.ejections.Load() != 0 || e.until.Load() != nil {
		e.failures.Store(0)
		e.ejections.Store(0)
		e.until.Store(nil)
	}
}

// Set is the Pools of upstreams.
type Set[Upstream comparable] struct {
	mu    sync.Mutex // of writers
	pools atomic.Pointer[map[Upstream]*Pool]
}

// Pool returns the Pool of an upstream; nil if there is none.
func (s *Set[Upstream]) Pool(of Upstream) *Pool {
	if pools := s.pools.Load(); pools != nil {
		return (*pools)[of]
	}
	return nil
}

// All yields the Pools of all upstreams, in no order.
func (s *Set[Upstream]) All() iter.Seq2[Upstream, *Pool] {
	if pools := s.pools.Load(); pools != nil {
		return maps.All(*pools)
	}
	return func(func(Upstream, *Pool) bool) {}
}

// Update gives upstreams other addresses; nil removes one.
func (s *Set[Upstream]) Update(addrs map[Upstream][]netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pools map[Upstream]*Pool
	if all := s.pools.Load(); all != nil {
		pools = *all
	}
	added := make(map[Upstream]*Pool)
	gone := make(map[Upstream]*Pool)
	for of, all := range addrs {
		switch pool := pools[of]; {
		case all == nil && pool == nil:
		case all == nil:
			gone[of] = pool
		case pool == nil:
			added[of] = NewPool()
			added[of].Update(all)
		default:
			pool.Update(all)
		}
	}
	if len(added)+len(gone) == 0 {
		return
	}
	made := make(map[Upstream]*Pool, len(pools)+len(added))
	maps.Copy(made, pools)
	maps.Copy(made, added)
	for of := range gone {
		delete(made, of)
	}
	s.pools.Store(&made)
	for _, pool := range gone {
		pool.end()
	}
}
