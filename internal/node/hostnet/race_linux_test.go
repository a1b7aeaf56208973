package hostnet_test

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"portolan.dev/portolan/internal/node/hostnet"
)

// TestLookDuringHandOver checks that an agent that checks its table while the next one
// replaces it leaves the table to the next one: it must not take a state of which it read
// one half before and the other after for damage.
func TestLookDuringHandOver(t *testing.T) {
	if n := onNode(t); n == nil {
		return
	}
	cfg := hostnet.Config{Addresses: everything, Port: port, Prefix: "portolan", Log: slog.New(slog.DiscardHandler)}.Lasting(holder(t))
	start := func() *hostnet.Net {
		n, err := hostnet.Install(cfg)
		must(t, err)
		return n
	}
	from := start()
	must(t, from.Divert())
	for i := range 100 {
		to := start()
		var stop atomic.Bool
		var looks sync.WaitGroup
		for range 2 {
			looks.Go(func() {
				for !stop.Load() {
					from.Look()
				}
			})
		}
		must(t, to.Divert())
		from.Look()
		stop.Store(true)
		looks.Wait()
		to.Look()
		if a, b := from.Repairs(), to.Repairs(); a+b > 0 {
			t.Fatalf("hand-over %d: the old agent repaired %d times, the new one %d; want 0", i, a, b)
		}
		must(t, from.Close())
		from = to
	}
	must(t, from.Close())
}
