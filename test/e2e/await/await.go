// Package await waits, in tests, for what must come.
package await

import (
	"testing"
	"time"
)

const (
	// Patience is how long a test waits for what must come. It is long because it
	// costs nothing when all is well, and machines are crowded.
	Patience = time.Minute
	// Answer is how long a server may take on a machine that has other work.
	Answer = 10 * time.Second
)

// NoError tries until there is no error, and fails the test with the last one when
// Patience is at its end.
func NoError(t testing.TB, try func() error) {
	t.Helper()
	if err := Within(Patience, try); err != nil {
		t.Fatalf("not within %s: %v", Patience, err)
	}
}

// Within tries until there is no error, and gives the last one when time is up.
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
