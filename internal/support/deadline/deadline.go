// Package deadline bounds the wait for a function that may block for ever, such
// as a read from a named pipe or from a file system whose server is gone. The
// kernel gives no way to end such a call: the function is left behind in a
// goroutine of its own, and its caller goes on.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ErrExceeded says that a function did not return in time.
var ErrExceeded = errors.New("no answer in time")

// Call runs a function with a bound on the wait. At most one run is under way:
// while a function that was left behind has not returned, Do waits for that one
// and starts no other. The zero Call is ready for use.
type Call[T any] struct {
	mu      sync.Mutex
	running *run[T]
}

type run[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Do returns the result of f, or of the run that is still under way. It returns
// ErrExceeded after the given time, and the error of ctx when that is done.
func (c *Call[T]) Do(ctx context.Context, within time.Duration, f func() (T, error)) (T, error) {
	r := c.start(f)
	timer := time.NewTimer(within)
	defer timer.Stop()
	var zero T
	select {
	case <-r.done:
		return r.value, r.err
	case <-timer.C:
		return zero, fmt.Errorf("%w (%s)", ErrExceeded, within)
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// start returns the run that is under way, or starts one.
func (c *Call[T]) start(f func() (T, error)) *run[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return c.running
	}
	r := &run[T]{done: make(chan struct{})}
	c.running = r
	go func() {
		r.value, r.err = f()
		c.mu.Lock()
		c.running = nil
		c.mu.Unlock()
		close(r.done)
	}()
	return r
}

// ReadFile is os.ReadFile that fails when the file is not read within that time.
func ReadFile(path string, within time.Duration) ([]byte, error) {
	data, err := new(Call[[]byte]).Do(context.Background(), within, func() ([]byte, error) { return os.ReadFile(path) })
	if errors.Is(err, ErrExceeded) {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return data, err
}
