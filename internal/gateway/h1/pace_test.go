package h1

import (
	"math"
	"testing"
	"time"
)

// TestWithin checks times for bodies of any size.
func TestWithin(t *testing.T) {
	t.Parallel()
	l := &Limits{Rate: 240, Grace: 20 * time.Second}
	for octets, want := range map[int64]time.Duration{
		0: 20 * time.Second, 240: 21 * time.Second, 24_000_000_000: 20*time.Second + 100_000_000*time.Second,
		math.MaxInt64: 20*time.Second + 100*365*24*time.Hour,
	} {
		if got := l.within(octets); got != want {
			t.Errorf("%d octets: %s, want %s", octets, got, want)
		}
	}
}
