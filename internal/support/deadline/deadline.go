// Package deadline limits the wait for a function that may block forever, such as a read
// from a named pipe or from a file system whose server is unreachable. The kernel cannot
// interrupt such a call: the function continues in its own goroutine, and the caller
// proceeds.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The usual bounds.
const (
	// File is for a file that a process reads at its start or in the background.
	File = 3 * time.Second
	// Prompt is for a file that is read again while a client waits. A read that takes
	// longer goes on, and its result is there at the next one.
	Prompt = 200 * time.Millisecond
)

// ErrExceeded means that a function did not return in time.
var ErrExceeded = errors.New("no answer in time")

// Call runs a function and limits the wait for it. At most one call of the function is in
// progress: if an earlier one has not returned, Do waits for it instead of starting
// another. The zero Call is ready for use.
type Call[T any] struct {
	mu      sync.Mutex
	running *run[T]
}

type run[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Do returns the result of f, or of an earlier call that is still in progress. After the
// given time it returns an error that wraps ErrExceeded and says what was being done, such
// as "read FILE". It returns the error of ctx when ctx is done.
func (c *Call[T]) Do(ctx context.Context, within time.Duration, doing string, f func() (T, error)) (T, error) {
	r := c.start(f)
	timer := time.NewTimer(within)
	defer timer.Stop()
	var zero T
	select {
	case <-r.done:
		return r.value, r.err
	case <-timer.C:
		return zero, fmt.Errorf("%s: %w (%s)", doing, ErrExceeded, within)
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// start returns the call in progress, or starts one.
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

// Until runs f and returns its error. Once ctx is done it waits for f for at most grace
// more, and returns the error of ctx after that.
func Until(ctx context.Context, grace time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return ctx.Err()
	}
}
