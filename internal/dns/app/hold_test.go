package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestAwaitZones checks how long queries wait when the process starts.
func TestAwaitZones(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	tests := map[string]struct {
		compiled, stopped, want time.Duration
	}{
		"until the zones are compiled": {300 * time.Millisecond, never, 300 * time.Millisecond},
		"a second at most":             {2 * time.Second, never, time.Second},
		"not after the order to stop":  {never, 100 * time.Millisecond, 100 * time.Millisecond},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &DNS{compiled: make(chan struct{})}
				signal := time.AfterFunc(test.compiled, func() { close(d.compiled) })
				defer signal.Stop()
				ctx, stop := context.WithTimeout(t.Context(), test.stopped)
				defer stop()
				start := time.Now()
				d.awaitZones(ctx)
				if got := time.Since(start); got != test.want {
					t.Errorf("awaitZones() with zones after %s, order to stop after %s: waited %s, want %s",
						test.compiled, test.stopped, got, test.want)
				}
			})
		})
	}
}
