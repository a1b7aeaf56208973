package daemon

import (
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// LimitMemory sets the runtime's memory limit to nine tenths of the control
// group's, unless GOMEMLIMIT is set. Limits of a process depend on it (package budget), so
// it is called before anything is made.
func LimitMemory(log *slog.Logger) {
	_, err := memlimit.Set()
	if err != nil && !errors.Is(err, memlimit.ErrCgroupsNotSupported) && !errors.Is(err, memlimit.ErrNoCgroup) {
		log.Warn("the memory limit of the control group is not known", "err", err)
	}
}

// largeHeap is the size of the live heap, in octets, from which the garbage collector
// runs half as often, with GOGC set to largeHeapGC. Each collection delays answers and
// changes, and takes longer with a larger heap. The values were chosen by the 99th
// percentile of the time until changes show, with 100,000 Pods and with 10,500
// Services.
const (
	largeHeap   = 8 << 20
	largeHeapGC = 200
)

// SettleMemory returns the memory that only loading needed to the system, which the
// runtime would do over minutes. If the heap is large and GOGC is not set, it also
// makes collections rarer.
func SettleMemory() {
	debug.FreeOSMemory()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Uint64() >= largeHeap && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(largeHeapGC)
	}
}
