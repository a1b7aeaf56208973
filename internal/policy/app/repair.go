package app

import (
	"context"
	"time"

	"portolan.dev/portolan/internal/policy/nft"
)

// longestRepair is the longest pause before a repair: until then, packets may pass that no policy allows.
const longestRepair = time.Second

// disturbed logs a change by another program, and returns the pause before it is repaired.
func (w *worker) disturbed(notice nft.Notice) time.Duration {
	pause, before := w.repairs.Next(time.Now())
	pause = min(pause, longestRepair)
	if notice == nft.Lost {
		w.cfg.Log.Debug("messages about changes of nftables were lost; the table is compared", "in", pause)
		return pause
	}
	w.metrics.repairs.Inc()
	switch before {
	case 0:
		w.cfg.Log.Warn("another program changed the nftables table of policies; it is repaired", "table", w.settings.Table)
	case 1:
		w.cfg.Log.Warn("another program changes the nftables table of policies again and again; each time packets pass "+
			"until it is repaired; find it with nft monitor, and stop it", "table", w.settings.Table)
	}
	return pause
}

// watch has changes by other programs noticed, unless they are.
func (w *worker) watch(ctx context.Context) {
	if w.stop != nil {
		return
	}
	ctx, w.stop = context.WithCancel(ctx)
	blind := w.blind
	w.watching.Go(func() {
		if err := w.table.Watch(ctx, w.notices); err != nil {
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
	pause, before := w.repairs.Next(time.Now())
	pause = min(pause, longestRepair)
	if before == 0 {
		w.cfg.Log.Warn("changes of the nftables table of policies by other programs are not noticed for a moment",
			"err", err)
	}
	return pause
}
