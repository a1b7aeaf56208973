package daemon

import (
	"errors"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory has garbage collected the harder, the nearer memory comes to nine
// tenths of what the control group may take, unless GOMEMLIMIT says otherwise.
func limitMemory(log *slog.Logger) {
	_, err := memlimit.Set()
	if err != nil && !errors.Is(err, memlimit.ErrCgroupsNotSupported) && !errors.Is(err, memlimit.ErrNoCgroup) {
		log.Warn("memory limit of the control group is not known", "err", err)
	}
}

// firstGC is how much memory is taken before anything is collected, in octets.
// While a cluster is loaded nearly all of it lives: to collect 4 MiB, then 6,
// and so on takes a tenth of the time of a start and finds little. After that
// it is as ever. GOMEMLIMIT holds, if it is less.
const firstGC = 30 << 20

// delayGC puts the first collection off, unless GOGC says when it is to be.
func delayGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := debug.SetGCPercent(-1)
	if percent < 0 {
		return // it is put off already
	}
	limit := debug.SetMemoryLimit(-1) // asks
	debug.SetMemoryLimit(min(firstGC, limit))
	// This is the first garbage that is found.
	garbage := new([64]*byte)
	runtime.AddCleanup(garbage, func(limit int64) {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}, limit)
}

// largeHeap is from how many octets that live on collections come half as often,
// with largeHeapGC for GOGC: each takes its time from answers and from changes,
// the more the more lives. That was seen in how long one change of a hundred took
// to show, with 100,000 Pods, and with 10,500 Services as well.
const (
	largeHeap   = 8 << 20
	largeHeapGC = 200
)

// settleMemory gives back what loading took and nothing needs any more, which
// for the heap the runtime would do too, over minutes, and makes collections rarer
// where there is much to look at, unless GOGC says how often they are to come.
func settleMemory() {
	debug.FreeOSMemory()
	dropImage()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Uint64() >= largeHeap && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(largeHeapGC)
	}
}
