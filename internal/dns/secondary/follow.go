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

// follow follows one primary after another until ctx is done.
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
		f := session{Secondary: r, server: server, began: time.Now()}
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

// await waits for d before a primary is queried again, or less if a NOTIFY
// shows that one is up, until ctx is done.
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

// session is the time in which one primary is followed.
type session struct {
	*Secondary
	server forward.Upstream
	began  time.Time
	conn   *conn // nil if none is open
}

// run refreshes each zone when it is due, until the primary fails.
func (f *session) run(ctx context.Context) error {
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

// idle waits until the next zone is due or a NOTIFY arrives.
func (f *session) idle(ctx context.Context, wait time.Duration) error {
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

// idlePause is the shortest interval between queries caused by NOTIFYs that
// announce no change, because anyone can forge a NOTIFY.
const idlePause = 100 * time.Millisecond

// next returns the zone to refresh now; if that is nil, wait is how long to
// wait.
func (f *session) next(now time.Time) (next *followedZone, wait time.Duration) {
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

// laterZonesFactor is how many times longer the check interval of zones after
// the first is, as long as no change was missed by NOTIFY.
const laterZonesFactor = 6

// refresh updates the copy of z. It fails if the primary cannot be reached or
// does not serve the first zone; other zones are postponed.
func (f *session) refresh(ctx context.Context, z *followedZone) error {
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
		f.postpone(z, err)
		return nil
	}
	f.mu.Lock()
	z.failure = err
	f.mu.Unlock()
	return fmt.Errorf("zone %s: %w", z.name, err)
}

// postpone delays the refresh of a zone that the primary does not serve,
// although it serves others; NOTIFYs do not shorten the delay. Unless the
// primary itself refused, the first zone is refreshed to find out whether the
// primary is still up.
func (f *session) postpone(z *followedZone, err error) {
	now := time.Now()
	f.mu.Lock()
	fresh := z.failure == nil || z.failure.Error() != err.Error()
	z.failure = err
	z.failed++
	z.due = now.Add(pause(z.failed))
	f.counts.Failures++
	if _, ok := errors.AsType[*refusal](err); ok {
		f.heard = now
	} else {
		f.zones[0].due = now
	}
	f.mu.Unlock()
	if fresh {
		f.cfg.Log.Warn("zone transfer failed; it will be retried", "zone", z.name, "server", f.server, "err", err)
	}
}

// maxPassed is how often a transfer is repeated because the zone changed just
// after the primary reported no change.
const maxPassed = 3

// fetch transfers z and applies the reply: the changes or, if that is
// impossible, the whole zone.
func (f *session) fetch(ctx context.Context, z *followedZone, has *dnswire.SOA) (*answer, error) {
	got, err := f.request(ctx, z, has)
	for range maxPassed {
		if err == nil && got.outcome == passed {
			got, err = f.request(ctx, z, has)
		}
	}
	if err == nil {
		err = f.apply(z, got)
	}
	if has == nil ||
		!errors.Is(err, errHistory) && !errors.Is(err, zone.ErrTransferRecord) && !errors.Is(err, zone.ErrDiffers) {
		return got, err
	}
	if got, err = f.request(ctx, z, nil); err == nil {
		err = f.apply(z, got)
	}
	return got, err
}

// request transfers z over the open connection, or over a new one, also if the
// open one turns out to be closed before a reply arrives.
func (f *session) request(ctx context.Context, z *followedZone, has *dnswire.SOA) (*answer, error) {
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
		f.close() // the rest of the reply is not read
		if !closed || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (f *session) close() {
	if f.conn != nil {
		f.conn.Close()
		f.conn = nil
	}
}

// apply applies a complete reply to the copy.
func (f *session) apply(z *followedZone, got *answer) error {
	f.write.Lock()
	defer f.write.Unlock()
	switch got.outcome {
	case whole:
		return z.copy.Replace(got.soa, got.records)
	case changed:
		return z.copy.Update(got.soa, got.changes)
	case passed:
		return fmt.Errorf("%w: a reply of one record is no difference", errStream)
	case unchanged:
	}
	return nil
}

// done records that the copy of z equals the primary's zone as of the time
// asked.
func (f *session) done(z *followedZone, got *answer, asked, notified time.Time) {
	f.write.Lock()
	defer f.write.Unlock()
	if f.recordRefresh(z, got, asked, notified) {
		z.copy.SetStale(nil)
	}
}

// recordRefresh updates the state of z and reports whether the copy was stale.
func (f *session) recordRefresh(z *followedZone, got *answer, asked, notified time.Time) (wasOld bool) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	news := got.outcome != unchanged
	if !z.loaded || got.soa.MName != z.soa.MName {
		f.cfg.Log.Info("zone is followed", "zone", z.name, "server", f.server, "serial", got.soa.Serial,
			"mname", got.soa.MName)
	}
	f.counts.add(got)
	switch {
	case news && !notified.IsZero():
		f.counts.observe(now.Sub(notified))
	case news && z.loaded: // without NOTIFY: NOTIFYs of other zones may be lost, too
		for _, other := range f.zones {
			if other.failed == 0 {
				other.due = now
			}
		}
	case !news && !notified.IsZero():
		z.idle = now
	}
	wasOld = z.stale
	if z.stale || z.failure != nil || !z.loaded {
		z.since = now
	}
	z.soa, z.loaded, z.stale, z.failure, z.failed = got.soa, true, false, nil, 0
	z.confirmed, f.heard = asked, asked
	if news {
		f.state.unsaved = true
	}
	z.due = now.Add(f.period(z))
	f.clearFailures()
	return wasOld
}

// clearFailures clears the failures of the primary once all zones were
// requested from it. If it were done after the first zone, a primary that fails
// at a later zone would be chosen again and again, each time with a transfer of
// the first. The caller must hold mu.
func (f *session) clearFailures() {
	for _, z := range f.zones {
		if z.asked.Before(f.began) {
			return
		}
	}
	delete(f.failures, f.server)
}

// period returns the time until z is refreshed again: the check interval or the
// zone's refresh time, whichever is less, minus up to a tenth at random.
func (f *session) period(z *followedZone) time.Duration {
	d := f.cfg.CheckInterval
	if !z.first {
		d *= laterZonesFactor
	}
	if refresh := time.Duration(z.soa.Refresh) * time.Second; refresh > 0 {
		d = min(d, refresh)
	}
	return d - rand.N(d/10+1)
}
