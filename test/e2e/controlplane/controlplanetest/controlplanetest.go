// Package controlplanetest starts control planes for tests.
package controlplanetest

import (
	"errors"
	"log/slog"
	"os"
	"testing"

	"portolan.dev/portolan/test/e2e/controlplane"
)

// Start starts a control plane that ends with the test. It logs builds to standard
// error.
func Start(t *testing.T, options controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	options.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := controlplane.Start(t.Context(), options)
	if err != nil {
		Fail(t, err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Fail ends the test because a control plane did not start. Outside CI it skips the
// test if the programs can't be built.
func Fail(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, controlplane.ErrBuild) && os.Getenv("CI") == "" {
		t.Skipf("skipped: %v", err)
	}
	t.Fatal(err)
}
