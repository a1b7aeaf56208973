package daemon

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// percent and limit are the settings of the garbage collector before a test.
const percent, limit = 70, 1 << 40

// setGC sets them until the test ends, with GOGC empty.
func setGC(t *testing.T) {
	t.Helper()
	t.Setenv("GOGC", "")
	oldPercent, oldLimit := debug.SetGCPercent(percent), debug.SetMemoryLimit(limit)
	t.Cleanup(func() {
		debug.SetGCPercent(oldPercent)
		debug.SetMemoryLimit(oldLimit)
	})
}

// TestSettleMemory checks that a large live heap is collected as often as is asked for.
func TestSettleMemory(t *testing.T) {
	setGC(t)
	SettleMemory(RareGC)
	wantGC(t, "with a small heap", percent, limit)
	lives := make([]byte, largeHeap)
	t.Setenv("GOGC", "50")
	SettleMemory(RareGC)
	wantGC(t, "with a large heap, and GOGC", percent, limit)
	t.Setenv("GOGC", "")
	SettleMemory(RareGC)
	wantGC(t, "with a large heap", int(RareGC), limit)
	SettleMemory(FrequentGC)
	wantGC(t, "with a large heap on a node", int(FrequentGC), limit)
	runtime.KeepAlive(lives)
}

// wantGC checks the settings after a collection.
func wantGC(t *testing.T, when string, percent int, limit int64) {
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

// TestLeaveToKernel checks that only a limit that follows from the control group's is lowered.
func TestLeaveToKernel(t *testing.T) {
	setGC(t)
	t.Setenv("GOMEMLIMIT", "1TiB")
	LeaveToKernel(0.75)
	wantGC(t, "with GOMEMLIMIT", percent, limit)
	t.Setenv("GOMEMLIMIT", "")
	debug.SetMemoryLimit(90 << 20)
	LeaveToKernel(0.75)
	wantGC(t, "of a control group of 100 MiB", percent, 75<<20)
	debug.SetMemoryLimit(math.MaxInt64)
	LeaveToKernel(0.75)
	wantGC(t, "without a limit", percent, math.MaxInt64)
}
