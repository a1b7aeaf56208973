package announce

import (
	"testing"
	"time"

	"portolan.dev/portolan/internal/network/announce/frame"
)

// TestLimits: a source has its burst and its rate, and others have theirs; a flood is read slowly.
func TestLimits(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := newLimiter()
	count := func(source frame.MAC) (n int) {
		for range 10_000 {
			if l.allow(now, source) {
				n++
			}
		}
		return n
	}
	one, other := frame.MAC{2, 1}, frame.MAC{2, 2}
	for n := byte(3); l.bucketOf(one) == l.bucketOf(other); n++ {
		other[1] = n
	}
	if got := count(one); got != perSourceBurst {
		t.Errorf("a new source has %d answers at once, want %d", got, perSourceBurst)
	}
	if got := count(other); got != perSourceBurst {
		t.Errorf("another one has %d answers at once, want %d", got, perSourceBurst)
	}
	now = now.Add(time.Second)
	if got := count(one); got != perSource {
		t.Errorf("a second later %d answers, want %d", got, perSource)
	}
	reads := 0
	for pause := time.Duration(0); pause == 0; reads++ {
		pause = l.read(now)
	}
	if reads != overallBurst+1 {
		t.Errorf("%d frames are read at once, want %d", reads-1, overallBurst)
	}
}
