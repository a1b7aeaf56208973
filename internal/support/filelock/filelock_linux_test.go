package filelock

import (
	"context"
	"path/filepath"
	"testing"

	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestAcquireNetwork: one at a time has the lock of a network namespace.
func TestAcquireNetwork(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	first, err := AcquireNetwork(t.Context(), func() { t.Error("the first waits, although it is alone in its namespace") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if f, err := AcquireNetwork(ctx, cancel); f != nil || err != nil {
		t.Errorf("AcquireNetwork until ctx is done: %v, %v, want nil", f, err)
	}
	waits := 0
	second, err := AcquireNetwork(t.Context(), func() { waits++; first.Close() })
	if err != nil || waits != 1 {
		t.Fatalf("AcquireNetwork after the first: %v, waited %d times, want once", err, waits)
	}
	second.Close()
}

// TestAcquire: the second gets the lock when the first lets it go, and nothing if it does not wait until then.
func TestAcquire(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run", "lock")
	first, err := Acquire(t.Context(), path, func() { t.Error("the first waits") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if f, err := Acquire(ctx, path, cancel); f != nil || err != nil {
		t.Errorf("Acquire until ctx is done: %v, %v, want nil", f, err)
	}
	waits := 0
	second, err := Acquire(t.Context(), path, func() { waits++; first.Close() })
	if err != nil || waits != 1 {
		t.Fatalf("Acquire after the first: %v, waited %d times, want once", err, waits)
	}
	second.Close()
}
