package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
)

// gcPercent is how much garbage may pile up, in per cent of what lives. What
// lives is the cluster and changes little, and answers make no garbage: memory
// is dearer here than the time to collect it, which is spent while loading and
// in storms. GOGC overrides it; GOMEMLIMIT holds as ever.
const gcPercent = 50

// firstGC is how much memory is taken before anything is collected, in octets.
// While a cluster is loaded nearly all of it lives: to collect 2 MiB, then 3,
// and so on takes a tenth of the time of a start and finds little.
const firstGC = 24 << 20

func tuneGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	limit := debug.SetMemoryLimit(-1) // asks
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(min(firstGC, limit))
	// This is the first garbage that is found.
	garbage := new([64]*byte)
	runtime.AddCleanup(garbage, func(limit int64) {
		debug.SetGCPercent(gcPercent)
		debug.SetMemoryLimit(limit)
	}, limit)
}

// freeLoadMemory gives back what loading took and nothing needs any more. The
// runtime would do it too, over minutes.
func freeLoadMemory() { debug.FreeOSMemory() }
