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
	return lock(ctx, f, wait)
}

// networkNamespace is the file of the process's network namespace (network_namespaces(7)).
const networkNamespace = "/proc/self/ns/net"

// AcquireNetwork is Acquire with the lock of the process's network namespace, in which a node's agents are, whatever
// files each of them sees: the file is that of the namespace itself. Whoever is in the namespace can lock it, without
// privileges.
func AcquireNetwork(ctx context.Context, wait func()) (*os.File, error) {
	f, err := os.Open(networkNamespace)
	if err != nil {
		return nil, err
	}
	return lock(ctx, f, wait)
}

// lock waits until no other process has the lock of an open file. It closes the file unless it returns it.
func lock(ctx context.Context, f *os.File, wait func()) (*os.File, error) {
	for first := true; ; first = false {
		switch locked, err := tryLock(f); {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
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
