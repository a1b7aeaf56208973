package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
)

// firstGC is how much memory is taken before anything is collected, in octets.
// While a cluster is loaded nearly all of it lives: to collect 4 MiB, then 6,
// and so on takes a tenth of the time of a start and finds little. After that
// it is as ever. GOMEMLIMIT holds, if it is less.
const firstGC = 24 << 20

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

// freeLoadMemory gives back what loading took and nothing needs any more. The
// runtime would do it too, over minutes.
func freeLoadMemory() { debug.FreeOSMemory() }
