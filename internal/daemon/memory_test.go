package daemon

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestTuneGC: after the first collection the limits are the usual ones.
func TestTuneGC(t *testing.T) {
	const limit = 1 << 40
	t.Setenv("GOGC", "")
	percent, before := debug.SetGCPercent(100), debug.SetMemoryLimit(limit)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(before)
	}()
	tuneGC()
	if got := debug.SetMemoryLimit(-1); got != firstGC {
		t.Errorf("while loading: memory limit %d, want %d", got, firstGC)
	}
	runtime.GC()
	for range 1000 {
		if debug.SetMemoryLimit(-1) == limit {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100); got != limit || percent != gcPercent {
		t.Errorf("after a collection: memory limit %d, GC percent %d, want %d, %d", got, percent, limit, gcPercent)
	}
}
