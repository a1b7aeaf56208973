package daemon

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much garbage may pile up, in per cent of what lives. What
// lives is the cluster and changes little, and answers make no garbage: memory
// is dearer here than the time to collect it, which is spent while loading and
// in storms. GOGC overrides it; GOMEMLIMIT holds as ever.
const gcPercent = 50

func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// freeLoadMemory gives back what loading took and nothing needs any more. The
// runtime would do it too, over minutes.
func freeLoadMemory() { debug.FreeOSMemory() }
