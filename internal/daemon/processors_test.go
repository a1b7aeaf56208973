package daemon

import (
	"runtime"
	"testing"
)

func TestLeaveRoom(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, tt := range []struct {
		processors int
		set        string // GOMAXPROCS
		want       int
	}{
		{1, "", 2},
		{1, "1", 1},
		{2, "", 2},
		{5, "", 5},
	} {
		t.Setenv("GOMAXPROCS", tt.set)
		runtime.GOMAXPROCS(tt.processors)
		leaveRoom()
		if got := runtime.GOMAXPROCS(0); got != tt.want {
			t.Errorf("%d processors, GOMAXPROCS=%q: %d goroutines at once, want %d", tt.processors, tt.set, got, tt.want)
		}
	}
}
