package rig

import (
	"runtime"
	"runtime/debug"
)

// KeepGarbage runs the garbage collector of this process and then turns it off, up to a
// few GiB of memory, until collect is called. Collections would take processor time
// from the measured programs.
func KeepGarbage() (collect func()) {
	const most = 4 << 30
	runtime.GC()
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(most)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}
