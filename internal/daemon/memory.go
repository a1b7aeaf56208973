package daemon

import (
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory sets the runtime's memory limit to nine tenths of the control
// group's, unless GOMEMLIMIT is set.
func limitMemory(log *slog.Logger) {
	_, err := memlimit.Set()
	if err != nil && !errors.Is(err, memlimit.ErrCgroupsNotSupported) && !errors.Is(err, memlimit.ErrNoCgroup) {
		log.Warn("the memory limit of the control group is not known", "err", err)
	}
}

// largeHeap is the size of the live heap, in octets, from which the garbage
// collector runs half as often, with largeHeapGC for GOGC: each collection takes
// time from answers and from changes, the more the more lives. It was measured in
// how long one change of a hundred took to show, with 100,000 Pods, and with 10,500
// Services as well.
const (
	largeHeap   = 8 << 20
	largeHeapGC = 200
)

// SettleMemory gives back to the system what loading took and nothing needs any
// more, which the runtime would do over minutes, and makes collections rarer where
// the heap is large, unless GOGC is set.
func SettleMemory() {
	debug.FreeOSMemory()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Uint64() >= largeHeap && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(largeHeapGC)
	}
}
