// Package forward asks other servers for the names that are not ours.
//
// A name goes to the route with the longest suffix of it, and there to one of
// its upstreams; when that one does not answer in the time that it usually
// takes, to another one as well. What comes back goes through the cache.
//
// It implements RFC 5452 (what is random in a query, and what is checked in a
// reply), RFC 6891, section 7 (servers without EDNS), RFC 7766 (queries over
// TCP), RFC 7858 (TLS), RFC 7871 (client subnets are passed on), RFC 8484
// (HTTPS) and RFC 8767 (stale answers).
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

// Config is what a Forwarder is made from.
type Config struct {
	Routes []Route
	Cache  *cache.Cache
	// MaxInFlight is how many queries wait for answers at once, MaxPerClient how
	// many of one client; each at least 1.
	MaxInFlight, MaxPerClient int
	// SearchZone is whose route questions take that are to be searched for, by the
	// option of the code SearchOption.
	SearchZone   dnsname.Name
	SearchOption dnswire.OptionCode
	// StaleAfter is how long a client waits while there is a stale answer.
	StaleAfter time.Duration
	// Exchange sends a query to an upstream and gives its reply; nil is over the
	// network.
	Exchange func(ctx context.Context, to Upstream, query []byte) ([]byte, error)
}

// Forwarder asks other servers. It may be used by several goroutines at once.
type Forwarder struct {
	cfg    Config
	routes []*route // the longest suffix first
	limit  limit
	budget budget
	counts counts

	mu      sync.Mutex
	flights map[flightKey]*flight
}

// counts are what a Forwarder did.
type counts struct {
	hits, staleHits, misses, joined, prefetched atomic.Uint64
	refused                                     atomic.Uint64
}

// New makes a Forwarder and asks nobody.
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

// Run keeps upstreams up to date, and looks for those that are down and for
// loops, until ctx is done.
func (f *Forwarder) Run(ctx context.Context, log *slog.Logger) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range f.routes {
		group.Go(func() error { return r.keep(ctx, log) })
	}
	return group.Wait()
}

// routeOf is that of a question; nil when there is none.
func (f *Forwarder) routeOf(q cache.Key) *route {
	if q.Search != nil {
		return f.route([]byte(f.cfg.SearchZone.WireLabels()))
	}
	return f.route(q.Name)
}

// route is that of a name; nil when there is none.
func (f *Forwarder) route(name []byte) *route {
	for _, r := range f.routes {
		if r.Suffix.Contains(name) {
			return r
		}
	}
	return nil
}

// Known gives what can be answered at once: a good answer, or, when it is known
// that there is none to be had, a stale one or the failure; nil when somebody
// must be asked. routed tells whether there is a route for the name.
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

// TakesSubnet tells whether questions for name may say where the client is.
func (f *Forwarder) ForwardsSubnet(name []byte) bool {
	r := f.route(name)
	return r != nil && r.ClientSubnet
}

// Request is a question of a client that waits for its answer.
type Request struct {
	forwarder *Forwarder
	client    netip.Addr
	question  cache.Key
	known     *cache.Entry // the answer, where no place was left for the question
}

// Ask takes a place for a question of client; the Request's Wait gives it back.
// With none left, what is stale is the answer; where there is nothing, it fails
// with ErrBusy or ErrClientBusy.
func (f *Forwarder) Reserve(client netip.Addr, q cache.Key) (*Request, error) {
	if err := f.limit.reserve(client); err != nil {
		f.counts.refused.Add(1)
		now := time.Now()
		if e := f.cfg.Cache.Get(q, now); e != nil && e.Stale(now) {
			return &Request{forwarder: f, known: e}, nil
		}
		return nil, err
	}
	return &Request{forwarder: f, client: client, question: q.Clone()}, nil
}

// prefetch asks for q behind the clients, if there is a place: for all of them,
// and not for the subnet of the one who came by.
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

// Wait asks, together with all who ask the same meanwhile, and gives what came
// of it, as it was at the given time. While there is a stale answer it waits for
// no longer than StaleAfter, and not at all when all upstreams are down. It must
// be called, and once.
func (r *Request) Resolve(ctx context.Context) (e *cache.Entry, at time.Time) {
	f, q, now := r.forwarder, r.question, time.Now()
	if r.known != nil {
		f.counts.staleHits.Add(1)
		return r.known, now
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

// givenUp is what is known when nobody waits any longer.
var givenUp = &cache.Entry{Failure: &cache.Failure{Code: dnswire.EDEOther, Text: "the server is about to stop"}}

// staleAfter gives the stale answer to q, if there is one, and tells when it is
// to be given; nil is never.
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

// flightKey is what a flight asks.
type flightKey struct {
	name   string
	qtype  dnswire.Type
	do, cd bool
	subnet string
	search string
}

// flight is a question that is being asked, for all who want to know.
type flight struct {
	done chan struct{}
	// When done:
	entry *cache.Entry
	at    time.Time
}

// join gives the flight for q, which it keeps. It is begun when there is none, and
// then has the place of client until it ends: so many places, so many flights.
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
