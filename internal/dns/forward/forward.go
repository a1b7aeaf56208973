// Package forward resolves names outside the cluster's zones by querying
// upstream servers.
//
//	question --> route --> flight --> attempt --> upstream socket
//	   |      longest    one for    next upstream   UDP, TCP, TLS, HTTPS
//	   |      suffix     equal      on failure or        |
//	   |                 questions  delay                |
//	   +--- cache <--------------------------------- reply
//
// A question belongs to the route with the longest suffix of its name.
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
)

// Config configures a Forwarder.
type Config struct {
	Routes []Route
	Cache  *cache.Cache
	// MaxInFlight bounds the queries that wait for upstreams, MaxPerClient
	// those of one client; each is at least 1.
	MaxInFlight, MaxPerClient int
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
	routes []*route // longest suffix first
	limit  limit
	budget budget
	counts counts

	mu      sync.Mutex
	flights map[flightKey]*flight
}

// counts are the counters behind Stats.
type counts struct {
	hits, staleHits, misses, joined, prefetched atomic.Uint64
	refused                                     atomic.Uint64
}

// New returns a Forwarder. It reads the resolv.conf of each route and sends no
// queries.
func New(cfg Config) (*Forwarder, error) {
	f := &Forwarder{cfg: cfg, flights: make(map[flightKey]*flight), budget: budget{left: firstBudget}}
	f.limit.init(cfg.MaxInFlight, cfg.MaxPerClient)
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

// Request is a client's question for which capacity is reserved.
type Request struct {
	forwarder *Forwarder
	client    netip.Addr
	question  cache.Key
	stale     *cache.Entry // the stale answer, if no capacity was left
}

// Reserve reserves capacity for a question of client; Request.Resolve releases
// it. Without capacity, the Request holds the stale answer, if there is one;
// otherwise Reserve fails with ErrBusy or ErrClientBusy.
func (f *Forwarder) Reserve(client netip.Addr, q cache.Key) (*Request, error) {
	if err := f.limit.reserve(client); err != nil {
		f.counts.refused.Add(1)
		now := time.Now()
		if e := f.cfg.Cache.Get(q, now); e != nil && e.Stale(now) {
			return &Request{forwarder: f, stale: e}, nil
		}
		return nil, err
	}
	return &Request{forwarder: f, client: client, question: q.Clone()}, nil
}

// prefetch refreshes the answer to q in the background, if capacity is left. It
// asks without a client subnet.
func (f *Forwarder) prefetch(q cache.Key) {
	q.Subnet = nil
	if f.limit.reserve(netip.Addr{}) != nil {
		return
	}
	if _, joined := f.join(q.Clone(), netip.Addr{}); joined {
		f.limit.release(netip.Addr{})
		return
	}
	f.counts.prefetched.Add(1)
}

// Resolve waits for the answer and returns it with the time at which it is
// valid. If the cache has a stale answer, it waits for at most StaleAfter, and
// not at all if all upstreams are down. It must be called exactly once.
func (r *Request) Resolve(ctx context.Context) (e *cache.Entry, at time.Time) {
	f, q, now := r.forwarder, r.question, time.Now()
	if r.stale != nil {
		f.counts.staleHits.Add(1)
		return r.stale, now
	}
	route := f.routeOf(q)
	if route != nil {
		if e := f.cfg.Cache.Above(q, len(route.Suffix.WireLabels()), now); e != nil {
			f.counts.hits.Add(1)
			f.limit.release(r.client)
			return e, now
		}
	}
	fl, joined := f.join(q, r.client)
	if joined {
		f.counts.joined.Add(1)
		defer f.limit.release(r.client)
	} else {
		f.counts.misses.Add(1)
	}
	stale, late := f.staleAfter(route, q, now)
	select {
	case <-fl.done:
		return fl.entry, fl.at
	case <-late:
		f.counts.staleHits.Add(1)
		return stale, time.Now()
	case <-ctx.Done():
		return givenUp, now
	}
}

// givenUp is the answer for a query whose context is done.
var givenUp = &cache.Entry{Failure: &cache.Failure{Code: dnswire.EDEOther, Text: "the server is shutting down"}}

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
	done chan struct{}
	// Set before done is closed:
	entry *cache.Entry
	at    time.Time
}

// join returns the flight for q. If there is none, it starts one, which holds
// client's reservation until it ends; so there are never more flights than
// reservations. joined reports whether there was one.
func (f *Forwarder) join(q cache.Key, client netip.Addr) (fl *flight, joined bool) {
	key := flightKey{string(q.Name), q.Type, q.DO, q.CD, string(q.Subnet), string(q.Search)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl, ok := f.flights[key]; ok {
		return fl, true
	}
	fl = &flight{done: make(chan struct{})}
	f.flights[key] = fl
	go func() {
		fl.entry, fl.at = f.resolve(q)
		f.mu.Lock()
		delete(f.flights, key)
		f.mu.Unlock()
		f.limit.release(client)
		close(fl.done)
	}()
	return fl, false
}
