package programmer

import (
	"context"
	"log/slog"
	"time"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Watch begins to repair changes of the table by other programs, unless it has begun before. It is called after
// a successful comparison.
func (p *Programmer) Watch(ctx context.Context, table Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		return
	}
	ctx, p.stop = context.WithCancel(ctx)
	notices, ended := make(chan nfnetlink.Notice, 1), make(chan error, 1)
	p.watching.Go(func() { ended <- table.Watch(ctx, notices) })
	p.watching.Go(func() {
		for {
			select {
			case notice := <-notices:
				p.disturbed(notice)
			case err := <-ended:
				if err != nil {
					p.blinded(err)
				}
				return
			}
		}
	})
}

// StopWatching ends what Watch began.
func (p *Programmer) StopWatching() {
	p.mu.Lock()
	stop := p.stop
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
	p.watching.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = nil
}

// disturbed has a change by another program repaired, and logs it.
func (p *Programmer) disturbed(notice nfnetlink.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.need != hourly { // everything is repaired soon
		return
	}
	pause, before := p.repair()
	if notice == nfnetlink.Lost {
		p.cfg.Log.Debug("messages about changes of nftables were lost; the table is compared", "in", pause)
		return
	}
	p.metrics.repairs.Inc()
	switch before {
	case 0:
		p.log(slog.LevelWarn, "another program changed "+p.cfg.Title+"; it is repaired"+p.cfg.Repair, "table", p.cfg.Table)
	case 1:
		p.log(slog.LevelWarn, "another program changes "+p.cfg.Title+" again and again; "+p.cfg.Repeated+
			"; find it with nft monitor, and stop it", "table", p.cfg.Table, "longestWait", p.cfg.LongestRepair)
	}
}

// repair has the table be compared after the pause that it returns, with how many times it was without calm
// before. The caller must hold mu.
func (p *Programmer) repair() (pause time.Duration, before int) {
	pause, before = p.repairs.Next(time.Now())
	pause = min(pause, p.cfg.LongestRepair)
	p.after(pause, soon)
	return pause, before
}

// blinded has the table be compared, and watched from then on, since no changes are noticed any more.
func (p *Programmer) blinded(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	p.stop = nil
	if p.need != hourly {
		return
	}
	if _, before := p.repair(); before == 0 {
		p.log(slog.LevelWarn, "changes of "+p.cfg.Title+" by other programs are not noticed for a moment", "err", err)
	}
}
