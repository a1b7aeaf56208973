// Package forward resolves names outside the cluster's zones by querying
// upstream servers.
//
//	question --> place --> route --> flight --> attempt --> upstream socket
//	   |       of those   longest   one for    next upstream   UDP, TCP, TLS, HTTPS
//	   |       that wait  suffix    equal      on failure or        |
//	   |                            questions  delay                |
//	   +--- cache <-------------------------------------------- reply
//
// The questions that wait are bounded; see package budget for which one loses its place
// to another. A question belongs to the route with the longest suffix of its name.
// Concurrent equal questions share one flight. A flight queries one upstream of
// the route and, if that fails or takes longer than usual, others as well.
// Replies are stored in the cache.
//
// The package implements RFC 5452 (random IDs, ports and case, and checks of
// replies), RFC 6891, section 7 (servers without EDNS), RFC 7766 (queries over
// TCP), RFC 7858 (TLS), RFC 7871 (client subnets), RFC 8484 (HTTPS) and RFC
// 8767 (stale answers).
package forward

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/support/budget"
)

// Config configures a Forwarder.
type Config struct {
	Routes []Route
	Cache  *cache.Cache
	// Zones are served here: what upstreams add of them to their replies is removed.
	Zones []dnsname.Name
	// Limits bound the queries that wait for upstreams.
	Limits budget.Limits
	// SearchZone is the zone whose route takes questions with a search path,
	// which are sent with the EDNS option SearchOption.
	SearchZone   dnsname.Name
	SearchOption dnswire.OptionCode
	// StaleAfter is how long a client waits for an upstream if the cache has a
	// stale answer.
	StaleAfter time.Duration
	// Exchange sends a query to an upstream and returns its reply; nil means
	// over the network. It is for tests.
	Exchange func(ctx context.Context, to Upstream, query []byte) ([]byte, error)
}

// Forwarder resolves questions with upstreams. Its methods are safe for
// concurrent use.
type Forwarder struct {
	cfg    Config
	routes []*route        // longest suffix first
	places *budget.Account // of queries that wait for upstreams
	hedges hedges
	counts counts

	mu      sync.Mutex
	flights map[flightKey]*flight
}

// counts are the counters behind Stats.
type counts struct {
	hits, staleHits, misses, joined, prefetched atomic.Uint64
}

// New returns a Forwarder. It reads the resolv.conf of each route and sends no
// queries.
func New(cfg Config) (*Forwarder, error) {
	cfg.Limits.Complete = true // or slow upstreams would answer none
	f := &Forwarder{
		cfg: cfg, flights: make(map[flightKey]*flight),
		places: budget.NewAccount("forward", cfg.Limits), hedges: hedges{left: firstBudget},
	}
	for _, r := range cfg.Routes {
		made, err := newRoute(r, cfg.Exchange, cfg.SearchOption)
		if err != nil {
			return nil, err
		}
		f.routes = append(f.routes, made)
	}
	slices.SortStableFunc(f.routes, func(a, b *route) int { return b.Suffix.Labels() - a.Suffix.Labels() })
	return f, nil
}

// Run maintains the upstreams until ctx is done: it rereads resolv.conf files,
// probes upstreams that are down and detects forwarding loops. It returns ctx's
// error.
func (f *Forwarder) Run(ctx context.Context, log *slog.Logger) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range f.routes {
		group.Go(func() error { return r.maintain(ctx, log) })
	}
	return group.Wait()
}

// routeOf returns the route of a question; nil if there is none.
func (f *Forwarder) routeOf(q cache.Key) *route {
	if q.Search != nil {
		return f.route([]byte(f.cfg.SearchZone.WireLabels()))
	}
	return f.route(q.Name)
}

// route returns the route of a name; nil if there is none.
func (f *Forwarder) route(name []byte) *route {
	for _, r := range f.routes {
		if r.Suffix.Contains(name) {
			return r
		}
	}
	return nil
}

// Cached returns the answer to q if the cache has it: a fresh answer or, while
// failures are cached, a stale answer or the failure. It returns nil if an
// upstream must be queried. routed reports whether there is an answer or a
// route for the name.
func (f *Forwarder) Cached(q cache.Key, now time.Time) (e *cache.Entry, routed bool) {
	e = f.cfg.Cache.Get(q, now)
	switch {
	case e == nil:
	case e.Fresh(now):
		if e.Use(now) {
			f.prefetch(q)
		}
		f.counts.hits.Add(1)
		return e, true
	case e.Failed(now):
		if e.Stale(now) {
			f.counts.staleHits.Add(1)
		}
		return e, true
	}
	return nil, f.routeOf(q) != nil
}

// ForwardsSubnet reports whether the route for name forwards client subnets.
func (f *Forwarder) ForwardsSubnet(name []byte) bool {
	r := f.route(name)
	return r != nil && r.ClientSubnet
}

// Request is a client's question that has a place among those that wait.
type Request struct {
	forwarder *Forwarder
	question  cache.Key
	place     *budget.Entry
	lost      chan struct{} // closed when another query got the place
	reason    error         // why; set before lost is closed
	flight    atomic.Pointer[flight]
	left      sync.Once
}

// Reserve takes a place for a question of client. Request.Resolve gives it back, at the
// latest when the question is answered.
func (f *Forwarder) Reserve(client netip.Addr, q cache.Key) *Request {
	r := &Request{forwarder: f, question: q.Clone(), lost: make(chan struct{})}
	r.place = f.places.Enter(client, r.evict)
	return r
}

// evict takes the place away.
func (r *Request) evict(reason error) {
	r.reason = reason
	close(r.lost)
	r.leaveFlight()
}

// leaveFlight makes the flight end if no other request needs it.
func (r *Request) leaveFlight() {
	if fl := r.flight.Load(); fl != nil {
		r.left.Do(func() { r.forwarder.leave(fl) })
	}
}

// prefetch refreshes the answer to q in the background, if a place is free. It asks
// without a client subnet.
func (f *Forwarder) prefetch(q cache.Key) {
	q.Subnet = nil
	r := &Request{forwarder: f, question: q.Clone(), lost: make(chan struct{})}
	var err error
	if r.place, err = f.places.TryEnter(netip.Addr{}, r.evict); err != nil {
		return
	}
	fl, joined := f.join(r)
	if !joined {
		f.counts.prefetched.Add(1)
	}
	f.keep(fl, r.place)
}

// Resolve waits for the answer and returns it with the time at which it is
// valid. If the cache has a stale answer, it waits for at most StaleAfter, and
// not at all if all upstreams are down. It must be called exactly once.
func (r *Request) Resolve(ctx context.Context) (e *cache.Entry, at time.Time) {
	f, q, now := r.forwarder, r.question, time.Now()
	route := f.routeOf(q)
	if route != nil {
		if e := f.cfg.Cache.Above(q, len(route.Suffix.WireLabels()), now); e != nil {
			f.counts.hits.Add(1)
			r.place.Leave()
			return e, now
		}
	}
	fl, joined := f.join(r)
	if joined {
		f.counts.joined.Add(1)
	} else {
		f.counts.misses.Add(1)
	}
	stale, late := f.staleAfter(route, q, now)
	select {
	case <-fl.done:
		if fl.entry == nil {
			return r.answerLost(stale), time.Now()
		}
		r.place.Leave()
		return fl.entry, fl.at
	case <-r.lost:
		return r.answerLost(stale), time.Now()
	case <-late:
		f.counts.staleHits.Add(1)
		f.keep(fl, r.place)
		return stale, time.Now()
	case <-ctx.Done():
		f.keep(fl, r.place)
		return givenUp, now
	}
}

// answerLost returns the answer to a request that lost its place: the stale answer, unless it is
// nil.
func (r *Request) answerLost(stale *cache.Entry) *cache.Entry {
	if stale == nil {
		return evicted(r.reason)
	}
	r.forwarder.counts.staleHits.Add(1)
	return stale
}

// givenUp is the answer for a query whose context is done.
var givenUp = &cache.Entry{Failure: &cache.Failure{Code: dnswire.EDEOther, Text: "the server is shutting down"}}

// evicted is the answer for a query that lost its place.
func evicted(reason error) *cache.Entry {
	if errors.Is(reason, budget.ErrSourceFull) {
		return evictedBySource
	}
	return evictedByOthers
}

// IsGivenUp reports whether e says that this server gave the query up, which says nothing
// about its name.
func IsGivenUp(e *cache.Entry) bool {
	return e == givenUp || IsRefused(e)
}

// IsRefused reports whether e says that too many queries were waiting.
func IsRefused(e *cache.Entry) bool { return e == evictedBySource || e == evictedByOthers }

var (
	evictedBySource = &cache.Entry{Failure: &cache.Failure{
		Code: dnswire.EDEProhibited,
		Text: "too many queries of this client are waiting for upstream servers",
	}}
	evictedByOthers = &cache.Entry{Failure: &cache.Failure{
		Code: dnswire.EDEOther,
		Text: "too many queries are waiting for upstream servers",
	}}
)

// staleAfter returns the stale answer to q, if there is one, and a channel that
// fires when it should be served; a nil channel never fires.
func (f *Forwarder) staleAfter(route *route, q cache.Key, now time.Time) (*cache.Entry, <-chan time.Time) {
	e := f.cfg.Cache.Get(q, now)
	switch {
	case e == nil || !e.Stale(now):
		return nil, nil
	case route != nil && route.allDown():
		return e, time.After(0)
	}
	return e, time.After(f.cfg.StaleAfter)
}

// flightKey identifies equal questions.
type flightKey struct {
	name   string
	qtype  dnswire.Type
	do, cd bool
	subnet string
	search string
}

// flight is a question under way to upstreams, shared by all requests with an
// equal question.
type flight struct {
	key    flightKey
	cancel context.CancelFunc
	done   chan struct{}
	// Set before done is closed:
	entry *cache.Entry // nil if all requests lost their places
	at    time.Time
	// Guarded by Forwarder.mu:
	requests int             // that need it
	kept     []*budget.Entry // places of those that do not wait any more
}

// join makes r one of the requests of the flight for its question. If there is none, it
// starts one; so there are never more flights than places. joined reports whether there
// was one.
func (f *Forwarder) join(r *Request) (fl *flight, joined bool) {
	q := r.question
	key := flightKey{string(q.Name), q.Type, q.DO, q.CD, string(q.Subnet), string(q.Search)}
	f.mu.Lock()
	fl, joined = f.flights[key]
	if !joined {
		ctx, cancel := context.WithCancel(context.Background())
		fl = &flight{key: key, cancel: cancel, done: make(chan struct{})}
		f.flights[key] = fl
		go f.fly(ctx, fl, q)
	}
	fl.requests++
	f.mu.Unlock()
	r.flight.Store(fl)
	select {
	case <-r.lost:
		r.leaveFlight()
	default:
	}
	return fl, joined
}

// fly resolves the question of a flight.
func (f *Forwarder) fly(ctx context.Context, fl *flight, q cache.Key) {
	defer fl.cancel()
	fl.entry, fl.at = f.resolve(ctx, q)
	close(fl.done)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(fl)
	for _, place := range fl.kept {
		place.Leave()
	}
}

// keep makes a flight keep the place of a request that does not wait any more, until it
// ends.
func (f *Forwarder) keep(fl *flight, place *budget.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-fl.done:
		place.Leave()
	default:
		fl.kept = append(fl.kept, place)
	}
}

// leave takes a request from a flight, and ends the flight if it was the last one.
func (f *Forwarder) leave(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.requests--; fl.requests == 0 {
		f.forget(fl)
		fl.cancel()
	}
}

// forget makes equal questions start another flight.
func (f *Forwarder) forget(fl *flight) {
	if f.flights[fl.key] == fl {
		delete(f.flights, fl.key)
	}
}
