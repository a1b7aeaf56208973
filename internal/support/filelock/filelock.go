// Package filelock has one process at a time do something. Others wait for their turn: the lock of a process goes with
// it (flock(2)).
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// interval is the interval between attempts to get a lock.
const interval = 20 * time.Millisecond

// Acquire waits until no other process has the lock of a file, which it makes if there is none, and returns the file,
// whose Close releases the lock; nil if ctx is done before. It calls wait once if it has to wait. Its errors name the
// file.
func Acquire(ctx context.Context, path string, wait func()) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		switch locked, err := tryLock(f); {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		case locked:
			return f, nil
		}
		if first {
			wait()
		}
		select {
		case <-ctx.Done():
			return nil, f.Close()
		case <-time.After(interval):
		}
	}
}
