package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// How much garbage may pile up, in per cent of what lives. GOGC overrides both;
// GOMEMLIMIT holds as ever.
const (
	// While a cluster is loaded memory is at its highest, and it is dearer than
	// the time to collect it.
	loadGC = 50
	// Once it is there little changes and answers make no garbage: it is
	// collected seldom, since whoever asks meanwhile waits longer.
	steadyGC = 100
)

// firstGC is how much memory is taken before anything is collected, in octets.
// While a cluster is loaded nearly all of it lives: to collect 2 MiB, then 3,
// and so on takes a tenth of the time of a start and finds little.
const firstGC = 24 << 20

// tuneGC sets this up. What it gives is to be called when the cluster is there:
// it gives back what loading took and nothing needs any more, as the runtime
// would do over minutes.
func tuneGC() (loaded func()) {
	if os.Getenv("GOGC") != "" {
		return debug.FreeOSMemory
	}
	limit := debug.SetMemoryLimit(-1) // asks
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(min(firstGC, limit))
	var percent atomic.Int64
	percent.Store(loadGC)
	// This is the first garbage that is found.
	garbage := new([64]*byte)
	runtime.AddCleanup(garbage, func(limit int64) {
		debug.SetGCPercent(int(percent.Load()))
		debug.SetMemoryLimit(limit)
	}, limit)
	return func() {
		percent.Store(steadyGC)
		debug.FreeOSMemory()
		debug.SetGCPercent(steadyGC)
	}
}
