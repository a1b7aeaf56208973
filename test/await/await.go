// Package await waits for conditions in tests.
package await

import (
	"testing"
	"time"
)

const (
	// Patience is how long a test waits for a condition. It is long because a test
	// that passes does not wait for it, and machines are loaded.
	Patience = time.Minute
	// Answer is how long a server may take to answer on a loaded machine.
	Answer = 10 * time.Second
)

// NoError calls try until it returns nil. After Patience it fails the test with the
// last error.
func NoError(tb testing.TB, try func() error) {
	tb.Helper()
	if err := Within(Patience, try); err != nil {
		tb.Fatalf("not within %s: %v", Patience, err)
	}
}

// Within calls try every 10 ms until it returns nil. After the given time it returns
// the last error.
func Within(within time.Duration, try func() error) error {
	const pause = 10 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	deadline := time.After(within)
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}
