package await_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/test/await"
)

// TestWithin: it ends with what is right, or with what was wrong last when time is
// up.
func TestWithin(t *testing.T) {
	first, last := errors.New("first"), errors.New("last")
	for claim, tt := range map[string]struct {
		rightAfter time.Duration
		want       error
		took       time.Duration
	}{
		"right at once":    {0, nil, 0},
		"right in time":    {500 * time.Millisecond, nil, 500 * time.Millisecond},
		"right after time": {time.Minute, last, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := await.Within(time.Second, func() error {
				switch took := time.Since(began); {
				case took >= tt.rightAfter:
					return nil
				case took == 0:
					return first
				}
				return last
			})
			if took := time.Since(began); !errors.Is(err, tt.want) || took != tt.took {
				t.Errorf("%s: %v after %s, want %v after %s", claim, err, took, tt.want, tt.took)
			}
		})
	}
}
