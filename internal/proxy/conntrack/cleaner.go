package conntrack

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/ctnetlink"
)

// Cleaner deletes entries of stale flows.
type Cleaner struct {
	cfg  Config
	open func() (table, error)
	wake chan struct{}

	mu    sync.Mutex
	queue queue
}

// table is the kernel's table of connection tracking.
type table interface {
	// clean deletes the stale entries of one scope and returns their number.
	clean(scope, targets) (deleted int, err error)
	Close() error
}

// scope is which entries can be read with one filter.
type scope struct {
	family   ctnetlink.Family
	protocol frontend.Protocol
}

func scopeOf(a frontend.Address) scope {
	if a.Addr.Is4() {
		return scope{ctnetlink.IPv4, a.Protocol}
	}
	return scope{ctnetlink.IPv6, a.Protocol}
}

// protocols are in the order in which their entries are read.
var protocols = []frontend.Protocol{frontend.UDP, frontend.SCTP, frontend.TCP}

// New returns a Cleaner. It does nothing until Run is called.
func New(cfg Config) *Cleaner {
	if cfg.Passed == nil {
		cfg.Passed = func(Pass) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Cleaner{cfg: cfg, open: openTable, wake: make(chan struct{}, 1), queue: make(queue)}
}

// Changed has Run delete the entries of flows to the targets that cannot go on. It is to be
// called after the change is in the kernel, or new flows would go where the old ones went. It
// does not wait, and keeps the endpoints, which must not be changed any more. After a start,
// all frontends have changed.
func (c *Cleaner) Changed(all []Target) {
	now := time.Now()
	c.mu.Lock()
	for _, t := range all {
		switch {
		case t.Protocol != frontend.TCP:
			c.queue.put(t, now)
		case t.Deleted:
			delete(c.queue, t.Address)
		case c.cfg.ResetTCP:
			c.queue.put(t, now)
		}
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run deletes entries until ctx is done, and returns nil then. What fails is repeated.
func (c *Cleaner) Run(ctx context.Context) error {
	if c.cfg.ResetTCP && !picksUpTCP() {
		c.cfg.Log.Warn("cannot reset TCP connections to removed endpoints while the sysctl is 0; set it to 1",
			"sysctl", sysctlLoose)
	}
	r := runner{cleaner: c}
	defer r.close()
	timer := time.NewTimer(0)
	for {
		if next := r.next(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-timer.C:
			r.work()
		}
	}
}

// runner is what Run alone uses.
type runner struct {
	cleaner  *Cleaner
	table    table // nil until it is needed, and after an error
	pace     pace
	rested   time.Time // no pass begins before
	failures int       // in a row
}

// pace spaces passes. It is when the passes so far will have been a share of the time.
type pace struct{ even time.Time }

// next returns when the pass after one may begin.
func (p *pace) next(began, ended time.Time) time.Time {
	if p.even.Before(began) {
		p.even = began
	}
	p.even = p.even.Add(share * ended.Sub(began))
	if last := ended.Add(burst + maxRest); p.even.After(last) {
		p.even = last
	}
	next := began.Add(interval)
	if rest := p.even.Add(-burst); rest.After(next) {
		next = rest
	}
	return next
}

// next returns when the next pass is to begin; the zero time if none is.
func (r *runner) next() time.Time {
	r.cleaner.mu.Lock()
	defer r.cleaner.mu.Unlock()
	next := r.cleaner.queue.next()
	if !next.IsZero() && next.Before(r.rested) {
		return r.rested
	}
	return next
}

// work does what is due.
func (r *runner) work() {
	began := time.Now()
	r.cleaner.mu.Lock()
	jobs := r.cleaner.queue.due(began)
	r.cleaner.mu.Unlock()
	scopes := jobs.scopes()
	err := errors.Join(r.pass(ctnetlink.IPv4, scopes), r.pass(ctnetlink.IPv6, scopes))
	now := time.Now()
	r.rested = r.pace.next(began, now)
	again := now.Add(r.backoff(err))
	r.cleaner.mu.Lock()
	defer r.cleaner.mu.Unlock()
	if err == nil {
		r.cleaner.queue.done(jobs, again)
	} else {
		r.cleaner.queue.failed(jobs, again)
	}
}

// backoff returns the time until flows are looked at again, and logs the first failure and the
// end of failures.
func (r *runner) backoff(err error) time.Duration {
	log := r.cleaner.cfg.Log
	if err == nil {
		if r.failures > 0 {
			log.Info("conntrack entries of removed endpoints are deleted again")
		}
		r.failures = 0
		return interval
	}
	if r.failures++; r.failures == 1 {
		log.Warn("cannot delete conntrack entries, clients may reach removed endpoints; it is tried again", "error", err)
	}
	return min(interval<<min(r.failures, 10), maxBackoff)
}

// pass deletes the stale entries of a family.
func (r *runner) pass(f ctnetlink.Family, scopes map[scope]targets) error {
	p, looked := Pass{Family: f}, false
	begin := time.Now()
	for _, protocol := range protocols {
		s := scope{f, protocol}
		if len(scopes[s]) == 0 {
			continue
		}
		looked = true
		deleted, err := r.clean(s, scopes[s])
		p.Deleted += deleted
		p.Err = errors.Join(p.Err, err)
	}
	if !looked {
		return nil
	}
	p.Duration = time.Since(begin)
	if p.Deleted > 0 {
		r.cleaner.cfg.Log.Debug("deleted conntrack entries", "family", f, "entries", p.Deleted, "took", p.Duration)
	}
	r.cleaner.cfg.Passed(p)
	return p.Err
}

func (r *runner) clean(s scope, t targets) (deleted int, err error) {
	if r.table == nil {
		opened, err := r.cleaner.open()
		if err != nil {
			return 0, err
		}
		r.table = opened
	}
	if deleted, err = r.table.clean(s, t); err != nil {
		r.close() // the socket may have more answers
	}
	return deleted, err
}

func (r *runner) close() {
	if r.table != nil {
		_ = r.table.Close()
		r.table = nil
	}
}
