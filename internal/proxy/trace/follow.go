package trace

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/proxy/nft"
)

// Config says which packets Follow follows.
type Config struct {
	// Packets are those; Follow sets its functions.
	Packets nft.TraceConfig
	// Table is the name of the service proxy's tables.
	Table string
	Names Names
	// Count is the number of packets after which Follow ends; 0 has no limit.
	Count int
	// Started is called when packets are followed, and Lost when the kernel lost events.
	Started, Lost func()
}

// Follow shows the Paths of packets until it has Count of them or ctx is done, and returns how
// many. Its error is that of nft.Trace, or of show.
func Follow(ctx context.Context, cfg Config, show func(*Path) error) (n int, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	group, running := errgroup.WithContext(ctx)
	events := make(chan nft.TraceEvent)
	packets := cfg.Packets
	packets.Started, packets.Lost = cfg.Started, cfg.Lost
	packets.Each = func(e nft.TraceEvent) {
		select {
		case events <- e:
		case <-running.Done():
		}
	}
	group.Go(func() error { return nft.Trace(running, packets) })
	group.Go(func() error {
		defer end()
		var err error
		n, err = cfg.show(running, events, show)
		return err
	})
	err = group.Wait()
	return n, err
}

// show shows the Paths of events.
func (c *Config) show(ctx context.Context, events <-chan nft.TraceEvent, show func(*Path) error) (n int, err error) {
	a := NewAssembler(c.Table, c.Names)
	ticker := time.NewTicker(silence / 4)
	defer ticker.Stop()
	for {
		var done []*Path
		select {
		case <-ctx.Done():
			return n, nil
		case e := <-events:
			if p := a.Add(e, time.Now()); p != nil {
				done = append(done, p)
			}
		case now := <-ticker.C:
			done = a.Expire(now)
		}
		for _, p := range done {
			if err := show(p); err != nil {
				return n, err
			}
			if n++; n == c.Count {
				return n, nil
			}
		}
	}
}
