package daemon

import (
	"os"
	"runtime"
)

// leaveRoom has the runtime run two goroutines at once where there is one
// processor, unless GOMAXPROCS says otherwise. A goroutine that reads or compiles
// changes gives way to one that answers after 10 ms, or when it waits; the
// system's scheduler lets a thread that was woken go first.
func leaveRoom() {
	if runtime.GOMAXPROCS(0) == 1 && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2)
	}
}
