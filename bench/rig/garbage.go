package rig

import (
	"runtime"
	"runtime/debug"
)

// KeepGarbage collects this process' garbage, and then none, up to a few GiB,
// until collect is called: collections would take processors from those who are
// measured.
func KeepGarbage() (collect func()) {
	const most = 4 << 30
	runtime.GC()
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(most)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}
