package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/test/e2e/controlplane"
)

// patience is how long a test waits for what must come. It is long because it
// costs nothing when all is well, and machines are crowded.
const patience = time.Minute

// plane is the control plane that all tests of this package share, one after
// another. Its own Service, which it makes again whenever a scenario has taken it
// away, gets the first address of the range: one that no scenario has.
var plane = sync.OnceValues(func() (*controlplane.ControlPlane, error) {
	c, err := controlplane.Start(context.Background(), controlplane.Options{
		ServiceCIDRs: "10.2.0.0/16,2001:db8::/64",
		Log:          slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err == nil {
		atEnd = append(atEnd, c.Close)
	}
	return c, err
})

// atEnd is what ends and removes what all tests shared.
var atEnd []func() error

// run runs the tests, and gives the exit status.
func run(m *testing.M) int {
	status := m.Run()
	for _, end := range atEnd {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	return status
}

// controlPlane gives the shared control plane.
func controlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	c, err := plane()
	if err != nil {
		skipWithoutPrograms(t, err)
		t.Fatal(err)
	}
	return c
}

// skipWithoutPrograms skips the test when the control plane's programs can't be
// built here, but not in CI.
func skipWithoutPrograms(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, controlplane.ErrBuild) && os.Getenv("CI") == "" {
		t.Skipf("skipped: %v", err)
	}
}

// poll tries until there is no error, and fails with the last one when time is
// up.
func poll(t *testing.T, within time.Duration, try func() error) {
	t.Helper()
	if err := tryWithin(t, within, try); err != nil {
		t.Fatalf("not within %s: %v", within, err)
	}
}

// tryWithin tries until there is no error, and gives the last one when time is
// up.
func tryWithin(t *testing.T, within time.Duration, try func() error) error {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
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
