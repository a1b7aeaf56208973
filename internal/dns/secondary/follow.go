package secondary

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/zone"
)

// follow follows one server after another until ctx is done.
func (r *Secondary) follow(ctx context.Context) {
	for ctx.Err() == nil {
		server, wait, ok := r.choose(ctx, time.Now())
		if r.await(ctx, wait); !ok || ctx.Err() != nil {
			continue
		}
		r.mu.Lock()
		r.server = &server
		for _, z := range r.zones {
			z.due = time.Time{}
		}
		r.mu.Unlock()
		f := following{Secondary: r, server: server, began: time.Now()}
		err := f.run(ctx)
		f.close()
		if ctx.Err() == nil {
			r.fail(server, err)
		}
	}
	r.mu.Lock()
	r.server = nil
	r.mu.Unlock()
}

// await waits so long before a server is asked again, or until a NOTIFY tells that
// one is there; at most until ctx is done.
func (r *Secondary) await(ctx context.Context, d time.Duration) {
	least := time.NewTimer(min(d, idlePause))
	defer least.Stop()
	select {
	case <-ctx.Done():
		return
	case <-least.C:
	}
	t := time.NewTimer(max(0, d-idlePause))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-r.wake:
	}
}

// following is one server while it is followed.
type following struct {
	*Secondary
	server forward.Upstream
	began  time.Time
	conn   *conn // nil when there is none
}

// run asks for each zone when that is due, until the server fails.
func (f *following) run(ctx context.Context) error {
	for {
		z, wait := f.next(time.Now())
		if z == nil {
			if err := f.idle(ctx, wait); err != nil {
				return err
			}
			continue
		}
		if err := f.refresh(ctx, z); err != nil {
			return err
		}
	}
}

// idle waits for a NOTIFY, or until the next zone is due.
func (f *following) idle(ctx context.Context, wait time.Duration) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
	case <-f.wake:
	}
	return nil
}

// idlePause is the least time between two questions for NOTIFYs that bring
// nothing, which anybody may forge.
const idlePause = 100 * time.Millisecond

// next is the zone to ask for now or, when that is nil, how long to wait.
func (f *following) next(now time.Time) (next *followed, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait = f.cfg.CheckInterval
	for _, z := range f.zones {
		due := z.due
		if soon := z.idle.Add(idlePause); !z.notified.IsZero() && z.failed == 0 && soon.Before(due) {
			due = soon
		}
		if d := due.Sub(now); d < wait {
			next, wait = z, d
		}
	}
	if wait > 0 {
		return nil, wait
	}
	return next, 0
}

// othersLess is how much less often zones behind the first are asked for, as long
// as none has news that no NOTIFY told of.
const othersLess = 6

// refresh brings the copy of z up to date. It fails where the server is not
// reached or does not give the first zone; other zones it puts off.
func (f *following) refresh(ctx context.Context, z *followed) error {
	f.mu.Lock()
	notified := z.notified
	z.notified = time.Time{}
	asked := time.Now()
	z.asked = asked
	var has *dnswire.SOA
	if z.loaded {
		soa := z.soa
		has = &soa
	}
	f.mu.Unlock()
	got, err := f.fetch(ctx, z, has)
	if err == nil {
		f.done(z, got, asked, notified)
		return nil
	}
	if ctx.Err() == nil && !z.first && !errors.Is(err, errReach) {
		f.putOff(z, err)
		return nil
	}
	f.mu.Lock()
	z.failure = err
	f.mu.Unlock()
	return fmt.Errorf("zone %s: %w", z.name, err)
}

// putOff leaves a zone alone for a while that the server does not give, though it
// gives others, whatever NOTIFYs say of it. Where the server did not say so itself,
// the first zone shows whether it is still there.
func (f *following) putOff(z *followed, err error) {
	now := time.Now()
	var refused *refusal
	f.mu.Lock()
	fresh := z.failure == nil || z.failure.Error() != err.Error()
	z.failure = err
	z.failed++
	z.due = now.Add(pause(z.failed))
	f.counts.Failures++
	if errors.As(err, &refused) {
		f.heard = now
	} else {
		f.zones[0].due = now
	}
	f.mu.Unlock()
	if fresh {
		f.cfg.Log.Warn("zone is not transferred; it is asked for again", "zone", z.name, "server", f.server, "err", err)
	}
}

// maxPassed is how often the server may change just as it says that it did not.
const maxPassed = 3

// fetch transfers z and applies what came: what is new or, where that can't be,
// all of it.
func (f *following) fetch(ctx context.Context, z *followed, has *dnswire.SOA) (*answer, error) {
	got, err := f.ask(ctx, z, has)
	for range maxPassed {
		if err == nil && got.outcome == passed {
			got, err = f.ask(ctx, z, has)
		}
	}
	if err == nil {
		err = f.apply(z, got)
	}
	if has == nil || !errors.Is(err, errHistory) && !errors.Is(err, zone.ErrTransferRecord) && !errors.Is(err, zone.ErrDiffers) {
		return got, err
	}
	if got, err = f.ask(ctx, z, nil); err == nil {
		err = f.apply(z, got)
	}
	return got, err
}

// ask transfers z over the connection that is there, or over a new one, also
// where the one that was there turns out to be closed before an answer comes.
func (f *following) ask(ctx context.Context, z *followed, has *dnswire.SOA) (*answer, error) {
	for {
		if f.conn == nil {
			c, err := dial(ctx, f.server, f.cfg.TLS)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errReach, err)
			}
			f.conn = c
		}
		used := f.conn.used
		f.conn.used = false
		got, err := f.transfer(ctx, f.conn, z.name, has)
		var refused *refusal
		if err == nil || errors.As(err, &refused) {
			return got, err
		}
		closed := used && !f.conn.used
		f.close() // what follows of the answer is not read
		if !closed || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (f *following) close() {
	if f.conn != nil {
		f.conn.Close()
		f.conn = nil
	}
}

// apply has the copy follow an answer that is whole.
func (f *following) apply(z *followed, got *answer) error {
	f.write.Lock()
	defer f.write.Unlock()
	switch got.outcome {
	case whole:
		return z.copy.Replace(got.soa, got.items)
	case changed:
		return z.copy.Change(got.soa, got.steps)
	case passed:
		return fmt.Errorf("%w: an answer of one record is not what is new", errStream)
	case unchanged:
	}
	return nil
}

// done notes that the copy of z is what the server has, as of when it was asked.
func (f *following) done(z *followed, got *answer, asked, notified time.Time) {
	f.write.Lock()
	defer f.write.Unlock()
	if f.settle(z, got, asked, notified) {
		z.copy.SetStale(nil)
	}
}

// settle does so in the books, and tells whether the copy was old until now.
func (f *following) settle(z *followed, got *answer, asked, notified time.Time) (wasOld bool) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	news := got.outcome != unchanged
	if !z.loaded || got.soa.MName != z.soa.MName {
		f.cfg.Log.Info("zone is followed", "zone", z.name, "server", f.server, "serial", got.soa.Serial, "mname", got.soa.MName)
	}
	f.counts.add(got)
	switch {
	case news && !notified.IsZero():
		f.counts.observe(now.Sub(notified))
	case news && z.loaded: // and no NOTIFY told: others may have been lost too
		for _, other := range f.zones {
			if other.failed == 0 {
				other.due = now
			}
		}
	case !news && !notified.IsZero():
		z.idle = now
	}
	wasOld = z.old
	if z.old || z.failure != nil || !z.loaded {
		z.since = now
	}
	z.soa, z.loaded, z.old, z.failure, z.failed = got.soa, true, false, nil, 0
	z.confirmed, f.heard = asked, asked
	if news {
		f.state.unsaved = true
	}
	z.due = now.Add(f.period(z))
	f.forgive()
	return wasOld
}

// forgive forgets failures of the server when it was asked for all zones, and
// answers still: one that ends over a zone behind the first would be followed again
// and again, each time with all of the first. Its caller holds mu.
func (f *following) forgive() {
	for _, z := range f.zones {
		if z.asked.Before(f.began) {
			return
		}
	}
	delete(f.failures, f.server)
}

// period is how long to wait until z is asked for again: up to a tenth less, by
// chance, than the check or, if that is less, than the zone's refresh time.
func (f *following) period(z *followed) time.Duration {
	d := f.cfg.CheckInterval
	if !z.first {
		d *= othersLess
	}
	if refresh := time.Duration(z.soa.Refresh) * time.Second; refresh > 0 {
		d = min(d, refresh)
	}
	return d - rand.N(d/10+1)
}
