package deadline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/support/deadline"
)

// TestDo checks that a function that blocks is started once, and that Do returns after
// the given time.
func TestDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c deadline.Call[int]
		blocked, started := make(chan struct{}), 0
		f := func() (int, error) {
			started++
			<-blocked
			return 7, nil
		}
		for range 3 {
			begin := time.Now()
			_, err := c.Do(t.Context(), time.Second, "wait", f)
			if took := time.Since(begin); !errors.Is(err, deadline.ErrExceeded) || err.Error() != "wait: no answer in time (1s)" || took != time.Second {
				t.Errorf("Do of a function that blocks: %v after %s, want %v after 1s", err, took, deadline.ErrExceeded)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := c.Do(ended, time.Second, "wait", f); !errors.Is(err, context.Canceled) {
			t.Errorf("Do with a context that is done: %v", err)
		}
		close(blocked)
		if v, err := c.Do(t.Context(), time.Second, "wait", f); v != 7 || err != nil || started != 1 {
			t.Errorf("Do of a function that returns: %d, %v, started %d times; want 7, once", v, err, started)
		}
		synctest.Wait()
		if v, err := c.Do(t.Context(), time.Second, "wait", func() (int, error) { return 8, nil }); v != 8 || err != nil {
			t.Errorf("Do of another function: %d, %v, want 8", v, err)
		}
	})
}

// TestUntil: a function that blocks holds its caller up for grace after ctx is done.
func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		failed := errors.New("failed")
		if err := deadline.Until(ctx, time.Second, func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("Until of a function that fails: %v, want %v", err, failed)
		}
		slow := func() error { <-ctx.Done(); time.Sleep(time.Second / 2); return failed }
		if err := deadline.Until(ctx, time.Second, slow); !errors.Is(err, failed) {
			t.Errorf("Until of a function that ends within grace: %v, want %v", err, failed)
		}
		blocked := make(chan struct{})
		began := time.Now()
		err := deadline.Until(ctx, time.Second, func() error { <-blocked; return nil })
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("Until of a function that blocks: %v after %s, want %v after 1s", err, took, context.DeadlineExceeded)
		}
		close(blocked)
	})
}
