package daemon

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// TestTuneGC: memory is limited until something is collected, and the limit is
// the one from before then, be it that the cluster is loaded before or after.
func TestTuneGC(t *testing.T) {
	const limit = 1 << 40
	for name, test := range map[string]struct {
		small bool // the cluster is there before anything was collected
	}{"small": {true}, "large": {false}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", "")
			percent, before := debug.SetGCPercent(99), debug.SetMemoryLimit(limit)
			defer func() {
				debug.SetGCPercent(percent)
				debug.SetMemoryLimit(before)
			}()
			loaded := tuneGC()
			want(t, "while loading", -1, firstGC)
			if !test.small {
				runtime.GC()
				want(t, "after the first collection", loadGC, limit)
			}
			loaded()
			want(t, "when loaded", steadyGC, limit)
		})
	}
}

// want waits for settings, which follow a collection.
func want(t *testing.T, when string, percent int, limit int64) {
	t.Helper()
	got := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	for range 1000 {
		metrics.Read(got)
		if got[0].Value.Uint64() == uint64(percent) && got[1].Value.Uint64() == uint64(limit) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%s: GC percent %d, memory limit %d, want %d, %d", when, int(got[0].Value.Uint64()), got[1].Value.Uint64(), percent, limit)
}
