package parallel_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"portolan.dev/portolan/internal/support/parallel"
)

// TestEachBy: each number's turn comes once, no worker does two things at a time,
// and all is done in the end.
func TestEachBy(t *testing.T) {
	for _, workers := range []int{1, 2, 7} {
		for _, n := range []int{0, 1, 2, 100} {
			t.Run(fmt.Sprintf("workers=%d/n=%d", workers, n), func(t *testing.T) {
				done := make([]int, n)
				busy := make([]atomic.Bool, workers)
				parallel.EachBy(workers, n, func(worker, i int) {
					if busy[worker].Swap(true) {
						t.Error("a worker does two things at a time")
					}
					done[i]++
					busy[worker].Store(false)
				})
				if slices.ContainsFunc(done, func(times int) bool { return times != 1 }) {
					t.Errorf("done %v times", done)
				}
			})
		}
	}
}
