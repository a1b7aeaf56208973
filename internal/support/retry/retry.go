// Package retry spaces what is done again: attempts that failed, and repairs of what other programs
// change.
package retry

import (
	"context"
	"time"
)

const (
	// FirstPause is the shortest pause between attempts that fail, and between repairs.
	FirstPause = time.Second
	// LongestPause is the longest one.
	LongestPause = 30 * time.Second
	// Gather is the pause before the first repair: a change is several messages.
	Gather = 5 * time.Millisecond
	// Calm is for how long nobody changes anything until the next repair is done at once again.
	Calm = 2 * LongestPause
)

// Backoff is the pause before the last attempt. Pauses double. The zero Backoff has had no attempt.
type Backoff struct{ pause time.Duration }

// Next returns the pause before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.pause = min(max(2*b.pause, FirstPause), LongestPause)
	return b.pause
}

// Until calls try until it succeeds, or ctx is done, whose error it returns then. It calls failed with the error of
// each attempt that fails.
func Until(ctx context.Context, try func() error, failed func(error)) error {
	for pause := (Backoff{}); ; {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			failed(err)
		}
		timer := time.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// Repairs spaces repairs: a program that changes something again and again is not to keep a processor
// busy.
type Repairs struct {
	Backoff
	last time.Time // when the last one was due
}

// Next returns the pause before the next repair, and how many there were without calm before it:
// none, one, or more.
func (r *Repairs) Next(now time.Time) (pause time.Duration, before int) {
	switch {
	case r.last.IsZero() || now.Sub(r.last) > Calm:
		r.Backoff, pause = Backoff{}, Gather
	default:
		before = 1
		if r.pause > 0 {
			before = 2
		}
		pause = r.Backoff.Next()
	}
	r.last = now.Add(pause)
	return pause, before
}
