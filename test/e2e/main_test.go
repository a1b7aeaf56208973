package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
)

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
		controlplanetest.Fail(t, err)
	}
	return c
}
