package daemon

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime"
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

// groupShare is the share of the control group's memory limit that is the runtime's, by LimitMemory.
const groupShare = 0.9

// LeaveToKernel lowers the runtime's memory limit from nine tenths of the control group's to a share of that, for a
// process that has the kernel hold much: that counts in the control group, too.
func LeaveToKernel(share float64) {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(math.Round(float64(limit) * share / groupShare)))
	}
}

// largeHeap is the size of the live heap, in octets, from which a process has a value of GOGC
// of its own.
const largeHeap = 8 << 20

// Garbage is how much garbage there may be until it is collected, in percent of the live heap:
// GOGC of package runtime.
type Garbage int

// The settings for large heaps.
const (
	// RareGC is for what must answer at once. Each collection delays answers and changes, and
	// takes longer with a larger heap. The value was chosen by the 99th percentile of the time
	// until changes show, with 100,000 Pods and with 10,500 Services.
	RareGC Garbage = 200
	// FrequentGC is for what each node runs and nobody waits for.
	FrequentGC Garbage = 25
)

// UseOneProcessor leaves Go code to one processor at a time, unless GOMAXPROCS is set. It is for
// what has loaded and changes little at a time: work that others wait for is woken, handed over
// and looked for on the other processors, which costs a process with 100 small changes in a
// second more than the changes do.
func UseOneProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// SettleMemory returns the memory that only loading needed to the system, which the
// runtime would do over minutes. If the heap is large and GOGC is not set, it also sets that.
func SettleMemory(most Garbage) {
	debug.FreeOSMemory()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Uint64() >= largeHeap && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(int(most))
	}
}
