package app

import (
	"context"
	"time"

	"portolan.dev/portolan/internal/proxy/nft"
)

const (
	// compareInterval is the interval between comparisons of the whole table with the cluster when
	// nothing else asks for one; kube-proxy's, too.
	compareInterval = time.Hour
	// firstPause and longestPause bound the pauses between attempts that fail, and between repairs.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// gather is the pause before the first repair: a change of a table is several messages.
	gather = 5 * time.Millisecond
	// calm is for how long nobody changes the table until the next repair is done at once again.
	calm = 2 * longestPause
)

// backoff is the pause before the last attempt. Pauses double.
type backoff struct{ pause time.Duration }

// next returns the pause before the next attempt.
func (b *backoff) next() time.Duration {
	b.pause = min(max(2*b.pause, firstPause), longestPause)
	return b.pause
}

// repairs spaces repairs of the table: a program that changes it again and again is not to keep a
// processor busy.
type repairs struct {
	backoff
	last time.Time // when the last one was due
}

// next returns the pause before the next repair, and how many there were without calm before it:
// none, one, or more.
func (r *repairs) next(now time.Time) (pause time.Duration, before int) {
	switch {
	case r.last.IsZero() || now.Sub(r.last) > calm:
		r.backoff, pause = backoff{}, gather
	default:
		before = 1
		if r.pause > 0 {
			before = 2
		}
		pause = r.backoff.next()
	}
	r.last = now.Add(pause)
	return pause, before
}

// disturbed logs a change by another program, and returns the pause before it is repaired.
func (w *worker) disturbed(notice nft.Notice) time.Duration {
	pause, before := w.repairs.next(time.Now())
	if notice == nft.Lost {
		w.cfg.Log.Debug("messages about changes of nftables were lost; the table is compared", "in", pause)
		return pause
	}
	w.metrics.repairs.Inc()
	switch before {
	case 0:
		w.cfg.Log.Warn("another program changed the nftables table; it is repaired; Linux 6.9 or newer refuses such changes",
			"table", w.settings.Table.Name)
	case 1:
		w.cfg.Log.Warn("another program changes the nftables table again and again; repairs wait longer and longer; "+
			"find it with nft monitor, and stop it",
			"table", w.settings.Table.Name, "longestWait", longestPause)
	}
	return pause
}

// watch has changes by other programs noticed, unless they are.
func (w *worker) watch(ctx context.Context) {
	if w.stop != nil {
		return
	}
	ctx, w.stop = context.WithCancel(ctx)
	table, blind := w.table, w.blind
	w.watching.Go(func() {
		if err := table.Watch(ctx, w.notices); err != nil {
			blind <- err
		}
	})
}

func (w *worker) stopWatching() {
	if w.stop == nil {
		return
	}
	w.stop()
	w.watching.Wait()
	w.stop, w.blind = nil, make(chan error, 1)
}

// blinded logs that changes by other programs are not noticed, and returns the pause before the
// table is compared, from when on they are.
func (w *worker) blinded(err error) time.Duration {
	w.stopWatching()
	pause, before := w.repairs.next(time.Now())
	if before == 0 {
		w.cfg.Log.Warn("changes of the nftables table by other programs are not noticed for a moment", "err", err)
	}
	return pause
}
